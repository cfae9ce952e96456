"""What a training run leaves on disk, and what it needs to continue.

    runs/<name>/
      config.json              the resolved configuration, versions, threads, dtype
      metrics.jsonl            one JSON object per training step: {"step", "time", ...}
      curriculum.jsonl         one per task that was put aside or rejected, with the reason
      shared.jsonl             one per group of another run that was trained on or refused (`shared_groups`)
      evals.jsonl              one per measurement: {"step", "arm", "metric", "mean", "low", "high", "n", ...}
      episodes/step-000015.train.jsonl.gz   every episode, by step and by what it was run for
      checkpoints/step-000015/ whatever the trainer saves, with a manifest of sha256 sums
      memory/<role>.mem        a memory that learns while the role is trained (`memories`)
      published/<role>/        the latest weights that were handed to an engine behind HTTP (`sampler`)
      weights/<role>/          the finished weights of a role, with step.json: the step at which they were finished
      result.json              the final tables
      report.html  made from the above (`keepworth report RUN`)

`step` counts optimiser steps over the whole run, whichever role they train, so that it orders everything.

A process may be killed between any two instructions. Lines are appended whole and a torn last line is dropped on the
next read; everything else is written beside its place, synced and renamed. Continuing drops what is later than the
last checkpoint, so that a run that was killed reads the same as one that was not.
"""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from keepworth.episodes.episode import Episode, episode_from_json, episode_to_json
from keepworth.episodes.errors import KeepworthError, UnknownName
from keepworth.episodes.extras import require
from keepworth.models.files import is_disk_full, sha256_of, sync

# A disk may fill up and a process may be killed: sync, rename, and say what went wrong. JSON files are written whole or not at
# all, and read back with the file and line of what is wrong.


FULL_BELOW = 1 << 20
"""Bytes. A write that failed with less than this left is taken to have failed for want of space."""


class DiskTrouble(KeepworthError):
    """The disk is full, read-only, not ours to write to, or has something else in the place."""


@contextmanager
def disk(path: Path) -> Iterator[None]:
    """Turns what the operating system says about a disk into a sentence that names the place and the fix.

    torch and safetensors report a failed write as an exception of their own, often without the cause: with next to no space
    left on the disk, that is the cause.
    """
    try:
        yield
    except (KeepworthError, ConnectionError):
        raise
    except Exception as error:
        told = isinstance(error, OSError) and error.errno is not None
        failed = isinstance(error, OSError | RuntimeError) or type(error).__module__.startswith("safetensors")
        free = _free(path)
        if is_disk_full(error) or (failed and not told and free is not None and free < FULL_BELOW):
            raise DiskTrouble(
                f"The disk that holds {path} is full.",
                "Free some space and give the same command again: the run continues from its last checkpoint.",
            ) from error
        if isinstance(error, OSError) or "inline_container" in str(error) or "iostream" in str(error):
            file, reason = (getattr(error, name, None) for name in ("filename", "strerror"))
            raise DiskTrouble(
                f"{file or path} cannot be written ({reason or error}).",
                "Choose another place, or change its permissions.",
            ) from error
        raise


def _free(path: Path) -> int | None:
    """Bytes left on the disk that holds `path`, which need not exist yet; None where the system does not say."""
    for folder in (path, *path.absolute().parents):
        try:
            return shutil.disk_usage(folder).free
        except OSError:
            continue
    return None


