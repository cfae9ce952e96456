"""Scene and World: what an agent sees at one decision, and the thing that answers its action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Scene:
    """goal, observation: what the agent reads. actions: what it may do (never empty unless `done`).

    signal: what this scene says of the action that led to it, 0 to 1, where the world says anything.
    named: actions that the observation tells of, where it is something to be kept for later (streams over a horizon).

    Hidden from agents and memory, for scoring and for the oracle arm alone:
    right: the actions that are right here; leaning: log-odds with which the simulated frozen agent leans to each action
    before it reads any memory (a real model has its own); target: what an attacker wants done here.
    """

    goal: str
    observation: str
    actions: tuple[str, ...]
    reward: float = 0.0
    done: bool = False
    signal: float | None = None
    named: tuple[str, ...] = ()
    right: frozenset[str] = frozenset()
    leaning: tuple[float, ...] = ()
    target: str = ""

    @property
    def text(self) -> str:
        return f"{self.goal} {self.observation}".strip()


class World(Protocol):
    """One episode. `reset` may be called once; `act` until the scene it returned is done."""

    def reset(self) -> Scene: ...

    def act(self, action: str) -> Scene: ...


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
class Visit:
    """An episode of somebody who is not part of the comparison: `by` asks what `scene` says, `action` is done ("": what the agent
    chooses), and the reward is 1 where `wanted` was done, else 0, on the word of `by`."""

    by: str
    scene: Scene
    action: str
    wanted: str


@dataclass(frozen=True, slots=True)
class StreamTask:
    """One task of a stream. `world` is made anew at each call, so that every arm meets the same one.

    flipped: the reward that memory is told is the opposite of the truth. rule, difficulty, triggered: for reporting.
    foreign, visits: records that arrive and episodes of others that happen just before the task. by: who asks and rewards, ""
    where nobody says.
    """

    key: str
    world: WorldMaker
    rule: str
    difficulty: float
    flipped: bool = False
    triggered: bool = False
    foreign: tuple[Foreign, ...] = ()
    visits: tuple[Visit, ...] = ()
    by: str = ""


class WorldMaker(Protocol):
    def __call__(self) -> World: ...


@dataclass(frozen=True, slots=True)
class Stream:
    """tasks: in order, each seen once; held_out: other tasks of the same rules, for memory that is frozen.

    horizons: the correlation horizons xi of the family (steps between an event and its recall); context: how many past
    observations the agent itself sees; widest: the most actions that a scene may offer. Long-term memory is tested only
    where context < min(horizons). lasting: whether what is observed holds beyond its episode. wording: the style in which the
    agent words its answers (see `free_words`); "" where it names one of the actions as they are offered.
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
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def long_term(self) -> bool:
        return self.context < min(self.horizons) and min(self.horizons) > 1


class OneQuestion:
    """A world of a single decision: right or wrong."""

    __slots__ = ("_scene",)

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def reset(self) -> Scene:
        return self._scene

    def act(self, action: str) -> Scene:
        return Scene(self._scene.goal, "", (), reward=float(action in self._scene.right), done=True)


class Course:
    """Scenes in a fixed order. One with a single action is passed; every other must be answered rightly, or it is lost."""

    __slots__ = ("_place", "_scenes")

    def __init__(self, scenes: tuple[Scene, ...]) -> None:
        self._scenes = scenes
        self._place = 0

    def reset(self) -> Scene:
        self._place = 0
        return self._scenes[0]

    def act(self, action: str) -> Scene:
        met = self._scenes[self._place]
        signal = None if len(met.actions) == 1 else float(action in met.right)
        self._place += 1
        lost = signal == 0.0
        if lost or self._place == len(self._scenes):
            return Scene(met.goal, "", (), reward=float(not lost), done=True, signal=signal)
        return replace(self._scenes[self._place], signal=signal)
