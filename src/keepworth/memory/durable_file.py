"""Files that appear whole or not at all: written under another name in the same folder, synced, then named."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

PRIVATE = 0o600
"""The mode of what we create: memories hold what people said."""
ORDINARY = 0o666
"""The mode of what others may read, as far as the system is set so."""
SUFFIXES = ("", "-wal", "-shm", "-journal")
"""Of the files that belong to one database."""


def part_of(target: Path) -> Path:
    """A name for what will be `target`, that no other writer uses."""
    return target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(4).hex()}.part")


@contextlib.contextmanager
def replacing(target: Path, mode: int = PRIVATE) -> Iterator[IO[bytes]]:
    """A file to write to, which becomes `target` when the block ends and is gone when the block raises. Raises OSError."""
    part = part_of(target)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
        sync_folder(target.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


@contextlib.contextmanager
def appearing(target: Path) -> Iterator[Path]:
    """An empty file to make a database in, which gets the name `target` when the block ends, unless something has it; nothing of
    it is left otherwise. Raises FileExistsError, OSError."""
    part = part_of(target)
    try:
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE))
        yield part
        publish(part, target)
    finally:
        for suffix in SUFFIXES:
            with contextlib.suppress(OSError):
                os.unlink(f"{part}{suffix}")


def publish(part: Path, target: Path) -> None:
    """Give a finished, closed file its name, unless something has that name. Raises FileExistsError, OSError."""
    with open(part, "rb") as file:
        os.fsync(file.fileno())
    try:
        os.link(part, target)
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links.
        if os.path.lexists(target):
            raise FileExistsError(target) from None
        os.rename(part, target)
    else:
        part.unlink()
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make a new name durable, where the system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
