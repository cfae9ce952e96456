"""Whether a short context with retrieval does as well as a long one: RA-DT in dark rooms.

    python -m benchmarks.control.dark_rooms --json benchmarks/control/dark_rooms.json

A dark room of 7 by 7 cells shows where one is, and not where the goal is. A task is the cell where each of its episodes begins,
and a goal. Reaching the goal within 25 steps pays the share of them that is left. After it, and after those steps, a blank is
shown until 50 steps are over, so that the last 25 steps of an episode say nothing of the goal. 120 tasks are logged, 16 others
are played, and both are drawn by the seed. A log of a task is eight episodes of somebody who gets better: in episode i each step
goes to the goal with probability i / 7, and else to the nearest cell that was not entered in this episode.

A cell is an arm and a seed. `score` is the mean return of episodes 6 to 10 of the tasks that were not logged, with a memory that
begins empty. Arms: RA-DT, with a context of 50 steps, which reads 50 steps of an earlier episode; "context 400" and "context
50", the same transformer without retrieval, over the borders of episodes; as controls the network of RA-DT, "another task",
which reads what was played of another of the tasks, and "keys shuffled", under keys that were dealt out anew. All learn from as
many steps. `sweep` enters the nearest new cell until it is at the goal, and is the best simple rule without a memory of earlier
episodes; `sweep once` goes there directly once an episode has found it; `chance` draws evenly. Seed 0 was looked at first, and is
no seed of the cells.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from benchmarks.control.cells import Row, cell_arguments, collect, spread
from keepworth.control.dials import Transition
from keepworth.registry import method

SIDE, ACTIVE, LIMIT, LOGGED, PLAYED = 7, 25, 50, 120, 16
EPISODES, IMPROVING = 10, 8
MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)])
BLANK = np.array([0.0, 0.0, 1.0], np.float32)
NETWORKS: dict[str, dict[str, Any]] = {
    "RA-DT": {"context": 50, "batch": 32},
    "context 400": {"context": 400, "batch": 4, "retrieve": False},
    "context 50": {"context": 50, "batch": 32, "retrieve": False},
}
CONTROLS = {"another task": "another", "keys shuffled": "shuffled"}
RULES = ("sweep", "sweep once", "chance")
ARMS = (*NETWORKS, *RULES)
"""Networks, of which RA-DT is also measured with its controls, and rules."""
UPDATES = 500
SETTINGS: dict[str, Any] = {"size": 25, "width": 48, "learning_rate": 3e-3, "worth_learning": 1.0, "temperature": 0.5}


Task = tuple[int, int]
"""The numbers of two cells: where one begins, and the goal."""


class DarkRoom(gymnasium.Env[Any, Any]):
    """A room whose goal is not shown."""

    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = spaces.Discrete(len(MOVES))

    def __init__(self, task: Task = (0, 1)) -> None:
        self.first, self.goal = (np.array(divmod(cell, SIDE)) for cell in task)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.time, self.there = self.first.copy(), 0, False
        return self._see(), {}

    def _see(self) -> NDArray[np.float32]:
        return BLANK if self.there else np.append(self.place / (SIDE // 2) - 1.0, 0.0).astype(np.float32)

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self.time += 1
        reward = 0.0
        if not self.there:
            self.place = (self.place + MOVES[action]).clip(0, SIDE - 1)
            self.there = bool((self.place == self.goal).all())
            reward = (1.0 - self.time / ACTIVE) * self.there
            self.there |= self.time == ACTIVE
        return self._see(), reward, False, self.time == LIMIT, {}


class Sweeper:
    """Enters the nearest cell that it has not entered, or goes to a goal."""

    def __init__(self, draw: np.random.Generator) -> None:
        self.draw, self.new = draw, np.ones((SIDE, SIDE), bool)

    def act(self, world: DarkRoom, goal: NDArray[np.intp] | None) -> int:
        """Returns the action. goal: where to go, None to a new cell."""
        if world.there:
            return len(MOVES) - 1
        place = world.place
        self.new[*place] = False
        if goal is None:
            cells = np.argwhere(self.new)
            if not len(cells):
                return int(self.draw.integers(len(MOVES)))
            far = np.abs(cells - place).sum(1)
            goal = cells[self.draw.choice(np.flatnonzero(far == far.min()))]
        nearer = np.abs(place + MOVES - goal).sum(1) < np.abs(place - goal).sum()
        return int(self.draw.choice(np.flatnonzero(nearer))) if nearer.any() else len(MOVES) - 1


def log_task(task: Task, draw: np.random.Generator) -> list[list[Transition]]:
    """The episodes of somebody who gets better at a task."""
    world, episodes = DarkRoom(task), []
    for episode in range(IMPROVING):
        sweeper, log, over = Sweeper(draw), list[Transition](), False
        seen, _ = world.reset()
        while not over:
            knows = draw.random() < episode / (IMPROVING - 1)
            action = sweeper.act(world, world.goal if knows else None)
            after, reward, _, over, _ = world.step(action)
            log.append((seen, action, reward, after, False))
            seen = after
        episodes.append(log)
    return episodes


def draw_tasks(seed: int) -> tuple[list[Task], list[Task]]:
    """Tasks that are logged, and tasks that are played."""
    pairs = list(itertools.permutations(range(SIDE * SIDE), 2))
    order = np.random.default_rng([29, seed]).permutation(len(pairs)).tolist()
    return [pairs[at] for at in order[:LOGGED]], [pairs[at] for at in order[LOGGED : LOGGED + PLAYED]]


def follow(rule: str, tasks: list[Task], seed: int) -> NDArray[np.float64]:
    """Returns of a simple rule, [tasks, episodes]."""
    draw, returns = np.random.default_rng([31, seed]), np.zeros((len(tasks), EPISODES))
    for (at, task), episode in itertools.product(enumerate(tasks), range(EPISODES)):
        world, sweeper, over = DarkRoom(task), Sweeper(draw), False
        world.reset()
        known = rule == "sweep once" and returns[at, :episode].any()
        while not over:
            even = rule == "chance"
            action = int(draw.integers(len(MOVES))) if even else sweeper.act(world, world.goal if known else None)
            _, reward, _, over, _ = world.step(action)
            returns[at, episode] += reward
    return returns


def measure(name: str, seed: int, updates: int, settings: dict[str, Any] | None = None) -> list[Row]:
    """The cells of a rule, or of a network of a seed, those of RA-DT with its controls."""
    began, about = time.process_time(), dict[str, Any]()
    logged, played = draw_tasks(seed)
    if name in RULES:
        returns = {name: follow(name, played, seed)}
    else:
        draw = np.random.default_rng([30, seed])
        logs = {f"task {task}": log_task(task, draw) for task in logged}
        chosen = {**SETTINGS, **NETWORKS[name], "seed": seed, "updates": updates, **(settings or {})}
        trainer = method("control_agent", "ra_dt").make(DarkRoom, logs=logs, **chosen)
        list(trainer.train())
        about = {"loss": round(trainer.curve[-1]["loss"], 4)}
        worlds = [DarkRoom(task) for task in played]
        reads = {name: "own", **(CONTROLS if name == "RA-DT" else {})}
        returns = {arm: trainer.play(worlds, EPISODES, reads=of, seed=1000 + seed) for arm, of in reads.items()}
    about["processor"] = round(time.process_time() - began, 1)
    return [
        {
            "arm": arm,
            "seed": seed,
            "score": round(float(of[:, EPISODES // 2 :].mean()), 4),
            "by_episode": of.mean(0).round(3).tolist(),
            **about,
        }
        for arm, of in returns.items()
    ]


def main(words: list[str] | None = None) -> None:
    parser = cell_arguments(__doc__, arms=ARMS)
    parser.set_defaults(seeds=[1, 2, 3])
    parser.add_argument("--updates", type=int, default=UPDATES)
    options = parser.parse_args(words)
    cells = spread(
        measure, [(arm, seed, options.updates) for seed in options.seeds for arm in options.arms], options.processes
    )

    def report(rows: list[Row]) -> Row:
        unit = f"mean return of episodes {EPISODES // 2 + 1} to {EPISODES} of {PLAYED} tasks that were not logged"
        return {"seeds": options.seeds, "unit": unit, "cells": rows}

    collect("dark_rooms", words, options.json, itertools.chain.from_iterable(cells), report)


if __name__ == "__main__":
    main()
