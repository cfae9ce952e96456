"""Trackers by name: the numbers of a run go to Weights & Biases, TensorBoard or MLflow as well, if their package is installed.

    keepworth train --tasks problems.jsonl --track tensorboard

A run that is continued goes on in the same run of the tracker. A function of yours (`--track FILE.py:NAME`) does the same for any
other."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from keepworth.base.errors import KeepworthError

if TYPE_CHECKING:
    from keepworth.training.run_folder import RunFolder

PROJECT = "keepworth"
"""The project of Weights & Biases and the experiment of MLflow that runs are in; their own variables of the environment
(WANDB_PROJECT, MLFLOW_EXPERIMENT_NAME) name another."""


class MissingTracker(KeepworthError, ImportError):
    """The package of a tracker is not installed."""


class Tracker:
    """A tracker of the run: `begin` comes before the first step, `end` after the last. Called with a step and its numbers.

    Raises MissingTracker where its package is not installed."""

    def __init__(self, name: str) -> None:
        if find_spec(name) is None:
            raise MissingTracker(
                f"--track {name} needs the package {name}, which is not installed.", f"pip install {name}"
            )
        self.name = name
        self._log: Callable[[int, Mapping[str, float]], None] | None = None
        self._end: Callable[[], None] = lambda: None

    def begin(self, run: RunFolder) -> None:
        """Opens the tracker's run, or continues it."""
        self._log, self._end = TRACKERS[self.name](run)

    def __call__(self, step: int, numbers: Mapping[str, float]) -> None:
        assert self._log is not None
        self._log(step, {name: value for name, value in numbers.items() if name != "time"})

    def end(self) -> None:
        """Closes the tracker's run. A second call does nothing."""
        end, self._end, self._log = self._end, lambda: None, None
        end()


Opened = tuple[Callable[[int, Mapping[str, float]], None], Callable[[], None]]
"""The function that logs a step, and the one that closes the tracker."""


def _wandb(run: RunFolder) -> Opened:
    wandb: Any = import_module("wandb")
    identity = f"{run.name}-{int(run.created or 0)}"
    project = os.environ.get("WANDB_PROJECT", PROJECT)
    opened: Any = wandb.init(
        project=project, name=run.name, id=identity, resume="allow", config=dict(run.config), dir=str(run.path)
    )
    return lambda step, numbers: opened.log(dict(numbers), step=step), opened.finish


def _tensorboard(run: RunFolder) -> Opened:
    from torch.utils.tensorboard import SummaryWriter

    # Numbers of steps that are taken again are dropped.
    purge = None if run.resumed_from is None else run.resumed_from + 1
    writer: Any = SummaryWriter(str(run.path / "tensorboard"), purge_step=purge)

    def log(step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return log, writer.close


def _mlflow(run: RunFolder) -> Opened:
    mlflow: Any = import_module("mlflow")
    if "MLFLOW_EXPERIMENT_NAME" not in os.environ and "MLFLOW_EXPERIMENT_ID" not in os.environ:
        mlflow.set_experiment(PROJECT)
    earlier = run.environment.get("mlflow_run")
    opened: Any = mlflow.start_run(run_id=earlier) if earlier else mlflow.start_run(run_name=run.name)
    if not earlier:
        run.record_environment(mlflow_run=opened.info.run_id)
        mlflow.log_dict(dict(run.config), "config.json")
    return lambda step, numbers: mlflow.log_metrics(dict(numbers), step=step), mlflow.end_run


TRACKERS: Mapping[str, Callable[[RunFolder], Opened]] = {
    "wandb": _wandb,
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
}
