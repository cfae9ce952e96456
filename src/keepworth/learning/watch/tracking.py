"""Sends the metrics of a run, step by step, to a function of the user (`--track`)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keepworth.learning.run_folder import Row, RunFolder

Track = Callable[[int, Mapping[str, float]], None]
"""Receives a step and its numbers."""


@contextlib.contextmanager
def tracked(run: RunFolder, track: Track | None) -> Iterator[None]:
    """Sends every row that is appended to the run's metrics inside the block to the tracker, where there is one."""

    def send(file: str, row: Row) -> None:
        numbers = {
            name: float(value)
            for name, value in row.items()
            if isinstance(value, int | float) and name != "step" and math.isfinite(value)
        }
        if file == "metrics.jsonl" and track is not None:
            track(int(row["step"]), numbers)

    run.listeners.append(send)
    try:
        yield
    finally:
        run.listeners.remove(send)
