"""One writer per run folder: a lock that the system frees when the process ends, however it ends."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import IO

from keepworth.episodes.errors import KeepworthError

NAME = ".lock"
_PATIENCE = 0.2
"""Seconds. Whoever asks `writer` holds the lock for an instant, which is no reason not to begin a run."""


class RunLocked(KeepworthError):
    """Another process is writing to this run folder."""


def take_lock(folder: Path) -> IO[str]:
    """The locked file, which holds the process id; closing it gives the lock back. Raises RunLocked."""
    lock = open(folder / NAME, "a+", encoding="utf-8")  # noqa: SIM115 - held as long as the run is
    until = time.monotonic() + _PATIENCE
    while not _lock_file(lock):
        if time.monotonic() < until:
            time.sleep(_PATIENCE / 10)
            continue
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise RunLocked(
            f"Process {holder} is writing to {folder}.",
            "Wait for it, stop it, or give this run another name with --name.",
        )
    lock.seek(0)
    lock.truncate()
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def writer(folder: Path) -> str | None:
    """The id of the process that is writing to the run folder, as it put it there; None where none is."""
    try:
        lock = open(folder / NAME, encoding="utf-8")  # noqa: SIM115 - closed below, which gives the lock back
    except OSError:
        return None  # never locked, or not ours to read
    with lock:
        return None if _lock_file(lock) else lock.read().strip() or "unknown"


def _lock_file(file: IO[str]) -> bool:
    """Take an exclusive lock; False where another has it."""
    try:
        try:
            import fcntl
        except ImportError:  # Windows
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
            return True
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
