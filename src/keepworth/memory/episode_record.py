"""An `Episode` from the journal: what was searched, shown, written and rewarded under one episode id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.episodes.decision import Decision
from keepworth.episodes.episode import Episode, MemoryEvent, Shown, StopReason
from keepworth.episodes.operation import Operation, ParseStatus
from keepworth.episodes.reward import RewardTerm
from keepworth.memory import decision_log
from keepworth.memory.database import first
from keepworth.memory.errors import UnknownEpisode
from keepworth.memory.operations import Credit
from keepworth.memory.scope import Scope

if TYPE_CHECKING:
    from keepworth.memory.store import Store


def assembled(store: Store, scope: Scope, id: str) -> Episode:
    """Rolled-back entries are part of it: they happened. Model calls are not in a memory, so there are no segments."""
    if not isinstance(id, str) or not id.isascii():
        raise UnknownEpisode(f"no episode {id!r:.80} in this memory: ids are text that it gave")
    with store.database.reading() as connection:
        row = first(connection, "SELECT scope, task, began, ended, outcome FROM episodes WHERE id = ?", (id,))
        if row is None or not scope.contains(store.scope_named(connection, row[0])):
            raise UnknownEpisode(
                f"no episode {id!r:.80} in this scope of {store.database.path}: an episode has its `.id`"
            )
        decisions = decision_log.of_episode(connection, id)
        entries = store.entries("episode = ?", (id,))
        shown = _shown(store, scope, decisions)
    rewards, operations = [], []
    for entry in entries:
        decoded = entry.act()
        if decoded is None:
            continue
        act, _ = decoded
        if isinstance(act, Credit):
            rewards.append(RewardTerm(name=act.source or "reward", value=act.value, scorer=act.source))
        elif isinstance(act, Operation):
            outcome = "applied" if entry.applied else f"no-op: {entry.reason}"
            operations.append(MemoryEvent(act, ParseStatus.OK, outcome))
    _, task, _, ended, outcome = row
    return Episode(
        id=id,
        task=task,
        role="",
        question="",
        segments=(),
        answer="",
        expected=(),
        rewards=tuple(rewards),
        stop=StopReason.COMPLETED if ended and outcome in ("", "completed") else StopReason.ABORTED,
        memory_snapshot=f"s{entries[0].seq - 1}" if entries else f"s{store.head()}",
        policy_version=0,
        shown=shown,
        decisions=tuple(decisions),
        operations=tuple(operations),
        errors=(outcome,) if outcome.startswith("stopped by") else (),
    )


def _shown(store: Store, scope: Scope, decisions: list[Decision]) -> tuple[Shown, ...]:
    items = store.fetch(scope, [id for decision in decisions for id in decision.chosen])
    out = []
    for decision in decisions:
        scores = dict(decision.candidates)
        for id in decision.chosen:
            item = items.get(id)
            out.append(Shown(id, scores.get(id, 0.0), item.text if item is not None else "(erased)"))
    return tuple(out)
