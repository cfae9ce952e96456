"""Games of an engine that plays one at a time. Their steps are cached, so that arms with the same actions play a game once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from keepworth.records.episode import Observation, StopReason, Task
from keepworth.worlds.course import stream_task
from keepworth.worlds.environment import Step
from keepworth.worlds.scene import Scene, Staged, StreamTask, ends

History = tuple[str, ...]
"""The actions since the start."""
Known = dict[History, tuple[Step, Scene]]
"""The step and the scene after each sequence of actions."""


@dataclass(slots=True)
class Seat:
    """The one place at an engine that plays one game at a time: a game that takes it ends the game that held it."""

    holder: object = None


class Replayed:
    """Plays the game of `make()` only where `known` does not hold the result yet.

    A missing step is reached by playing the game from its start, so a slow engine costs as much as the distinct sequences of
    actions. An impossible action loses the game.

    Args:
        make: Returns the same game at each call, which does the same after the same actions.
        replays: The cache, shared by all who play this game.
        seat: The seat of the engine, where concurrent games share one. A game that lost the seat is played again up to its place.
    """

    __slots__ = ("_begun", "_history", "_known", "_live", "_make", "_seat")

    def __init__(self, make: Callable[[], Staged], replays: Known, seat: Seat | None = None) -> None:
        self._make, self._known = make, replays
        self._seat = seat or Seat(self)
        self._history: History = ()
        self._live: Staged | None = None
        self._begun: tuple[Task, int] | None = None

    @property
    def scene(self) -> Scene:
        return self._known[self._history][1]

    async def reset(self, task: Task, seed: int) -> Observation:
        self._history, self._live, self._begun = (), None, (task, seed)
        return (await self._reach()).observation

    async def step(self, action: str) -> Step:
        if action not in self.scene.actions:
            lost = ends(0.0, 0.0)
            return replace(lost, stop=StopReason.PARSE_ERROR, errors=(f"{action!r:.80} is not possible here",))
        self._history = (*self._history, action)
        if self._live is not None and self._seat.holder is self:
            step = await self._live.step(action)
            return self._known.setdefault(self._history, (step, self._live.scene))[0]
        return await self._reach()

    async def close(self) -> None:
        if self._live is not None:
            await self._live.close()

    async def _reach(self) -> Step:
        if self._history not in self._known:
            assert self._begun is not None
            if self._live is not None:
                await self._live.close()
            self._seat.holder = self
            self._live = self._make()
            step = Step(await self._live.reset(*self._begun))
            self._known.setdefault((), (step, self._live.scene))
            for count, action in enumerate(self._history, start=1):
                step = await self._live.step(action)
                self._known.setdefault(self._history[:count], (step, self._live.scene))
        return self._known[self._history][0]


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
