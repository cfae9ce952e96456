"""RunFolder: everything a training run leaves on disk, and what it needs to continue.

    runs/<name>/
      config.json              the resolved configuration, versions, threads, dtype
      metrics.jsonl            one JSON object per training step: {"step", "time", ...}
      evals.jsonl              one per measurement: {"step", "arm", "metric", "mean", "low", "high", "n", ...}
      episodes/step-000015.train.jsonl.gz   every episode, by step and by what it was run for
      checkpoints/step-000015/ whatever the trainer saves, with a manifest of sha256 sums
      weights/<role>/          the finished weights of a role
      result.json              the final tables
      report.html, curves.png  made from the above (`recollect report RUN`)

`step` counts optimiser steps over the whole run, whichever role they train, so that it orders everything.

A process may be killed between any two instructions. Lines are appended whole and a torn last line is dropped on the
next read; everything else is written beside its place, synced and renamed. Continuing drops what is later than the
last checkpoint, so that a run that was killed leaves the same files as one that was not.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from recollect.episodes.codec import episode_from_json, episode_to_json
from recollect.episodes.episode import Episode
from recollect.episodes.errors import RecollectError, UnknownName

Row = dict[str, Any]

TRAIN = "train"
_OURS = ("config.json", "metrics.jsonl", "evals.jsonl", "result.json", "report.html", "curves.png")
_OUR_FOLDERS = ("episodes", "checkpoints", "weights")


class RunConflict(RecollectError):
    """A second run over the files of a first one that was configured otherwise."""


class RunLocked(RecollectError):
    """Another process is writing to this run folder."""


class CheckpointCorrupt(RecollectError):
    """A checkpoint's file is missing or differs from what was saved."""


