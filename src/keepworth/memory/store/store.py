"""Store: one memory file. The journal, the view made from it, and the caches that make searching fast.

Nothing here knows about users' verbs (see `memory.py`) or agents' overlays (see `bank.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keepworth.episodes.operation import Operation, OperationKind
from keepworth.memory.errors import Purged, ScopeFull, UnknownSnapshot
from keepworth.memory.item import Item, duplicate_key
from keepworth.memory.operations import Act, Draft, Outcome, draft_problem
from keepworth.memory.scope import EVERYWHERE, Scope
from keepworth.memory.search.lexical import CorpusStatistics
from keepworth.memory.store import journal_entry, rows, schema, undo
from keepworth.memory.store.base import StoreBase
from keepworth.memory.store.database import first, scalar, select
from keepworth.memory.store.rows import image
from keepworth.memory.store.transaction import Changed, Transaction, changed_since

if TYPE_CHECKING:
    import apsw
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]


from keepworth.memory.store.store_file import StoreFile

FORESEEN = 16
"""Acts in one transaction from which their duplicates are looked up together."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One line of an item's history: what the journal did to it, and what it was before and after."""

    seq: int
    at: str
    kind: str
    episode: str
    source: str
    before: Item | None
    after: Item | None


@dataclass(frozen=True, slots=True)
class Difference:
    """An item that two snapshots show differently; None where it is not there."""

    id: str
    before: Item | None
    after: Item | None


