"""Store: one memory, with its journal, the items that follow from it at every moment of the past, and search.

For search by words, see `words.py`. For search by meaning, a matrix of all vectors is kept in memory and follows the journal.

The store knows nothing about the verbs that users call (see `memory.py`), or agents' overlays (see `overlay.py`).
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from keepworth.memory.errors import EncoderMismatch, Purged, StorageFull, UnknownSnapshot, files_left
from keepworth.memory.item import EVERYWHERE, PINNED, Clock, Item, Scope, Status, duplicate_key, now
from keepworth.memory.operations import Act, Draft, OperationOutcome
from keepworth.memory.scan import Scan
from keepworth.memory.search.index import Embedder
from keepworth.memory.search.where import Filter
from keepworth.memory.store import blocks, notes, opening, purge, rows, schema, undo
from keepworth.memory.store.backend import Backend
from keepworth.memory.store.connection import AMONG, AnyConnection, among, first, scalar, select
from keepworth.memory.store.derived import Derived
from keepworth.memory.store.full_text import CURRENT
from keepworth.memory.store.rows import VECTORS, image
from keepworth.memory.store.transaction import Transaction, Unencoded, tokens_of
from keepworth.memory.store.undo import newest_purge
from keepworth.memory.store.views import Snapshot
from keepworth.records.model import EncoderIdentity

if TYPE_CHECKING:
    from keepworth.base.arrays import Vectors

Result = TypeVar("Result")
SCOPES = 1024
"""Most scopes whose names, and whose ids, are cached."""


ALWAYS = f"(kind = 'core' OR metadata LIKE '%\"{PINNED}\"%')"
"""A first look for the items that are shown always, which finds too many: see `Item.always`."""
UNDONE = "undone"
"""The name of the fact that holds the newest undo whose items were looked at for vectors that they lack."""
LAST_ROW = 2**63 - 1
"""The largest number that a row can have."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One change of an item: the journal entry that made it, and the item before and after."""

    seq: int
    at: str
    kind: str
    episode: str
    source: str
    before: Item | None
    after: Item | None


@dataclass(frozen=True, slots=True)
class Difference:
    """An item that differs between two snapshots in anything that it holds, also in how often it was reworded; None in one where
    it does not exist."""

    id: str
    before: Item | None
    after: Item | None


