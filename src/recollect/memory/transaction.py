"""One write transaction on a store: the `View` that operations act on, and what they leave in the tables.

Everything here runs under the store's write lock, inside one SQLite transaction: journal, view, full-text index, vectors
and content hashes change together or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recollect.memory import journal_entry, rows
from recollect.memory.database import first, scalar, select
from recollect.memory.item import Item, content_digest, duplicate_key, to_record
from recollect.memory.journal_entry import encoded, targets_of
from recollect.memory.lexical import tokens
from recollect.memory.operations import Act, Draft, Outcome, execute
from recollect.memory.schema import vector_table
from recollect.memory.scope import Scope
from recollect.memory.shelf import HASH_MODULUS

if TYPE_CHECKING:
    import apsw

Vectors = Mapping[str, bytes]
"""Vectors at hand for this write: searched text -> little-endian float32 bytes of the unit vector."""


@dataclass(slots=True)
class _ScopeRow:
    id: int
    tokens: str
    count: int
    words: int
    total: int
    dirty: bool = False


@dataclass(slots=True)
class ScopeBook:
    """Scope ids and running sums, as read in this transaction."""

    by_scope: dict[Scope, _ScopeRow] = field(default_factory=dict)
    by_id: dict[int, Scope] = field(default_factory=dict)


class Transaction:
    """scope: what may be seen and written. set_id: the vector set in use, or None where there is no encoder."""

    def __init__(
        self, connection: apsw.Connection, scope: Scope, *, set_id: int | None, vectors: Vectors | None = None
    ) -> None:
        self.connection = connection
        self.scope = scope
        self._set_id = set_id
        self._vectors = vectors or {}
        self._book = ScopeBook()
        self._read: dict[str, Item | None] = {}
        self._before: dict[str, Item | None] = {}
        self._asked: int | None = None
        self.seq = next_seq(connection)

    # What the executor sees.

    def get(self, id: str) -> Item | None:
        item = self.load(id)
        return item if item is not None and self.scope.contains(item.scope) else None

    def duplicate_of(self, item: Item) -> str | None:
        self._asked = rows.content_number(item)
        key = duplicate_key(item)
        for buffered in self._before:
            latest = self._read[buffered]
            if latest is not None and latest.open and duplicate_key(latest) == key:
                return latest.id
        for (n,) in select(self.connection, "SELECT n FROM items WHERE content = ?", (self._asked,)):
            found = self.load(f"m{n}")
            if found is not None and found.open and duplicate_key(found) == key:
                return found.id
        return None

    def put(self, item: Item) -> None:
        if item.id not in self._before:
            self._before[item.id] = self.load(item.id)
        self._read[item.id] = item

    # What callers do.

    def perform(self, act: Act, draft: Draft, *, now: str, episode: str = "") -> Outcome:
        """Execute one act and journal it. An act that changed nothing and concerns no item leaves no trace."""
        self._asked = None
        self._before = {}
        outcome = execute(self, act, draft, new_id=f"m{self.seq}", now=now)
        touched = self._touched(act, outcome)
        if outcome.applied or touched:
            kind, payload = encoded(act, draft)
            source = draft.provenance.source or getattr(act, "source", "")
            self.write_event(
                kind, draft.scope, payload, now=now, episode=episode, source=source, outcome=outcome, touched=touched
            )
        return outcome

    def write_event(
        self,
        kind: str,
        scope: Scope,
        payload: str,
        *,
        now: str,
        episode: str = "",
        source: str = "",
        outcome: Outcome | None = None,
        touched: Iterable[str] = (),
        body: bytes | None = None,
    ) -> int:
        """Append to the journal, with the images of what the buffered `put`s replace, and write these. Returns its seq."""
        seq = self.seq
        applied = outcome is None or outcome.applied
        self.connection.execute(
            "INSERT INTO events VALUES(?,?,?,?,?,?,?,?,?,?,?)",
            (
                seq,
                now,
                kind,
                self.scope_id(scope),
                episode,
                source,
                payload,
                int(applied),
                outcome.reason if outcome is not None else "applied",
                self._asked,
                body,
            ),
        )
        for id, before in self._before.items():
            image = None if before is None else json.dumps(to_record(before), ensure_ascii=False)
            self.connection.execute("INSERT INTO changes VALUES(?,?,1,?)", (seq, int(id[1:]), image))
            self._write_item(before, self._read[id])
        for id in touched:
            if id not in self._before:
                self.connection.execute("INSERT INTO changes VALUES(?,?,0,NULL)", (seq, int(id[1:])))
        self._before = {}
        self._asked = None
        self.seq = seq + 1
        return seq

    def remove(self, id: str) -> None:
        """Buffer the disappearance of an item whose creation was undone."""
        if id not in self._before:
            self._before[id] = self.load(id)
        self._read[id] = None

    def finish(self) -> None:
        """Write the running sums of every scope that changed. Call once, before the transaction commits."""
        for row in self._book.by_scope.values():
            if row.dirty:
                self.connection.execute(
                    "UPDATE scopes SET count=?, words=?, total=? WHERE id=?",
                    (row.count, row.words, row.total.to_bytes(32, "little"), row.id),
                )
                row.dirty = False

    def load(self, id: str) -> Item | None:
        """An item of any scope."""
        if id in self._read:
            return self._read[id]
        number = rows.number_of(id)
        item = None
        if number is not None:
            row = first(self.connection, f"{rows.SELECT} WHERE n = ?", (number,))
            if row is not None:
                item = rows.to_item(row, self.scope_of(row[1]))
        self._read[id] = item
        return item

    def scope_id(self, scope: Scope) -> int:
        return self._scope_row(scope).id

    def scope_of(self, id: int) -> Scope:
        scope = self._book.by_id.get(id)
        if scope is None:
            row = first(self.connection, "SELECT tenant, user, agent, session FROM scopes WHERE id=?", (id,))
            scope = self._book.by_id[id] = Scope(*row)
        return scope

    def _scope_row(self, scope: Scope) -> _ScopeRow:
        found = self._book.by_scope.get(scope)
        if found is None:
            columns = (
                "SELECT id, tokens, count, words, total FROM scopes WHERE tenant=? AND user=? AND agent=? AND session=?"
            )
            row = first(self.connection, columns, scope.parts())
            if row is None:
                self.connection.execute(
                    "INSERT INTO scopes(tenant, user, agent, session, tokens, total) VALUES(?,?,?,?,?,?)",
                    (*scope.parts(), " ".join(self._tokens(scope)), bytes(32)),
                )
                row = first(self.connection, columns, scope.parts())
            found = _ScopeRow(row[0], row[1], row[2], row[3], int.from_bytes(row[4], "little"))
            self._book.by_scope[scope] = found
            self._book.by_id[found.id] = scope
        return found

    def _tokens(self, scope: Scope) -> list[str]:
        """One alphanumeric token per named part, made of an integer, so that no name can break the query language."""
        out = []
        for letter, part in zip("tuas", ("tenant", "user", "agent", "session"), strict=True):
            name = getattr(scope, part)
            if name:
                values = (scope.tenant, part, name)
                self.connection.execute("INSERT OR IGNORE INTO names(tenant, part, name) VALUES(?,?,?)", values)
                id = scalar(self.connection, "SELECT id FROM names WHERE tenant=? AND part=? AND name=?", values)
                out.append(f"{letter}{id}")
        return out

    def _touched(self, act: Act, outcome: Outcome) -> list[str]:
        """Every item the outcome depends on: those named, and the one a duplicate check found."""
        named = [*targets_of(act), outcome.item, *outcome.changed]
        return [id for id in dict.fromkeys(named) if rows.number_of(id) is not None and self._may_touch(id)]

    def _may_touch(self, id: str) -> bool:
        if self.get(id) is not None:
            return True
        # An item whose creation is undone at the moment has no row, but may come back: its event says whose it was.
        if self.load(id) is not None:
            return False
        row = first(self.connection, "SELECT scope FROM events WHERE seq = ?", (rows.number_of(id),))
        return row is not None and self.scope.contains(self.scope_of(row[0]))

    def _write_item(self, before: Item | None, after: Item | None) -> None:
        connection = self.connection
        for item, sign in ((before, -1), (after, 1)):
            if item is not None:
                row = self._scope_row(item.scope)
                row.total = (row.total + sign * content_digest(item)) % HASH_MODULUS
                if item.current:
                    row.count += sign
                    row.words += sign * len(tokens(indexed_text(item)))
                row.dirty = True
        if after is not None:
            connection.execute(rows.INSERT, rows.to_row(after, self.scope_id(after.scope)))
        else:
            assert before is not None
            connection.execute("DELETE FROM items WHERE n = ?", (int(before.id[1:]),))
        self._write_words(before, after)
        if self._set_id is not None:
            self._write_vector(before, after)

    def _write_words(self, before: Item | None, after: Item | None) -> None:
        old, new = _word_table(before), _word_table(after)
        same = before is not None and after is not None and indexed_text(before) == indexed_text(after)
        if old == new and same:
            return
        if before is not None and old:
            self.connection.execute(f"DELETE FROM {old} WHERE rowid = ?", (int(before.id[1:]),))
        if after is not None and new:
            self.connection.execute(
                f"INSERT INTO {new}(rowid, scope, text) VALUES(?,?,?)",
                (int(after.id[1:]), self._scope_row(after.scope).tokens, indexed_text(after)),
            )

    def _write_vector(self, before: Item | None, after: Item | None) -> None:
        assert self._set_id is not None
        table = vector_table(self._set_id)
        old = before.searched_text if before is not None else None
        new = after.searched_text if after is not None else None
        if old == new:
            return
        item = after or before
        assert item is not None
        n = int(item.id[1:])
        if old is not None:
            self.connection.execute(
                "INSERT OR REPLACE INTO former_vectors(set_id, n, hash, vector) "
                f"SELECT ?, n, hash, vector FROM {table} WHERE n = ?",
                (self._set_id, n),
            )
        if new is None:
            self.connection.execute(f"DELETE FROM {table} WHERE n = ?", (n,))
            return
        number = rows.text_number(new)
        vector = self._vectors.get(new)
        if vector is None and (before is None or old is not None):
            former = first(
                self.connection,
                "SELECT vector FROM former_vectors WHERE set_id=? AND n=? AND hash=?",
                (self._set_id, n, number),
            )
            vector = None if former is None else former[0]
        if vector is None:
            # Not embedded: found by words only until `reembed`; the statistics say how many there are.
            self.connection.execute(f"DELETE FROM {table} WHERE n = ?", (n,))
        else:
            self.connection.execute(f"INSERT OR REPLACE INTO {table} VALUES(?,?,?)", (n, number, vector))


def indexed_text(item: Item) -> str:
    return f"{item.key}\n{item.text}" if item.key else item.text


def next_seq(connection: apsw.Connection) -> int:
    last = scalar(connection, "SELECT max(seq) FROM events")
    return (last or 0) + 1


def _word_table(item: Item | None) -> str:
    if item is None or item.deleted:
        return ""
    return "words" if item.current else "past_words"


__all__ = ["Transaction", "indexed_text", "journal_entry", "next_seq"]
