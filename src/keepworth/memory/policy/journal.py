"""Journal: the engine's file as the record of a memory that learns.

Each of these is one transaction of the file, so that a process that dies leaves all of it or none:

| what happened | what is written |
| --- | --- |
| an episode begins | its row, and a note with its goal |
| a choice | the engine's decision (candidates, what was shown, propensity), and a note with the estimates behind it |
| an action, the reward of a step, a change of policy | a note |
| the final reward | credit to what was shown, the items written, their changes of status, and a note |

Notes are entries of the engine's journal of the kind PARAMETERS, which belong to their episode: rolling it back takes them
along. What follows from somebody's reward has its `on_word_of` as the source, so that the engine's rollback by source takes all
of it back. Items are the engine's own, so that its search, history, export and rollback know them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from keepworth.episodes.decision import DecisionKind
from keepworth.episodes.operation import Operation, OperationKind
from keepworth.memory import operations, undo
from keepworth.memory.decision_log import newest_purge
from keepworth.memory.item import Item, Provenance, Status
from keepworth.memory.journal_entry import PARAMETERS
from keepworth.memory.operations import Assignment, Credit
from keepworth.memory.policy.errors import InvalidPolicy
from keepworth.memory.policy.pool import on_word_of
from keepworth.memory.policy.records import item_problem

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.memory.memory import Memory
    from keepworth.memory.policy.pool import Pool
    from keepworth.memory.policy.slots import Use
    from keepworth.memory.transaction import Transaction

NAME = "experience"
_DECISION = (
    "INSERT INTO decisions(id, at, scope, episode, step, kind, query, candidates, chosen, propensity, policy) "
    "VALUES(?,?,?,?,?,?,?,?,?,?,?)"
)


@dataclass(frozen=True, slots=True)
class Note:
    """what: "episode", "decision", "act", "step", "reward", "promote" or "demote"; body: what it says."""

    what: str
    episode: str
    body: Mapping[str, Any]


class Journal:
    """memory: the engine, opened with the bounds within which this memory writes and the encoder of its keys."""

    def __init__(self, memory: Memory) -> None:
        self.memory, self.store, self.scope = memory, memory.store, memory.scope

    # Writing.

    def begin(self, goal: str, by: str = "") -> str:
        """A new episode, for whom; its id."""
        id = f"e{uuid.uuid4().hex[:16]}"

        def work(transaction: Transaction) -> None:
            now = self.store.clock()
            transaction.connection.execute(
                "INSERT INTO episodes(id, scope, task, began) VALUES(?,?,?,?)",
                (id, transaction.book.row(self.scope).id, goal, now),
            )
            self._note(transaction, now, "episode", id, {"goal": goal, **({"by": by} if by else {})})

        self.store.change(self.scope, work)
        return id

    def decide(self, episode: str, use: Use, pool: Pool, policy: str) -> None:
        """A choice that is about to be shown."""
        ids = [pool.items[row].id for row in use.candidates.rows.tolist()]
        near = use.candidates.similarities.tolist()
        chosen = [ids[place] for place in use.slate]
        propensity, query = use.propensity, use.query
        body = {
            "observation": query.observation,
            "actions": query.actions,
            "time": query.time,
            "of": query.episode,
            "ids": ids,
            "similarities": near,
            "waiting": use.candidates.waiting,
            "means": use.values.means.tolist(),
            "deviations": use.values.deviations.tolist(),
            "slate": use.slate,
            "part": use.part,
            "propensity": propensity,
            "policy": policy,
        }

        def work(transaction: Transaction) -> None:
            now = self.store.clock()
            listed = json.dumps([[id, round(score, 6)] for id, score in zip(ids, near, strict=True)])
            row = (
                f"d{uuid.uuid4().hex[:16]}",
                now,
                transaction.book.row(self.scope).id,
                episode,
                query.step,
                DecisionKind.SEARCH.value,
                query.text[:10_000],
                listed,
                json.dumps(chosen),
                propensity,
                policy,
            )
            transaction.connection.execute(_DECISION, row)
            self._note(transaction, now, "decision", episode, body)

        self.store.change(self.scope, work)

    def note(self, what: str, episode: str = "", **body: Any) -> None:
        self.store.change(
            self.scope, lambda transaction: self._note(transaction, self.store.clock(), what, episode, body)
        )

    def finish(self, episode: str, reward: float, shown: Sequence[Use], pool: Pool, since: int, by: str = "") -> None:
        """The final reward and by whom, with what the pool changed after its history had length `since`. New rows get ids."""
        source = on_word_of(by) if by else ""
        credited = tuple((pool.items[row].id, use.propensity) for use in shown for row in use.rows)

        def work(transaction: Transaction) -> dict[int, str]:
            now = self.store.clock()
            if credited:
                act = Credit(reward, credited, source or "user")
                transaction.perform(act, operations.Draft(scope=self.scope), now=now, episode=episode)
            named, why = self._changes(transaction, pool, since, now, episode, source)
            transaction.connection.execute(
                "UPDATE episodes SET ended = ?, outcome = 'completed' WHERE id = ?", (now, episode)
            )
            body = {"reward": reward, "why": why, **({"by": by} if by else {})}
            self._note(transaction, now, "reward", episode, body, source)
            return named

        self._name(pool, self.store.change(self.scope, work, _vectors(pool, since)))

    def add(self, pool: Pool, since: int) -> None:
        """What the pool took in from outside after its history had length `since`."""

        def work(transaction: Transaction) -> dict[int, str]:
            return self._changes(transaction, pool, since, self.store.clock(), "", "")[0]

        self._name(pool, self.store.change(self.scope, work, _vectors(pool, since)))

    def roll_back(self, source: str, episode: str, since: str) -> undo.Rollback:
        return self.memory.rollback(episode, source=source, since=since)

    # Reading.

    def set_aside(self, ids: Iterable[str]) -> None:
        """Quarantine items that cannot be read, so that the engine's search shows them no more."""

        def work(transaction: Transaction) -> None:
            now = self.store.clock()
            for id in ids:
                act = Assignment(id, {"status": Status.QUARANTINED.value})
                transaction.perform(act, operations.Draft(scope=self.scope), now=now)

        self.store.change(self.scope, work)

    def unreadable(self) -> dict[str, str]:
        """Why, by id, of the items with advice that `items` leaves out."""
        found = {item.id: item_problem(item) for item in self.store.items(self.scope) if "do" in item.metadata}
        return {id: problem for id, problem in found.items() if problem}

    def items(self) -> Iterator[tuple[Item, npt.NDArray[Any]]]:
        """Every item with advice that is on file and can be read, in order of writing, with its vector. Closed ones come as
        archived."""
        listed = [item for item in self.store.items(self.scope) if "do" in item.metadata and not item_problem(item)]
        vectors = self.store.vectors_for(listed)
        for item in listed:
            key = item.metadata.get("key", item.key or item.text)
            vector = vectors[item.id] if key == item.key else None
            if vector is None:
                assert self.store.embedder is not None
                vector = self.store.embedder([key])[0]
            status = item.status if item.open else Status.ARCHIVED
            data = {name: tuple(value) if isinstance(value, list) else value for name, value in item.metadata.items()}
            data.pop("key", None)
            yield replace(item, key=key, status=status, metadata=data), vector

    def notes(self) -> Iterator[Note]:
        """What happened and was not rolled back, in order."""
        with self.store.database.reading() as connection:
            cancelled = undo.active_ranges(undo.rollbacks_in(connection))
        for entry in self.store.entries("kind = ?", (PARAMETERS,)):
            if entry.payload is None or entry.scope != self.scope or undo.within(entry.seq, cancelled):
                continue
            body = json.loads(entry.payload)
            if body.get("name") == NAME:
                yield Note(body["what"], entry.episode, body)

    def newest_purge(self) -> int:
        """Differs from what it was where something was erased in between, through whatever handle."""
        with self.store.database.reading() as connection:
            return newest_purge(connection)

    def _note(
        self, transaction: Transaction, now: str, what: str, episode: str, body: Mapping[str, Any], source: str = ""
    ) -> None:
        payload = json.dumps({"name": NAME, "what": what, **body}, ensure_ascii=False, separators=(",", ":"))
        transaction.write_event(PARAMETERS, self.scope, payload, now=now, episode=episode, source=source)

    def _changes(
        self, transaction: Transaction, pool: Pool, since: int, now: str, episode: str, source: str
    ) -> tuple[dict[int, str], list[tuple[str, str]]]:
        """Bring the file to the pool's state: one operation per row that changed, whatever happened to it in between."""
        named: dict[int, str] = {}
        why: list[tuple[str, str]] = []
        changes = pool.history[since:]
        fresh = {change.row for change in changes if change.what == "add"}
        for row in dict.fromkeys(change.row for change in changes if change.row >= 0):
            item = pool.items[row]
            if row in fresh:
                draft = operations.Draft(
                    kind=item.kind,
                    key=item.key,
                    scope=self.scope,
                    provenance=item.provenance,
                    trust=item.trust,
                    status=item.status,
                    metadata=_plain(pool, row, named),
                    deduplicate=False,
                )
                act = Operation(OperationKind.ADD, text=item.text)
                outcome = transaction.perform(act, draft, now=now, episode=episode)
                if not outcome.applied:
                    raise InvalidPolicy(f"the item {item.text!r:.80} was not stored: {outcome.reason}.", "Reword it.")
                named[row] = outcome.item
            else:
                fields: dict[str, Any] = {"status": item.status.value}
                if any(change.row == row and change.what == "revise" for change in changes):
                    fields["metadata"] = {**_plain(pool, row, named), "key": item.key}
                draft = operations.Draft(scope=self.scope, provenance=Provenance(source))
                transaction.perform(Assignment(item.id, fields), draft, now=now, episode=episode)
            why += [(named.get(row, item.id), change.why) for change in changes if change.row == row and change.why]
        return named, why

    def _name(self, pool: Pool, named: Mapping[int, str]) -> None:
        for row, id in named.items():
            pool.items[row] = replace(pool.items[row], id=id)


def _vectors(pool: Pool, since: int) -> dict[str, bytes]:
    rows = [change.row for change in pool.history[since:] if change.what == "add"]
    return {pool.items[row].key: pool.vectors[row].tobytes() for row in rows}


def _plain(pool: Pool, row: int, named: Mapping[int, str]) -> dict[str, Any]:
    """Metadata for the file. Links are rows in the pool and ids on file; two numbers say when the item was written."""
    data = dict(pool.items[row].metadata)
    if "links" in data:
        data["links"] = [named.get(other, pool.items[other].id) for other in data["links"]]
    return {**data, "born": int(pool.born[row]), "of": int(pool.episode[row])}
