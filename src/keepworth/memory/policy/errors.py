"""What can go wrong when memory learns from reward. Every message names the thing, the place and the mend."""

from __future__ import annotations

import math
from numbers import Integral, Real

from keepworth.episodes.errors import KeepworthError


class InvalidReward(KeepworthError, ValueError):
    """A reward that is not a finite number inside the declared range."""


class UnknownDecision(KeepworthError, KeyError):
    """A reward for a decision that was never made here."""


class ClosedDecision(KeepworthError, ValueError):
    """A second, different reward for a decision that already has its final one."""


class InvalidPolicy(KeepworthError, ValueError):
    """A setting of a selection policy that cannot take effect."""


def need(
    of: str,
    *,
    count: dict[str, int] | None = None,
    positive: dict[str, float] | None = None,
    rate: dict[str, float] | None = None,
) -> None:
    """InvalidPolicy where a count is not a whole number of at least 1, a size not finite and above 0, or a rate not in [0, 1]."""
    for name, value in (count or {}).items():
        if not isinstance(value, Integral) or value < 1:
            raise InvalidPolicy(f"{name} of {of} is {value!r}.", "It must be a whole number, at least 1.")
    for name, size in (positive or {}).items():
        if not (isinstance(size, Real) and math.isfinite(size) and size > 0.0):
            raise InvalidPolicy(f"{name} of {of} is {size!r}.", "It must be finite and above 0.")
    for name, share in (rate or {}).items():
        if not (isinstance(share, Real) and 0.0 <= share <= 1.0):
            raise InvalidPolicy(f"{name} of {of} is {share!r}.", "It must lie in [0, 1].")


class InvalidDraft(KeepworthError, ValueError):
    """A record from outside that could not be read again, or that claims to be memory's own experience."""


class SetAside(UserWarning):
    """What a file holds and memory cannot read: it was set aside, and the rest is there."""


class CannotEvaluate(KeepworthError):
    """The log does not say enough about the new policy.

    reason: "few decisions", "no support" or "low effective sample size"."""

    def __init__(self, reason: str, message: str, mend: str) -> None:
        super().__init__(f"{reason}: {message}", mend)
        self.reason = reason
