"""The files of a training run, from which it can continue.

    runs/<name>/
      config.json              the resolved configuration, versions, threads, dtype
      metrics.jsonl            one JSON object per training step: {"step", "time", ...}
      evals.jsonl              one per measurement: {"step", "arm", "metric", "mean", "low", "high", "n", ...}
      episodes/step-000015.train.jsonl.gz   every episode, by step and arm
      checkpoints/step-000015/ the trainer's state, with a manifest of sha256 sums
      published/<role>/        the latest weights that were sent to an engine behind HTTP (`http_sampler`)
      weights/<role>/          the finished weights of a role, with step.json: the step at which they were finished
      result.json              the final tables
      report.html  made from the above (`keepworth report RUN`)

`step` counts optimiser steps over the whole run, of all roles, so that it orders everything.

A process may be killed between any two instructions. Lines are appended whole, and an unfinished last line is dropped on the next
read; every other file is written under a temporary name, synced and renamed. Continuing deletes everything later than the last
checkpoint, so that a run that was killed reads the same as one that was not."""

from __future__ import annotations

import gzip
import json
import math
import os
import pickle
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from keepworth.base.durable_files import ORDINARY, disk, replacing, replacing_folder, sync
from keepworth.base.errors import KeepworthError, UnknownName
from keepworth.base.json_values import parse, read_json
from keepworth.base.line_file import append_lines, no_line, read_lines, to_line
from keepworth.base.model_files import sha256_of
from keepworth.records.episode import Episode, episode_from_json, fields_of

Row = dict[str, Any]
Track = Callable[[int, Mapping[str, float]], None]
"""A function of the user (`--track`), which receives a step and its numbers."""


def read_rows(path: Path) -> Iterator[Row]:
    """Yields the rows of a JSON-lines file, each with a step. Raises KeepworthError, which names file and line."""
    for number, row in enumerate(read_lines(path), start=1):
        if not isinstance(row.get("step"), int):
            raise no_line(path, number, "no row of a step")
        yield row


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replaces the file atomically: a reader sees the old content or the new."""
    with replacing(path, ORDINARY) as file:
        file.write(json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n")


# -- checkpoints: what training continues from, complete or not there, with the sums that prove it -----------------------------

LEARNER = "learner.pt"
_CHECKPOINT = re.compile(r"step-(\d{6,})")


class CheckpointCorrupt(KeepworthError):
    """A checkpoint's file is missing or differs from what was saved."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder that a trainer filled at `step`. It is complete, because it is renamed to its name last."""

    step: int
    path: Path

    @property
    def way_out(self) -> str:
        """The advice for a checkpoint that cannot be read."""
        return f"Delete {self.path} and start again: the run continues from the checkpoint before it."

    def verify(self) -> None:
        """Compares every file with the manifest. Raises CheckpointCorrupt, which names the file and the fix."""
        manifest = self.path / "manifest.json"
        try:
            for name, saved in parse(manifest.read_text(encoding="utf-8"))["files"].items():
                file = self.path / name
                if not file.is_file():
                    raise CheckpointCorrupt(f"{file} is missing from the checkpoint.", self.way_out)
                if sha256_of(file) != saved["sha256"]:
                    raise CheckpointCorrupt(f"{file} is not what was saved: its sha256 differs.", self.way_out)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise CheckpointCorrupt(f"{manifest} cannot be read ({error}).", self.way_out) from error


@contextmanager
def reading(path: Path, checkpoint: Checkpoint) -> Iterator[None]:
    """Converts any error that is raised while a file of the checkpoint is read to CheckpointCorrupt, with the fix. The file has
    the checksum that was saved, so another version wrote it, or somebody who also wrote the checksums."""
    try:
        yield
    except (KeepworthError, MemoryError):
        raise
    except Exception as error:
        # torch's own words about a pickle tell the reader to switch the protection off.
        reason = "it holds something else" if isinstance(error, pickle.UnpicklingError) else str(error).split("\n")[0]
        raise CheckpointCorrupt(
            f"{path} has the sum that was saved, but cannot be read ({type(error).__name__}: {reason}).",
            checkpoint.way_out,
        ) from error


# -- whose a run's folder is: its record, and the lock of the one process that may write there --------------------------------

