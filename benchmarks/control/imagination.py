"""Whether a learner that imagines remembers with fewer steps of the world than recurrent PPO with the same memory.

    python -m benchmarks.control.imagination --json benchmarks/control/imagination.json

MemoryChain shows one of two signs, then for five steps the time alone; naming the sign at the last one pays 1. In the T-maze
the sign is shown at the beginning of a corridor of three cells, and at its end the arm that it named pays 1; an episode has
at most ten steps. "distractors" is MemoryChain with eight numbers more that mean nothing: four of white noise, and four that
follow those of the step before (.9). In all of them the best rule without a memory earns .5, and all is 1. A cell is a
world, an arm and a seed, 2,000 steps; `score` is the mean return of 40 episodes without exploration after them. All have
networks of width 32. Recurrent PPO has four worlds and the same memory as R2I, RePo and InfoPower (`lru`) at two learning
rates, of which the better one counts for each world; Drama has `selective`; `chance` draws evenly. In "distractors" the
fields `state`, `white` and `drifting` are the shares of the variance of the numbers that mean something, of white noise, and
of those that follow one another, which a ridge regression reads from the latent's probabilities, of 60 episodes that it was
not fitted to. Seed 0 was looked at first, and is no seed of the cells.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from benchmarks.control.cells import Row, cell_arguments, collect, spread
from keepworth.control.run import TrainedAgent, play
from keepworth.registry import method

LENGTH, CORRIDOR, LIMIT, NOISE, FOLLOWS = 6, 3, 10, 4, 0.9
STEPS, EPISODES, PROBED, RIDGE = 2000, 40, 60, 1.0
PPO = {"PPO": 2e-3, "PPO, higher rate": 5e-3}
"""Its learning rates, of which the better one counts for each world."""
IMAGINES: dict[str, tuple[str, dict[str, Any]]] = {
    "R2I": ("r2i", {}),
    "Drama": ("drama", {}),
    "RePo": ("repo", {}),
    "InfoPower": ("infopower", {}),
}
"""The methods of the arms, and their settings."""
ARMS = {
    "distractors": ("RePo", "R2I", "InfoPower", *PPO, "chance"),
    "MemoryChain": ("R2I", "Drama", *PPO, "chance"),
    "T-maze": ("R2I", "Drama", *PPO, "chance"),
}


class MemoryChain(gymnasium.Env[NDArray[np.float32], int]):
    """Shows one of two signs, then nothing but the time; at the last step naming the sign pays 1.

    distractors: how many further numbers are shown; half of them are white noise, half follow those of the step before.
    length: the steps of an episode."""

    action_space = spaces.Discrete(2)

    def __init__(self, distractors: int = 0, length: int = LENGTH) -> None:
        self.distractors, self.length = distractors, length
        self.observation_space = spaces.Box(-np.inf, np.inf, (3 + distractors,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.sign, self.time = int(self.np_random.integers(2)), 0
        self.drift = self.np_random.normal(size=self.distractors // 2)
        return self._see(), {}

    def _see(self) -> NDArray[np.float32]:
        noise = self.np_random.normal(size=self.distractors - len(self.drift))
        last = self.time == self.length - 1
        seen = [(2 * self.sign - 1) * (self.time == 0), float(last), self.time / self.length, *noise, *self.drift]
        return np.array(seen, np.float32)

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self.time += 1
        over = self.time == self.length
        fresh = self.np_random.normal(size=len(self.drift))
        self.drift = FOLLOWS * self.drift + (1.0 - FOLLOWS**2) ** 0.5 * fresh
        return self._see(), float(over and action == self.sign), over, False, {}


class TMaze(gymnasium.Env[NDArray[np.float32], int]):
    """A corridor that begins with a sign, and at whose end the arm that the sign named pays 1, the other one nothing.

    Actions go on along the corridor, or into the one or the other arm, which is a wall before the end."""

    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.sign, self.place, self.time = int(self.np_random.integers(2)), 0, 0
        return self._see(), {}

    def _see(self) -> NDArray[np.float32]:
        at_end = self.place == CORRIDOR
        return np.array([(2 * self.sign - 1) * (self.time == 0), at_end, self.place / CORRIDOR], np.float32)

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self.time += 1
        if self.place == CORRIDOR and action:
            return self._see(), float(action - 1 == self.sign), True, False, {}
        self.place = min(CORRIDOR, self.place + (action == 0))
        return self._see(), 0.0, False, self.time == LIMIT, {}


WORLDS: dict[str, Any] = {
    "MemoryChain": MemoryChain,
    "T-maze": TMaze,
    "distractors": lambda: MemoryChain(2 * NOISE),
}


def train(world: str, arm: str, seed: int, steps: int) -> Any:
    """A trainer after its run."""
    settings: dict[str, Any] = {"steps": steps, "seed": seed, "width": 32, "discount": 0.9}
    if arm in PPO:
        settings |= {"envs": 4, "rollout": 64, "chunk": 64, "minibatches": 2, "epochs": 8, "learning_rate": PPO[arm]}
        made = method("control_agent", "recurrent_ppo").make(WORLDS[world], "lru", **settings)
    else:
        settings |= {
            "every": min(500, steps), "warmup": min(400, steps // 2), "ratio": 0.2, "batch": 16, "length": 8, "capacity": 3000,
            "horizon": 6, "learning_rate": 5e-3, "actor_rate": 3e-3,
        }  # fmt: skip
        name, more = IMAGINES[arm]
        made = method("control_agent", name).make(WORLDS[world], **{**settings, **more})
    list(made.train())
    return made


def probe(network: Any, seed: int) -> dict[str, float]:
    """What the latent holds of each kind of numbers: the share of variance that a ridge regression reads from it."""
    world, draw, seen = MemoryChain(2 * NOISE), np.random.default_rng(seed), list[NDArray[np.float32]]()
    for episode in range(2 * PROBED):
        seen.append(world.reset(seed=20_000 + 2 * PROBED * seed + episode)[0])
        for _ in range(LENGTH - 1):
            seen.append(world.step(int(draw.integers(2)))[0])
    numbers = np.stack(seen)
    with torch.no_grad():
        latents = network.log_probs(network.posterior(torch.from_numpy(numbers))).exp().flatten(-2).numpy()
    middle = len(numbers) // 2
    latents = latents - latents[:middle].mean(0)
    centred = numbers - numbers[:middle].mean(0)
    fitted, rest = latents[:middle], latents[middle:]
    weights = np.linalg.solve(fitted.T @ fitted + RIDGE * np.eye(fitted.shape[1]), fitted.T @ centred[:middle])
    left = ((centred[middle:] - rest @ weights) ** 2).mean(0) / (centred[middle:] ** 2).mean(0)
    kinds = {"state": slice(0, 3), "white": slice(3, 3 + NOISE), "drifting": slice(3 + NOISE, None)}
    return {kind: round(max(0.0, 1.0 - float(left[columns].mean())), 3) for kind, columns in kinds.items()}


def measure(world: str, arm: str, seed: int, steps: int) -> Row:
    """One cell."""
    began, curve, probed = time.process_time(), list[float](), dict[str, float]()
    first, episodes = 10_000 + EPISODES * seed, WORLDS[world]()
    if arm == "chance":
        draw, returns = np.random.default_rng(seed), list[float]()
        for episode in range(EPISODES):
            episodes.reset(seed=first + episode)
            total, over = 0.0, False
            while not over:
                _, reward, ended, cut, _ = episodes.step(int(draw.integers(episodes.action_space.n)))
                total, over = total + reward, ended or cut
            returns.append(total)
    else:
        made = train(world, arm, seed, steps)
        curve = [round(row["recent"], 3) for row in made.curve if row["recent"] is not None]
        logs = play(TrainedAgent(made.network, made.worlds), episodes, EPISODES, seed=first)
        returns = [sum(step[2] for step in log) for log in logs]
        if world == "distractors" and arm in IMAGINES:
            probed = probe(made.network, seed)
    return {
        "world": world,
        "arm": arm,
        "seed": seed,
        "score": round(float(np.mean(returns)), 4),
        **probed,
        "curve": curve,
        "processor": round(time.process_time() - began, 1),
    }


def main(words: list[str] | None = None) -> None:
    parser = cell_arguments(__doc__, steps=STEPS, worlds=tuple(ARMS))
    parser.set_defaults(seeds=[1, 2, 3])
    parser.add_argument("--arms", nargs="*", default=None, help="by default all of each world")
    options = parser.parse_args(words)
    pairs = [
        (world, arm, seed, options.steps)
        for seed, world in itertools.product(options.seeds, options.worlds)
        for arm in ARMS[world]
        if options.arms is None or arm in options.arms
    ]
    cells = spread(measure, pairs, options.processes)

    def report(rows: list[Row]) -> Row:
        unit = f"mean return of {EPISODES} episodes without exploration, after {options.steps:,} steps"
        return {"seeds": options.seeds, "unit": unit, "cells": rows}

    collect("imagination", words, options.json, cells, report)


if __name__ == "__main__":
    main()
