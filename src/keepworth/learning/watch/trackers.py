"""A run in the trackers that people know: its metrics by step, its configuration and its result tables, beside the JSON lines
that everything else reads.

    tensorboard   runs/<name>/tensorboard/     tensorboard --logdir runs
    trackio       where Trackio keeps runs     trackio show --project keepworth
    wandb         runs/wandb/                  Weights & Biases without a network; wandb sync runs/wandb/offline-run-* sends it
    mlflow        runs/mlruns/                 MLflow's files, which it wants allowed: see docs/training.md

A run that is continued is written anew from its rows, so that a step which was lost to a kill, or made again, is there once.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from keepworth.episodes.errors import require_known
from keepworth.episodes.extras import require
from keepworth.learning.run_folder import RunFolder, flatten

if TYPE_CHECKING:
    from keepworth.learning.run_folder import Row

PROJECT = "keepworth"
"""What runs are listed under, where a tracker has projects."""
Cell = str | float | int | None


class Tracker(Protocol):
    """Made for a run that begins or goes on, whose configuration it notes."""

    def metrics(self, step: int, values: Mapping[str, float], time: float) -> None:
        """Numbers of one step, each finite. time: in seconds since 1970."""
        ...

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None: ...

    def close(self, finished: bool) -> None:
        """What was noted is on disk afterwards."""
        ...


def require_trackers(names: Iterable[str]) -> None:
    """Raises UnknownName, or MissingExtra with the command that installs what is missing."""
    for name in names:
        require_known("tracker", name, TRACKERS)
        require(name, f"--track {name}")


@contextlib.contextmanager
def tracked(run: RunFolder, names: Iterable[str]) -> Iterator[None]:
    """Inside, every row of the run goes to these trackers: first those that it has, then those that are appended. When it is
    left, the result's tables do, where there is a result. Raises as `require_trackers`."""
    wanted = list(dict.fromkeys(names))
    require_trackers(wanted)
    trackers = [TRACKERS[name](run) for name in wanted]

    def tell(file: str, row: Row) -> None:
        values = numbers_of(file, row)
        for each in trackers if values else ():
            each.metrics(int(row["step"]), values, float(row.get("time") or 0.0))

    rows = [("metrics.jsonl", row) for row in run.metrics()] + [("evals.jsonl", row) for row in run.evals()]
    for file, row in sorted(rows, key=lambda pair: int(pair[1]["step"])):
        tell(file, row)
    run.listeners.append(tell)
    try:
        yield
    finally:
        run.listeners.remove(tell)
        result = run.result()
        for table in (result or {}).get("tables", ()):
            for each in trackers:
                each.table(
                    _plain(table["title"]), COLUMNS, [[row.get(name) for name in COLUMNS] for row in table["rows"]]
                )
        for each in trackers:
            each.close(result is not None)


COLUMNS = ("arm", "metric", "mean", "low", "high", "n")
"""Of a result's table."""


