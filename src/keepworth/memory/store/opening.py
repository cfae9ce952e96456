"""Opens the database that a memory lies in."""

from __future__ import annotations

import os

from keepworth.memory.errors import NothingThere
from keepworth.memory.place import on_server
from keepworth.memory.store.backend import Backend
from keepworth.memory.store.database import Database


def opened(path: str | os.PathLike[str], *, durability: str, read_only: bool) -> Backend:
    """Open the database of a memory.

    Args:
        path: A file, ":memory:", or an address of Postgres.
        durability: "process" or "power", see `MemorySettings`.
        read_only: Whether nothing may be written.
    """
    if on_server(path):
        from keepworth.memory.store.postgres.database import PostgresDatabase

        return PostgresDatabase(str(path), durability=durability, read_only=read_only)
    return Database(path, durability=durability, read_only=read_only)


def is_there(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a memory at `path`, and make none. Raises MemoryProblem if a server does not tell."""
    if not on_server(path):
        return os.path.exists(path)
    try:
        opened(path, durability="process", read_only=True).close()
    except NothingThere:
        return False
    return True
