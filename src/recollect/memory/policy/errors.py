"""What can go wrong when memory learns from reward. Every message names the thing, the place and the mend."""

from __future__ import annotations

from recollect.episodes.errors import RecollectError


class InvalidReward(RecollectError, ValueError):
    """A reward that is not a finite number inside the declared range."""


class UnknownDecision(RecollectError, KeyError):
    """A reward for a decision that was never made here."""


class ClosedDecision(RecollectError, ValueError):
    """A second, different reward for a decision that already has its final one."""


class InvalidPolicy(RecollectError, ValueError):
    """A setting of a selection policy that cannot take effect."""


class DamagedJournal(RecollectError, ValueError):
    """A journal line that is not a record, other than a torn last line."""


class CannotEvaluate(RecollectError):
    """The log does not say enough about the new policy.

    reason: "few decisions", "no support" or "low effective sample size"."""

    def __init__(self, reason: str, message: str, mend: str) -> None:
        super().__init__(f"{reason}: {message}", mend)
        self.reason = reason
