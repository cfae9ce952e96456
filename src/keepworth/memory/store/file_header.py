"""Whose a file is and of which format, before anything is done to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from keepworth.memory.errors import NewerFile, NotAMemoryFile
from keepworth.memory.store import schema

if TYPE_CHECKING:
    import apsw


def writable(path: str) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def refuse_strangers(path: str) -> None:
    """Look at the header before SQLite does, so that a file of another program, or half a copy, is never touched."""
    if Path(path).is_dir():
        raise NotAMemoryFile(f"{path} is a folder: give the path of a file in it")
    try:
        with open(path, "rb") as file:
            head = file.read(100)
    except OSError as error:
        raise NotAMemoryFile(f"{path} cannot be read ({error.strerror}): check its permissions") from error
    if not head:
        raise NotAMemoryFile(
            f"{path} is empty (0 bytes), so it is no memory, nor a new one: an interrupted copy or a full disk leaves such a "
            "file; restore a backup over it, or delete it to begin anew"
        )
    if not any(head) or _begun_from_nothing(f"{path}-journal"):
        raise NotAMemoryFile(
            f"{path} is half a copy: whoever wrote it was interrupted; delete it (and {path}-journal, if it is there) and copy "
            "again, or restore a backup"
        )
    if len(head) < 100 or head[:16] != b"SQLite format 3\x00":
        raise NotAMemoryFile(f"{path} is not a memory file: it belongs to another program; give another path")
    if head[18] == 1 and _size(f"{path}-wal"):
        # A memory in use says in its header that it has a write-ahead log; a backup that it has none.
        raise NotAMemoryFile(
            f"{path} is a backup, and {path}-wal beside it is the log of what lay there before: delete that log and {path}-shm, "
            "then open it again"
        )
    application = int.from_bytes(head[68:72], "big")
    if application != schema.APPLICATION_ID:
        raise NotAMemoryFile(f"{path} is an SQLite file of another program: give another path")


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _begun_from_nothing(journal: str) -> bool:
    """Whether the rollback journal at this path would take the database beside it back to an empty file.
    Source: "SQLite file format", section 3, the rollback journal."""
    try:
        with open(journal, "rb") as file:
            head = file.read(20)
    except OSError:
        return False
    return len(head) == 20 and head[:8] == _JOURNAL and not any(head[16:])


_JOURNAL = bytes.fromhex("d9d505f920a163d7")


def check_version(path: str, connection: apsw.Connection) -> int:
    if connection.pragma("application_id") != schema.APPLICATION_ID:
        raise NotAMemoryFile(f"{path} is an SQLite file of another program: give another path")
    found = connection.pragma("user_version")
    assert isinstance(found, int)
    if found > schema.VERSION:
        raise NewerFile(
            f"{path} was written by a newer version (format {found}, this one knows {schema.VERSION}): upgrade keepworth"
        )
    return found
