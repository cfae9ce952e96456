"""The folder of a run: whose it is, its rows, its episodes and its checkpoints."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from keepworth.episodes.episode import Episode, episode_from_json, episode_to_json
from keepworth.episodes.errors import KeepworthError, UnknownName
from keepworth.learning.run.checkpoint import Checkpoint, checkpoints_in, writing_checkpoint
from keepworth.learning.run.disk import (
    EVAL,
    METRIC,
    Row,
    disk,
    line,
    read_json,
    read_rows,
    replacing,
    replacing_folder,
    write_json,
)
from keepworth.models.files import sync

# Whose a run's folder is: its record, `config.json`, of how the run was configured and what it ran with, and the lock of the one
# process that may write there, which the system frees when the process ends, however it ends.


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
        _rewritten(path, {key: then.get(key) for key in changed}, {key: now[key] for key in changed if key in now})
        + "Give the new run its own folder with --name, or start over in this one with --fresh (deletes its files).",
    )


def _rewritten(path: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """How a run goes on that was configured when options of an objective were written otherwise; empty for other changes."""
    from keepworth.learning.objective.options import is_old

    section = "objective."
    old = [key for key, value in then.items() if key.startswith(section) and is_old(key.removeprefix(section), value)]
    written = {key.removeprefix(section): value for key, value in now.items() if key.startswith(section)}
    if not old or not written:
        return ""
    return (
        f"If {', '.join(old)} said the same in an earlier version: write {json.dumps(written)[1:-1]} in their place in "
        f'"objective" of {path / RECORD}, exactly so, and the run goes on. Otherwise: '
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


# RunFolder: everything a training run leaves on disk, and what it needs to continue.
#
#     runs/<name>/
#       config.json              the resolved configuration, versions, threads, dtype
#       metrics.jsonl            one JSON object per training step: {"step", "time", ...}
#       curriculum.jsonl         one per task that was put aside or rejected, with the reason
#       evals.jsonl              one per measurement: {"step", "arm", "metric", "mean", "low", "high", "n", ...}
#       episodes/step-000015.train.jsonl.gz   every episode, by step and by what it was run for
#       checkpoints/step-000015/ whatever the trainer saves, with a manifest of sha256 sums
#       finished/<role>/         groups that were sampled ahead and not yet trained, as they were finished (`groups`)
#       memory/<role>.db         a memory that grows while the role is trained (`growing_memory`)
#       published/<role>/        the latest weights that were handed to an engine behind HTTP (`http_sampler`)
#       weights/<role>/          the finished weights of a role, with step.json: the step at which they were finished
#       result.json              the final tables
#       report.html, curves.png  made from the above (`keepworth report RUN`)
#
# `step` counts optimiser steps over the whole run, whichever role they train, so that it orders everything.
#
# A process may be killed between any two instructions. Lines are appended whole and a torn last line is dropped on the
# next read; everything else is written beside its place, synced and renamed. Continuing drops what is later than the
# last checkpoint, so that a run that was killed reads the same as one that was not.


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
        starts over, deleting its files. Raises RunConflict naming the keys that differ, NotOurs where files of a run's
        names were put there by something else or a folder is a link, RunLocked, or DiskTrouble.
        """
        run = cls(Path(path), clock=clock)
        with disk(run.path):
            refuse_foreign(run.path)  # first of all: not even a lock is left in a folder that is not ours
            refuse_links(run.path)
            run.path.mkdir(parents=True, exist_ok=True)
            run._lock = take_lock(run.path)
            try:
                refuse_foreign(run.path)
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

    # -- episodes ------------------------------------------------------------------------------------------------------

    def write_episodes(self, step: int, episodes: Iterable[Episode], *, arm: str = TRAIN) -> Path:
        """All episodes of one step and arm, in one file; written again, it replaces what was there."""
        return write_episodes(self.path, step, arm, episodes)

    def episodes(
        self, *, step: int | None = None, arm: str | None = None, role: str | None = None
    ) -> Iterator[StoredEpisode]:
        """Stored episodes by step, then arm, then as written. Raises KeepworthError on a file that does not decompress."""
        return stored_episodes(self.path, step=step, arm=arm, role=role)

    def episode_files(self) -> list[tuple[int, str, Path]]:
        """(step, arm, path) of every episode file, in order. Files with other names are not ours: ignored."""
        return episode_files(self.path)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    @contextmanager
    def checkpoint(self, step: int, *, keep: int = 2) -> Iterator[Path]:
        """A folder to fill; it becomes `checkpoints/step-<step>` when the block ends well, and nothing otherwise.

        keep: how many of the latest checkpoints stay. The rows written so far are synced first, so that a checkpoint
        never outlives the metrics that led to it."""
        with writing_checkpoint(self.path / "checkpoints", step) as folder:
            yield folder
            for rows in ROWS:
                if (self.path / rows).exists():
                    sync(self.path / rows)
        for old in self.checkpoints()[:-keep]:
            if old.step != step:
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
    def writing_weights(self, role: str) -> Iterator[Path]:
        """A folder to fill; it becomes `weights/<role>` when the block ends well, and nothing otherwise.

        The step of the last checkpoint is written beside them: a run that continues from an earlier one drops them."""
        last = self.latest_checkpoint(verify=False)
        with replacing_folder(self.path / "weights" / role) as folder:
            yield folder
            write_json(folder / "step.json", {"step": last.step if last else 0})

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
        for file, fields in zip(ROWS, (METRIC, EVAL, METRIC), strict=True):
            path = self.path / file
            if path.exists():
                kept = [row for row in read_rows(path, fields) if step is not None and row["step"] <= step]
                with replacing(path) as temporary:
                    temporary.write_bytes(b"".join(line(row) for row in kept))
        for at, _, path in self.episode_files():
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