class DiskTrouble(RecollectError):
    """The disk is full, read-only or not ours to write to."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder that a trainer filled at `step`; complete, because it got its name last."""

    step: int
    path: Path

    def verify(self) -> None:
        """Compare every file with the manifest. Raises CheckpointCorrupt, naming the file and the way out."""
        mend = f"Delete {self.path} and start again: the run continues from the checkpoint before it."
        manifest = self.path / "manifest.json"
        try:
            files: Mapping[str, Mapping[str, Any]] = json.loads(manifest.read_text(encoding="utf-8"))["files"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointCorrupt(f"{manifest} cannot be read ({error}).", mend) from error
        for name, expected in files.items():
            path = self.path / name
            if not path.is_file():
                raise CheckpointCorrupt(f"{path} is missing from the checkpoint of step {self.step}.", mend)
            size = path.stat().st_size
            if size != expected["bytes"]:
                raise CheckpointCorrupt(f"{path} has {size} bytes; {expected['bytes']} were saved.", mend)
            if _sha256(path) != expected["sha256"]:
                raise CheckpointCorrupt(f"{path} is not what was saved: its sha256 differs.", mend)


@dataclass(frozen=True, slots=True)
class StoredEpisode:
    """An episode with the step it was run at and what for (`train`, or the arm of an evaluation)."""

    step: int
    arm: str
    episode: Episode


class RunFolder:
    """Open one with `create` (to write; takes the lock) or `open` (to read)."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self.resumed_from: int | None = None
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
        resume: where the folder holds a run, True continues it if it was configured alike, and False starts over,
        deleting its files. Raises RunConflict naming the keys that differ, RunLocked, or DiskTrouble.
        """
        run = cls(Path(path), clock=clock)
        with disk(run.path):
            run.path.mkdir(parents=True, exist_ok=True)
            run._take_lock()
            try:
                if not resume:
                    run._clear()
                asked = json.loads(json.dumps(config))
                if (run.path / "config.json").exists():
                    run._check_same(asked)
                    if run.result() is None:
                        run._rewind()
                else:
                    run._clear()
                    now = {**versions(), **(environment or {})}
                    record = {"name": run.name, "created": clock(), "config": asked, "environment": now}
                    _write_json(run.path / "config.json", record)
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
        if not (folder / "config.json").is_file():
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
        config = self._record().get("config", {})
        assert isinstance(config, dict)
        return config

    @property
    def created(self) -> float | None:
        """When the run began, in seconds since 1970."""
        created = self._record().get("created")
        return float(created) if isinstance(created, int | float) else None

    @property
    def environment(self) -> Row:
        """Versions of what ran, and whatever `record_environment` added (threads, dtype)."""
        environment = self._record().get("environment", {})
        assert isinstance(environment, dict)
        return environment

    def record_environment(self, **values: Any) -> None:
        """Add facts found out at start-up, such as `threads=1, dtype="bfloat16"`: a resumed run reuses them."""
        record = self._record()
        record["environment"] = {**record.get("environment", {}), **values}
        with disk(self.path):
            _write_json(self.path / "config.json", record)

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
        low: float,
        high: float,
        n: int,
        **more: Any,
    ) -> None:
        """One measurement of one arm: the mean over `n` questions with its 95 % interval. `more`: role, split, seed."""
        row = {"step": step, "arm": arm, "metric": metric, "mean": mean, "low": low, "high": high, "n": n}
        self._append("evals.jsonl", {**row, **more, "time": round(self._clock(), 3)})

    def metrics(self) -> list[Row]:
        return list(_read_rows(self.path / "metrics.jsonl"))

    def evals(self) -> list[Row]:
        """Measurements in the order of their steps. Of one repeated (same step, arm, metric, role, split), the last counts."""
        latest: dict[tuple[Any, ...], Row] = {}
        for row in _read_rows(self.path / "evals.jsonl"):
            latest[tuple(row.get(key) for key in ("step", "arm", "metric", "role", "split"))] = row
        return sorted(latest.values(), key=lambda row: int(row["step"]))

    # -- episodes ------------------------------------------------------------------------------------------------------

    def write_episodes(self, step: int, episodes: Iterable[Episode], *, arm: str = TRAIN) -> Path:
        """All episodes of one step and arm, in one file; written again, it replaces what was there."""
        if not arm or "/" in arm or arm.startswith("."):
            raise ValueError(f"the arm of an episode file is part of its name, so it cannot be {arm!r}")
        path = self.path / "episodes" / f"step-{step:06d}.{arm}.jsonl.gz"
        with (
            disk(self.path),
            _replacing(path) as temporary,
            open(temporary, "wb") as raw,
            gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed,
        ):
            for episode in episodes:
                packed.write(_line(episode_to_json(episode)))
        return path

    def episodes(
        self, *, step: int | None = None, arm: str | None = None, role: str | None = None
    ) -> Iterator[StoredEpisode]:
        """Stored episodes by step, then arm, then as written. Raises RecollectError on a file that does not decompress."""
        for at, of, path in self.episode_files():
            if (step is not None and at != step) or (arm is not None and of != arm):
                continue
            try:
                with gzip.open(path, "rt", encoding="utf-8") as lines:
                    records = [json.loads(line) for line in lines]
            except (OSError, EOFError, ValueError) as error:
                raise RecollectError(
                    f"{path} cannot be read ({error}).", "Delete the file to go on without it."
                ) from error
            for record in records:
                if role is None or record["role"] == role:
                    yield StoredEpisode(at, of, episode_from_json(record))

    def episode_files(self) -> list[tuple[int, str, Path]]:
        """(step, arm, path) of every episode file, in order."""
        found = []
        for path in (self.path / "episodes").glob("step-*.jsonl.gz"):
            step, arm = path.name.removeprefix("step-").removesuffix(".jsonl.gz").split(".", 1)
            found.append((int(step), arm, path))
        return sorted(found, key=lambda each: (each[0], each[1] != TRAIN, each[1]))

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    @contextmanager
    def checkpoint(self, step: int, *, keep: int = 2) -> Iterator[Path]:
        """A folder to fill; it becomes `checkpoints/step-<step>` when the block ends well, and nothing otherwise.

        keep: how many of the latest checkpoints stay. The rows written so far are synced first, so that a checkpoint
        never outlives the metrics that led to it."""
        target = self.path / "checkpoints" / f"step-{step:06d}"
        temporary = target.with_name(f".{target.name}.part")
        with disk(self.path):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            try:
                yield temporary
                files = sorted(each for each in temporary.rglob("*") if each.is_file())
                sums = {
                    each.relative_to(temporary).as_posix(): {"sha256": _sha256(each), "bytes": each.stat().st_size}
                    for each in files
                }
                _write_json(temporary / "manifest.json", {"step": step, "files": sums})
                for each in [*files, self.path / "metrics.jsonl", self.path / "evals.jsonl"]:
                    if each.exists():
                        _sync(each)
                for folder in [*(each for each in temporary.rglob("*") if each.is_dir()), temporary]:
                    _sync(folder)
                shutil.rmtree(target, ignore_errors=True)
                os.rename(temporary, target)
                _sync(target.parent)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
            for old in self.checkpoints()[:-keep]:
                if old.step != step:
                    shutil.rmtree(old.path, ignore_errors=True)

    def checkpoints(self) -> list[Checkpoint]:
        """Complete checkpoints, oldest first (not verified)."""
        found = [
            Checkpoint(int(each.name.removeprefix("step-")), each)
            for each in (self.path / "checkpoints").glob("step-*")
            if each.is_dir()
        ]
        return sorted(found, key=lambda each: each.step)

    def latest_checkpoint(self, *, verify: bool = True) -> Checkpoint | None:
        """The checkpoint to continue from, or None before the first. Raises CheckpointCorrupt."""
        found = self.checkpoints()
        if not found:
            return None
        if verify:
            found[-1].verify()
        return found[-1]

    # -- the result ----------------------------------------------------------------------------------------------------

    def write_result(self, result: Mapping[str, Any]) -> None:
        with disk(self.path):
            _write_json(self.path / "result.json", result)

    def result(self) -> Row | None:
        """The final tables, or None while the run is not finished."""
        path = self.path / "result.json"
        if not path.is_file():
            return None
        return _read_json(path)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _record(self) -> Row:
        return _read_json(self.path / "config.json")

    def _append(self, file: str, row: Mapping[str, Any]) -> None:
        with disk(self.path), open(self.path / file, "ab") as lines:
            lines.write(_line(row))

    def _take_lock(self) -> None:
        lock = open(self.path / ".lock", "a+", encoding="utf-8")  # noqa: SIM115 - held as long as the run is
        try:
            _lock_file(lock)
        except OSError as error:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            lock.close()
            raise RunLocked(
                f"Process {holder} is writing to {self.path}.",
                "Wait for it, stop it, or give this run another name with --name.",
            ) from error
        lock.seek(0)
        lock.truncate()
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def _clear(self) -> None:
        for file in _OURS:
            (self.path / file).unlink(missing_ok=True)
        for folder in _OUR_FOLDERS:
            shutil.rmtree(self.path / folder, ignore_errors=True)

    def _check_same(self, asked: Mapping[str, Any]) -> None:
        before, now = flatten(self.config), flatten(asked)
        absent = object()
        changed = sorted(key for key in before | now if before.get(key, absent) != now.get(key, absent))
        if not changed:
            return
        listed = "; ".join(f"{key}: {before.get(key, '(absent)')!r} -> {now.get(key, '(absent)')!r}" for key in changed)
        raise RunConflict(
            f"{self.path} holds a run that was configured otherwise ({listed}).",
            "Give the new run its own folder with --name, or start over in this one with --fresh (deletes its files).",
        )

    def _rewind(self) -> None:
        """Drop everything later than the last checkpoint; without one, everything."""
        last = self.latest_checkpoint()
        step = last.step if last else None
        self.resumed_from = step
        for file in ("metrics.jsonl", "evals.jsonl"):
            path = self.path / file
            if path.exists():
                kept = [row for row in _read_rows(path) if step is not None and int(row["step"]) <= step]
                with _replacing(path) as temporary:
                    temporary.write_bytes(b"".join(_line(row) for row in kept))
        for at, _, path in self.episode_files():
            if step is None or at > step:
                path.unlink()
        if step is None:
            shutil.rmtree(self.path / "weights", ignore_errors=True)
        for left in (self.path / "checkpoints").glob(".*.part"):
            shutil.rmtree(left, ignore_errors=True)


