"""What the worlds share whose games are played by an engine in Java, one game at a time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial

from keepworth.environments.scene import Staged, StreamTask
from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.extras import fix_for, missing
from keepworth.methods.worlds._replayed import Known, Replayed, Seat
from keepworth.methods.worlds._scenes import stream_task

LICENCES = {"textworld_express": "Apache-2.0", "scienceworld": "Apache-2.0", "py4j": "BSD-3-Clause"}


def lacks(package: str) -> str:
    """What is missing to play with an engine of this Python package, or "" where nothing is."""
    absent = missing("envs", package, "py4j")
    if absent:
        return f"the Python package {absent[0]}, {LICENCES[absent[0]]} ({fix_for('envs')})"
    return "" if shutil.which("java") else "Java (a runtime of version 8 or newer on the path)"


def require(what: str, package: str) -> None:
    """Raises KeepworthError, naming what to install for `what`, such as "the study cues"."""
    if absent := lacks(package):
        raise KeepworthError(f"{what} needs {absent}.", "Install it, or choose a stream or a study that needs none.")


class Games:
    """The games of one engine, which are functions of what makes them and of the actions: what was played once in this process
    is not played again."""

    def __init__(self) -> None:
        self._seat = Seat()
        self._known: dict[tuple[str, int], Known] = {}

    def task(self, key: str, make: Callable[..., Staged], name: str, number: int, rule: str, goal: str) -> StreamTask:
        """The task `key`, the game of `name` and `number` that `make(name, number)` gives."""
        played = self._known.setdefault((name, number), {})
        return stream_task(key, partial(Replayed, partial(make, name, number), played, self._seat), rule, 0.5, goal)
