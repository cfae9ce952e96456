"""Whether memory recovers half of what forward-backward loses where observations flicker.

    python -m benchmarks.control.flicker --json benchmarks/control/flicker.json

A point in a square of two by two moves by .2 in one of four directions, or stays, with noise of .02; it begins where it is
put, by an even draw. In the worlds that flicker each observation is zeros with a probability of .5, which is the middle of
the square. Logs are of 200 episodes of 20 steps whose actions are drawn evenly, without rewards. Tasks are named afterwards:
to be within .3 of one of four places, which pays 1 for each step; of each, 50 of the logged episodes are given their rewards.
A cell is an arm and a seed, 1,000 updates; `score` is the mean share of paid steps over 30 episodes of each task. Arms: with
a GRU of width 64 ("memory"), without ("no memory"), without where nothing flickers ("all shown"), and "memory, rewards
permuted", whose tasks are named by rewards of other steps. `rule` goes towards the place from where it was last shown to be
and by what it did since, as the oracle; `random` is behaviour cloning of the logs. Sizes were chosen by runs with seed 0,
which is no seed of the cells.
"""

from __future__ import annotations

import itertools
import time
from argparse import Namespace
from collections.abc import Callable, Iterable
from typing import Any

import gymnasium
import numpy as np

from benchmarks.control.cells import Row, cell_arguments, collect, spread
from keepworth.control.dials import Transition, behave
from keepworth.control.run import TrainedAgent, play
from keepworth.registry import method

ARMS = {
    "memory": ("gru", 0.5),
    "no memory": ("mlp", 0.5),
    "all shown": ("mlp", 0.0),
    "memory, rewards permuted": ("gru", 0.5),
}
"""The memory of each arm, and how often its world flickers."""
BOUNDS = ("rule", "random")
PLACES = ((0.6, 0.2), (-0.2, 0.6), (-0.6, -0.2), (0.2, -0.6))
MOVES = np.array([(0.0, 0.0), (0.2, 0.0), (-0.2, 0.0), (0.0, 0.2), (0.0, -0.2)])
STEPS, LOGGED, LABELLED, EPISODES, UPDATES, NEAR = 20, 200, 50, 30, 1000, 0.3


class Square(gymnasium.Env[Any, int]):
    """A point that moves. task: the number of the place that pays."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(len(MOVES))  # type: ignore[assignment]

    def __init__(self, flicker: float, task: int = 0) -> None:
        self.flicker, self.task = flicker, task

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.time = self.np_random.uniform(-1.0, 1.0, 2), 0
        return self.show(), {"place": self.place}

    def show(self) -> Any:
        return (self.place * (self.np_random.random() >= self.flicker)).astype(np.float32)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        self.place = np.clip(self.place + MOVES[action] + 0.02 * self.np_random.standard_normal(2), -1.0, 1.0)
        return (
            self.show(),
            self.paid(self.task),
            False,
            self.time == STEPS,
            {"places": [self.paid(i) for i in range(4)]},
        )

    def paid(self, task: int) -> float:
        """The reward at the place of a task."""
        return float(np.linalg.norm(self.place - PLACES[task]) < NEAR)


def log(flicker: float, seed: int) -> tuple[list[list[Transition]], list[list[list[float]]]]:
    """Logs of actions that are drawn evenly, and by episode and step what each task would have paid."""
    world, draw = Square(flicker), np.random.default_rng(seed)
    episodes, paid = list[list[Transition]](), list[list[list[float]]]()
    for episode in range(LOGGED):
        observation, _ = world.reset(seed=seed * LOGGED + episode)
        rows, of_tasks, cut = list[Transition](), list[list[float]](), False
        while not cut:
            action = int(draw.integers(len(MOVES)))
            after, _, over, cut, info = world.step(action)
            rows.append((observation, action, None, after, over))
            of_tasks.append(info["places"])
            observation = after
        episodes.append(rows)
        paid.append(of_tasks)
    return episodes, paid


def label(episodes: list[list[Transition]], paid: list[list[list[float]]], task: int) -> list[list[Transition]]:
    """Episodes with the rewards of a task."""
    return [
        [(*step[:2], of[task], *step[3:]) for step, of in zip(episode, rewards, strict=True)]
        for episode, rewards in zip(episodes, paid, strict=True)
    ]


def rule(task: int) -> Callable[[Any], int]:
    """Goes towards a place by what was shown last and what was done since."""
    place = np.zeros(2)

    def act(seen: Any) -> int:
        nonlocal place
        place = np.array(seen) if np.any(seen) else place
        action = int(np.argmin(np.linalg.norm(place + MOVES - PLACES[task], axis=1)))
        place = np.clip(place + MOVES[action], -1.0, 1.0)
        return action

    return act


def measure(arm: str, seed: int, updates: int) -> Row:
    """One cell."""
    began = time.process_time()
    memory, flicker = ARMS.get(arm, ("", 0.5))
    first, scores = 10_000 + EPISODES * seed, list[float]()
    trainer: Any = None
    if arm in ARMS:
        episodes, paid = log(flicker, seed)
        trainer = method("control_agent", "forward_backward").make(
            lambda: Square(flicker), memory, logs={"logs": episodes}, updates=updates, size=32, seed=seed, every=updates,
            width=64, batch=16, length=STEPS, learning_rate=2e-3, tau=0.05, discount=0.8,
        )  # fmt: skip
        list(trainer.train())
        if arm.endswith("permuted"):
            flat = [of for rewards in paid for of in rewards]
            order = iter(np.random.default_rng(seed).permutation(len(flat)).tolist())
            paid = [[flat[next(order)] for _ in rewards] for rewards in paid]
    for task in range(len(PLACES)):
        world = Square(flicker, task)
        if trainer is None:
            world.action_space.seed(first + task)
            good = rule(task) if arm == "rule" else lambda seen: int(world.action_space.sample())  # noqa: B023
            logs: Any = behave(world, "conservative", good, EPISODES, first)
        else:
            trainer.name_task(label(episodes, paid, task)[:LABELLED])
            logs = play(TrainedAgent(trainer.network, trainer.worlds), world, EPISODES, seed=first)
        scores.append(float(np.mean([step[2] for episode in logs for step in episode])))
    row = {
        "arm": arm,
        "seed": seed,
        "score": round(float(np.mean(scores)), 3),
        "tasks": [round(of, 2) for of in scores],
    }
    return {**row, "processor": round(time.process_time() - began, 1)}


def main(words: list[str] | None = None) -> None:
    parser = cell_arguments(__doc__, arms=(*BOUNDS, *ARMS))
    parser.add_argument("--updates", type=int, default=UPDATES, help="from logs")
    parser.set_defaults(seeds=[1, 2, 3])
    options = parser.parse_args(words)
    pairs = itertools.product(options.seeds, options.arms)
    cells = spread(measure, [(arm, seed, options.updates) for seed, arm in pairs], options.processes)

    collect_shares("flicker", words, options, cells)


def collect_shares(name: str, words: list[str] | None, options: Namespace, cells: Iterable[Row]) -> None:
    """Prints and writes cells whose score is a share of paid steps.

    Args:
        name: Of the measurement.
        words: What the command was given; of this process where None.
        options: Of the command: json, seeds and updates.
        cells: Measured as they are asked for.
    """
    unit = f"share of steps that are paid, over four tasks that were named after {options.updates:,} updates from logs"
    about = {"seeds": options.seeds, "unit": unit}
    collect(name, words, options.json, cells, lambda rows: {**about, "cells": rows}, ("torch", "gymnasium", "numpy"))


if __name__ == "__main__":
    main()
