"""The numbers of a run, step by step, in Trackio or in a function of yours (`--track`)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from keepworth.episodes.errors import require_known
from keepworth.episodes.extras import require

if TYPE_CHECKING:
    from keepworth.learning.run_folder import Row, RunFolder

Track = Callable[[int, Mapping[str, float]], None]
"""Receives a step and its numbers."""


def tracker_of(track: str | Track) -> Track | None:
    """The function that receives a run's numbers: `track` itself, Trackio's, or none for "".

    Raises MissingExtra, or UnknownName for another name."""
    if not track or callable(track):
        return track or None
    require_known("tracker", track, ("trackio",))
    require("trackio", "--track trackio", "trackio")
    return lambda step, numbers: _trackio().log(dict(numbers), step=step)


def _trackio() -> Any:
    import trackio

    return trackio


@contextlib.contextmanager
def tracked(run: RunFolder, track: str | Track) -> Iterator[None]:
    """Inside, every row that is appended to the run's metrics goes to the tracker."""
    tracker = tracker_of(track)
    if tracker is None:
        yield
        return
    if track == "trackio":
        _trackio().init(project="keepworth", name=run.name, config=dict(run.config), resume="allow", embed=False)

    def tell(file: str, row: Row) -> None:
        numbers = {
            name: float(value) for name, value in row.items() if isinstance(value, int | float) and name != "step"
        }
        if file == "metrics.jsonl":
            tracker(int(row["step"]), {name: value for name, value in numbers.items() if math.isfinite(value)})

    run.listeners.append(tell)
    try:
        yield
    finally:
        run.listeners.remove(tell)
        if track == "trackio":
            _trackio().finish()
