"""Files and folders that appear whole or not at all, written under another name beside their own, synced, then renamed; and what
a disk that refuses them says."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from keepworth.base.errors import KeepworthError

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


def sync(path: Path) -> None:
    """Waits until the file, or the folder's list of names, is on the disk."""
    if os.name == "nt" and path.is_dir():  # folders cannot be opened for syncing there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class DiskTrouble(KeepworthError):
    """A path cannot be written: the disk is full or read-only, permission is missing, or another file is in its place."""


@contextlib.contextmanager
def disk(path: Path) -> Iterator[None]:
    """Converts errors that the operating system or torch raises about a disk to a DiskTrouble that names the path and the fix."""
    try:
        yield
    except (KeepworthError, ConnectionError):
        raise
    except Exception as error:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        # Rust libraries (safetensors, tokenizers) say it in words alone.
        if full or "No space left on device" in str(error):
            raise DiskTrouble(
                f"The disk that holds {path} is full.",
                "Free some space and give the same command again: a training run continues from its last checkpoint.",
            ) from error
        if isinstance(error, OSError) or "inline_container" in str(error) or "iostream" in str(error):
            file, reason = (getattr(error, name, None) for name in ("filename", "strerror"))
            raise DiskTrouble(
                f"{file or path} cannot be written ({reason or error}).",
                "Choose another place, or change its permissions.",
            ) from error
        raise


def check_writable(path: Path) -> None:
    """Checks that a file can be written at `path`, before the hours of work whose result goes there. Makes the folders above it.
    Raises DiskTrouble."""
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise DiskTrouble(f"{path} is a folder.", f"Name a file, such as {path / 'numbers.json'}.")
        existed = path.exists()
        open(path, "ab").close()
        if not existed:
            path.unlink()


@contextlib.contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yields a temporary folder that replaces `path` when the block ends without an error, as `replacing` does for a file. Its
    files are synced first, so that `path` holds all of them or none."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with disk(path):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            yield temporary
            for file in sorted(temporary.rglob("*"), reverse=True):  # a folder after what is in it
                sync(file)
            sync(temporary)
            shutil.rmtree(path, ignore_errors=True)
            os.rename(temporary, path)
            sync(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
