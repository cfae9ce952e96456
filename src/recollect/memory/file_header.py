"""Whose a file is and of which format, before anything is done to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.memory import schema
from recollect.memory.errors import NewerFile, NotAMemoryFile

if TYPE_CHECKING:
    import apsw


def writable(path: str) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def refuse_strangers(path: str) -> None:
    """Look at the header before SQLite does, so that a file of another program is never touched."""
    if Path(path).is_dir():
        raise NotAMemoryFile(f"{path} is a folder: give the path of a file in it")
    try:
        with open(path, "rb") as file:
            head = file.read(100)
    except OSError as error:
        raise NotAMemoryFile(f"{path} cannot be read ({error.strerror}): check its permissions") from error
    if not head:
        return
    if len(head) < 100 or head[:16] != b"SQLite format 3\x00":
        raise NotAMemoryFile(f"{path} is not a memory file: it belongs to another program; give another path")
    application = int.from_bytes(head[68:72], "big")
    if application != schema.APPLICATION_ID:
        raise NotAMemoryFile(f"{path} is an SQLite file of another program: give another path")


def check_version(path: str, connection: apsw.Connection) -> int:
    if connection.pragma("application_id") != schema.APPLICATION_ID:
        raise NotAMemoryFile(f"{path} is an SQLite file of another program: give another path")
    found = connection.pragma("user_version")
    assert isinstance(found, int)
    if found > schema.VERSION:
        raise NewerFile(
            f"{path} was written by a newer version (format {found}, this one knows {schema.VERSION}): upgrade recollect"
        )
    return found