def check_writable(path: Path) -> None:
    """Make sure that a file can be written at `path`, before the hours of work whose result goes there.

    Makes the folders above it. Raises DiskTrouble.
    """
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise DiskTrouble(f"{path} is a folder.", f"Name a file, such as {path / 'numbers.json'}.")
        existed = path.exists()
        open(path, "ab").close()
        if not existed:
            path.unlink()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place, synced, when the block ends well."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """The same for a folder: what is in it when the block ends well is synced and then has the name, all of it or none.

    Raises DiskTrouble, judged before what was half written is removed and its space is free again."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with disk(path):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            yield temporary
            for each in sorted(temporary.rglob("*"), reverse=True):  # a folder after what is in it
                sync(each)
            sync(temporary)
            shutil.rmtree(path, ignore_errors=True)
            os.rename(temporary, path)
            sync(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


Row = dict[str, Any]

# What readers of the rows rely on: name, what it has to be, in words and as types.
Fields = Mapping[str, tuple[str, tuple[type, ...]]]
NUMBER = ("a number", (int, float))
METRIC: Fields = {"step": ("a whole number", (int,))}
EVAL: Fields = {
    "step": ("a whole number", (int,)),
    "arm": ("a text", (str,)),
    "metric": ("a text", (str,)),
    "mean": NUMBER,
    "low": ("a number or null", (int, float, type(None))),
    "high": ("a number or null", (int, float, type(None))),
    "n": ("a whole number", (int,)),
}


def line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def read_rows(path: Path, fields: Fields) -> Iterator[Row]:
    """Rows of a JSON-lines file, each with `fields`. Raises KeepworthError naming file and line of any other.

    A last line without its newline was being written when the process died: dropped."""
    if not path.exists():
        return
    with open(path, "rb") as lines:
        for number, text in enumerate(lines, 1):
            if not text.endswith(b"\n"):
                return
            try:
                row = json.loads(text)
            except ValueError as error:
                raise KeepworthError(f"{path} line {number} is not JSON ({error}).", "Delete the line.") from error
            wrong = mismatch(row, fields)
            if wrong:
                raise KeepworthError(f"{path} line {number} {wrong}.", "Delete the line.")
            yield row


def mismatch(row: object, fields: Fields) -> str:
    """What is wrong with a row, in words ("has no step"); empty where nothing is."""
    if not isinstance(row, dict):
        return f"holds {json.dumps(row)[:40]}, not a JSON object"
    for name, (words, types) in fields.items():
        if name not in row:
            if type(None) in types:
                continue
            return f"has no {name!r}"
        if not isinstance(row[name], types) or isinstance(row[name], bool):
            return f"has {json.dumps(row[name])[:40]} as {name!r}, not {words}"
    return ""


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replaces the file at once: a reader sees the old or the new one."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path, fix: str) -> Row:
    """The object in a file. Raises KeepworthError, with `fix`, where it cannot be read or is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise KeepworthError(f"{path} cannot be read ({error}).", fix) from error
    if not isinstance(value, dict):
        raise KeepworthError(f"{path} does not hold a JSON object.", fix)
    return value


# Checkpoint: what training continues from, complete or not there, with the sums that prove it.


LEARNER = "learner.pt"
_CHECKPOINT = re.compile(r"step-(\d{6,})")
_SUM = ("bytes", "sha256")


class CheckpointCorrupt(KeepworthError):
    """A checkpoint's file is missing or differs from what was saved."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder that a trainer filled at `step`; complete, because it got its name last."""

    step: int
    path: Path

    def verify(self) -> None:
        """Compare every file with the manifest. Raises CheckpointCorrupt, naming the file and the way out."""
        fix = f"Delete {self.path} and start again: the run continues from the checkpoint before it."
        manifest = self.path / "manifest.json"
        for name, expected in _sums(manifest, fix).items():
            path = self.path / name
            if not path.is_file():
                raise CheckpointCorrupt(f"{path} is missing from the checkpoint of step {self.step}.", fix)
            size = path.stat().st_size
            if size != expected["bytes"]:
                raise CheckpointCorrupt(f"{path} has {size} bytes; {expected['bytes']} were saved.", fix)
            if sha256_of(path) != expected["sha256"]:
                raise CheckpointCorrupt(f"{path} is not what was saved: its sha256 differs.", fix)


def _sums(manifest: Path, fix: str) -> Mapping[str, Mapping[str, Any]]:
    try:
        files = json.loads(manifest.read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointCorrupt(f"{manifest} cannot be read ({error}).", fix) from error
    if not isinstance(files, dict) or any(
        not isinstance(each, dict) or any(key not in each for key in _SUM) for each in files.values()
    ):
        raise CheckpointCorrupt(f"{manifest} is not a list of files with their sizes and sums.", fix)
    return files


def read_learner(checkpoint: Checkpoint, *, mapped: bool = False) -> dict[str, Any]:
    """The state that a learner left in the checkpoint: tensors and plain values, never code.

    mapped: tensors stay on disk until they are read. Raises CheckpointCorrupt where there is none, it holds something
    else, or it was written by a version that saved other things."""
    require("llm", "A learner's checkpoint", "torch")
    import torch

    path = checkpoint.path / LEARNER
    with reading(path, checkpoint):
        state = torch.load(path, weights_only=True, mmap=mapped)
        if not isinstance(state, dict) or not isinstance(state.get("learner"), dict):
            raise ValueError("it holds no learner")
    return state


@contextmanager
def reading(path: Path, checkpoint: Checkpoint) -> Iterator[None]:
    """Turns whatever a file of the checkpoint makes its reader raise into CheckpointCorrupt, with the way out.

    It has the sum that was saved: another version wrote it, or somebody who wrote the sums as well."""
    try:
        yield
    except KeepworthError:
        raise
    except Exception as error:
        if isinstance(error, MemoryError) or "not enough memory" in str(error):  # no fault of the file
            raise
        # torch's own words about a pickle tell the reader to switch the protection off.
        reason = "it holds something else" if isinstance(error, pickle.UnpicklingError) else str(error).split("\n")[0]
        raise CheckpointCorrupt(
            f"{path} has the sum that was saved, but cannot be read ({type(error).__name__}: {reason}).",
            f"Delete {checkpoint.path} and start again: the run continues from the checkpoint before it.",
        ) from error


def checkpoints_in(folder: Path) -> list[Checkpoint]:
    """Complete checkpoints, oldest first (not verified). Whatever else lies in the folder is not ours: ignored."""
    found = [
        Checkpoint(int(match.group(1)), each)
        for each in folder.glob("step-*")
        if (match := _CHECKPOINT.fullmatch(each.name)) and each.is_dir()
    ]
    return sorted(found, key=lambda each: each.step)


@contextmanager
def writing_checkpoint(folder: Path, step: int) -> Iterator[Path]:
    """A folder to fill; it becomes `folder/step-<step>`, with its manifest, when the block ends well."""
    with replacing_folder(folder / f"step-{step:06d}") as temporary:
        yield temporary
        files = sorted(each for each in temporary.rglob("*") if each.is_file())
        sums = {
            each.relative_to(temporary).as_posix(): {"sha256": sha256_of(each), "bytes": each.stat().st_size}
            for each in files
        }
        write_json(temporary / "manifest.json", {"step": step, "files": sums})


# Whose a run's folder is: its record, `config.json`, of how the run was configured and what it ran with, and the lock of the one
# process that may write there, which the system frees when the process ends, however it ends.


RECORD = "config.json"
LOCK = ".lock"
_PATIENCE = 0.2
"""Seconds. Whoever asks `writer` holds the lock for an instant, which is no reason not to begin a run."""
ROWS = ("metrics.jsonl", "evals.jsonl", "curriculum.jsonl", "shared.jsonl")
FILES = (*ROWS, "result.json", "status.json", "report.html")
FOLDERS = ("episodes", "checkpoints", "weights", "finished", "memory", "published")

PLACED = (
    *("engine", "token_budget", "checkpointing", "learners", "share", "ray_address"),
    *("workers", "worker_label"),
)
"""Settings that say where the work is done and how much of it at once: a run may be continued with another value. Whether there
is an engine, or a folder to share, is part of what the run is."""


class RunConflict(KeepworthError):
    """A second run over the files of a first one that was configured otherwise."""


class NotOurs(KeepworthError):
    """A folder that holds files, but not the record of a run."""


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
    """Raises NotOurs where `path` holds files and no record of a run: a run would write over them."""
    if path.is_dir() and not is_run(path) and any(not entry.name.startswith(".") for entry in path.iterdir()):
        raise NotOurs(
            f"{path} holds files, but no record of a run ({RECORD} with its configuration).",
            "Give the run another name with --name, or another place with --runs; or move these files away.",
        )


def refuse_other(path: Path, before: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Raises RunConflict, naming the keys, where the run in `path` was configured otherwise."""
    then, now, absent = flatten(before), flatten(asked), "(absent)"
    other = {key for key in ("engine", "share") if bool(then.get(key)) != bool(now.get(key))}
    keys = sorted((then | now).keys() - (set(PLACED) - other))
    changed = [key for key in keys if then.get(key, absent) != now.get(key, absent)]
    if changed:
        listed = "; ".join(f"{key}: {then.get(key, absent)!r} -> {now.get(key, absent)!r}" for key in changed)
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


# The episodes of a run on disk: a compressed file of JSON lines per step and arm, written whole or not at all.


EPISODES_FOLDER = "episodes"
TRAIN = "train"
_NAME = re.compile(r"step-(\d{6,})\.([^/]+)\.jsonl\.gz")


@dataclass(frozen=True, slots=True)
class StoredEpisode:
    """An episode with the step it was run at and what for (`train`, or the arm of an evaluation)."""

    step: int
    arm: str
    episode: Episode


def write_episodes(run: Path, step: int, arm: str, episodes: Iterable[Episode]) -> Path:
    """All episodes of one step and arm, in one file; written again, it replaces what was there. Raises DiskTrouble."""
    if not arm or "/" in arm or arm.startswith("."):
        raise ValueError(f"the arm of an episode file is part of its name, so it cannot be {arm!r}")
    path = run / EPISODES_FOLDER / f"step-{step:06d}.{arm}.jsonl.gz"
    with disk(run):
        path.parent.mkdir(parents=True, exist_ok=True)
    with (
        disk(run),
        replacing(path) as temporary,
        open(temporary, "wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed,
    ):
        for episode in episodes:
            packed.write(line(episode_to_json(episode)))
    return path


def stored_episodes(
    run: Path, *, step: int | None = None, arm: str | None = None, role: str | None = None
) -> Iterator[StoredEpisode]:
    """By step, then arm, then as written. Raises KeepworthError on a file that does not decompress, or holds something else."""
    for at, of, path in episode_files(run):
        if (step is not None and at != step) or (arm is not None and of != arm):
            continue
        try:
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                records = [json.loads(text) for text in lines]
        except (OSError, EOFError, ValueError) as error:
            raise KeepworthError(f"{path} cannot be read ({error}).", "Delete the file to go on without it.") from error
        for number, record in enumerate(records, 1):
            try:
                if not isinstance(record, dict):
                    raise KeepworthError("It is not a JSON object.", "Delete the file to go on without it.")
                episode = episode_from_json(record)
            except KeepworthError as error:
                raise KeepworthError(f"{path} line {number}: {error.message}", error.fix) from error
            if role is None or episode.role == role:
                yield StoredEpisode(at, of, episode)


def episode_files(run: Path) -> list[tuple[int, str, Path]]:
    """(step, arm, path) of every episode file, in order. Files with other names are not ours: ignored."""
    found = [
        (int(match.group(1)), match.group(2), path)
        for path in (run / EPISODES_FOLDER).glob("step-*")
        if (match := _NAME.fullmatch(path.name))
    ]
    return sorted(found, key=lambda each: (each[0], each[1] != TRAIN, each[1]))


# RunFolder: all of it together.


class RunFolder:
    """Open one with `create` (to write; takes the lock) or `open` (to read)."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self.resumed_from: int | None = None
        self.listeners: list[Callable[[str, Row], None]] = []
        """Told of every row that is appended: (file, row)."""
        self._clock = clock
        self._lock: IO[str] | None = None

    # -- opening and closing -------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        path: Path | str,
        config: Mapping[str, Any],
        *,
        resume: bool = True,
        environment: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> RunFolder:
        """Make the folder, or continue the run that is in it.

        config: the resolved configuration, of values that JSON can hold. environment: added to the recorded versions.
        resume: where the folder holds a run, True continues it if it was configured alike or has not begun, and False
        starts over, deleting its files. Raises RunConflict naming the keys that differ, NotOurs where something else put files
        there, RunLocked, or DiskTrouble.
        """
        run = cls(Path(path), clock=clock)
        with disk(run.path):
            refuse_foreign(run.path)  # first of all: not even a lock is left in a folder that is not a run's
            run.path.mkdir(parents=True, exist_ok=True)
            run._lock = take_lock(run.path)
            try:
                asked = json.loads(json.dumps(config))
                if resume and is_run(run.path) and not (run.config != asked and run._is_unbegun()):
                    refuse_other(run.path, run.config, asked)
                    if run.result() is None:
                        run._rewind()
                else:
                    run._clear()
                    now = {**versions(), **(environment or {})}
                    record = {"name": run.name, "created": clock(), "config": asked, "environment": now}
                    write_json(run.path / RECORD, record)
                (run.path / "episodes").mkdir(exist_ok=True)
                (run.path / "checkpoints").mkdir(exist_ok=True)
            except BaseException:
                run.close()
                raise
        return run

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """A finished or running run, to read. Raises UnknownName (with the nearest run's name) where there is none."""
        folder = Path(path)
        if not (folder / RECORD).is_file():
            siblings = [each.name for each in list_runs(folder.parent)]
            raise UnknownName("run", folder.name, siblings, where=str(folder.parent))
        return cls(folder)

    def close(self) -> None:
        """Give the lock back. Called twice, it does nothing the second time."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what the run is -----------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def config(self) -> Row:
        """The resolved configuration."""
        config: Row = read_record(self.path)["config"]
        return config

    @property
    def created(self) -> float | None:
        """When the run began, in seconds since 1970."""
        created = read_record(self.path).get("created")
        return float(created) if isinstance(created, int | float) else None

    @property
    def environment(self) -> Row:
        """Versions of what ran, and whatever `record_environment` added (threads, dtype)."""
        environment: Row = read_record(self.path)["environment"]
        return environment

    def record_environment(self, **values: Any) -> None:
        """Add facts found out at start-up, such as `threads=1, dtype="bfloat16"`: a resumed run reuses them."""
        record = read_record(self.path)
        record["environment"] = {**record["environment"], **values}
        with disk(self.path):
            write_json(self.path / RECORD, record)

    def version_changes(self) -> dict[str, tuple[str, str]]:
        """Versions that differ from those the run began with, as (then, now): such a run may not continue exactly."""
        then = self.environment
        return {key: (str(then[key]), str(now)) for key, now in versions().items() if key in then and then[key] != now}

    # -- rows ----------------------------------------------------------------------------------------------------------

    def append_metrics(self, step: int, metrics: Mapping[str, Any]) -> None:
        """One line for one training step. Names with a slash form families: `reward/f1`, `seconds/sample`."""
        self._append("metrics.jsonl", {"step": step, "time": round(self._clock(), 3), **metrics})

    def append_eval(
        self,
        step: int,
        *,
        arm: str,
        metric: str,
        mean: float,
        low: float | None,
        high: float | None,
        n: int,
        **more: Any,
    ) -> None:
        """One measurement of one arm: the mean over `n` questions with its 95 % interval. `more`: role, split, seed.

        low, high: None for what was counted and not estimated, such as the share of lines that could not be read."""
        row = {"step": step, "arm": arm, "metric": metric, "mean": mean, "low": low, "high": high, "n": n}
        self._append("evals.jsonl", {**row, **more, "time": round(self._clock(), 3)})

    def metrics(self) -> list[Row]:
        return list(read_rows(self.path / "metrics.jsonl", METRIC))

    def evals(self) -> list[Row]:
        """Measurements in the order of their steps. Of one repeated (same step, arm, metric, role, split), the last counts."""
        latest: dict[tuple[Any, ...], Row] = {}
        for row in read_rows(self.path / "evals.jsonl", EVAL):
            latest[tuple(row.get(key) for key in ("step", "arm", "metric", "role", "split"))] = row
        return sorted(latest.values(), key=lambda row: int(row["step"]))

    def append_curriculum(self, step: int, **row: Any) -> None:
        """What became of a task on its way into a step: {"step", "what", "task", ...}; what: outcome, aside or rejected."""
        self._append("curriculum.jsonl", {"step": step, **row})

    def curriculum(self) -> list[Row]:
        return list(read_rows(self.path / "curriculum.jsonl", METRIC))

    def append_shared(self, step: int, **row: Any) -> None:
        """What became of a group of another run: {"step", "what", "name", ...}; what: trained, with where it came from, what it
        claimed to have earned and what it earned here; or refused, with the reason."""
        self._append("shared.jsonl", {"step": step, **row})

    def shared(self) -> list[Row]:
        return list(read_rows(self.path / "shared.jsonl", METRIC))

    # -- episodes ------------------------------------------------------------------------------------------------------

    def write_episodes(self, step: int, episodes: Iterable[Episode], *, arm: str = TRAIN) -> Path:
        """All episodes of one step and arm, in one file; written again, it replaces what was there."""
        return write_episodes(self.path, step, arm, episodes)

    def episodes(
        self, *, step: int | None = None, arm: str | None = None, role: str | None = None
    ) -> Iterator[StoredEpisode]:
        """Stored episodes by step, then arm, then as written. Raises KeepworthError on a file that does not decompress."""
        return stored_episodes(self.path, step=step, arm=arm, role=role)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    @contextmanager
    def checkpoint(self, step: int, *, keep: int = 2, spare: Collection[int] = ()) -> Iterator[Path]:
        """A folder to fill; it becomes `checkpoints/step-<step>` when the block ends well, and nothing otherwise.

        keep: how many of the latest checkpoints stay; spare: steps of those that stay besides. The rows written so far are synced
        first, so that a checkpoint never outlives the metrics that led to it."""
        with writing_checkpoint(self.path / "checkpoints", step) as folder:
            yield folder
            for rows in ROWS:
                if (self.path / rows).exists():
                    sync(self.path / rows)
        for old in self.checkpoints()[:-keep]:
            if old.step != step and old.step not in spare:
                shutil.rmtree(old.path, ignore_errors=True)

    def checkpoints(self) -> list[Checkpoint]:
        """Complete checkpoints, oldest first (not verified)."""
        return checkpoints_in(self.path / "checkpoints")

    def latest_checkpoint(self, *, verify: bool = True) -> Checkpoint | None:
        """The checkpoint to continue from, or None before the first. Raises CheckpointCorrupt."""
        found = self.checkpoints()
        if not found:
            return None
        if verify:
            found[-1].verify()
        return found[-1]

    # -- finished weights ----------------------------------------------------------------------------------------------

    @contextmanager
    def writing_weights(self, role: str, weights_of: int | None = None) -> Iterator[Path]:
        """A folder to fill; it becomes `weights/<role>` when the block ends well, and nothing otherwise.

        The step of the last checkpoint is written beside them: a run that continues from an earlier one drops them. weights_of:
        the step after which they were these, where it is another."""
        last = self.latest_checkpoint(verify=False)
        with replacing_folder(self.path / "weights" / role) as folder:
            yield folder
            step = last.step if last else 0
            more = {} if weights_of in (None, step) else {"weights_of": weights_of}
            write_json(folder / "step.json", {"step": step, **more})

    def finished_roles(self) -> list[str]:
        """The roles whose weights are finished."""
        return sorted(each.name for each in (self.path / "weights").glob("*") if each.is_dir() and each.name[0] != ".")

    # -- the result ----------------------------------------------------------------------------------------------------

    def write_result(self, result: Mapping[str, Any]) -> None:
        with disk(self.path):
            write_json(self.path / "result.json", result)

    def result(self) -> Row | None:
        """The final tables, or None while the run is not finished."""
        path = self.path / "result.json"
        if not path.is_file():
            return None
        return read_json(path, "Delete the file and continue the run, or start over with --fresh.")

    # -- inside --------------------------------------------------------------------------------------------------------

    def _append(self, file: str, row: Mapping[str, Any]) -> None:
        with disk(self.path), open(self.path / file, "ab") as lines:
            lines.write(line(row))
        for each in self.listeners:
            each(file, dict(row))

    def _is_unbegun(self) -> bool:
        """Whether nothing was trained, measured or finished here: such a folder holds nothing that a mistake could cost."""
        measured = any(b"\n" in (self.path / rows).read_bytes() for rows in ROWS if (self.path / rows).exists())
        kept = any((self.path / name).exists() for name in ("result.json", "weights"))
        return not measured and not kept and not self.checkpoints()

    def _clear(self) -> None:
        """Delete what a run writes. Its record stays until it is replaced: without it the rest would look like another's."""
        for file in FILES:
            (self.path / file).unlink(missing_ok=True)
        for folder in FOLDERS:
            shutil.rmtree(self.path / folder, ignore_errors=True)

    def _rewind(self) -> None:
        """Drop everything later than the last checkpoint; without one, everything."""
        last = self.latest_checkpoint()
        step = last.step if last else None
        self.resumed_from = step
        for file, fields in zip(ROWS, (METRIC, EVAL, METRIC, METRIC), strict=True):
            path = self.path / file
            if path.exists():
                kept = [row for row in read_rows(path, fields) if step is not None and row["step"] <= step]
                with replacing(path) as temporary:
                    temporary.write_bytes(b"".join(line(row) for row in kept))
        for at, _, path in episode_files(self.path):
            if step is None or at > step:
                path.unlink()
        for role in (self.path / "weights").glob("*"):
            finished = _finished_at(role)
            if step is None or (finished is not None and finished > step):
                shutil.rmtree(role)
        for left in (self.path / "checkpoints").glob(".*.part"):
            shutil.rmtree(left, ignore_errors=True)


def list_runs(root: Path) -> list[Path]:
    """Folders under `root` that hold a run, latest first."""
    if not root.is_dir():
        return []
    found = [each for each in root.iterdir() if is_run(each)]
    return sorted(found, key=lambda each: (each / RECORD).stat().st_mtime, reverse=True)


def find_run(name: str, root: Path) -> RunFolder:
    """A run by its name under `root`, or by its path. Raises UnknownName with the nearest name."""
    direct = Path(name)
    if (direct / RECORD).is_file():
        return RunFolder.open(direct)
    return RunFolder.open(root / name)


def _finished_at(weights: Path) -> int | None:
    """The step at which finished weights were saved; None where they do not say."""
    path = weights / "step.json"
    if not path.is_file():
        return None
    step = read_json(path, f"Delete {weights}: it is trained again.").get("step")
    return step if isinstance(step, int) else None