class Store(StoreFile):
    """The journal and the view made from it, at every moment of the past.

    max_items: how many current items a scope may hold that is written to."""

    max_items: int | None = None

    def perform(
        self,
        scope: Scope,
        acts: Sequence[tuple[Act, Draft]],
        *,
        episode: str = "",
        vectors: Mapping[str, bytes] | None = None,
    ) -> list[Outcome]:
        """Carry out `acts` in order in one durable transaction. vectors: see `encode`; texts without one are found by words."""

        return [outcome for outcome, _ in self.perform_and_read(scope, acts, episode=episode, vectors=vectors)]

    def perform_and_read(
        self,
        scope: Scope,
        acts: Sequence[tuple[Act, Draft]],
        *,
        episode: str = "",
        vectors: Mapping[str, bytes] | None = None,
    ) -> list[tuple[Outcome, Item | None]]:
        """As `perform`, with the item each outcome names, as the transaction leaves it."""

        def work(connection: apsw.Connection) -> list[tuple[Outcome, Item | None]]:
            transaction = self._transaction(connection, scope, vectors)
            time = self.clock()
            if len(acts) >= FORESEEN:
                transaction.foresee(
                    (act.text, draft)
                    for act, draft in acts
                    if isinstance(act, Operation)
                    and act.kind is OperationKind.ADD
                    and draft_problem(act.text, draft) is None
                )
            before = self._count(connection, scope)
            outcomes = [transaction.perform(act, draft, now=time, episode=episode) for act, draft in acts]
            transaction.finish()
            self._check_room(connection, scope, before)
            return [(outcome, transaction.get(outcome.item) if outcome.item else None) for outcome in outcomes]

        return self.database.write(work)

    def change(
        self,
        scope: Scope,
        work: Callable[[Transaction], Any],
        vectors: Mapping[str, bytes] | None = None,
        *,
        bounded: bool = False,
    ) -> Any:
        """Run `work` on a transaction of its own: for undo, purge, import and the like. bounded: hold it to `max_items`."""

        def inside(connection: apsw.Connection) -> Any:
            transaction = self._transaction(connection, scope, vectors)
            before = self._count(connection, scope) if bounded else 0
            result = work(transaction)
            transaction.finish()
            if bounded:
                self._check_room(connection, scope, before)
            return result

        return self.database.write(inside)

    def _count(self, connection: apsw.Connection, scope: Scope) -> int:
        """Current items of a scope, inside a transaction; not looked up where nothing bounds it."""
        if self.max_items is None:
            return 0
        parts = [part for part in ("user", "agent", "session") if getattr(scope, part)]
        where = " AND ".join(f"{part} = ?" for part in ["tenant", *parts])
        values = [getattr(scope, part) for part in ["tenant", *parts]]
        return scalar(connection, f"SELECT sum(count) FROM scopes WHERE {where}", values) or 0

    def _check_room(self, connection: apsw.Connection, scope: Scope, before: int) -> None:
        """Raise ScopeFull where there are more than there may be, and more than there were; then nothing is written."""
        if self.max_items is not None and self._count(connection, scope) > max(self.max_items, before):
            raise ScopeFull(
                f"this scope may hold {self.max_items} items: delete some, or raise max_items; nothing was written"
            )

    def _transaction(
        self, connection: apsw.Connection, scope: Scope, vectors: Mapping[str, bytes] | None
    ) -> Transaction:
        return Transaction(connection, scope, set_id=self._set_id, vectors=vectors)

    def head(self) -> int:
        """The newest entry of the journal; 0 before the first."""
        with self.database.reading() as connection:
            last = scalar(connection, "SELECT max(seq) FROM events")
        return last or 0

    def changed_since(self, seq: int) -> Changed:
        """What entries after number `seq` changed."""
        with self.database.reading() as connection:
            return changed_since(connection, seq)

    def fetch(self, scope: Scope, ids: Sequence[str]) -> dict[str, Item | None]:
        """Items by id, in the order asked for; None for what is not in `scope`, whoever's it is."""
        out: dict[str, Item | None] = dict.fromkeys(ids)
        numbers = [number for number in map(rows.number_of, out) if number is not None]
        if not numbers:
            return out
        with self.database.reading() as connection:
            if len(numbers) == 1:
                found = select(connection, f"{rows.SELECT} WHERE n = ?", numbers)
            else:
                found = select(
                    connection, f"{rows.SELECT} WHERE n IN (SELECT value FROM json_each(?))", (json.dumps(numbers),)
                )
            for row in found:
                home = self.scope_named(connection, row[1])
                if scope.contains(home):
                    out[f"m{row[0]}"] = rows.to_item(row, home)
        return out

    def texts(self, scope: Scope, numbers: Sequence[int]) -> dict[int, str]:
        """The indexed texts of those of `numbers` that lie in `scope`."""
        with self.database.reading() as connection:
            found = select(
                connection,
                "SELECT n, scope, key, text FROM items WHERE n IN (SELECT value FROM json_each(?))",
                (json.dumps(numbers),),
            )
            return {
                n: f"{key}\n{text}" if key else text
                for n, home, key, text in found
                if scope.contains(self.scope_named(connection, home))
            }

    def items(
        self, scope: Scope, *, after: int = 0, limit: int = -1, current: bool = False, closed: bool = False
    ) -> Iterator[Item]:
        """Items in order of writing, those after row `after`: all, the current ones, or those neither current nor deleted."""
        with self.database.reading() as connection:
            inside = self._scope_ids(connection, scope)
            where, values = "n > ?", [after]
            if inside is not None:
                where += " AND scope IN (SELECT value FROM json_each(?))"
                values.append(json.dumps(inside))  # type: ignore[arg-type]
            if current:
                where += " AND content IS NOT NULL AND status = 'active'"
            if closed:
                where += f" AND {schema.CLOSED}"
            found = select(connection, f"{rows.SELECT} WHERE {where} ORDER BY n LIMIT ?", (*values, limit))
            listed = [rows.to_item(row, self.scope_named(connection, row[1])) for row in found]
        return iter(listed)

    def with_content(self, scope: Scope, item: Item) -> list[str]:
        """Ids of open items that are exact duplicates of `item`."""
        key = duplicate_key(item)
        with self.database.reading() as connection:
            numbers = select(connection, "SELECT n FROM items WHERE content = ?", (rows.content_number(item),))
        found = self.fetch(scope, [f"m{n}" for (n,) in numbers])
        return [id for id, other in found.items() if other is not None and other.open and duplicate_key(other) == key]

    def sums(self, scope: Scope) -> tuple[int, int, int]:
        """(content sum, current items, their words) of a scope."""
        with self.database.reading() as connection:
            inside = self._scope_ids(connection, scope)
            if inside is None:
                found = select(connection, "SELECT total, count, words FROM scopes")
            else:
                found = select(
                    connection,
                    "SELECT total, count, words FROM scopes WHERE id IN (SELECT value FROM json_each(?))",
                    (json.dumps(inside),),
                )
        return (
            sum(int.from_bytes(total, "little") for total, _, _ in found),
            sum(count for _, count, _ in found),
            sum(words_ for _, _, words_ in found),
        )

    def word_statistics(self, terms: Sequence[str]) -> CorpusStatistics:
        """Of all current items, whatever their scope."""
        with self.database.reading() as connection:
            documents, total = first(connection, "SELECT sum(count), sum(words) FROM scopes")
            documents, total = documents or 0, total or 0
            frequency = self._word_counts.frequency(connection, terms, documents)
            newest = self.tail(connection)
            for term in terms:
                more = newest.frequency(term)
                if more:
                    frequency[term] = frequency.get(term, 0) + more
            return CorpusStatistics(documents, total, frequency)

    def scope_tokens(self, scope: Scope) -> list[str] | None:
        """The full-text tokens every row in `scope` has; None where nobody ever wrote in it."""
        out = []
        with self.database.reading() as connection:
            for letter, part in zip("tuas", ("tenant", "user", "agent", "session"), strict=True):
                name = getattr(scope, part)
                if name:
                    row = first(
                        connection,
                        "SELECT id FROM names WHERE tenant=? AND part=? AND name=?",
                        (scope.tenant, part, name),
                    )
                    if row is None:
                        return None
                    out.append(f"{letter}{row[0]}")
        return out

    def base(self, scope: Scope, snapshot: str | None = None) -> StoreBase:
        """The memory at a snapshot (None: as it is at each moment), for a bank to stand on. Raises UnknownSnapshot, Purged."""
        if snapshot is None:
            return StoreBase(self, scope, None)
        position = self.position_of(snapshot)
        self.refuse_purged(position)
        return StoreBase(self, scope, position)

    def refuse_purged(self, position: int) -> None:
        """Raise Purged where something was erased after journal entry `position`."""
        with self.database.reading() as connection:
            row = first(connection, "SELECT at FROM events WHERE kind = 'PURGE' AND seq > ? LIMIT 1", (position,))
        if row is not None:
            raise Purged(f"something was erased on purpose at {row[0]}: snapshot s{position} cannot be seen any more")

    def position_of(self, snapshot: str) -> int:
        digits = snapshot[1:] if isinstance(snapshot, str) and snapshot[:1] == "s" else ""
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 18 or int(digits) > self.head():
            raise UnknownSnapshot(f"{snapshot!r:.60} is no snapshot of {self.database.path}: `snapshot()` gives them")
        return int(digits)

    def images_at(self, scope: Scope, position: int) -> dict[int, Item | None]:
        """What every item of `scope` that changed after journal entry `position` was at that point."""
        with self.database.reading() as connection:
            earliest = select(
                connection, "SELECT n, before, min(seq) FROM changes WHERE seq > ? AND changed GROUP BY n", (position,)
            )
            out: dict[int, Item | None] = {}
            for n, before, _ in earliest:
                past = image(before)
                if past is None:
                    row = first(connection, "SELECT scope FROM events WHERE seq = ?", (n,))
                    if row is not None and scope.contains(self.scope_named(connection, row[0])):
                        out[n] = None
                elif scope.contains(past.scope):
                    out[n] = past
        return out

    def history(self, scope: Scope, id: str) -> list[Revision]:
        """Everything that happened to an item, oldest first; [] for an id that `scope` does not hold."""
        number = rows.number_of(id)
        if number is None:
            return []
        with self.database.reading() as connection:
            listed = select(
                connection,
                "SELECT e.seq, e.at, e.kind, e.episode, e.source, c.before, e.scope FROM changes c JOIN events e USING(seq) "
                "WHERE c.n = ? AND c.changed ORDER BY c.seq",
                (number,),
            )
            present = self.fetch(EVERYWHERE, [id])[id] if not scope.tenant else self.fetch(scope, [id])[id]
        states = [image(row[5]) for row in listed] + [present]
        known = [state for state in states if state is not None]
        if not known or not all(scope.contains(state.scope) for state in known):
            return []
        return [
            Revision(seq, at, kind, episode, source, states[number], states[number + 1])
            for number, (seq, at, kind, episode, source, _, _) in enumerate(listed)
        ]

    def diff(self, scope: Scope, one: str, other: str) -> list[Difference]:
        """Items that differ between two snapshots, in order of writing."""
        earlier, later = self.base(scope, one), self.base(scope, other)
        with self.database.reading():
            touched = self.images_at(scope, min(earlier.position or 0, later.position or 0))
            out = []
            for n in sorted(touched):
                before, after = earlier.get(f"m{n}"), later.get(f"m{n}")
                if before != after:
                    out.append(Difference(f"m{n}", before, after))
        return out

    def entries(self, where: str = "1", values: tuple[object, ...] = ()) -> list[journal_entry.Entry]:
        """Journal entries. `where` is SQL of the caller's own making, never of a user's."""
        with self.database.reading() as connection:
            return undo.entries(connection, lambda id: self.scope_named(connection, id), where, values)

    def put_parameters(self, scope: Scope, name: str, body: bytes) -> int:
        """Keep a new version of something learned; part of every later snapshot. Returns its version."""
        payload = json.dumps({"name": name})
        return int(
            self.change(
                scope,
                lambda transaction: transaction.write_event(
                    journal_entry.PARAMETERS, scope, payload, now=self.clock(), body=body
                ),
            )
        )

    def parameters(self, scope: Scope, name: str, snapshot: str | None = None) -> tuple[int, bytes] | None:
        """(version, body) of the newest `name` in `scope` that counts at a snapshot (None: now), or None."""
        position = self.head() if snapshot is None else self.position_of(snapshot)
        with self.database.reading() as connection:
            cancelled = undo.active_ranges(undo.rollbacks_in(connection, position))
            found = select(
                connection,
                "SELECT seq, scope, payload, body FROM events "
                "WHERE kind = 'PARAMETERS' AND payload IS NOT NULL AND seq <= ? ORDER BY seq DESC",
                (position,),
            )
            for seq, home, payload, body in found:
                mine = self.scope_named(connection, home) == scope and json.loads(payload)["name"] == name
                if mine and not undo.within(seq, cancelled):
                    return seq, body
        return None
