"""`--track`: the numbers of a run, step by step, in Trackio or in a function of yours."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from keepworth.episodes.extras import require

if TYPE_CHECKING:
    from keepworth.learning.run_folder import Row, RunFolder

Track = Callable[[int, Mapping[str, float]], None]
"""Receives a step and its numbers."""


def tracker_of(track: str | Track) -> Track | None:
    """The function that `track` names: "" is none, `trackio` is Trackio, FILE.py:NAME is a function of yours.

    Raises MissingExtra, or KeepworthError where there is no such function."""
    if not track or callable(track):
        return track or None
    if track != "trackio":
        from keepworth.recipes.front_door import named_object

        function: Track = named_object(track, "--track")
        return function
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
