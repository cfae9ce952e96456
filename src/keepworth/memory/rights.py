"""Which roles of a server read which scopes of a memory there: see `store.postgres.rights`, which says what protects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from keepworth.memory.errors import MemoryProblem
from keepworth.memory.item import Scope
from keepworth.memory.place import place_of
from keepworth.memory.store.postgres import rights as of_server
from keepworth.memory.store.postgres.rights import RoleRight as RoleRight

if TYPE_CHECKING:
    from keepworth.memory.store.postgres.database import PostgresDatabase


def grant(path: str, role: str, *, user_id: str, agent_id: str = "", session_id: str = "") -> None:
    """Let a role of the server read what these names have in the memory at `path`, and nothing else. With the first right
    row-level security begins there. Raises MemoryProblem for a role that policies do not hold, ReadOnly for who is not the
    owner."""
    scope = Scope("", user_id, agent_id, session_id)
    with _opened(path) as database:
        database.write(lambda connection: of_server.grant(connection.raw, role, scope))  # type: ignore[attr-defined]


def revoke(path: str, role: str, *, user_id: str = "", agent_id: str = "", session_id: str = "") -> None:
    """Take one right back, or, without names, all that the role has. It holds from its next statement. Raises MemoryProblem."""
    scope = Scope("", user_id, agent_id, session_id)
    one = scope if any(scope.parts()) else None
    with _opened(path) as database:
        database.write(lambda connection: of_server.revoke(connection.raw, role, one))  # type: ignore[attr-defined]


def rights(path: str) -> list[RoleRight]:
    """Those of all roles, as the owner is told."""
    with _opened(path) as database, database.reading() as connection:
        database.require_whole("the list of rights")
        return of_server.rights(connection.raw)  # type: ignore[attr-defined]


@contextmanager
def _opened(path: str) -> Iterator[PostgresDatabase]:
    place = place_of(path)
    if not place.on_server:
        raise MemoryProblem(
            f"{place} is a file, and a file has no roles: whoever may read it reads all of it.",
            "`keepworth memory migrate` takes it to a server.",
        )
    from keepworth.memory.store.opening import opened

    database = opened(place.given, durability="power", read_only=False)
    try:
        yield database  # type: ignore[misc]
    finally:
        database.close()