RECORD = "config.json"
LOCK = ".lock"
ROWS = ("metrics.jsonl", "evals.jsonl")
FILES = (*ROWS, "result.json", "report.html")
FOLDERS = ("episodes", "checkpoints", "weights", "memory", "published", "tensorboard", "wandb")

MANAGER = "manager"
"""The role whose weights write a memory; those of the others answer."""

PLACED = (
    *("engine", "token_budget", "checkpointing", "learners", "ray_address", "workers", "worker_label"),
    *("checkpoint_every", "checkpoint_minutes", "patience"),
)
"""Settings of where the work is done, how much of it at once, when it is saved and when it is given up. A run may continue with
other values, but not begin or cease to use an engine."""
NEWER = {"start": ""}
"""Settings that came after runs of earlier versions had begun, with what these runs did."""


class RunConflict(KeepworthError):
    """A run would write to a folder that holds another run's files, or files of something else."""


def is_run(path: Path) -> bool:
    """Whether the folder has the record of a run."""
    try:
        read_record(path)
    except KeepworthError:
        return False
    return True


def read_record(path: Path) -> Row:
    """Returns the record in the folder `path`. Raises KeepworthError where there is none, or where it is not a run's."""
    fix = "Correct the file, or give the run another name with --name."
    record = read_json(path / RECORD, fix)
    if not all(isinstance(record.get(key), dict) for key in ("config", "environment")):
        raise KeepworthError(f'{path / RECORD} is not the record of a run ("config" and "environment").', fix)
    return record


