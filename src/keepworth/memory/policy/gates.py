"""Gates: which drafts are admitted, and in what state. What cannot be read again never reaches them (`records`)."""

from __future__ import annotations

from dataclasses import dataclass

from keepworth.memory.item import Status, learned
from keepworth.memory.policy.pool import CANDIDATE, Advice, Pool


def admit_all(draft: Advice, pool: Pool) -> Status | None:
    """Everything, at once: what most published methods do."""
    return Status.ACTIVE


def trusted_only(draft: Advice, pool: Pool) -> Status | None:
    """Own experience alone; the rest is kept out of sight. The strictest gate there is."""
    return Status.ACTIVE if pool.vouches(draft.source) else Status.QUARANTINED


@dataclass(frozen=True, slots=True)
class Trust:
    """What was learned here enters at once, on whosever word. What comes from outside is a candidate, until probes have shown
    that it helps.

    most: how many candidates of one source from outside may wait at the same time; more are rejected.
    """

    most: int = 50

    def __call__(self, draft: Advice, pool: Pool) -> Status | None:
        if learned(draft.source):
            return Status.ACTIVE
        waiting = pool.having(CANDIDATE)
        same = int((pool.source[waiting] == pool.source_of(draft.source)).sum())
        return Status.CANDIDATE if same < self.most else None
