"""What all worlds of the laboratory share: compositions and their splits, tasks for `train`, lessons for the model, and play."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from keepworth.base.errors import KeepworthError, require_known
from keepworth.records.episode import Observation, RewardTerm, StopReason, Task
from keepworth.worlds.environment import Step

Composition = tuple[str, ...]
"""The skills of a question, the one that is used last first. One skill alone is a composition, too."""
SPLITS = ("taught", "train", "test")
"""Of compositions: those that the model is taught, those that reward may train, and those that are held out from both."""


@dataclass(frozen=True, slots=True)
class Way:
    """Actions that answer a question, the last of which is the answer."""

    actions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Exercise:
    """A question, and what its world needs to play it.

    Attributes:
        composition: The skills that it takes.
        question: What the model reads.
        answer: The right answer.
        careful: The way with workings or calls, which is right.
        quick: The way that answers at once. It may be a guess.
        state: What the world replies from, in values of JSON.
    """

    composition: Composition
    question: str
    answer: str
    careful: Way
    quick: Way
    state: Mapping[str, Any] = field(default_factory=dict)


class ComposedWorld(ABC):
    """A world of the laboratory.

    Attributes:
        name: Its name.
        about: What it asks for, in one line.
        first, then: The skills that are used first and then. Both are equally many.
        offsets: The distances between the places of two skills that are composed.
        taught: Those of them whose compositions the model is taught.
        care: The share of taught answers that go the careful way.
        dials: The levels of difficulty, from easy to hard, of which the middle one is the usual.
        dial: What the levels are.
        turns: The most actions of an episode.
        tokens: The most tokens of an action.
        words: Words that are a token each for the model.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    first: ClassVar[tuple[str, ...]]
    then: ClassVar[tuple[str, ...]]
    offsets: ClassVar[tuple[int, ...]]
    taught: ClassVar[tuple[int, ...]]
    care: ClassVar[float]
    dials: ClassVar[tuple[int, ...]]
    dial: ClassVar[str]
    turns: ClassVar[int] = 1
    tokens: ClassVar[int] = 24
    words: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def exercise(self, composition: Composition, draw: random.Random, level: int) -> Exercise:
        """Draws an exercise.

        Args:
            composition: The skills that it takes, one or two.
            draw: What it is drawn with.
            level: The level of difficulty, one of `dials`.
        """

    @abstractmethod
    def simple(self, exercise: Exercise, draw: random.Random) -> tuple[str, ...]:
        """Returns the actions of the best simple rule, which does not compose."""

    def reply(self, state: Mapping[str, Any], actions: Sequence[str]) -> str | None:
        """Returns what the world says after these actions; None where the last one ends the episode.

        Args:
            state: That of the exercise.
            actions: All actions of the episode so far.
        """
        return None

    def state_of(self, state: Mapping[str, Any], actions: Sequence[str]) -> str:
        """Returns a key of where the episode is, equal for equal states, for objectives that compare turns: the actions so far.

        Args:
            state: That of the exercise.
            actions: All actions of the episode so far.
        """
        return "; ".join(actions)

    def score(self, state: Mapping[str, Any], answer: str, actions: Sequence[str]) -> float:
        """Returns 1 where the last word of the last action is the answer, else 0.

        Args:
            state: That of the exercise.
            answer: The right answer.
            actions: All actions of the episode.
        """
        return float(actions[-1].split()[-1:] == [answer])

    def single(self, draw: random.Random) -> Exercise:
        """Draws an exercise of one skill, as the model is taught it."""
        return self.exercise((draw.choice(sorted({*self.first, *self.then})),), draw, draw.choice(self.dials))

    # -- compositions -------------------------------------------------------------------------------------------

    @property
    def usual(self) -> int:
        """The usual level of difficulty."""
        return self.dials[len(self.dials) // 2]

    @cached_property
    def splits(self) -> Mapping[str, tuple[Composition, ...]]:
        """The compositions of two, by split. Each skill is taught as often first as then; of the others a third is held out."""
        count = len(self.first)
        pairs = {
            offset: [(self.then[(place + offset) % count], self.first[place]) for place in range(count)]
            for offset in self.offsets
        }
        taught = [pair for offset in self.taught for pair in pairs[offset]]
        others = [pair for offset in self.offsets if offset not in self.taught for pair in pairs[offset]]
        random.Random(f"laboratory/{self.name}").shuffle(others)
        held_out = len(others) // 3
        return {"taught": tuple(taught), "train": tuple(others[held_out:]), "test": tuple(others[:held_out])}

    def exercises(self, split: str, count: int, seed: int = 0, level: int | None = None) -> list[Exercise]:
        """Draws exercises of a split's compositions, all of them equally often. Raises UnknownName, KeepworthError.

        Args:
            split: One of `SPLITS`.
            count: How many.
            seed: The seed of the draws.
            level: The level of difficulty; the usual one where it is None.
        """
        among = self.splits[require_known("split", split, self.splits)]
        level = self.usual if level is None else level
        if level not in self.dials:
            levels = ", ".join(map(str, self.dials))
            raise KeepworthError(f"{self.name} has no level {level}.", f"Choose one of {levels} ({self.dial}).")
        order = [*among]
        random.Random(f"{self.name}/{split}/{seed}").shuffle(order)
        return [
            self.exercise(
                order[number % len(order)], random.Random(f"{self.name}/{split}/{seed}/{level}/{number}"), level
            )
            for number in range(count)
        ]

    def tasks(self, split: str, count: int, seed: int = 0, level: int | None = None, *, side: str = "") -> list[Task]:
        """Returns tasks for `keepworth.train`, whose environment is `play`. Raises what `exercises` raises.

        Args:
            split: One of `SPLITS`.
            count: How many.
            seed: The seed of the draws.
            level: The level of difficulty; the usual one where it is None.
            side: The side of the training that they are on: train, dev or test; the split's name by default.
        """
        drawn = enumerate(self.exercises(split, count, seed, level))
        return [
            Task(
                key=f"{self.name}/{split}/{seed}/{number}",
                source=f"laboratory/{self.name}",
                input=exercise.question,
                answers=(exercise.answer,),
                verifier="exact_match",
                tags={"split": side or split, "composition": " ".join(exercise.composition)},
                row={"question": exercise.question, "state": dict(exercise.state)},
            )
            for number, exercise in drawn
        ]

    # -- teaching -----------------------------------------------------------------------------------------------

    def lessons(self, draw: random.Random) -> Iterator[tuple[Exercise, Way]]:
        """Yields exercises with the way that the model is taught, without end: half are of one skill, half of two."""
        while True:
            exercise = self.single(draw) if draw.random() < 0.5 else self._composed(draw)
            yield exercise, exercise.careful if draw.random() < self.care else exercise.quick

    def _composed(self, draw: random.Random) -> Exercise:
        return self.exercise(draw.choice(self.splits["taught"]), draw, draw.choice(self.dials))

    def conversation(self, exercise: Exercise, way: Way) -> list[tuple[str, str]]:
        """Returns a conversation in which an exercise is answered in this way: pairs of a text that is read and an action."""
        text, turns = exercise.question, []
        for number, action in enumerate(way.actions, start=1):
            turns.append((text, action))
            text = self.reply(exercise.state, way.actions[:number]) or ""
        return turns

    # -- play ---------------------------------------------------------------------------------------------------

    def play(self, task: Task) -> ComposedEnvironment:
        """Returns the environment of a task, for `keepworth.train(environment=)`."""
        return ComposedEnvironment(self)


class ComposedEnvironment:
    """The environment of a laboratory world: it replies to actions, and scores the episode at its end."""

    def __init__(self, world: ComposedWorld) -> None:
        self._world = world
        self._actions: list[str] = []
        self._state: Mapping[str, Any] = {}
        self._answer = ""

    async def reset(self, task: Task, seed: int) -> Observation:
        self._actions, self._state, self._answer = [], task.row["state"], task.answers[0]
        return Observation(task.input, state=task.input)

    async def step(self, action: str) -> Step:
        self._actions.append(action.strip())
        reply = self._world.reply(self._state, self._actions)
        if reply is not None:
            return Step(Observation(reply, state=self._world.state_of(self._state, self._actions)))
        score = self._world.score(self._state, self._answer, self._actions)
        return Step(rewards=(RewardTerm("score", score),), stop=StopReason.COMPLETED, answer=self._actions[-1])

    async def outcome(self) -> tuple[RewardTerm, ...]:
        """Returns no reward: the episode did not reach its end."""
        return (RewardTerm("score", 0.0),)

    async def close(self) -> None:
        """Does nothing: the world holds no resources."""
