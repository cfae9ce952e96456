"""T-maze in words: a sign at the start names the way out, a corridor of posters follows, doors come at the end.

The agent sees its last `context` observations; the sign is `length` + 1 steps back when it matters, which is the
correlation horizon xi of the world ("Unraveling the Complexity of Memory in RL Agents", arXiv 2412.06531). With
context < xi only what was written to memory can help, and the posters name doors too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from keepworth.environments.environment import Step
from keepworth.environments.rules import ORDERS, checked
from keepworth.environments.scene import Scene, Stream, StreamTask, ends, goes_on, stream_task
from keepworth.environments.words import words
from keepworth.episodes.interaction import Observation
from keepworth.episodes.task import Task


@dataclass(frozen=True, slots=True)
class CorridorStream:
    """length: steps between the sign and the doors (a fixed horizon); doors: how many; episodes: how many tasks."""

    family: str = "t-maze"
    length: int = 8
    doors: int = 4
    context: int = 3
    posters: float = 0.5
    episodes: int = 300
    held_out: int = 60


FAMILIES = {"t-maze": CorridorStream()}
GOAL = "leave the maze"
WALK = "walk on"


class Corridor:
    """One maze: walk `length` times, then choose a door."""

    __slots__ = ("_doors", "_leaning", "_step", "_texts", "_way_out")

    def __init__(
        self, texts: tuple[str, ...], doors: tuple[str, ...], way_out: str, leaning: tuple[float, ...]
    ) -> None:
        self._texts = texts
        self._doors = doors
        self._way_out = way_out
        self._leaning = leaning
        self._step = 0

    async def reset(self, task: Task, seed: int) -> Observation:
        self._step = 0
        return self.scene.seen

    async def step(self, action: str) -> Step:
        if self._step == len(self._texts) - 1:
            return ends(float(action == self._way_out))
        self._step += 1
        return goes_on(self.scene)

    async def close(self) -> None:
        """Nothing is held."""

    @property
    def scene(self) -> Scene:
        if self._step < len(self._texts) - 1:
            said = self._texts[self._step]
            named = tuple(each for each in self._doors if each in said)
            return Scene(GOAL, said, (WALK,), named=named, right=frozenset({WALK}), leaning=(0.0,))
        return Scene(
            GOAL,
            self._texts[self._step],
            self._doors,
            right=frozenset({self._way_out}),
            leaning=self._leaning,
        )


def generate(parameters: CorridorStream, *, split: str, seed: int, order: str = "random") -> Stream:
    """Words for sign, poster and doors are new in every (split, seed): nothing can be known from their names."""
    generator = np.random.default_rng([11, checked(split, order), seed])
    vocabulary = words(split, 60, generator)
    doors = tuple(f"open {word}" for word in vocabulary[: parameters.doors])
    sign, poster, end = vocabulary[10:13], vocabulary[13:16], vocabulary[16:19]
    fillers = vocabulary[20:]

    def maze(key: str) -> StreamTask:
        way_out = doors[int(generator.integers(len(doors)))]
        said = [" ".join([*sign, *_some(fillers, 2, generator), way_out])]
        for _ in range(parameters.length):
            if generator.random() < parameters.posters:
                other = doors[int(generator.integers(len(doors)))]
                said.append(" ".join([*poster, *_some(fillers, 2, generator), other]))
            else:
                said.append(" ".join(_some(fillers, 5, generator)))
        said.append(" ".join([*end, *_some(fillers, 2, generator)]))
        leaning = tuple(generator.normal(0.0, 0.3, size=len(doors)).tolist())
        return stream_task(
            key, partial(Corridor, tuple(said), doors, way_out, leaning), "sign", 1.0 - 1.0 / len(doors), GOAL
        )

    prefix = f"{parameters.family}/{split}/{seed}"
    tasks = [maze(f"{prefix}/{number}") for number in range(parameters.episodes)]
    held_out = [maze(f"{prefix}/held-out/{number}") for number in range(parameters.held_out)]
    if order != "random":
        # All mazes are equally hard: an order is another shuffle, so that the order gap shows chance alone.
        shuffled = np.random.default_rng([12, ORDERS.index(order), seed]).permutation(len(tasks))
        tasks = [tasks[place] for place in shuffled]
    return Stream(
        parameters.family,
        split,
        seed,
        order,
        tuple(tasks),
        tuple(held_out),
        horizons=(parameters.length + 1,),
        context=parameters.context,
    )


def _some(vocabulary: list[str], count: int, generator: np.random.Generator) -> list[str]:
    return [vocabulary[int(place)] for place in generator.integers(0, len(vocabulary), size=count)]
