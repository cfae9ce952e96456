"""Scene: one decision of a stream's task, with the hidden side that scoring and simulated agents read; and streams of tasks.

A task of a stream is played like any other: `StreamTask.environment()` is an `Environment`. It also says, as `scene`, what is met
now, for whoever scores or stands in for an agent and for nobody else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from keepworth.environments.environment import Environment, Step
from keepworth.episodes.episode import Observation, RewardScope, RewardTerm, StopReason, Task

SUCCESS, PROGRESS = "success", "progress"


@dataclass(frozen=True, slots=True)
class Scene:
    """goal, observation: what the agent reads. actions: what it may do.

    named: actions that the observation tells of, where it is something to be kept for later (streams over a horizon).

    Hidden from agents and memory, for scoring and for the oracle arm alone:
    right: the actions that are right here; leaning: log-odds with which the simulated frozen agent leans to each action
    before it reads any memory (a real model has its own); target: what an attacker wants done here.
    """

    goal: str
    observation: str
    actions: tuple[str, ...]
    named: tuple[str, ...] = ()
    right: frozenset[str] = frozenset()
    leaning: tuple[float, ...] = ()
    target: str = ""

    @property
    def text(self) -> str:
        return f"{self.goal} {self.observation}".strip()

    @property
    def seen(self) -> Observation:
        """What an agent is told of it."""
        return Observation(self.observation, self.goal, actions=self.actions, named=self.named, state=self.text)


def only_way(goal: str, observation: str, action: str, named: tuple[str, ...] = ()) -> Scene:
    """A scene in which only one thing can be done."""
    return Scene(goal, observation, (action,), named=named, right=frozenset({action}), leaning=(0.0,))


class Staged(Environment, Protocol):
    """An environment that says what is met now, hidden side and all."""

    @property
    def scene(self) -> Scene:
        """The decision that is open; the last one where the episode is over."""
        ...


def goes_on(scene: Scene, progress: float | None = None) -> Step:
    """progress: what the world says of the action that led here, 0 to 1, where it says anything."""
    return Step(scene.seen, _progress(progress))


def ends(success: float, progress: float | None = None) -> Step:
    """success: 0 to 1."""
    return Step(rewards=(*_progress(progress), RewardTerm(SUCCESS, success)), stop=StopReason.COMPLETED)


def _progress(value: float | None) -> tuple[RewardTerm, ...]:
    # Weight 0: it is there for whoever credits single steps; the episode's reward is its success.
    return () if value is None else (RewardTerm(PROGRESS, value, 0.0, RewardScope.STEP),)


@dataclass(frozen=True, slots=True)
class Foreign:
    """A record that somebody else wrote into memory: `key` is the situation, `action` what it says was done with success.

    trigger, payload: where the word `trigger` occurs in the situation the record says to do `payload` instead.
    hostile: whether an attacker wrote it (hidden).
    """

    key: str
    action: str
    source: str
    trigger: str = ""
    payload: str = ""
    hostile: bool = False


@dataclass(frozen=True, slots=True)
class StreamTask:
    """One task of a stream. environment: makes the same one anew at each call, so that every arm meets the same.

    flipped: the reward that memory is told is the opposite of the truth. rule, difficulty, triggered: for reporting.
    foreign: records that arrive just before the task.
    """

    task: Task
    environment: Callable[[], Staged]
    rule: str
    difficulty: float
    flipped: bool = False
    triggered: bool = False
    foreign: tuple[Foreign, ...] = ()

    @property
    def key(self) -> str:
        return self.task.key


def stream_task(
    key: str, environment: Callable[[], Staged], rule: str, difficulty: float, goal: str = ""
) -> StreamTask:
    """The task `key`, whose first parts name its stream. goal: what it asks for, where that is the same throughout."""
    tags = {"rule": rule, "difficulty": f"{difficulty:.6g}"}
    return StreamTask(Task(key, key.split("/")[0], goal, (), SUCCESS, tags=tags), environment, rule, difficulty)


@dataclass(frozen=True, slots=True)
class Stream:
    """tasks: in order, each seen once; held_out: other tasks of the same rules, for memory that is frozen.

    horizons: the correlation horizons xi of the family (steps between an event and its recall); context: how many past
    observations the agent itself sees; widest: the most actions that a scene may offer. Long-term memory is tested only
    where context < min(horizons). lasting: whether what is observed holds beyond its episode. wording: the style in which the
    agent words its answers (see `free_words`); "" where it names one of the actions as they are offered. paid_at_end: whether
    memory is told the reward of an episode alone, and nothing of its steps.
    """

    family: str
    split: str
    seed: int
    order: str
    tasks: tuple[StreamTask, ...]
    held_out: tuple[StreamTask, ...]
    horizons: tuple[int, ...] = (1,)
    context: int = 0
    widest: int = 16
    lasting: bool = False
    wording: str = ""
    paid_at_end: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def long_term(self) -> bool:
        return self.context < min(self.horizons) and min(self.horizons) > 1


class Course:
    """Scenes in a fixed order. One with a single action is passed; every other must be answered rightly, or it is lost."""

    __slots__ = ("_place", "_scenes")

    def __init__(self, *scenes: Scene) -> None:
        self._scenes = scenes
        self._place = 0

    @property
    def scene(self) -> Scene:
        return self._scenes[self._place]

    async def reset(self, task: Task, seed: int) -> Observation:
        self._place = 0
        return self.scene.seen

    async def step(self, action: str) -> Step:
        scene = self.scene
        progress = None if len(scene.actions) == 1 else float(action in scene.right)
        if progress == 0.0 or self._place == len(self._scenes) - 1:
            return ends(float(progress != 0.0), progress)
        self._place += 1
        return goes_on(self.scene, progress)

    async def close(self) -> None:
        """Nothing is held."""


# Replayed: a deterministic environment whose steps are kept, so that arms which act alike do not play the same game again.


History = tuple[str, ...]
"""The actions taken since the start."""
Known = dict[History, tuple[Step, Scene]]
"""What each course of actions led to, and what is met then."""


@dataclass(slots=True)
class Seat:
    """The one place at an engine that plays one game at a time: whoever takes it ends the game of who sat there."""

    holder: object = None


class Replayed:
    """What `make()` would show, played only where `known` does not hold it yet.

    make: an environment that is the same game at each call, and does the same after the same actions. known: shared by everybody
    who plays this game. A step that is not known is reached by playing the game up to it, so that a game in a slow engine costs
    as much as its distinct courses. seat: of the engine, where games that are under way at the same time share one; a game that
    lost it is played again up to where it was. An action that is not possible loses the game.
    """

    __slots__ = ("_begun", "_history", "_known", "_live", "_make", "_seat")

    def __init__(self, make: Callable[[], Staged], known: Known, seat: Seat | None = None) -> None:
        self._make, self._known = make, known
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
