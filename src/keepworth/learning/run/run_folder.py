"""RunFolder: everything a training run leaves on disk, and what it needs to continue.

    runs/<name>/
      config.json              the resolved configuration, versions, threads, dtype
      metrics.jsonl            one JSON object per training step: {"step", "time", ...}
      curriculum.jsonl         one per task that was put aside or rejected, with the reason
      evals.jsonl              one per measurement: {"step", "arm", "metric", "mean", "low", "high", "n", ...}
      episodes/step-000015.train.jsonl.gz   every episode, by step and by what it was run for
      checkpoints/step-000015/ whatever the trainer saves, with a manifest of sha256 sums
      finished/<role>/         groups that were sampled ahead and not yet trained, as they were finished (`groups`)
      memory/<role>.db         a memory that grows while the role is trained (`growing_memory`)
      published/<role>/        the latest weights that were handed to an engine behind HTTP (`http_sampler`)
      weights/<role>/          the finished weights of a role, with step.json: the step at which they were finished
      result.json              the final tables
      report.html, curves.png  made from the above (`keepworth report RUN`)

`step` counts optimiser steps over the whole run, whichever role they train, so that it orders everything.

A process may be killed between any two instructions. Lines are appended whole and a torn last line is dropped on the
next read; everything else is written beside its place, synced and renamed. Continuing drops what is later than the
last checkpoint, so that a run that was killed reads the same as one that was not.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from keepworth.episodes.episode import Episode
from keepworth.episodes.errors import UnknownName
from keepworth.learning.run.checkpoint import Checkpoint, CheckpointCorrupt, checkpoints_in, writing_checkpoint
from keepworth.learning.run.disk import (
    EVAL,
    METRIC,
    DiskTrouble,
    Row,
    disk,
    line,
    read_json,
    read_rows,
    replacing,
    replacing_folder,
    sync,
    write_json,
)
from keepworth.learning.run.run_episodes import TRAIN, StoredEpisode, episode_files, stored_episodes, write_episodes
from keepworth.learning.run.run_record import (
    FILES,
    FOLDERS,
    RECORD,
    ROWS,
    NotOurs,
    RunConflict,
    RunLocked,
    flatten,
    is_run,
    read_record,
    refuse_foreign,
    refuse_links,
    refuse_other,
    take_lock,
    versions,
)

__all__ = [
    "TRAIN",
    "Checkpoint",
    "CheckpointCorrupt",
    "DiskTrouble",
    "NotOurs",
    "Row",
    "RunConflict",
    "RunFolder",
    "RunLocked",
    "StoredEpisode",
    "disk",
    "find_run",
    "flatten",
    "list_runs",
    "versions",
]


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
