"""Scopes as a write transaction sees them: integer ids, full-text tokens, and each scope's running sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepworth.memory.scope import Scope
from keepworth.memory.store import rows
from keepworth.memory.store.database import first, scalar

if TYPE_CHECKING:
    import apsw

PARTS = tuple(zip("tuas", ("tenant", "user", "agent", "session"), strict=True))
_COLUMNS = "SELECT id, tokens, count, words, total FROM scopes WHERE tenant=? AND user=? AND agent=? AND session=?"


@dataclass(slots=True)
class ScopeRow:
    """count: current items; words: in them; total: sum of the content digests of all items."""

    id: int
    tokens: str
    count: int
    words: int
    total: int
    dirty: bool = False


class ScopeBook:
    """Reads each scope once, adds unknown ones, and writes changed sums back on `close`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._by_scope: dict[Scope, ScopeRow] = {}
        self._by_id: dict[int, Scope] = {}
        # A batch is nearly always of one scope, and hashing four names for every item adds up.
        self._last_scope: Scope | None = None
        self._last_row: ScopeRow | None = None

    def row(self, scope: Scope) -> ScopeRow:
        if scope is self._last_scope and self._last_row is not None:
            return self._last_row
        found = self._by_scope.get(scope)
        if found is None:
            row = first(self._connection, _COLUMNS, scope.parts())
            if row is None:
                self._connection.execute(
                    "INSERT INTO scopes(tenant, user, agent, session, tokens, total) VALUES(?,?,?,?,?,?)",
                    (*scope.parts(), " ".join(self._tokens(scope)), bytes(32)),
                )
                row = first(self._connection, _COLUMNS, scope.parts())
            found = ScopeRow(row[0], row[1], row[2], row[3], int.from_bytes(row[4], "little"))
            self._by_scope[scope] = found
            self._by_id[found.id] = scope
        self._last_scope, self._last_row = scope, found
        return found

    def scope(self, id: int) -> Scope:
        scope = self._by_id.get(id)
        if scope is None:
            row = first(self._connection, "SELECT tenant, user, agent, session FROM scopes WHERE id=?", (id,))
            scope = self._by_id[id] = rows.to_scope(row, id)
        return scope

    def close(self) -> None:
        changed = [row for row in self._by_scope.values() if row.dirty]
        self._connection.executemany(
            "UPDATE scopes SET count=?, words=?, total=? WHERE id=?",
            [(row.count, row.words, row.total.to_bytes(32, "little"), row.id) for row in changed],
        )
        for row in changed:
            row.dirty = False

    def _tokens(self, scope: Scope) -> list[str]:
        """One alphanumeric token per named part, made of an integer, so that no name can break the query language."""
        out = []
        for letter, part in PARTS:
            name = getattr(scope, part)
            if name:
                values = (scope.tenant, part, name)
                self._connection.execute("INSERT OR IGNORE INTO names(tenant, part, name) VALUES(?,?,?)", values)
                id = scalar(self._connection, "SELECT id FROM names WHERE tenant=? AND part=? AND name=?", values)
                out.append(f"{letter}{id}")
        return out