def refuse_other(path: Path, before: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Raises RunConflict, which names the keys, where a run was configured differently. More steps than before, and another
    place to compute, are no conflict.

    Args:
        path: The folder of the run.
        before: The configuration that is stored in it.
        asked: The configuration that it would be continued with.
    """
    then, now, absent = flatten(before), flatten(asked), "(absent)"
    then = {key: value for key, value in NEWER.items() if key in now} | then
    free = {key for key in PLACED if key != "engine" or bool(then.get(key)) == bool(now.get(key))}
    if is_longer(before, asked):
        free.add("steps")
    changed = [key for key in sorted({*then, *now} - free) if then.get(key, absent) != now.get(key, absent)]
    if changed:
        listed = "; ".join(f"{key}: {then.get(key, absent)!r} -> {now.get(key, absent)!r}" for key in changed)
        raise RunConflict(
            f"{path} holds a run that was configured otherwise ({listed}).",
            "Give the new run its own folder with --name, or start over in this one with --fresh (deletes its files).",
        )


def can_be_longer(config: Mapping[str, Any]) -> bool:
    """Whether the steps of a run are the same however many follow: it trains on rows of the user's, at a learning rate that does
    not depend on the end."""
    return isinstance(config.get("tasks"), Mapping) and config.get("schedule") == "constant"


def is_longer(before: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Whether more steps are asked of a run that can have more."""
    then, now = before.get("steps"), asked.get("steps")
    return can_be_longer(before) and isinstance(then, int) and isinstance(now, int) and now > then


def versions() -> dict[str, str]:
    """Returns the versions of software that may change a run's numbers. It reads package metadata and imports nothing."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    listed = {"python": platform.python_version(), "platform": platform.platform()}
    for package in ("keepworth", "torch", "transformers", "tokenizers", "peft", "numpy"):
        try:
            listed[package] = version(package)
        except PackageNotFoundError:
            listed[package] = "not installed"
    return listed


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens {"a": {"b": 1}} to {"a.b": 1}, the names that `--set` takes."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def take_lock(folder: Path) -> IO[str]:
    """Locks the folder and returns the lock's file, which holds the process id; closing it releases the lock. Raises
    KeepworthError where another process has it."""
    lock = open(folder / LOCK, "a+", encoding="utf-8")  # noqa: SIM115 - held as long as the run is
    try:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # Windows has none: there is no protection from a second writer
        pass
    except OSError as error:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise KeepworthError(
            f"Process {holder} is writing to {folder}.",
            "Wait for it, stop it, or give this run another name with --name.",
        ) from error
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


# -- episodes: a compressed file of JSON lines per step and arm, written whole or not at all -----------------------------------

EPISODES_FOLDER = "episodes"
TRAIN = "train"
_NAME = re.compile(r"step-(\d{6,})\.([^/]+)\.jsonl\.gz")


@dataclass(frozen=True, slots=True)
class StoredEpisode:
    """An episode with its step and its arm: `train`, or the arm of an evaluation."""

    step: int
    arm: str
    episode: Episode


def episode_files(run: Path) -> list[tuple[int, str, Path]]:
    """Returns (step, arm, path) of every episode file, in order. Files with other names are ignored."""
    files = [
        (int(match.group(1)), match.group(2), path)
        for path in (run / EPISODES_FOLDER).glob("step-*")
        if (match := _NAME.fullmatch(path.name))
    ]
    return sorted(files, key=lambda file: (file[0], file[1] != TRAIN, file[1]))


class RunFolder:
    """The folder of a run. `create` opens one for writing and locks it; `open` opens one for reading.

    Attributes:
        resumed_from: The step of the checkpoint that the run continues from; None for a new run.
        track: Receives the step and the finite numbers of every line of metrics that is appended.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self.resumed_from: int | None = None
        self.track: Track | None = None
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
        clock: Callable[[], float] = time.time,
    ) -> RunFolder:
        """Makes the folder, or continues the run that is in it.

        Args:
            path: The folder of the run.
            config: The resolved configuration, of values that JSON can hold.
            resume: Where the folder holds a run, True continues it if its configuration is the same, asks for more steps (see
                `is_longer`), or if it has not begun; False starts over and deletes its files.
            clock: It returns the seconds that rows are stamped with.

        Raises:
            RunConflict: Some keys differ, or the folder holds files of something else.
            KeepworthError: Another process writes to the folder.
            DiskTrouble: The folder cannot be written.
        """
        run = cls(Path(path), clock=clock)
        with disk(run.path):
            begun = is_run(run.path)
            if not begun and run.path.is_dir() and any(not path.name.startswith(".") for path in run.path.iterdir()):
                raise RunConflict(
                    f"{run.path} holds files, but no record of a run ({RECORD} with its configuration).",
                    "Give the run another name with --name, or another place with --runs; or move these files away.",
                )
            run.path.mkdir(parents=True, exist_ok=True)
            run._lock = take_lock(run.path)
            try:
                asked = json.loads(json.dumps(config))
                if resume and begun and (run.config == asked or run._has_begun()):
                    refuse_other(run.path, run.config, asked)
                    if is_longer(run.config, asked):
                        (run.path / "result.json").unlink(missing_ok=True)  # first: a run with a result is finished
                        record = read_record(run.path)
                        record["config"]["steps"] = asked["steps"]
                        write_json(run.path / RECORD, record)
                    if run.result() is None:
                        run._rewind()
                else:
                    run._clear()
                    record = {"name": run.name, "created": clock(), "config": asked, "environment": versions()}
                    write_json(run.path / RECORD, record)
                for folder in ("episodes", "checkpoints"):
                    (run.path / folder).mkdir(exist_ok=True)
            except BaseException:
                run.close()
                raise
        return run

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """Opens a finished or running run to read it. Raises UnknownName, with the nearest run's name, where there is none."""
        folder = Path(path)
        if not (folder / RECORD).is_file():
            siblings = [run.name for run in list_runs(folder.parent)]
            raise UnknownName("run", folder.name, siblings, where=str(folder.parent))
        return cls(folder)

    def close(self) -> None:
        """Releases the lock. A second call does nothing."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *raised: object) -> None:
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
        """The recorded versions, and the facts that `record_environment` added (threads, dtype)."""
        environment: Row = read_record(self.path)["environment"]
        return environment

    def record_environment(self, **values: Any) -> None:
        """Adds facts of the start-up, such as `threads=1, dtype="bfloat16"`, which a resumed run uses again."""
        record = read_record(self.path)
        record["environment"] |= values
        with disk(self.path):
            write_json(self.path / RECORD, record)

    # -- rows ----------------------------------------------------------------------------------------------------------

    def append_metrics(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Appends the line of one training step. Names with a slash form families: `reward/f1`, `seconds/sample`. JSON has
        no numbers that are not finite: those are named in `not_finite`."""
        strange = [name for name, value in metrics.items() if isinstance(value, float) and not math.isfinite(value)]
        metrics = {name: value for name, value in metrics.items() if name not in strange}
        row = {"step": step, "time": round(self._clock(), 3), **metrics, **({"not_finite": strange} if strange else {})}
        with disk(self.path):
            append_lines(self.path / "metrics.jsonl", [row])
        if self.track is not None:
            finite = {name: float(of) for name, of in row.items() if isinstance(of, int | float) and math.isfinite(of)}
            self.track(int(finite.pop("step")), finite)

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
        """Appends one measurement of one arm: a mean with its 95 % interval.

        Args:
            step: The step after which it was measured, 0 before training.
            arm: The name of the arm.
            metric: The name of the metric.
            mean: The mean over the questions.
            low: The lower end of the interval; None for what was counted and not estimated, such as the share of lines that
                could not be read.
            high: The upper end, None like `low`.
            n: The number of questions.
            more: Further fields of the row: role, split, seed.
        """
        row = {"step": step, "arm": arm, "metric": metric, "mean": mean, "low": low, "high": high, "n": n}
        with disk(self.path):
            append_lines(self.path / "evals.jsonl", [{**row, **more, "time": round(self._clock(), 3)}])

    def metrics(self) -> list[Row]:
        return list(read_rows(self.path / "metrics.jsonl"))

    def evals(self) -> list[Row]:
        """Returns the measurements by step. The last of those with the same step, arm, metric, role and split counts."""
        latest: dict[tuple[Any, ...], Row] = {}
        for row in read_rows(self.path / "evals.jsonl"):
            latest[tuple(row.get(key) for key in ("step", "arm", "metric", "role", "split"))] = row
        return sorted(latest.values(), key=lambda row: int(row["step"]))

    # -- episodes ------------------------------------------------------------------------------------------------------

    def write_episodes(self, step: int, episodes: Iterable[Episode], *, arm: str = TRAIN) -> Path:
        """Writes all episodes of one step and arm to one file, which replaces an earlier one. Returns its path. Raises
        DiskTrouble.

        Args:
            step: The step that they were collected for.
            episodes: The episodes, in the order in which they are read back.
            arm: The arm; that of training by default.
        """
        path = self.path / EPISODES_FOLDER / f"step-{step:06d}.{arm}.jsonl.gz"
        with disk(self.path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with (
                replacing(path, ORDINARY) as raw,
                gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed,
            ):
                for episode in episodes:
                    packed.write(to_line(episode, fields_of))
        return path

    def episodes(
        self, *, step: int | None = None, arm: str | None = None, role: str | None = None
    ) -> Iterator[StoredEpisode]:
        """Yields stored episodes by step, then arm, then as written. Raises KeepworthError for a file that does not decompress,
        or holds something else.

        Args:
            step: The step; None for every step.
            arm: The arm; None for every arm.
            role: The role of the episode; None for every role.
        """
        fix = "Delete the file to go on without it."
        for at, of, path in episode_files(self.path):
            if (step is not None and at != step) or (arm is not None and of != arm):
                continue
            try:
                with gzip.open(path, "rt", encoding="utf-8", errors="surrogatepass") as lines:
                    records = [parse(text) for text in lines]
            except (OSError, EOFError, ValueError) as error:
                raise KeepworthError(f"{path} cannot be read ({error}).", fix) from error
            for number, record in enumerate(records, 1):
                try:
                    if not isinstance(record, dict):
                        raise KeepworthError("It is not a JSON object.", fix)
                    episode = episode_from_json(record)
                except KeepworthError as error:
                    raise KeepworthError(f"{path} line {number}: {error.message}", error.fix) from error
                if role is None or episode.role == role:
                    yield StoredEpisode(at, of, episode)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    @contextmanager
    def checkpoint(self, step: int) -> Iterator[Path]:
        """Yields a folder to fill, which becomes `checkpoints/step-<step>`, with its manifest, if the block ends without an
        error.

        The two latest checkpoints stay. The rows written so far are synced first, so that a checkpoint never outlives the
        metrics that led to it."""
        with replacing_folder(self.path / "checkpoints" / f"step-{step:06d}") as folder:
            yield folder
            files = sorted(file for file in folder.rglob("*") if file.is_file())
            sums = {file.relative_to(folder).as_posix(): {"sha256": sha256_of(file)} for file in files}
            write_json(folder / "manifest.json", {"step": step, "files": sums})
            for rows in ROWS:
                if (self.path / rows).exists():
                    sync(self.path / rows)
        for old in self.checkpoints()[:-2]:
            if old.step != step:
                shutil.rmtree(old.path, ignore_errors=True)

    def checkpoints(self) -> list[Checkpoint]:
        """Returns the complete checkpoints, oldest first, without verifying them. Other files in the folder are ignored."""
        folders = (self.path / "checkpoints").glob("step-*")
        named = [(match, folder) for folder in folders if (match := _CHECKPOINT.fullmatch(folder.name))]
        return sorted(
            (Checkpoint(int(match[1]), folder) for match, folder in named), key=lambda checkpoint: checkpoint.step
        )

    def latest_checkpoint(self, *, verify: bool = True) -> Checkpoint | None:
        """Returns the checkpoint to continue from, or None before the first. Raises CheckpointCorrupt."""
        last = next(reversed(self.checkpoints()), None)
        if last is not None and verify:
            last.verify()
        return last

    # -- finished weights and the result -------------------------------------------------------------------------------

    @contextmanager
    def writing_weights(self, role: str) -> Iterator[Path]:
        """Yields a folder to fill, which becomes `weights/<role>` if the block ends without an error. The step of the last
        checkpoint is written next to the weights: a run that continues from an earlier one deletes them."""
        last = self.latest_checkpoint(verify=False)
        with replacing_folder(self.path / "weights" / role) as folder:
            yield folder
            write_json(folder / "step.json", {"step": last.step if last else 0})

    def finished_roles(self) -> list[str]:
        """Returns the roles whose weights are finished."""
        folders = (self.path / "weights").glob("*")
        return sorted(folder.name for folder in folders if folder.is_dir() and folder.name[0] != ".")

    def write_result(self, result: Mapping[str, Any]) -> None:
        with disk(self.path):
            write_json(self.path / "result.json", result)

    def result(self) -> Row | None:
        """Returns the final tables, or None while the run is not finished."""
        path = self.path / "result.json"
        fix = "Delete the file and continue the run, or start over with --fresh."
        return read_json(path, fix) if path.is_file() else None

    # -- inside --------------------------------------------------------------------------------------------------------

    def _has_begun(self) -> bool:
        """Whether the run has trained, measured or finished something that deletion would lose."""
        measured = any((self.path / rows).exists() for rows in ROWS)
        return measured or bool(self.checkpoints()) or any((self.path / n).exists() for n in ("result.json", "weights"))

    def _clear(self) -> None:
        """Deletes the run's files, but not its record, which is replaced later: files without a record would look like another
        program's."""
        for file in FILES:
            (self.path / file).unlink(missing_ok=True)
        for folder in FOLDERS:
            shutil.rmtree(self.path / folder, ignore_errors=True)

    def _rewind(self) -> None:
        """Deletes everything later than the last checkpoint, or everything where there is none."""
        last = self.latest_checkpoint()
        self.resumed_from = last.step if last else None
        until = last.step if last else -1
        for file in ROWS:
            path = self.path / file
            if path.exists():
                earlier = [row for row in read_rows(path) if row["step"] <= until]
                with replacing(path, ORDINARY) as lines:
                    lines.writelines(map(to_line, earlier))
        for at, _, path in episode_files(self.path):
            if at > until:
                path.unlink()
        for weights in (self.path / "weights").glob("*"):
            finished = weights / "step.json"
            if not last or not finished.is_file() or read_json(finished, f"Delete {weights}.")["step"] > until:
                shutil.rmtree(weights)
        for left in (*self.path.glob(".*.part"), *self.path.glob("*/.*.part")):  # what a killed process was writing
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def list_runs(root: Path) -> list[Path]:
    """Returns the folders under `root` that hold a run, latest first."""
    runs = [folder for folder in root.iterdir() if is_run(folder)] if root.is_dir() else []
    return sorted(runs, key=lambda run: (run / RECORD).stat().st_mtime, reverse=True)


def find_run(name: str, root: Path) -> RunFolder:
    """Opens a run by its name under `root`, or by its path. Raises UnknownName with the nearest name."""
    direct = Path(name)
    return RunFolder.open(direct if (direct / RECORD).is_file() else root / name)
