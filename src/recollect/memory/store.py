"""Store: one memory file. The journal, the view made from it, and the caches that make searching fast.

Nothing here knows about users' verbs (see `memory.py`) or agents' overlays (see `bank.py`).
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.episodes.encoder import EncoderIdentity
from recollect.memory import journal_entry, rows, schema, undo, words
from recollect.memory.database import Database, first, scalar, select
from recollect.memory.dense import Block, DenseIndex
from recollect.memory.embedding import Embedder
from recollect.memory.errors import EncoderMismatch, Purged, UnknownSnapshot
from recollect.memory.ground import StoreGround, image
from recollect.memory.item import Item, duplicate_key
from recollect.memory.lexical import CorpusStatistics
from recollect.memory.moment import Clock, now
from recollect.memory.operations import Act, Draft, Outcome
from recollect.memory.quantised import check_kind
from recollect.memory.schema import vector_table
from recollect.memory.scope import EVERYWHERE, Scope
from recollect.memory.transaction import Transaction

if TYPE_CHECKING:
    import apsw
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]


LATE = 0.25
"""Share of rows that came after an int8 index was built, from which it is built again."""


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


class Store:
    """Thread-safe; several processes may open one file. path: a file, or ":memory:"."""

    def __init__(
        self,
        path: str | os.PathLike[str] = ":memory:",
        *,
        embedder: Embedder | None = None,
        durability: str = "process",
        read_only: bool = False,
        index: str = "exact",
        clock: Clock = now,
    ) -> None:
        if index != "exact":
            check_kind(index)
        self._index = index
        self.database = Database(path, durability=durability, read_only=read_only)
        self.embedder = embedder
        self.clock = clock
        self._lock = threading.RLock()
        self._dense: DenseIndex | None = None
        self._dense_head = 0
        self._scope_names: dict[int, Scope] = {}
        self._scope_count = -1
        self._inside: dict[Scope, list[int] | None] = {}
        self._word_counts = words.WordStatistics()
        self._set_id: int | None = None
        self.use(embedder)

    # Writing.

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
            outcomes = [transaction.perform(act, draft, now=time, episode=episode) for act, draft in acts]
            transaction.finish()
            return [(outcome, transaction.get(outcome.item) if outcome.item else None) for outcome in outcomes]

        return self.database.write(work)

    def encode(self, texts: Iterable[str]) -> dict[str, bytes]:
        """Vectors for `perform`, made before the write lock is taken. Empty without an encoder."""
        listed = list(dict.fromkeys(texts))
        if self.embedder is None or not listed:
            return {}
        return {text: vector.tobytes() for text, vector in zip(listed, self.embedder(listed), strict=True)}

    def change(
        self, scope: Scope, work: Callable[[Transaction], Any], vectors: Mapping[str, bytes] | None = None
    ) -> Any:
        """Run `work` on a transaction of its own: for undo, purge, import and the like."""

        def inside(connection: apsw.Connection) -> Any:
            transaction = self._transaction(connection, scope, vectors)
            result = work(transaction)
            transaction.finish()
            return result

        return self.database.write(inside)

    def _transaction(
        self, connection: apsw.Connection, scope: Scope, vectors: Mapping[str, bytes] | None
    ) -> Transaction:
        return Transaction(connection, scope, set_id=self._set_id, vectors=vectors)

    # Reading.

    def head(self) -> int:
        """The newest entry of the journal; 0 before the first."""
        with self.database.reading() as connection:
            last = scalar(connection, "SELECT max(seq) FROM events")
        return last or 0

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
            return CorpusStatistics(documents, total, self._word_counts.frequency(connection, terms, documents))

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

    def dense(self, scope: Scope, queries: Vectors, count: int) -> list[list[tuple[int, float]]]:
        """Per query the best current items of the scope as (row number, cosine). queries: (q, dimension), unit rows."""
        with self.database.reading() as connection:
            if self._set_id is None and not self._find_set(connection):
                return [[] for _ in queries]
            index = self._synced(connection)
            inside = self._scope_ids(connection, scope)
        return index.search(queries, count, scope, inside)

    def vectors_for(self, items: Sequence[Item]) -> dict[str, Vectors]:
        """Vectors of items as they are given, which need not be as they are now; made again where not on file."""
        import numpy as np

        out: dict[str, Vectors] = {}
        missing = []
        with self.database.reading() as connection:
            for item in items:
                n, number = int(item.id[1:]), rows.text_number(item.searched_text)
                row = None
                if self._set_id is not None:
                    row = first(
                        connection,
                        f"SELECT vector FROM {vector_table(self._set_id)} WHERE n=? AND hash=?"
                        " UNION ALL SELECT vector FROM former_vectors WHERE set_id=? AND n=? AND hash=?",
                        (n, number, self._set_id, n, number),
                    )
                if row is None:
                    missing.append(item)
                else:
                    out[item.id] = np.frombuffer(row[0], np.float32)
        if missing and self.embedder is not None:
            fresh = self.embedder([item.searched_text for item in missing])
            out.update((item.id, vector) for item, vector in zip(missing, fresh, strict=True))
        return out

    # Snapshots.

    def ground(self, scope: Scope, snapshot: str | None = None) -> StoreGround:
        """The memory at a snapshot (None: as it is at each moment), for a bank to stand on. Raises UnknownSnapshot, Purged."""
        if snapshot is None:
            return StoreGround(self, scope, None)
        position = self.position_of(snapshot)
        self.refuse_purged(position)
        return StoreGround(self, scope, position)

    def refuse_purged(self, position: int) -> None:
        """Raise Purged where something was erased after journal entry `position`."""
        with self.database.reading() as connection:
            row = first(connection, "SELECT at FROM events WHERE kind = 'PURGE' AND seq > ? LIMIT 1", (position,))
        if row is not None:
            raise Purged(f"something was erased on purpose at {row[0]}: snapshot s{position} cannot be seen any more")

    def position_of(self, snapshot: str) -> int:
        digits = snapshot[1:] if isinstance(snapshot, str) and snapshot[:1] == "s" else ""
        if not digits.isdigit() or int(digits) > self.head():
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
        earlier, later = self.ground(scope, one), self.ground(scope, other)
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

    # The caches.

    def dense_index(self) -> tuple[DenseIndex, int]:
        """The index as of now, and the journal entry it stands at."""
        with self.database.reading() as connection:
            return self._synced(connection), self._dense_head

    def serve(self, set_id: int, embedder: Embedder) -> None:
        """Answer from another vector set from here on."""
        self._set_id = set_id
        self.embedder = embedder
        self.reset_caches()

    def _synced(self, connection: apsw.Connection) -> DenseIndex:
        """The dense index, brought up to the journal's head as this connection sees it."""
        with self._lock:
            head = scalar(connection, "SELECT max(seq) FROM events")
            head = head or 0
            if self._dense is None:
                self._dense, self._dense_head = self._loaded(connection)
                if self._index != "exact":
                    self._dense.accelerate(self._index)
            if head > self._dense_head:
                self._follow(connection, self._dense_head)
                self._dense_head = head
            if self._index == "int8" and self._dense.late > LATE:
                # Cheap to make anew. A graph is not: its late rows are scanned exactly until the memory is next opened.
                self._dense.accelerate(self._index)
            return self._dense

    def _loaded(self, connection: apsw.Connection) -> tuple[DenseIndex, int]:
        import numpy as np

        from recollect.memory.sidecar import read_sidecar

        assert self._set_id is not None
        dimension = scalar(connection, "SELECT dimension FROM vector_sets WHERE id=?", (self._set_id,))
        if not self.database.in_memory:
            found = read_sidecar(Path(self.database.path), self.store_id(), self._set_id, dimension)
            if found is not None:
                return DenseIndex(dimension, found[0]), found[1]
        head = scalar(connection, "SELECT max(seq) FROM events")
        table = vector_table(self._set_id)
        size = scalar(connection, f"SELECT count(*) FROM {table}")
        block = Block.empty(dimension, max(size, 1))
        row = 0
        for n, scope, vector in connection.execute(
            f"SELECT v.n, i.scope, v.vector FROM {table} v JOIN items i USING(n) "
            "WHERE i.content IS NOT NULL AND i.status = 'active' ORDER BY v.n"
        ):
            block.numbers[row], block.scopes[row] = n, scope
            block.matrix[row] = np.frombuffer(vector, np.float32)
            row += 1
        block.alive[:row] = True
        block.size = row
        return DenseIndex(dimension, block if row else None), head or 0

    def _follow(self, connection: apsw.Connection, since: int) -> None:
        """Apply to the dense index what the journal says changed after entry `since`."""
        import numpy as np

        assert self._dense is not None
        assert self._set_id is not None
        changed = select(
            connection,
            "SELECT DISTINCT c.n, i.scope, v.vector, i.content IS NOT NULL AND i.status = 'active' "
            f"FROM changes c LEFT JOIN items i USING(n) LEFT JOIN {vector_table(self._set_id)} v USING(n) "
            "WHERE c.seq > ? AND c.changed",
            (since,),
        )
        self._dense.drop(n for n, _, vector, current in changed if not current or vector is None)
        fresh = [(n, scope, vector) for n, scope, vector, current in changed if current and vector is not None]
        fresh.sort()
        if fresh:
            matrix = np.frombuffer(b"".join(vector for _, _, vector in fresh), np.float32)
            matrix = matrix.reshape(len(fresh), self._dense.dimension)
            self._dense.put([n for n, _, _ in fresh], [scope for _, scope, _ in fresh], matrix)

    def store_id(self) -> str:
        with self.database.reading() as connection:
            value = scalar(connection, "SELECT value FROM facts_of_file WHERE name = 'store'")
        return str(value)

    def reset_caches(self) -> None:
        """Forget everything that can be made again from the file."""
        with self._lock:
            self._dense = None
            self._dense_head = 0
            self._scope_count = -1
            self._inside.clear()

    def scope_named(self, connection: apsw.Connection, id: int) -> Scope:
        """The scope of an integer id."""
        scope = self._scope_names.get(id)
        if scope is None:
            row = first(connection, "SELECT tenant, user, agent, session FROM scopes WHERE id=?", (id,))
            scope = self._scope_names[id] = Scope(*row)
        return scope

    def _scope_ids(self, connection: apsw.Connection, scope: Scope) -> list[int] | None:
        """Ids of the scopes inside `scope`; None where it holds the whole file."""
        with self._lock:
            count = scalar(connection, "SELECT max(id) FROM scopes")
            if count != self._scope_count:
                self._inside.clear()
                self._scope_count = count
            if scope not in self._inside:
                where, values = ["tenant = ?"], [scope.tenant]
                for part in ("user", "agent", "session"):
                    if getattr(scope, part):
                        where.append(f"{part} = ?")
                        values.append(getattr(scope, part))
                found = select(connection, f"SELECT id FROM scopes WHERE {' AND '.join(where)} ORDER BY id", values)
                ids: list[int] = [id for (id,) in found]
                everything = scalar(connection, "SELECT count(*) FROM scopes")
                self._inside[scope] = None if ids and len(ids) == everything else ids
            return self._inside[scope]

    # Vector sets.

    def use(self, embedder: Embedder | None) -> None:
        """Encode and search with `embedder` from here on. Raises EncoderMismatch where the file has vectors of another."""
        try:
            self._set_id = self._serving_set(embedder.identity if embedder is not None else None)
        except BaseException:
            self.database.close()
            raise
        self.embedder = embedder

    def _find_set(self, connection: apsw.Connection) -> bool:
        """A reader may open a file before anyone has written vectors to it: look again."""
        if self.embedder is None:
            return False
        row = first(connection, "SELECT id, model, dimension, normalised FROM vector_sets WHERE state = 'serving'")
        if row is None:
            return False
        if EncoderIdentity(row[1], row[2], bool(row[3])) != self.embedder.identity:
            raise EncoderMismatch(
                f"{self.database.path} now has vectors of {row[1]!r}: open it again, with that encoder"
            )
        self._set_id = int(row[0])
        return True

    def encoder_identity(self) -> EncoderIdentity | None:
        """Of the vectors on file; None where there are none yet."""
        with self.database.reading() as connection:
            row = first(connection, "SELECT model, dimension, normalised FROM vector_sets WHERE state = 'serving'")
        return None if row is None else EncoderIdentity(row[0], row[1], bool(row[2]))

    # Parameters of valuers and rerankers.

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
                "SELECT seq, scope, payload, body FROM events WHERE kind = 'PARAMETERS' AND seq <= ? ORDER BY seq DESC",
                (position,),
            )
            for seq, home, payload, body in found:
                mine = self.scope_named(connection, home) == scope and json.loads(payload)["name"] == name
                if mine and not undo.within(seq, cancelled):
                    return seq, body
        return None

    def _serving_set(self, identity: EncoderIdentity | None) -> int | None:
        with self.database.reading() as connection:
            row = first(connection, "SELECT id, model, dimension, normalised FROM vector_sets WHERE state = 'serving'")
        if row is not None:
            found = EncoderIdentity(row[1], row[2], bool(row[3]))
            if identity is not None and found != identity:
                raise EncoderMismatch(
                    f"{self.database.path} holds vectors of {found.model!r} ({found.dimension} dimensions), but was opened with "
                    f"{identity.model!r} ({identity.dimension}): open it with the old encoder, or run "
                    f"`recollect memory reembed` to make vectors with the new one"
                )
            return int(row[0])
        if identity is None or self.database.read_only:
            return None

        def work(connection: apsw.Connection) -> int:
            again = first(connection, "SELECT id FROM vector_sets WHERE state = 'serving'")
            if again is not None:
                return int(again[0])
            connection.execute(
                "INSERT INTO vector_sets(model, dimension, normalised, state) VALUES(?,?,?,'serving')",
                (identity.model, identity.dimension, int(identity.normalised)),
            )
            id = connection.last_insert_rowid()
            schema.create_vectors(connection, id)
            return id

        return self.database.write(work)

    @property
    def set_id(self) -> int | None:
        return self._set_id

    def close(self) -> None:
        self.database.close()
