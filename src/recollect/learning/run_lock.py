"""One writer per run folder: a lock that the system frees when the process ends, however it ends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from recollect.episodes.errors import RecollectError


class RunLocked(RecollectError):
    """Another process is writing to this run folder."""


def take_lock(folder: Path) -> IO[str]:
    """The locked file, which holds the process id; closing it gives the lock back. Raises RunLocked."""
    lock = open(folder / ".lock", "a+", encoding="utf-8")  # noqa: SIM115 - held as long as the run is
    try:
        _lock_file(lock)
    except OSError as error:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise RunLocked(
            f"Process {holder} is writing to {folder}.",
            "Wait for it, stop it, or give this run another name with --name.",
        ) from error
    lock.seek(0)
    lock.truncate()
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def _lock_file(file: IO[str]) -> None:
    """Take an exclusive lock or raise OSError."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
