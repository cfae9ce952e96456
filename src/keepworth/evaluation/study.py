"""Studies: protocols that train and measure by themselves, and give a table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from keepworth.evaluation.statistics import pooled_estimate

Rows = list[dict[str, Any]]
"""A table: of every arm its name, its mean, the ends of its interval, and what it was measured on."""


@dataclass(frozen=True, slots=True)
class Study:
    """What a method of kind "study" has as `make`: settings -> run, and run() -> the rows of its table.

    Attributes:
        run: Called with the settings by name.
        unit: What the numbers are.
    """

    run: Callable[..., Rows]
    unit: str

    def settings(self) -> dict[str, inspect.Parameter]:
        """What can be set, by name."""
        return dict(inspect.signature(self.run).parameters)

    def __call__(self, **settings: Any) -> Callable[[], Rows]:
        return partial(self.run, **settings)


def rows_of(
    arms: Mapping[str, Sequence[float]], clusters: Sequence[str], within: tuple[float, float] | None = (0.0, 1.0)
) -> Rows:
    """A row for every arm, with its 95 % interval over clusters. within: the least and greatest value that there can be."""
    rows: Rows = []
    for arm, values in arms.items():
        estimate = pooled_estimate(list(values), list(clusters), within=within)
        spread = {"mean": estimate.mean, "low": estimate.low, "high": estimate.high}
        rows.append({"arm": arm, **spread, "n": len(clusters), "clusters": len(set(clusters))})
    return rows