def list_runs(root: Path) -> list[Path]:
    """Folders under `root` that hold a run, latest first."""
    if not root.is_dir():
        return []
    found = [each for each in root.iterdir() if (each / "config.json").is_file()]
    return sorted(found, key=lambda each: (each / "config.json").stat().st_mtime, reverse=True)


def find_run(name: str, root: Path) -> RunFolder:
    """A run by its name under `root`, or by its path. Raises UnknownName with the nearest name."""
    direct = Path(name)
    if (direct / "config.json").is_file():
        return RunFolder.open(direct)
    return RunFolder.open(root / name)


def versions() -> dict[str, str]:
    """Versions of whatever may change a run's numbers. Reads package metadata: imports nothing."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in ("recollect", "torch", "transformers", "tokenizers", "peft", "numpy"):
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


@contextmanager
def disk(path: Path) -> Iterator[None]:
    """Turns what the operating system says about a disk into a sentence that names the place and the mend."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            try:
                free = f"{shutil.disk_usage(path).free / 2**20:.0f} MiB are left"
            except OSError:
                free = "how much is left cannot be read"
            raise DiskTrouble(
                f"The disk that holds {path} is full ({free}).",
                "Free some space and give the same command again: the run continues from its last checkpoint.",
            ) from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise DiskTrouble(
                f"{error.filename or path} cannot be written ({error.strerror}).",
                "Choose another place with --runs, or change its permissions.",
            ) from error
        raise


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place, synced, when the block ends well."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    with _replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _read_json(path: Path) -> Row:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecollectError(
            f"{path} cannot be read ({error}).", "Mend the file, or start over with --fresh."
        ) from error
    if not isinstance(value, dict):
        raise RecollectError(f"{path} does not hold a JSON object.", "Mend the file, or start over with --fresh.")
    return value


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _read_rows(path: Path) -> Iterator[Row]:
    """Rows of a JSON-lines file. A last line without its newline was being written when the process died: dropped."""
    if not path.exists():
        return
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return
            try:
                row = json.loads(line)
            except ValueError as error:
                raise RecollectError(f"{path} line {number} is not JSON ({error}).", "Delete the line.") from error
            yield row


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as blocks:
        while block := blocks.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # folders cannot be opened for syncing there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock_file(file: IO[str]) -> None:
    """Take an exclusive lock or raise OSError. The system frees it when the process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
