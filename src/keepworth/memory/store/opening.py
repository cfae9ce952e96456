"""Which database a memory lies in."""

from __future__ import annotations

import os

from keepworth.memory.store.connection import Backend
from keepworth.memory.store.database import Database

SERVERS = ("postgresql://", "postgres://")
"""How the address of a memory on a server begins."""


def on_server(path: object) -> bool:
    """Whether `path` is the address of a memory on a server."""
    return isinstance(path, str) and path.startswith(SERVERS)


def opened(path: str | os.PathLike[str], *, durability: str, read_only: bool) -> Backend:
    """path: a file, ":memory:", or an address of Postgres."""
    if on_server(path):
        from keepworth.memory.store.postgres.database import PostgresDatabase

        return PostgresDatabase(str(path), durability=durability, read_only=read_only)
    return Database(path, durability=durability, read_only=read_only)