def numbers_of(file: str, row: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a row, as trackers name them: metrics of training by their names under the role, measurements as
    <role>/held-out/<split>/<metric>/<arm>."""
    role = f"{row['role']}/" if row.get("role") else ""
    if file == "evals.jsonl":
        found = {f"held-out/{row.get('split') or 'all'}/{row['metric']}/{row['arm']}": row["mean"]}
    else:
        found = {name: value for name, value in row.items() if name not in ("step", "time")}
    return {
        _plain(role + name): float(value)
        for name, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def _plain(name: str) -> str:
    """As all of them take it."""
    return re.sub(r"[^\w\-./]", "_", name)


def _settings(run: RunFolder) -> dict[str, Any]:
    return {key: value for key, value in flatten(run.config).items() if value is not None}


def _identity(run: RunFolder) -> str:
    """The same when the run is continued, another when it is started over."""
    return hashlib.sha256(f"{run.name} {run.created}".encode()).hexdigest()[:8]


class TensorBoard:
    def __init__(self, run: RunFolder) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = run.path / "tensorboard"
        shutil.rmtree(folder, ignore_errors=True)
        self._writer: Any = SummaryWriter(str(folder), flush_secs=10)
        self._writer.add_text("config", _markdown(("setting", "value"), list(_settings(run).items())))

    def metrics(self, step: int, values: Mapping[str, float], time: float) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step, walltime=time)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        self._writer.add_text(f"tables/{name}", _markdown(columns, rows))

    def close(self, finished: bool) -> None:
        self._writer.close()


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    cells = (["" if cell is None else str(cell).replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


class Trackio:
    def __init__(self, run: RunFolder) -> None:
        import trackio
        from trackio.api import Api

        name = f"{run.name}-{_identity(run)}"
        with contextlib.redirect_stdout(io.StringIO()):  # it says on stdout where it writes
            with contextlib.suppress(ValueError):  # no run was tracked yet
                for each in Api().runs(PROJECT):
                    if each.name == name:
                        each.delete()
            options = {"auto_log_gpu": False, "auto_log_cpu": False, "embed": False}
            self._run: Any = trackio.init(project=PROJECT, name=name, config=_settings(run), **options)
        self._table: Any = trackio.Table
        self._finish: Any = trackio.finish  # the run's own would leave it to be finished again, and loudly, at exit

    def metrics(self, step: int, values: Mapping[str, float], time: float) -> None:
        self._run.log(dict(values), step=step)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        self._run.log({f"tables/{name}": self._table(columns=list(columns), data=[list(row) for row in rows])})

    def close(self, finished: bool) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self._finish()


class WeightsAndBiases:
    def __init__(self, run: RunFolder) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # without a network is without any
        import wandb

        for each in run.path.parent.glob(f"wandb/offline-run-*-{_identity(run)}"):
            shutil.rmtree(each, ignore_errors=True)
        quiet = wandb.Settings(
            console="off", silent=True, disable_git=True, disable_code=True, x_disable_stats=True, x_disable_meta=True
        )
        self._run: Any = wandb.init(
            project=PROJECT,
            name=run.name,
            id=_identity(run),
            dir=str(run.path.absolute().parent),
            mode="offline",
            resume="allow",  # where an earlier part of the run was sent already
            reinit="create_new",
            config=_settings(run),
            settings=quiet,
        )
        self._run.define_metric("*", step_metric="step")  # its own steps may only rise, and roles are trained in turn
        self._table: Any = wandb.Table

    def metrics(self, step: int, values: Mapping[str, float], time: float) -> None:
        self._run.log({"step": step, **values})

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        self._run.log({f"tables/{name}": self._table(columns=list(columns), data=[list(row) for row in rows])})

    def close(self, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)


class MLflow:
    def __init__(self, run: RunFolder) -> None:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # a database needs MLflow's larger package
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._metric: Any = Metric
        self._client: Any = MlflowClient(tracking_uri=(run.path.absolute().parent / "mlruns").as_uri())
        experiment = self._client.get_experiment_by_name(PROJECT)
        number = experiment.experiment_id if experiment is not None else self._client.create_experiment(PROJECT)
        for each in self._client.search_runs([number], f"tags.{PROJECT} = '{_identity(run)}'"):
            self._client.delete_run(each.info.run_id)
        made = self._client.create_run(number, run_name=run.name, tags={PROJECT: _identity(run)})
        self._id: str = made.info.run_id
        parameters = [Param(_plain(key), str(value)[:_LONGEST]) for key, value in _settings(run).items()]
        for first in range(0, len(parameters), 100):
            self._client.log_batch(self._id, params=parameters[first : first + 100])

    def metrics(self, step: int, values: Mapping[str, float], time: float) -> None:
        # A metric is a file, and reward/f1 cannot lie in a file called reward.
        named = {name.replace("/", "."): value for name, value in values.items()}
        batch = [self._metric(name, value, int(time * 1000), step) for name, value in named.items()]
        self._client.log_batch(self._id, metrics=batch)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        text = json.dumps({"columns": list(columns), "data": [list(row) for row in rows]})
        self._client.log_text(self._id, text, f"tables/{name}.json")

    def close(self, finished: bool) -> None:
        self._client.set_terminated(self._id, "FINISHED" if finished else "KILLED")


_LONGEST = 6000
"""Characters of a value that MLflow takes."""
TRACKERS: Mapping[str, Callable[[RunFolder], Tracker]] = {
    "tensorboard": TensorBoard,
    "trackio": Trackio,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
}