class Store:
    """One memory. Thread-safe; several processes may open one file. `path` is a file, ":memory:", or an address of Postgres.

    `scan`, if set, looks through what is written. `exact` says that searches by meaning score all items, however many."""

    scan: Scan | None = None
    exact: bool = False

    def __init__(
        self,
        path: str | os.PathLike[str] = ":memory:",
        *,
        durability: str = "process",
        read_only: bool = False,
        clock: Clock = now,
    ) -> None:
        self.database: Backend = opening.opened(path, durability=durability, read_only=read_only)
        self.embedder: Embedder | None = None
        self._core: tuple[int, frozenset[str]] = (
            -1,
            frozenset(),
        )  # the entry up to which ids of the kind core are known
        self.clock = clock
        self._scope_names: dict[tuple[int, int], Scope] = {}  # by the newest purge and the id
        self.inside: dict[tuple[Scope, bool], frozenset[int] | None] = {}
        self.set_id: int | None = None
        self._lock = threading.RLock()
        self.turn = threading.RLock()
        """Held by whoever has to decide again because others wrote meanwhile, so that these do not cross each other for ever."""
        self.reset_caches()
        with self.database.reading() as connection:
            unfinished = notes.fact(connection, notes.UNFINISHED) is not None
        if unfinished and not self.database.read_only:
            purge.finish(self)
        self.use(None)

    def vectors_for(self, items: Sequence[Item]) -> dict[str, Vectors]:
        """Return the vectors of items by id, shape (1 + parts of a long text, dimension). The items may be past states; vectors
        that are not on file are made again."""
        out: dict[str, Vectors] = {}
        missing = []
        with self.database.reading() as connection:
            dimension = scalar(connection, "SELECT dimension FROM vector_sets WHERE id = ?", (self.set_id,))
            for item in items:
                n, number = int(item.id[1:]), rows.text_number(item.searched_text)
                row = None
                if self.set_id is not None:
                    row = first(
                        connection,
                        f"SELECT vector FROM {VECTORS.format(self.set_id)} WHERE n=? AND hash=?"
                        " UNION ALL SELECT vector FROM former_vectors WHERE set_id=? AND n=? AND hash=?",
                        (n, number, self.set_id, n, number),
                    )
                if row is None:
                    missing.append(item)
                else:
                    out[item.id] = rows.to_vectors(row[0], dimension)
        if missing and self.embedder is not None:
            fresh = self.embedder.in_parts([item.searched_text for item in missing])
            out.update((item.id, vector) for item, vector in zip(missing, fresh, strict=True))
        return out

    def serve(self, set_id: int, embedder: Embedder) -> None:
        """Switch to another vector set and its encoder."""
        self.set_id = set_id
        self.embedder = embedder
        self.reset_caches()

    def reset_caches(self) -> None:
        """Drop everything that can be made again from the file."""
        with self._lock:
            self.derived = Derived(self)
            self._scope_count = -1
            self.inside.clear()
            self._scope_names.clear()

    def scope_named(self, connection: AnyConnection, id: int) -> Scope:
        """Return the scope with an integer id. Names are read again after each erasing, which may change them."""
        key = self.database.once(connection, "newest purge", lambda: newest_purge(connection)), id
        scope = self._scope_names.get(key)
        if scope is None:
            row = first(connection, f"SELECT {rows.SCOPE} FROM scopes WHERE id=?", (id,))
            if len(self._scope_names) >= SCOPES:
                self._scope_names.clear()
            scope = self._scope_names[key] = rows.to_scope(row, id)
        return scope

    def scope_ids(self, connection: AnyConnection, scope: Scope, nobody: bool = False) -> frozenset[int] | None:
        """Return the ids of the scopes inside a scope, or None if these are all.

        Args:
            connection: A connection to the memory.
            scope: The tenant, the user, the agent and the session, of which some may be open.
            nobody: Whether only those without a user are returned.
        """
        with self._lock:
            count = self.database.once(connection, "scopes", lambda: scalar(connection, "SELECT max(id) FROM scopes"))
            if count != self._scope_count:
                self.inside.clear()
                self._scope_count = count
            if (scope, nobody) not in self.inside:
                where, values = rows.inside(scope, nobody)
                ids = frozenset(id for (id,) in select(connection, f"SELECT id FROM scopes WHERE {where}", values))
                if len(self.inside) >= SCOPES:
                    self.inside.clear()
                self.inside[scope, nobody] = None if len(ids) == count else ids  # ids have no gaps
            return self.inside[scope, nobody]

    def _served(self, connection: AnyConnection) -> tuple[int, EncoderIdentity] | None:
        """Return the id of the vector set that searches use, and the encoder that made it, or None if there is none yet."""
        row = first(connection, "SELECT id, model, dimension, normalised FROM vector_sets WHERE state = 'serving'")
        return None if row is None else (int(row[0]), EncoderIdentity(row[1], row[2], bool(row[3])))

    def use(self, embedder: Embedder | None) -> None:
        """Encode and search with `embedder` from now on. Raises EncoderMismatch if the file has vectors of another encoder."""
        with self.database.reading() as connection:
            served = self._served(connection)
        if embedder is not None and served is None and not self.database.read_only:
            identity = embedder.identity

            def work(connection: AnyConnection) -> tuple[int, EncoderIdentity]:
                there = self._served(connection)  # another process may have begun one just now
                return there or (schema.begin_vectors(connection, identity, "serving", uuid.uuid4().hex), identity)

            served = self.database.write(work)
        if embedder is not None and served is not None:
            self._check_encoder(served[1], embedder)
        self.set_id = None if served is None else served[0]
        self.embedder = embedder
        if embedder is not None and served is not None and not self.database.read_only:
            self._complete_vectors(VECTORS.format(served[0]))

    def _complete_vectors(self, table: str) -> None:
        """Make the vectors of items that an undo brought back to life without one, by an earlier version or without an encoder.
        What was undone is looked at once."""
        undone = f"SELECT seq FROM events WHERE {schema.OF_KIND} AND kind = 'ROLLBACK'"

        def looked_at(connection: AnyConnection) -> tuple[int, int]:
            newest: int = scalar(connection, f"SELECT max(seq) FROM ({undone}) AS undone") or 0
            return int(notes.fact(connection, UNDONE) or 0), newest

        def work(connection: AnyConnection) -> None:
            since, newest = looked_at(connection)
            lacking = f"""{rows.SELECT} WHERE {CURRENT} AND n IN (SELECT n FROM touches WHERE seq IN ({undone} AND seq > ?))
                AND NOT EXISTS (SELECT 1 FROM {table} v WHERE v.n = items.n)"""
            texts = {
                row[0]: rows.to_item(row, EVERYWHERE).searched_text for row in select(connection, lacking, (since,))
            }
            made = self.encode(texts.values())
            vectors = [(n, rows.text_number(text), made[text]) for n, text in texts.items()]
            connection.executemany(f"INSERT INTO {table} VALUES(?,?,?) {rows.NEW_VECTOR}", vectors)
            end = blocks.covered(connection)
            blocks.mark_outdated(connection, [n for n in texts if n <= end])
            notes.keep(connection, UNDONE, str(newest))

        with self.database.reading() as connection:
            since, newest = looked_at(connection)
        if since < newest:
            with suppress(StorageFull):  # then at the next opening
                self.database.write(work)

    def _check_encoder(self, maker: EncoderIdentity, embedder: Embedder) -> None:
        """Raise EncoderMismatch if the vectors on file are from another encoder than this memory's."""
        identity = embedder.identity
        if maker != identity:
            raise EncoderMismatch(
                f"{self.database.path} holds vectors of {maker.model!r} ({maker.dimension} dimensions), but was opened with "
                f"{identity.model!r} ({identity.dimension}): open it with the old encoder, or run "
                f"`keepworth memory reembed` to make vectors with the new one"
            )

    def find_set(self, connection: AnyConnection) -> bool:
        """Return whether there is a vector set by now: others may have written the first vectors after a reader opened the file.
        Raises EncoderMismatch."""
        served = None if self.embedder is None else self._served(connection)
        if served is None or self.embedder is None:
            return False
        self._check_encoder(served[1], self.embedder)
        self.set_id = served[0]
        return True

    def encoder_identity(self) -> EncoderIdentity | None:
        """Return the identity of the encoder that made the vectors on file, or None if there are none yet."""
        with self.database.reading() as connection:
            served = self._served(connection)
        return None if served is None else served[1]

    def encode(self, texts: Iterable[str]) -> dict[str, bytes]:
        """Return vectors for `perform`, which are made before the write lock is taken: for each text, that of the whole and that
        of each part of a long one. {} without an encoder."""
        listed = list(dict.fromkeys(texts))
        if self.embedder is None or not listed:
            return {}
        self.database.check_open()  # in a forked child, locks that the parent's threads held, such as an encoder's, stay locked
        with files_left():  # an encoder reads its files when it is first used
            vectors = self.embedder.in_parts(listed)
        return {text: vector.tobytes() for text, vector in zip(listed, vectors, strict=True)}

    def perform(
        self,
        scope: Scope,
        acts: Sequence[tuple[Act, Draft]] | Callable[[Transaction], Sequence[tuple[Act, Draft]]],
        *,
        episode: str = "",
        vectors: Mapping[str, bytes] | None = None,
        check: Callable[[OperationOutcome], None] | None = None,
    ) -> list[tuple[OperationOutcome, Item | None]]:
        """Carry out `acts` in one durable transaction.

        Args:
            scope: The scope of the journal entries.
            acts: The acts with their drafts; or, where they depend on what is there, a function that reads that in the
                transaction and returns them, so that nobody can write in between.
            episode: The id of the episode that the acts are part of; "" for none.
            vectors: Those that `encode` made before; others are made when they are needed.
            check: Sees each outcome. If it raises, nothing is written, so that what was refused with an error cannot take effect
                later, when what it was refused for is rolled back.

        Returns:
            For each act its outcome, and the item that this names, as the transaction leaves it.
        """

        def work(transaction: Transaction) -> list[tuple[OperationOutcome, Item | None]]:
            time, outcomes = self.clock(), list[OperationOutcome]()
            listed = acts(transaction) if callable(acts) else acts
            transaction.look_up(listed)
            for act, draft in listed:
                outcomes.append(transaction.perform(act, draft, now=time, episode=episode))
                if check is not None:
                    check(outcomes[-1])
            return [(outcome, transaction.load(outcome.item) if outcome.item else None) for outcome in outcomes]

        return self.change(scope, work, vectors)

    def change(
        self,
        scope: Scope,
        work: Callable[[Transaction], Result],
        vectors: Mapping[str, bytes] | None = None,
    ) -> Result:
        """Run work on a write transaction of its own and return its result. It runs again if it left items without a
        vector, which are encoded outside the write lock, so that no other writer waits for an encoder.

        Args:
            scope: The scope of the journal entries.
            work: It gets the transaction.
            vectors: Those that `encode` made before; None for none.
        """
        note, made, waits = notes.NOTE.get(), dict(vectors or {}), True

        def inside(connection: AnyConnection) -> Result:
            transaction = Transaction(connection, scope, set_id=self.set_id, vectors=made)
            transaction.scan, transaction.waits = self.scan, waits
            transaction.encode = self.encode if self.embedder is not None else None
            result = work(transaction)
            transaction.finish()
            if note is not None:
                note(connection)
            return result

        try:
            return self.database.write(inside)
        except Unencoded as lacking:
            made, waits = {**made, **self.encode(lacking.texts)}, False
        return self.database.write(inside)

    def head(self) -> int:
        """Return the number of the newest journal entry; 0 before the first."""
        with self.database.reading() as connection:
            return self.database.once(
                connection, "head", lambda: scalar(connection, "SELECT max(seq) FROM events") or 0
            )

    def newest_time(self) -> str:
        """Return the time of the newest journal entry, "" before the first."""
        newest = "SELECT at FROM events ORDER BY seq DESC LIMIT 1"
        with self.database.reading() as connection:
            time: str = self.database.once(connection, "newest time", lambda: scalar(connection, newest)) or ""
        return time

    def core_ids(self) -> frozenset[str]:
        """Return the ids of all items of the kind core, and of those whose metadata have the name `PINNED`, in whatever scope and
        state, but that of deleted items. They are read once, and then followed."""
        with self.database.reading() as connection:
            head, (seq, ids) = self.head(), self._core
            if seq != head:
                if 0 <= seq < head:
                    changed = self.changed_since(seq)
                    numbers = among([int(id[1:]) for id in changed])
                    those = f"SELECT n FROM items WHERE n {AMONG} AND {ALWAYS}"
                    listed = select(connection, those, (numbers,)) if changed else []
                else:
                    changed, ids = [], frozenset()
                    # Of a file, two indexes have what is asked of all items but deleted ones, in less to read.
                    scans = [schema.BY_CURRENT, f"WHERE {schema.CLOSED}"] if connection.in_file else ["WHERE true"]
                    listed = [
                        row for scan in scans for row in select(connection, f"SELECT n FROM items {scan} AND {ALWAYS}")
                    ]
                ids = ids.difference(changed) | {f"m{n}" for (n,) in listed}
                self._core = head, ids
            return ids

    def changed_since(self, seq: int) -> list[str]:
        """Return the ids of the items that entries after number `seq` changed."""
        with self.database.reading() as connection:
            changed = select(connection, "SELECT DISTINCT n FROM changes WHERE seq > ? AND changed", (seq,))
        return [f"m{n}" for (n,) in changed]

    def fetch(self, scope: Scope, ids: Sequence[str]) -> dict[str, Item | None]:
        """Return items by id, in the order asked for; None for an id that is not in `scope`, even if another scope holds it."""
        out: dict[str, Item | None] = dict.fromkeys(ids)
        numbers = [number for number in map(rows.number_of, out) if number is not None]
        if not numbers:
            return out
        with self.database.reading() as connection:
            listed = select(connection, f"{rows.SELECT} WHERE n {AMONG}", (among(numbers),))
            homes = {id: self.scope_named(connection, id) for id in {row[1] for row in listed}}
            inside = {id for id, home in homes.items() if scope.contains(home)}
            out.update((f"m{row[0]}", rows.to_item(row, homes[row[1]])) for row in listed if row[1] in inside)
        return out

    def changed_at(self, ids: Sequence[str]) -> dict[str, str]:
        """Return when each of these items was last changed, rewards aside. Items that never changed are left out."""
        numbers = [number for number in map(rows.number_of, ids) if number is not None]
        if not numbers:
            return {}
        with self.database.reading() as connection:
            listed = select(
                connection,
                f"SELECT n, max(at) FROM touches JOIN events USING(seq) WHERE n {AMONG} AND changed AND kind <> 'REWARD' "
                "GROUP BY n",
                (among(numbers),),
            )
            return {f"m{n}": at for n, at in listed}

    def items(
        self,
        scope: Scope,
        *,
        after: int = 0,
        limit: int = LAST_ROW,
        current: bool = False,
        closed: bool = False,
        status: Status | None = None,
        where: Filter | None = None,
        newest: bool = False,
    ) -> Iterator[Item]:
        """Return items with row numbers above `after`, in order of writing.

        Args:
            scope: Only items inside it are returned.
            after: The row number above which they are.
            limit: The most items.
            current, closed: Only the current items, or only those that are neither current nor deleted.
            status: Only open items with this status.
            where: A filter on the metadata of current items.
            newest: Reverse the order: items below `after`, or from the last one on if that is 0.
        """
        with self.database.reading() as connection:
            mask = self.derived.mask(connection, where) if current else None
            inside = self.scope_ids(connection, scope)
            which = "n < ?" if newest else "n > ?"
            values: list[Any] = [(after or LAST_ROW) if newest else after]
            if inside is not None:
                which += f" AND scope {AMONG}"
                values.append(among(sorted(inside)))
            if current:
                which += f" AND {CURRENT}"
            if closed:
                which += f" AND {schema.CLOSED}"
            if status is not None:
                which += " AND content IS NOT NULL AND status = ?"
                values.append(status.value)
            if mask is not None:
                which += f" AND {connection.full_text.admit(connection, mask, 'n')}"
            order = "n DESC" if newest else "n"
            selected = select(connection, f"{rows.SELECT} WHERE {which} ORDER BY {order} LIMIT ?", (*values, limit))
            listed = [rows.to_item(row, self.scope_named(connection, row[1])) for row in selected]
        return iter(listed)

    def with_content(self, scope: Scope, item: Item) -> list[str]:
        """Return the ids of open items that are exact duplicates of `item`."""
        key = duplicate_key(item)
        with self.database.reading() as connection:
            numbers = select(connection, "SELECT n FROM items WHERE content = ?", (rows.content_number(item),))
        same = self.fetch(scope, [f"m{n}" for (n,) in numbers])
        return [id for id, other in same.items() if other is not None and other.open and duplicate_key(other) == key]

    def sums(self, scope: Scope) -> tuple[int, int]:
        """Return (sum of content digests, number of current items) of a scope."""
        where, values = rows.inside(scope)
        with self.database.reading() as connection:
            listed = select(connection, f"SELECT total, count FROM scopes WHERE {where}", values)
        return sum(int.from_bytes(total, "little") for total, _ in listed), sum(count for _, count in listed)

    def scope_tokens(self, connection: AnyConnection, scope: Scope) -> list[list[str]] | None:
        """Return the full-text tokens that every row of each member scope of `scope` has: [] if a member asks for no token, None
        if nothing was ever written in any."""
        listed = [tokens for part in scope.members() if (tokens := tokens_of(connection, part)) is not None]
        return ([] if [] in listed else listed) if listed else None

    def base(self, scope: Scope, snapshot: str | None = None) -> Snapshot:
        """Return the memory at a snapshot (None: now), as the base of a bank. Raises UnknownSnapshot, Purged."""
        position = self.head() if snapshot is None else self.position_of(snapshot)
        self.refuse_purged(position)
        return Snapshot(self, scope, position)

    def refuse_purged(self, position: int) -> None:
        """Raise Purged if something was erased after journal entry `position`."""
        query = f"SELECT at FROM events WHERE {schema.OF_KIND} AND kind = 'PURGE' AND seq > ? LIMIT 1"
        with self.database.reading() as connection:
            row = self.database.once(connection, ("purged", position), lambda: first(connection, query, (position,)))
        if row is not None:
            raise Purged(
                f"something was erased on purpose at {row[0]}: take a later snapshot, as s{position} cannot be seen any more"
            )

    def position_of(self, snapshot: str) -> int:
        digits = snapshot[1:] if isinstance(snapshot, str) and snapshot[:1] == "s" else ""
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 18 or int(digits) > self.head():
            raise UnknownSnapshot(
                f"{snapshot!r:.60} is no snapshot of {self.database.path}: take one that `snapshot()` gave"
            )
        return int(digits)

    def images_at(self, scope: Scope, position: int) -> dict[int, Item | None]:
        """Return the states at entry `position` of the items of `scope` that changed since, by number (None: did not exist)."""
        with self.database.reading() as connection:
            earliest = (
                "SELECT c.n, c.before FROM changes c JOIN (SELECT n, min(seq) AS seq FROM changes WHERE seq > ? AND changed "
                "GROUP BY n) AS earliest ON c.n = earliest.n AND c.seq = earliest.seq WHERE c.seq > ?"
            )
            out: dict[int, Item | None] = {}
            for n, before in select(connection, earliest, (position, position)):
                past = image(before)
                if past is None:
                    row = first(connection, "SELECT scope FROM events WHERE seq = ?", (n,))
                    if row is not None and scope.contains(self.scope_named(connection, row[0])):
                        out[n] = None
                elif scope.contains(past.scope):
                    out[n] = past
        return out

    def history(self, scope: Scope, id: str) -> list[Revision]:
        """Return everything that happened to an item, oldest first; [] for an id that is not in `scope`."""
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
            present = self.fetch(scope if scope.tenant else EVERYWHERE, [id])[id]
        states = [image(row[5]) for row in listed] + [present]
        there = [state for state in states if state is not None]
        if not there or not all(scope.contains(state.scope) for state in there):
            return []
        return [
            Revision(seq, at, kind, episode, source, states[number], states[number + 1])
            for number, (seq, at, kind, episode, source, _, _) in enumerate(listed)
        ]

    def diff(self, scope: Scope, one: str, other: str) -> list[Difference]:
        """Return the items that differ between two snapshots, in order of writing.

        Args:
            scope: Only items inside it are compared.
            one, other: The names of the snapshots.
        """
        earlier, later = self.base(scope, one), self.base(scope, other)
        with self.database.reading():
            touched = self.images_at(scope, min(earlier.position, later.position))
            out = []
            for n in sorted(touched):
                before, after = earlier.get(f"m{n}"), later.get(f"m{n}")
                if before != after:
                    out.append(Difference(f"m{n}", before, after))
        return out

    def entries(self, where: str = "true", values: tuple[object, ...] = ()) -> list[rows.Entry]:
        """Return the journal entries that meet `where`, an SQL condition of the caller's own making, never of a user's."""
        with self.database.reading() as connection:
            return undo.entries(connection, lambda id: self.scope_named(connection, id), where, values)

    def close(self) -> None:
        self.database.close()
