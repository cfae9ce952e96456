"""Whose a run's folder is: its record, `config.json`, of how the run was configured and what it ran with, and the lock of the one
process that may write there, which the system frees when the process ends, however it ends.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from keepworth.episodes.errors import KeepworthError
from keepworth.learning.run.disk import Row, read_json

RECORD = "config.json"
LOCK = ".lock"
_PATIENCE = 0.2
"""Seconds. Whoever asks `writer` holds the lock for an instant, which is no reason not to begin a run."""
ROWS = ("metrics.jsonl", "evals.jsonl", "curriculum.jsonl")
FILES = (*ROWS, "result.json", "status.json", "report.html", "curves.png")
FOLDERS = ("episodes", "checkpoints", "weights", "finished", "memory", "published", "tensorboard")

CHANGEABLE = ("engine", "token_budget")
"""Settings that a run may be continued with another value of: where something is reached, and how much is computed at once."""

LATER: Mapping[str, Any] = {
    "objective": "",
    "minibatches": 1,
    "teacher": "",
    "critic_learning_rate": 1e-3,
    "critic_rank": 8,
    "critic_warmup": 0,
}
"""Settings that runs of earlier versions do not name, with the value at which a run is what it was without them."""


class RunConflict(KeepworthError):
    """A second run over the files of a first one that was configured otherwise."""


class NotOurs(KeepworthError):
    """A folder that holds files of the names a run writes, but not the record of a run."""


def is_run(path: Path) -> bool:
    """Whether the folder has the record of a run."""
    try:
        value = json.loads((path / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return _is_record(value)


def read_record(path: Path) -> Row:
    """The record in the folder `path`. Raises KeepworthError where there is none, or something else of its name."""
    fix = "Correct the file, or give the run another name with --name."
    record = read_json(path / RECORD, fix)
    if not _is_record(record):
        raise KeepworthError(f'{path / RECORD} is not the record of a run ("config" and "environment").', fix)
    return record


def refuse_foreign(path: Path) -> None:
    """Raises NotOurs where a run in `path` would write over or delete what no run of ours put there."""
    if is_run(path):
        return
    found = [name for name in (RECORD, *FILES, *FOLDERS) if (path / name).exists() or (path / name).is_symlink()]
    lock = path / LOCK
    if lock.is_file() and lock.read_bytes()[:20].strip(b"0123456789"):
        found.append(LOCK)
    if found:
        raise NotOurs(
            f"{path} holds {', '.join(found)}, but no record of a run ({RECORD} with its configuration): "
            "these files are not a run's to replace.",
            "Give the run another name with --name, or another place with --runs; or move these files away.",
        )


def refuse_links(path: Path) -> None:
    """Raises NotOurs where a folder of the run is a link: continuing a run deletes files, and those behind a link may be
    another's."""
    for name in FOLDERS:
        folder = path / name
        inside = sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else ()
        for each in (folder, *inside):
            if each.is_symlink() and (each is folder or each.is_dir()):
                raise NotOurs(
                    f"{each} is a link to {each.readlink()}: a run deletes files of its own folders alone, "
                    "never what is behind a link.",
                    "Remove the link, or move what it points to here. A whole run has another place with --runs.",
                )


def refuse_other(path: Path, before: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Raises RunConflict, naming the keys, where the run in `path` was configured otherwise. An address or a budget of
    memory may change: they say nothing about the run, and whether there is one does."""
    now = flatten(asked)
    then = {key: value for key, value in LATER.items() if key in now} | flatten(before)
    absent = object()
    moved = {key for key in CHANGEABLE if then.get(key) and now.get(key)}
    changed = sorted(key for key in (then | now).keys() - moved if then.get(key, absent) != now.get(key, absent))
    if not changed:
        return
    listed = "; ".join(f"{key}: {then.get(key, '(absent)')!r} -> {now.get(key, '(absent)')!r}" for key in changed)
    raise RunConflict(
        f"{path} holds a run that was configured otherwise ({listed}).",
        "Give the new run its own folder with --name, or start over in this one with --fresh (deletes its files).",
    )


def versions() -> dict[str, str]:
    """Versions of whatever may change a run's numbers. Reads package metadata: imports nothing."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in ("keepworth", "torch", "transformers", "tokenizers", "peft", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} as {"a.b": 1}: the names that `--set` takes."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{name}."))
        else:
            flat[name] = value
    return flat


def _is_record(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key), dict) for key in ("config", "environment"))


class RunLocked(KeepworthError):
    """Another process is writing to this run folder."""


def take_lock(folder: Path) -> IO[str]:
    """The locked file, which holds the process id; closing it gives the lock back. Raises RunLocked."""
    lock = open(folder / LOCK, "a+", encoding="utf-8")  # noqa: SIM115 - held as long as the run is
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
        lock = open(folder / LOCK, encoding="utf-8")  # noqa: SIM115 - closed below, which gives the lock back
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
