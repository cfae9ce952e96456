"""Gates: which drafts are admitted, and in what state."""

from __future__ import annotations

from dataclasses import dataclass

from recollect.memory.item import Status, text_problem
from recollect.memory.policy.pool import OWN, Draft, Pool


def well_formed(draft: object) -> bool:
    """Whether this can be remembered at all: readable text, a key, and some advice. A writer's own code, or a model behind it,
    may hand in anything."""
    if not isinstance(draft, Draft) or text_problem(draft.text) or text_problem(draft.key):
        return False
    actions = (*draft.do, *draft.avoid)
    return bool(actions) and all(isinstance(action, str) and action.strip() for action in actions)


def admit_all(draft: Draft, pool: Pool) -> Status | None:
    """Everything well formed, at once: what most published methods do. Garbage admits nothing."""
    return Status.ACTIVE if well_formed(draft) else None


def trusted_only(draft: Draft, pool: Pool) -> Status | None:
    """Own experience alone; the rest is kept out of sight. The strictest gate there is."""
    if not well_formed(draft):
        return None
    return Status.ACTIVE if draft.source == OWN else Status.QUARANTINED


@dataclass(frozen=True, slots=True)
class Trust:
    """Own experience enters at once; what comes from outside is a candidate, until probes have shown that it helps.

    most: how many candidates of one source may wait at the same time; more are rejected.
    """

    most: int = 50

    def __call__(self, draft: Draft, pool: Pool) -> Status | None:
        if not well_formed(draft):
            return None
        if draft.source == OWN:
            return Status.ACTIVE
        from recollect.memory.policy.pool import CANDIDATE

        waiting = pool.having(CANDIDATE)
        same = int((pool.source[waiting] == pool.source_of(draft.source)).sum())
        return Status.CANDIDATE if same < self.most else None
