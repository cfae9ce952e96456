"""Files that appear whole or not at all: they are written under another name in the same folder, synced, then renamed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

PRIVATE = 0o600
"""The mode of files that hold a memory: only their owner reads them, as they hold what people said."""
ORDINARY = 0o666
"""The mode of files that others may read, as far as the process's umask lets them."""
SUFFIXES = ("", "-wal", "-shm", "-journal")
"""Suffixes of the files that belong to one database."""


def part_of(target: Path) -> Path:
    """Return a path, which no other writer uses, for a file that will be renamed to `target`."""
    return target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(4).hex()}.part")


@contextlib.contextmanager
def replacing(target: Path, mode: int = PRIVATE) -> Iterator[IO[bytes]]:
    """Yield a file to write to. It becomes `target` when the block ends, and is removed if the block raises. Raises OSError."""
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
    """Yield the path of an empty file to make a database in. It is renamed to `target` when the block ends, or removed if the
    block raises. Raises FileExistsError if there is a `target` by then, and OSError."""
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
    """Rename a finished, closed file to `target`, and never replace a file. Raises FileExistsError, OSError."""
    with open(part, "rb") as file:
        os.fsync(file.fileno())
    try:
        os.link(part, target)
    except FileExistsError:
        raise
    except OSError:
        # The file system has no hard links.
        if os.path.lexists(target):
            raise FileExistsError(target) from None
        os.rename(part, target)
    else:
        part.unlink()
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make a new name in a folder durable, if the system supports that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
