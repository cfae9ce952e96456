"""Shared code of the worlds whose engine runs in Java and plays one game at a time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial

from keepworth.base.errors import KeepworthError
from keepworth.base.extras import fix_for, missing
from keepworth.worlds.course import stream_task
from keepworth.worlds.replayed import Known, Replayed, Seat
from keepworth.worlds.scene import Staged, StreamTask

LICENCES = {"textworld_express": "Apache-2.0", "scienceworld": "Apache-2.0", "py4j": "BSD-3-Clause"}


def lacks(package: str) -> str:
    """Returns what is missing to play with an engine of this Python package, or "" where nothing is."""
    absent = missing("envs", package, "py4j")
    if absent:
        return f"the Python package {absent[0]}, {LICENCES[absent[0]]} ({fix_for('envs')})"
    return "" if shutil.which("java") else "Java (a runtime of version 8 or newer on the path)"


def require(what: str, package: str) -> None:
    """Raises KeepworthError, with what to install for `what`, such as "the study cues"."""
    if absent := lacks(package):
        raise KeepworthError(f"{what} needs {absent}.", "Install it, or choose a stream or a study that needs none.")


class OnSharedEngine:
    """A game whose engine outlives it."""

    async def close(self) -> None:
        """Does nothing."""


class Games:
    """Caches the games of one engine by name, number and actions: what was played once in this process is not played again."""

    def __init__(self) -> None:
        self._seat = Seat()
        self._known: dict[tuple[str, int], Known] = {}

    def task(self, key: str, make: Callable[..., Staged], name: str, number: int, rule: str, goal: str) -> StreamTask:
        """Returns the task that plays one game.

        Args:
            key: The key of the task, whose first part, up to a slash, names the stream.
            make: It starts the game of a name and a number.
            name: The name of the game.
            number: The number of its variation. What was played of it is kept, and played again from there.
            rule: The rule that the task follows, by which results are grouped.
            goal: What is to be reached.
        """
        played = self._known.setdefault((name, number), {})
        return stream_task(key, partial(Replayed, partial(make, name, number), played, self._seat), rule, 0.5, goal)
