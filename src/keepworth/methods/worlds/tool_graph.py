"""Chains of tools: a goal is a chain of sub-routines, a sub-routine is a chain of tools, goals share sub-routines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations

import numpy as np

from keepworth.records.episode import Observation, Task
from keepworth.registry import Method
from keepworth.worlds.course import stream_task
from keepworth.worlds.environment import Step
from keepworth.worlds.made_up import check_split, words
from keepworth.worlds.scene import Scene, Stream, StreamTask, ends, goes_on
from keepworth.worlds.streams import World

# At each step the observation names the sub-routine at work and the last tool's result; the right next tool depends on
# both. A wrong tool costs a mistake and leaves the state; more than `mistakes` of them end the episode without reward. So
# partial reuse pays (a new goal made of known sub-routines) and credit has to travel back from the end of the episode.


@dataclass(frozen=True, slots=True)
class WorkshopStream:
    """Parameters: `routines` sub-routines exist, each of `depth` tools; a goal chains 2 to 3 of them (6 to 9 right steps). For
    `paid_at_end` see `Stream`."""

    family: str = "tool-graph"
    routines: int = 8
    depth: int = 3
    tools: int = 6
    mistakes: int = 4
    base_rates: tuple[float, ...] = (0.6, 0.4, 0.2)
    episodes: int = 100
    held_out: int = 20
    paid_at_end: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """One step: the observation, the right tool, and the simulated agent's log-odds."""

    observation: str
    right: str
    leaning: tuple[float, ...]


class Workshop:
    __slots__ = ("_goal", "_left", "_mistakes", "_moves", "_place", "_tools")

    def __init__(self, goal: str, moves: tuple[Move, ...], tools: tuple[str, ...], mistakes: int) -> None:
        self._goal = goal
        self._moves = moves
        self._tools = tools
        self._mistakes = mistakes
        self._left = mistakes
        self._place = 0

    async def reset(self, task: Task, seed: int) -> Observation:
        self._left = self._mistakes
        self._place = 0
        return self.scene.seen

    async def step(self, action: str) -> Step:
        if action == self._moves[self._place].right:
            if self._place == len(self._moves) - 1:
                return ends(1.0)
            self._place += 1
        else:
            self._left -= 1
            if self._left < 0:
                return ends(0.0)
        return goes_on(self.scene)

    async def close(self) -> None:
        """Does nothing: the world holds no resources."""

    @property
    def scene(self) -> Scene:
        move = self._moves[self._place]
        return Scene(self._goal, move.observation, self._tools, right=frozenset({move.right}), leaning=move.leaning)


def tool_graph(parameters: WorkshopStream, *, split: str, seed: int, order: str = "random") -> Stream:
    """Builds the stream. Held-out episodes chain the same sub-routines in combinations that the stream does not hold.

    Args:
        parameters: The dials of the stream.
        split: "dev" for tuning, "held-out" for the final run, whose words are others.
        seed: The seed of the whole stream.
        order: "random", "easy-to-hard" or "hard-to-easy".
    """
    generator = np.random.default_rng([21, check_split(split, order), seed])
    vocabulary = words(split, 200, generator)
    tools = tuple(f"run {word}" for word in vocabulary[: parameters.tools])
    routines: list[tuple[float, tuple[Move, ...]]] = []
    for number in range(parameters.routines):
        base = parameters.base_rates[number % len(parameters.base_rates)]
        name = vocabulary[20 + 2 * number : 22 + 2 * number]
        moves = []
        for step in range(parameters.depth):
            state = vocabulary[40 + number * parameters.depth + step]
            right = int(generator.integers(len(tools)))
            leaning = generator.normal(0.0, 0.5, size=len(tools))
            leaning[right] = np.log(base / (1.0 - base) * np.exp(np.delete(leaning, right)).sum())
            moves.append(Move(" ".join([*name, state]), tools[right], tuple(leaning.tolist())))
        routines.append((base, tuple(moves)))
    chains = list(permutations(range(parameters.routines), 2))
    generator.shuffle(chains)
    reserved = max(1, len(chains) // 4)

    def episode(key: str, pool: list[tuple[int, int]]) -> StreamTask:
        chain = list(pool[int(generator.integers(len(pool)))])
        if generator.random() < 0.3:
            chain.append(int(generator.integers(parameters.routines)))
        goal = " ".join(vocabulary[120 + routine] for routine in chain)
        moves = tuple(move for routine in chain for move in routines[routine][1])
        hardness = 1.0 - float(np.mean([routines[routine][0] for routine in chain]))
        return stream_task(key, partial(Workshop, goal, moves, tools, parameters.mistakes), goal, hardness, goal)

    prefix = f"{parameters.family}/{split}/{seed}"
    tasks = [episode(f"{prefix}/{number}", chains[reserved:]) for number in range(parameters.episodes)]
    held_out = [episode(f"{prefix}/held-out/{number}", chains[:reserved]) for number in range(parameters.held_out)]
    if order != "random":
        tasks.sort(key=lambda task: task.difficulty, reverse=order == "hard-to-easy")
    return Stream(
        parameters.family, split, seed, order, tuple(tasks), tuple(held_out), paid_at_end=parameters.paid_at_end
    )


TOOL_GRAPH = Method(
    kind="world",
    name="tool-graph",
    title="Tool graph",
    about="Find the chain of tools that gets a job done",
    tags=("experiential",),
    differs="Not published: this project's own.",
    make=World(tool_graph, "several-steps", parameters=WorkshopStream()),
)
METHODS = (
    TOOL_GRAPH,
    replace(
        TOOL_GRAPH,
        name="tool-graph-end",
        title="Tool graph, paid at the end",
        about="As tool-graph, but the memory gets only the reward of the whole episode",
        make=World(tool_graph, "paid-at-end", parameters=WorkshopStream("tool-graph-end", paid_at_end=True)),
    ),
)
