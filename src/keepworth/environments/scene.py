"""Scene: one decision of a stream's task, with the hidden side that scoring and simulated agents read; and streams of tasks.

A task of a stream is played like any other: `StreamTask.environment()` is an `Environment`. It also says, as `scene`, what is met
now, for whoever scores or stands in for an agent and for nobody else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
