"""One write transaction on a store: the `View` that operations act on, and the rows that they write.

Everything here runs under the store's write lock, inside one database transaction: journal, items, full-text index, vectors and
content hashes change together or not at all. Rows are collected and written together: an item that several acts change is written
once, and each act's own before-image is journaled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keepworth.memory.item import (
    HASH_MODULUS,
    Item,
    Scope,
    Status,
    content_digest,
    duplicate_key,
    duplicate_key_of,
    metadata_text,
    to_record,
)
from keepworth.memory.operations import (
    Act,
    Assignment,
    Credit,
    Draft,
    OperationOutcome,
    draft_problem,
    execute,
    malformed,
)
from keepworth.memory.scan import HELD_FOR, Scan
from keepworth.memory.search.terms import term_count
from keepworth.memory.store import blocks, rows
from keepworth.memory.store.connection import AMONG, AnyConnection, among, first, scalar, select
from keepworth.memory.store.full_text import Row, index_rows, write_terms
from keepworth.memory.store.rows import VECTORS, encoded, linked
from keepworth.memory.store.schema import CREATED
from keepworth.records.episode import Operation, OperationKind

PARTS = tuple(zip("tuas", ("tenant", "user", "agent", "session"), strict=True))
_COLUMNS = "id, tokens, count, words, total"
_SCOPE = f"SELECT {_COLUMNS} FROM scopes WHERE {rows.OF_SCOPE}"
_NEW_SCOPE = f"INSERT INTO scopes({rows.SCOPE}, tokens, total) VALUES(?,?,?,?,?,?) RETURNING {_COLUMNS}"


@dataclass(slots=True)
class ScopeRow:
    """The sums of a scope: `count` of current items, `words` in them, and `total` of the content digests of all items."""

    id: int
    tokens: str
    count: int
    words: int
    total: int


def tokens_of(connection: AnyConnection, scope: Scope) -> list[str] | None:
    """Return a token for each named part of a scope, made of an integer so that no name can break the query language; None if
    nothing was ever written under one of the names."""
    tokens = []
    for letter, part in PARTS:
        name = getattr(scope, part)
        if name:
            query = "SELECT id FROM names WHERE tenant=? AND part=? AND name=?"
            id = scalar(connection, query, (scope.tenant, part, name))
            if id is None:
                return None
            tokens.append(f"{letter}{id}")
    return tokens


_FORMER = "ON CONFLICT(set_id, n, hash) DO UPDATE SET vector = excluded.vector"
_NEWEST = "SELECT seq, chain, (SELECT through FROM indexed) FROM events ORDER BY seq DESC LIMIT 1"
_image = json.JSONEncoder(ensure_ascii=False).encode
"""Writes an item as it was before a change, as the journal has it; a new encoder for each would take longer than its work."""
Changed = tuple[int, Item | None, Item | None]
"""Number of an item, the item before, and the item after."""
Vectors = Mapping[str, bytes]
"""Vectors at hand for this write: searched text -> little-endian float32 bytes of the unit vector."""


class Unencoded(Exception):
    """Raised by `finish`, which then writes nothing, where current items would have no vector: `texts` are to be encoded outside
    the write lock, and the write done again."""

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__(f"{len(texts)} texts have no vector")
        self.texts = texts


MANY = 16
"""Number of new items whose duplicates are found in one query."""
TAIL = 64
"""Number of journal entries by which the full-text index may lag behind. A write to it takes as long as the rest of an item's
write, but hardly longer for many items. Items that are not indexed yet are read and counted from their rows."""
LONG = 2000
"""Number of characters from which on a text is indexed at once, so that reading items that are not indexed stays quick."""


class Transaction:
    """A write transaction: call `perform` or `write_event` as often as needed, then `finish` once.

    `scope` is what may be seen and written; `set_id` is the vector set in use, or None without an encoder."""

    def __init__(
        self, connection: AnyConnection, scope: Scope, *, set_id: int | None, vectors: Vectors | None = None
    ) -> None:
        self.connection = connection
        self.scope = scope
        self.set_id = set_id
        self._vectors = vectors or {}
        self.scan: Scan | None = None
        self.encode: Callable[[Iterable[str]], Vectors] | None = None
        """Set by the store: `scan` looks through each text, and `encode`, which is None without an encoder, makes the vectors of
        a text that the scan changed, or that a rollback brings back."""
        self.waits = False
        """Whether the write is done again if `finish` raises Unencoded; otherwise it encodes what has no vector itself."""
        self._scope_rows: dict[Scope, ScopeRow] = {}
        self._scopes: dict[int, Scope] = {}
        self._items: dict[str, Item | None] = {}  # by id: items as last read or put
        self._original: dict[str, Item | None] = {}  # by id: the items put in this transaction, as they are on file
        # Of the items put in which more than the value statistics changed: their content numbers by id, None for one that is not
        # open, and by duplicate key the ids of those that are open.
        self._contents: dict[str, int | None] = {}
        self._open: dict[bytes, tuple[str, ...]] = {}
        self._alike: dict[
            int, list[int]
        ] = {}  # by content number: the items on file that have it, as far as `look_up` found
        self._before: dict[str, Item | None] = {}  # by id: the items put by the present act, as they were before it
        self._events: list[tuple[Any, ...]] = []
        self._touches: list[tuple[Any, ...]] = []
        self._lost_contents: list[tuple[int, int]] = []
        self._former: list[tuple[Any, ...]] = []
        self._asked: int | None = None
        newest = first(connection, _NEWEST)
        if newest is None:
            newest = (0, None, scalar(connection, "SELECT through FROM indexed"))
        self.seq: int = newest[0] + 1
        self._link: bytes | None = newest[1]
        self._indexed: int = newest[2]
        self._first = self.seq

    # The `View` that operations see.

    def get(self, id: str) -> Item | None:
        item = self.load(id)
        return item if item is not None and self.scope.contains(item.scope) else None

    def duplicates_of(self, item: Item) -> list[str]:
        key = duplicate_key(item)
        self._asked = rows.number_of_key(key)
        same = [*self._open.get(key, ())]
        numbers = self._alike.get(self._asked)
        if numbers is None:
            numbers = [n for (n,) in select(self.connection, "SELECT n FROM items WHERE content = ?", (self._asked,))]
        for n in numbers:
            if f"m{n}" not in self._contents:
                other = self.load(f"m{n}")
                if other is not None and duplicate_key(other) == key:
                    same.append(other.id)
        return sorted({*same}, key=lambda id: int(id[1:])) if len(same) > 1 else same

    def look_up(self, acts: Sequence[tuple[Act, Draft]]) -> None:
        """Find the duplicates of what these acts add in one query, where they are many: one for each takes as long as the rest of
        an act. No item is written before `finish`, so that what is found stays true."""
        if len(acts) < MANY or self.scan is not None:
            return
        listed = [
            rows.number_of_key(duplicate_key_of(act.text, draft))
            for act, draft in acts
            if isinstance(act, Operation)
            and act.kind is OperationKind.ADD
            and draft.deduplicate
            and draft_problem(act.text, draft) is None
        ]
        self._alike = {number: [] for number in listed}
        query = f"SELECT content, n FROM items WHERE content {AMONG}"
        for number, n in select(self.connection, query, (among(sorted(self._alike)),)):
            self._alike[number].append(n)

    def put(self, item: Item) -> None:
        self.replace(item.id, item)

    # For callers.

    def items(self, scope: Scope, where: str, values: Sequence[Any] = ()) -> list[Item]:
        """Return items in order of writing. To be called before anything is put.

        Args:
            scope: Only what is inside it counts.
            where: An SQL condition, which never comes from a user.
            values: Its parameters.
        """
        within, names = rows.of_scopes(scope)
        listed = select(self.connection, f"{rows.SELECT} WHERE {within} AND {where} ORDER BY n", (*names, *values))
        return [rows.to_item(row, self.scope_of(row[1])) for row in listed]

    def changed_since(self, seq: int) -> bool:
        """Return whether an item inside the transaction's scope was changed after a journal entry, other than by a reward. To be
        called before anything is put."""
        query = (
            "SELECT DISTINCT i.scope FROM changes c JOIN events e USING(seq) LEFT JOIN items i ON i.n = c.n "
            f"WHERE c.seq > ? AND c.changed AND e.kind <> '{rows.REWARD}'"
        )
        # An item whose creation was undone has no row, so its scope is not known.
        homes = select(self.connection, query, (seq,))
        return any(home is None or self.scope.contains(self.scope_of(home)) for (home,) in homes)

    def provide(self, vectors: Vectors) -> None:
        """Add vectors of texts for this write."""
        self._vectors = {**self._vectors, **vectors}

    def perform(
        self, act: Act, draft: Draft, *, now: str, episode: str = "", scanned: bool = False
    ) -> OperationOutcome:
        """Execute one act and journal it. One that changes nothing and concerns no item leaves no entry. Raises
        RefusedText.

        Args:
            act: What is done.
            draft: The scope, the time and the source of a new item.
            now: The present, as ISO 8601.
            episode: The id of the episode that it is part of; "" for none.
            scanned: Whether its text was scanned already; else it is, if the memory has a scan.
        """
        if self.scan is not None and not scanned:
            return self._perform_scanned(self.scan, act, draft, now, episode)
        self._asked = None
        self._before = {}
        id = f"m{self.seq}"
        self._items.setdefault(id, None)  # no item has the number of the next entry yet
        outcome = execute(self, act, draft, new_id=id, now=now)
        if not outcome.applied and malformed(act) is not None:
            return outcome
        # What the outcome depends on and did not change: the items that the act names, and the one a duplicate check found.
        named = dict.fromkeys((*act.targets, outcome.item))
        touched = [one for one in named if one and one not in self._before and self._may_touch(one)]
        if outcome.applied or touched or isinstance(act, Credit):
            kind, payload = encoded(act, draft)
            source = draft.provenance.source or getattr(act, "source", "")
            self.write_event(
                kind, draft.scope, payload, now=now, episode=episode, source=source, outcome=outcome, touched=touched
            )
        return outcome

    def _perform_scanned(self, scan: Scan, act: Act, draft: Draft, now: str, episode: str) -> OperationOutcome:
        """Perform an act as the scan lets it be, and put an item into quarantine whose new wording the scan holds back."""
        held = ""
        if isinstance(act, Operation):
            before = act
            act, draft, held = scan.screened(act, draft)
            if act is not before and self.encode is not None:
                self.provide(self.encode([draft.key or act.text]))
        elif isinstance(act, Assignment) and "metadata" in act.fields:
            there = self.get(act.target)
            released = there is not None and there.status is Status.QUARANTINED
            act = scan.screened_fields(act, released and act.fields.get("status") == Status.ACTIVE.value)
        outcome = self.perform(act, draft, now=now, episode=episode, scanned=True)
        if held and outcome.applied and isinstance(act, Operation) and act.kind is OperationKind.UPDATE:
            there = self._items[outcome.item]
            assert there is not None
            fields = {"status": Status.QUARANTINED.value, "metadata": {**there.metadata, HELD_FOR: held}}
            self.perform(Assignment(outcome.item, fields), draft, now=now, episode=episode, scanned=True)
        return outcome

    def scope_row(self, scope: Scope) -> ScopeRow:
        """Return the row of a scope, which is added if it is new."""
        scope_row = self._scope_rows.get(scope)
        if scope_row is None:
            row = first(self.connection, _SCOPE, scope.parts())
            if row is None:
                names = [(scope.tenant, part, getattr(scope, part)) for _, part in PARTS if getattr(scope, part)]
                put = "INSERT INTO names(tenant, part, name) VALUES(?,?,?) ON CONFLICT DO NOTHING"
                self.connection.executemany(put, names)
                tokens = " ".join(tokens_of(self.connection, scope) or ())
                row = first(self.connection, _NEW_SCOPE, (*scope.parts(), tokens, bytes(32)))
            scope_row = ScopeRow(row[0], row[1], row[2], row[3], int.from_bytes(row[4], "little"))
            self._scope_rows[scope] = scope_row
            self._scopes[scope_row.id] = scope
        return scope_row

    def scope_of(self, id: int) -> Scope:
        """Return the scope with an integer id."""
        scope = self._scopes.get(id)
        if scope is None:
            row = first(self.connection, f"SELECT {rows.SCOPE} FROM scopes WHERE id=?", (id,))
            scope = self._scopes[id] = rows.to_scope(row, id)
        return scope

    def write_event(
        self,
        kind: str,
        scope: Scope,
        payload: str,
        *,
        now: str,
        episode: str = "",
        source: str = "",
        outcome: OperationOutcome | None = None,
        touched: Iterable[str] = (),
        body: bytes | None = None,
    ) -> int:
        """Append an entry to the journal, with images of what `put` has replaced since the last one. Returns its number.

        Args:
            kind: The kind of the entry.
            scope: Whose entry it is.
            payload: What it says, as JSON.
            now: The present, as ISO 8601.
            episode: The id of the episode that it is part of; "" for none.
            source: Where it comes from.
            outcome: The outcome of an operation; None for what always takes effect.
            touched: The ids of items that it concerns without changing them.
            body: Bytes that belong to it; None for none.
        """
        seq = self.seq
        applied, reason = (True, "applied") if outcome is None else (outcome.applied, outcome.reason)
        home = self.scope_row(scope).id
        how = int(applied)
        for id, before in self._before.items():
            n = int(id[1:])
            if before is None:
                if n == seq:
                    how = CREATED
                else:
                    self._touches.append((seq, n, 1, None))
                continue
            self._touches.append((seq, n, 1, _image(to_record(before))))
            if id in self._contents:
                self._note_former(before, self._items[id])
        for id in touched:
            if id not in self._before:
                self._touches.append((seq, int(id[1:]), 0, None))
        event = (seq, now, kind, home, episode, source, payload, how, reason, body)
        self._link = linked(self._link, event)
        self._events.append((*event[:-1], self._asked, body, self._link))
        self._before = {}
        self._asked = None
        self.seq = seq + 1
        return seq

    def finish(self) -> None:
        """Write everything that was collected."""
        self.flush_journal()
        changed, credited = list[Changed](), list[tuple[Any, ...]]()
        for id, before in self._original.items():
            after = self._items[id]
            if after is not None and id not in self._contents:
                credited.append((*rows.figures(after.values), int(id[1:])))
            else:
                changed.append((int(id[1:]), before, after))
        self._original = {}
        self._write(rows.CREDIT, credited)
        if changed:
            self._write_items(changed)
            self._write_words(changed)
            if self.set_id is not None:
                self._write_vectors(changed)
            # No block covers an item that this transaction created.
            if older := [one for one in changed if one[0] < self._first]:
                self._mark_outdated(older)
        if self.set_id is not None and self._first // blocks.CHECK_EVERY != self.seq // blocks.CHECK_EVERY:
            blocks.extend(self.connection, self.set_id, self.seq // blocks.ITEMS - self._first // blocks.ITEMS + 1)
            self._first = self.seq

    def _write(self, statement: str, values: Sequence[Row]) -> None:
        if values:  # to prepare a statement for nothing costs two microseconds
            self.connection.executemany(statement, values)

    def load(self, id: str) -> Item | None:
        """Return an item of any scope, or None."""
        if id in self._items:
            return self._items[id]
        number = rows.number_of(id)
        item = None
        if number is not None and number < self.seq:
            row = first(self.connection, f"{rows.SELECT} WHERE n = ?", (number,))
            if row is not None:
                item = rows.to_item(row, self.scope_of(row[1]))
        self._items[id] = item
        return item

    def replace(self, id: str, item: Item | None) -> None:
        """Put an item in its new state on `finish`, or remove it (None), as where its creation was undone."""
        present = self.load(id)
        self._before.setdefault(id, present)
        self._original.setdefault(id, present)
        self._items[id] = item
        if present is not None and item is not None and rows.differ_in_values_alone(present, item):
            return  # nothing that is indexed, embedded, counted or hashed has changed
        if present is not None and present.open:
            key = duplicate_key(present)
            self._open[key] = tuple(other for other in self._open.get(key, ()) if other != id)
        self._contents[id] = None
        if item is not None and item.open:
            key, self._contents[id] = duplicate_key(item), rows.content_number(item)
            self._open[key] = (*self._open.get(key, ()), id)

    def _may_touch(self, id: str) -> bool:
        number = rows.number_of(id)
        if number is None or number >= self.seq:
            return False
        item = self.load(id)
        if item is not None:
            return self.scope.contains(item.scope)
        # An item whose creation is undone at present has no row, but may come back. Its last image has its scope, or else its
        # event; what a wider handle made of an item belongs to the item's scope, not to the handle's.
        self.flush_journal()
        item = self.last_image(number)
        if item is not None:
            return self.scope.contains(item.scope)
        home = scalar(self.connection, "SELECT scope FROM events WHERE seq = ?", (number,))
        return home is not None and self.scope.contains(self.scope_of(home))

    def last_image(self, number: int) -> Item | None:
        """Return the item of this number as the journal had it before its last change, or None if it has no image."""
        last = "SELECT before FROM touches WHERE n = ? AND before IS NOT NULL ORDER BY seq DESC LIMIT 1"
        return rows.image(scalar(self.connection, last, (number,)))

    def flush_journal(self) -> None:
        """Write the collected journal entries and what belongs to them."""
        self._write("INSERT INTO events VALUES(?,?,?,?,?,?,?,?,?,?,?,?)", self._events)
        self._write("INSERT INTO touches VALUES(?,?,?,?)", self._touches)
        put = "INSERT INTO former_contents VALUES(?,?) ON CONFLICT DO NOTHING"
        self._write(put, self._lost_contents)
        self._events, self._touches, self._lost_contents = [], [], []

    def _write_items(self, changed: Sequence[Changed]) -> None:
        fresh, rewritten, homes = list[Row](), list[Row](), dict[int, ScopeRow]()
        for _, before, after in changed:
            for item, sign in ((before, -1), (after, 1)):
                if item is None:
                    continue
                home, metadata = self.scope_row(item.scope), metadata_text(item.metadata)
                homes[home.id] = home
                home.total = (home.total + sign * content_digest(item, metadata)) % HASH_MODULUS
                if item.current:
                    home.count += sign
                    home.words += sign * term_count(item.indexed_text)
                if item is after:
                    row = rows.to_row(item, home.id, self._contents[item.id], metadata)
                    (fresh if before is None else rewritten).append(row)
        self._write(rows.INSERT, fresh)
        self._write(rows.REPLACE, rewritten)
        gone = [(n,) for n, _, after in changed if after is None]
        self._write("DELETE FROM items WHERE n = ?", gone)
        sums = [(home.count, home.words, home.total.to_bytes(32, "little"), home.id) for home in homes.values()]
        self._write("UPDATE scopes SET count=?, words=?, total=? WHERE id=?", sums)

    def _write_words(self, changed: Sequence[Changed]) -> None:
        deletes: list[int] = []
        inserts: list[Row] = []
        newest, long = self.seq - 1, False
        for n, before, after in changed:
            if n > self._indexed:
                # This row is beyond the index.
                newest = max(newest, n)
                long = long or (after is not None and len(after.indexed_text) > LONG)
                continue
            old, new = (item.indexed_text if item is not None and item.current else None for item in (before, after))
            if old == new:
                continue
            if old is not None:
                deletes.append(n)
            if new is not None:
                assert after is not None
                inserts.append((n, self.scope_row(after.scope).tokens, new))
        if deletes:
            self.connection.full_text.remove(self.connection, deletes)
        if inserts:
            write_terms(self.connection, inserts)
        if long or newest - self._indexed >= TAIL:
            index_rows(self.connection, self._indexed, newest)
            self._indexed = newest

    def _note_former(self, before: Item, after: Item | None) -> None:
        """Keep for undo the content number that the item loses, and the vector of a text that came and went in this write."""
        if before.open and (after is None or not after.open or duplicate_key(before) != duplicate_key(after)):
            self._lost_contents.append((rows.content_number(before), int(before.id[1:])))
        if after is None or before.searched_text != after.searched_text:
            vector = self._vectors.get(before.searched_text)
            if vector is not None and self.set_id is not None:
                number = rows.text_number(before.searched_text)
                self._former.append((self.set_id, int(before.id[1:]), number, vector))

    def _write_vectors(self, changed: Sequence[Changed]) -> None:
        assert self.set_id is not None
        table = VECTORS.format(self.set_id)
        stale: list[int] = []
        fresh: list[tuple[int, int, bytes]] = []
        wanted: dict[int, str] = {}
        for n, before, after in changed:
            old = before.searched_text if before is not None else None
            new = after.searched_text if after is not None else None
            if old is not None and old != new:
                stale.append(n)
            if new is None or after is None:
                continue
            vector = None if old == new else self._vectors.get(new)
            if vector is not None:
                fresh.append((n, rows.text_number(new), vector))
            elif old != new or (after.current and before is not None and not before.current):
                wanted[n] = new
        self._write(
            f"INSERT INTO former_vectors SELECT ?, n, hash, vector FROM {table} WHERE n = ? {_FORMER}",
            [(self.set_id, n) for n in stale],
        )
        self._write(f"DELETE FROM {table} WHERE n = ?", [(n,) for n in stale])
        self._write(f"INSERT INTO former_vectors VALUES(?,?,?,?) {_FORMER}", self._former)
        self._former = []
        self._write(f"INSERT INTO {table} VALUES(?,?,?) {rows.NEW_VECTOR}", fresh)
        if not wanted:
            return
        # A wording that was there before comes back with its vector.
        self._write(
            f"INSERT INTO {table}(n, hash, vector) "
            f"SELECT n, hash, vector FROM former_vectors WHERE set_id = ? AND n = ? AND hash = ? {rows.NEW_VECTOR}",
            [(self.set_id, n, rows.text_number(text)) for n, text in wanted.items()],
        )
        # Any other, such as that of a duplicate which lives on when the first is undone, is encoded now.
        there = {n for (n,) in select(self.connection, f"SELECT n FROM {table} WHERE n {AMONG}", (among(wanted),))}
        lacking = {n: text for n, text in wanted.items() if n not in there}
        if not lacking or self.encode is None:
            return  # without an encoder, `check` names what has no vector
        texts = list(dict.fromkeys(lacking.values()))
        if self.waits:
            raise Unencoded(texts)
        made = self.encode(texts)
        late = [(n, rows.text_number(text), made[text]) for n, text in lacking.items()]
        self._write(f"INSERT INTO {table} VALUES(?,?,?) {rows.NEW_VECTOR}", late)

    def _mark_outdated(self, changed: Sequence[Changed]) -> None:
        """Record which items in blocks are no longer current, are current again, or have another text."""

        def searched(item: Item | None) -> str | None:
            return item.searched_text if item is not None and item.current else None

        if outdated := [n for n, before, after in changed if searched(before) != searched(after)]:
            end = blocks.covered(self.connection)
            blocks.mark_outdated(self.connection, [n for n in outdated if n <= end])
