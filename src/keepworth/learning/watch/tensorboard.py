"""A run's metrics as TensorBoard events, beside the JSON lines that everything else reads."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from typing import Any

from keepworth.episodes.extras import require
from keepworth.learning.run.run_folder import RunFolder

FOLDER = "tensorboard"


def require_tensorboard() -> None:
    """Raises MissingExtra where the package is not installed."""
    require("tensorboard", "--tensorboard")


class Events:
    """Writes what the run holds already, then every row as it is appended, until `close`.

    Made anew from the rows each time, so that a run that was killed and continued has no step twice."""

    def __init__(self, run: RunFolder) -> None:
        require_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        shutil.rmtree(run.path / FOLDER, ignore_errors=True)
        self._writer: Any = SummaryWriter(str(run.path / FOLDER), flush_secs=10)
        for row in run.metrics():
            self("metrics.jsonl", row)
        for row in run.evals():
            self("evals.jsonl", row)
        self._run = run
        run.listeners.append(self)

    def __call__(self, file: str, row: Mapping[str, Any]) -> None:
        """Training metrics by their names under the role; measurements as held-out/<split>/<metric>/<arm>."""
        role = f"{row['role']}/" if row.get("role") else ""
        step, at = int(row["step"]), row.get("time")
        if file == "evals.jsonl":
            split = row.get("split") or "all"
            self._scalar(f"{role}held-out/{split}/{row['metric']}/{row['arm']}", row["mean"], step, at)
            return
        for name, value in row.items():
            if name not in ("step", "time"):
                self._scalar(role + name, value, step, at)

    def close(self) -> None:
        self._run.listeners.remove(self)
        self._writer.close()

    def _scalar(self, name: str, value: Any, step: int, at: Any) -> None:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            self._writer.add_scalar(name.replace(" ", "_"), value, step, walltime=at)
