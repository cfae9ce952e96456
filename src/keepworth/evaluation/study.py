"""Studies: protocols that return a table. Some train and measure by themselves, and some analyse finished runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from keepworth.base.errors import KeepworthError
from keepworth.base.statistics import LEAST, pooled_estimate
from keepworth.registry import methods

Rows = list[dict[str, Any]]
"""A table: for every arm its name, its mean, the ends of its interval, and the number of measurements."""


@dataclass(frozen=True, slots=True)
class Study:
    """The `make` of a method of kind "study": returns a function without arguments, which returns the rows of its table.

    Attributes:
        run: Is called with the settings by name; None where the study only analyses finished runs.
        unit: The unit of the numbers.
        diagnose: Is called with a list of finished runs, and with settings by name. It raises KeepworthError where it cannot
            analyse these runs, and names the command that answers the question. None where the study analyses no runs.
    """

    run: Callable[..., Rows] | None
    unit: str
    diagnose: Callable[..., Rows] | None = None

    def settings(self) -> dict[str, inspect.Parameter]:
        """Returns the settings of `run`, by name."""
        return {} if self.run is None else dict(inspect.signature(self.run).parameters)

    def __call__(self, **settings: Any) -> Callable[[], Rows]:
        if self.run is None:
            raise KeepworthError(
                "this study is asked of finished runs.",
                "Write keepworth eval run RUN --diagnose, and the study's name.",
            )
        return partial(self.run, **settings)

    def ask(self, runs: Sequence[Any], **settings: Any) -> Rows:
        """Returns the rows of `diagnose` for finished runs. Settings of other studies are ignored."""
        assert self.diagnose is not None
        return self.diagnose(runs, **{name: settings[name] for name in self.asking() if name in settings})

    def asking(self) -> dict[str, inspect.Parameter]:
        """Returns the settings of `diagnose`, by name."""
        assert self.diagnose is not None
        _, *parameters = inspect.signature(self.diagnose).parameters.items()
        return dict(parameters)


def diagnostics() -> dict[str, Study]:
    """Returns the studies that analyse finished runs, by name."""
    studies = {name: cast(Study, declared.make) for name, declared in methods("study").items()}
    return {name: study for name, study in studies.items() if study.diagnose is not None}


def rows_of(
    arms: Mapping[str, Sequence[float]], clusters: Sequence[str], within: tuple[float, float] | None = (0.0, 1.0)
) -> Rows:
    """Returns a row for every arm, with its 95 % interval over clusters.

    Args:
        arms: The values of each arm, in the same order of measurements.
        clusters: The cluster of each measurement.
        within: The least and the greatest possible value; None where they are not known.
    """
    rows: Rows = []
    for arm, values in arms.items():
        estimate = pooled_estimate(list(values), list(clusters), within=within)
        spread = {"mean": estimate.mean, "low": estimate.low, "high": estimate.high}
        rows.append({"arm": arm, **spread, "n": len(clusters), "clusters": len(set(clusters))})
    return rows


def differences(
    arms: Mapping[str, Sequence[float]],
    pairs: Iterable[tuple[str, str]],
    clusters: Sequence[str],
    within: tuple[float, float] | None = (-1.0, 1.0),
) -> Rows:
    """Returns a row for every pair of arms: the first minus the second, measurement by measurement, as in `rows_of`.

    Args:
        arms: The values of each arm, in the same order of measurements.
        pairs: The names of the two arms of each pair.
        clusters: The cluster of each measurement.
        within: The least and the greatest possible difference; None where they are not known.
    """
    gaps = {f"{one} minus {other}": np.subtract(arms[one], arms[other]).tolist() for one, other in pairs}
    return rows_of(gaps, clusters, within)


def arms_of(measured: Iterable[Mapping[str, float]]) -> dict[str, list[float]]:
    """Returns the numbers of every arm. measured: for every unit the number of each arm."""
    arms: dict[str, list[float]] = {}
    for numbers in measured:
        for arm, value in numbers.items():
            arms.setdefault(arm, []).append(float(value))
    return arms


def wrap_names(rows: Iterable[Mapping[str, Any]], before: str = "", after: str = "") -> Rows:
    """Returns the rows with a text around the names of their arms.

    Args:
        rows: The rows, which are not changed.
        before: The text before each name.
        after: The text behind each name.
    """
    return [{**row, "arm": f"{before}{row['arm']}{after}"} for row in rows]


def need_clusters(name: str, clusters: Sequence[str]) -> None:
    """Raises KeepworthError where questions are of too few clusters for an interval, before any model answers."""
    if (many := len(set(clusters))) < LEAST:
        raise KeepworthError(
            f"{name} has {len(clusters)} questions of {many} units, and an interval needs {LEAST} units.",
            "Raise questions, or name a run whose tasks are more, or of more kinds.",
        )
