"""Scene: one decision of a stream's task, with hidden parts for scoring and for simulated agents; and streams of tasks.

A task of a stream is played like any other: `StreamTask.environment()` is an `Environment`. Its `scene` is the current decision,
which only scoring and simulated agents may read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from keepworth.records.episode import Observation, RewardScope, RewardTerm, StopReason, Task
from keepworth.worlds.environment import Environment, Step

SUCCESS, PROGRESS = "success", "progress"


@dataclass(frozen=True, slots=True)
class Scene:
    """One decision of a task.

    Attributes:
        goal, observation: What the agent reads.
        actions: What it may do.
        named: Actions that the observation names, where they have to be remembered (streams over a horizon).
        right: Hidden: the actions that are right here, for scoring and for the oracle arm.
        leaning: Hidden: the simulated agent's log-odds for each action before it reads any memory (a real model has its own).
        target: Hidden: the action that an attacker wants here.
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
        """The observation that an agent gets."""
        return Observation(self.observation, self.goal, actions=self.actions, named=self.named, state=self.text)


class Staged(Environment, Protocol):
    """An environment that shows its current scene, with the hidden parts."""

    @property
    def scene(self) -> Scene:
        """The open decision; the last one where the episode is over."""
        ...


def goes_on(scene: Scene, progress: float | None = None) -> Step:
    """Returns a step to `scene`. `progress` is the world's rating of the last action, 0 to 1, where it has one."""
    return Step(scene.seen, _progress(progress))


def ends(success: float, progress: float | None = None) -> Step:
    """Returns the last step, with `success` from 0 to 1."""
    return Step(rewards=(*_progress(progress), RewardTerm(SUCCESS, success)), stop=StopReason.COMPLETED)


def _progress(value: float | None) -> tuple[RewardTerm, ...]:
    # The weight is 0: the term is used only to credit single steps; the episode's reward is its success.
    return () if value is None else (RewardTerm(PROGRESS, value, 0.0, RewardScope.STEP),)


@dataclass(frozen=True, slots=True)
class Foreign:
    """A record that another source wrote into memory: in the situation `key`, `action` is said to have succeeded.

    Attributes:
        trigger, payload: Where the word `trigger` occurs in the situation, the record recommends `payload` instead.
        hostile: Hidden: whether an attacker wrote it.
    """

    key: str
    action: str
    source: str
    trigger: str = ""
    payload: str = ""
    hostile: bool = False


@dataclass(frozen=True, slots=True)
class StreamTask:
    """One task of a stream.

    Attributes:
        environment: Makes the same environment at each call, so that every arm plays the same task.
        flipped: Whether memory receives the opposite of the true reward.
        rule, difficulty, triggered: For reporting.
        foreign: Records that arrive just before the task.
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
    """A sequence of tasks. Long-term memory is tested only where context < min(horizons).

    Attributes:
        tasks: In order, each seen once.
        held_out: Other tasks of the same rules, for frozen memory.
        horizons: The correlation horizons xi of the family (steps between an event and its recall).
        context: How many past observations the agent itself sees.
        widest: The most actions that a scene may offer.
        lasting: Whether observations stay true after their episode.
        wording: The style in which the agent words its answers (see `in_free_words`); "" where it names an offered action.
        paid_at_end: Whether memory receives only the reward of an episode, not of its steps.
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
