"""Episodes of a memory: their rows, and the `Episode` record with what was searched, shown, written and rewarded in one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepworth.episodes.decision import Decision
from keepworth.episodes.episode import Episode, MemoryEvent, Shown, StopReason
from keepworth.episodes.operation import Operation, ParseStatus
from keepworth.episodes.reward import RewardTerm
from keepworth.memory.errors import UnknownEpisode
from keepworth.memory.operations import Credit
from keepworth.memory.scope import Scope
from keepworth.memory.store import decision_log
from keepworth.memory.store.database import first

if TYPE_CHECKING:
    from keepworth.memory.store.store import Store
    from keepworth.memory.store.transaction import Transaction


def begin(store: Store, scope: Scope, id: str, task: str, person: str = "") -> None:
    def work(transaction: Transaction) -> None:
        transaction.connection.execute(
            "INSERT INTO episodes(id, scope, task, began, person) VALUES(?,?,?,?,?)",
            (id, transaction.book.row(scope).id, task, store.clock(), person),
        )

    store.change(scope, work)


def end(store: Store, scope: Scope, id: str, outcome: str) -> None:
    def work(transaction: Transaction) -> None:
        transaction.connection.execute(
            "UPDATE episodes SET ended = ?, outcome = ? WHERE id = ?", (store.clock(), outcome, id)
        )

    store.change(scope, work)


def exists(store: Store, scope: Scope, id: object) -> bool:
    """Whether there is an episode of this id inside `scope`."""
    if not isinstance(id, str) or not id.isascii():
        return False
    with store.database.reading() as connection:
        row = first(connection, "SELECT scope FROM episodes WHERE id = ? AND outcome <> 'erased'", (id,))
        return row is not None and scope.contains(store.scope_named(connection, row[0]))


@dataclass(frozen=True, slots=True)
class Rewarded:
    """What a reward for an episode or a decision is about. decision: "" where it is for the whole episode."""

    scope: Scope
    episode: str
    decision: str
    shown: tuple[Decision, ...]
    person: str = ""


def rewarded(store: Store, scope: Scope, target: str) -> Rewarded:
    """What the episode or the decision of this id showed. Raises UnknownEpisode."""
    unknown = UnknownEpisode(f"no episode or decision {target!r:.80} in this memory: was it logged?")
    if not isinstance(target, str) or not target.isascii():
        raise UnknownEpisode(f"no episode or decision {target!r:.80} in this memory: ids are text that it gave")
    with store.database.reading() as connection:
        row = first(connection, "SELECT scope, person FROM episodes WHERE id = ? AND outcome <> 'erased'", (target,))
        person = ""
        if row is not None:
            (home, person), episode, decision = row, target, ""
            shown = tuple(decision_log.of_episode(connection, target))
        else:
            one = decision_log.find(connection, target)
            if one is None:
                raise unknown
            shown, home, episode, decision = (one[0],), one[2], one[1], target
        found = store.scope_named(connection, home)
    if not scope.contains(found):
        raise unknown
    return Rewarded(found, episode, decision, shown, person)


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
