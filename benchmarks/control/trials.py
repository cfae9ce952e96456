"""What a memory learns of a task it never saw: TrMRL, RL2's GRU and a network without memory over trials of several episodes.

    python -m benchmarks.control.trials --json benchmarks/control/trials.json

`goals`: a 4 x 4 grid hides its goal; an episode has 8 steps, each on the goal pays 1, and a trial has 4 episodes. Of 15 goals
10 are trained, the other 5 held out. `arms`: a bandit with five arms and 20 pulls, of which one arm pays with 0.8 and the
others with 0.2, held out 0.65 and 0.35. After training the policy plays 200 trials of each half. `first` and `last` are mean
rewards of the first and the last quarter of a trial: what a memory found out shows as their difference. `best` is what somebody
gets who knows the task, `blind` who always does the same. Nothing is tuned per memory. With 100,000 steps, tried over two
seeds, no memory was above the network without one.
"""

from __future__ import annotations

import itertools
import time
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from benchmarks.control.cells import Row, cell_arguments, collect
from benchmarks.control.probes import named
from keepworth.control.network import as_tensor, start_carry
from keepworth.control.ppo import Trainer
from keepworth.control.settings import PpoSettings
from keepworth.control.trials import Trials

MEMORIES = ("mlp", "gru", "trmrl", "trmrl:window=16")
SIDE, LENGTH, PULLS, TRIALS = 4, 8, 20, 200
UNLIKE = ((0.2, 0.8), (0.35, 0.65))
"""Chances of the other arms and of the good one, in training and held out."""
MOVES = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))


class Goals(gymnasium.Env[Any, int]):
    """A grid that hides its goal. held_out: whether it is one of every third cell, or of the others."""

    observation_space = spaces.MultiDiscrete([SIDE, SIDE])
    action_space = spaces.Discrete(len(MOVES))

    def __init__(self, held_out: bool) -> None:
        cells = range(1, SIDE * SIDE)
        self.goals = [divmod(cell, SIDE) for cell in cells if (cell % 3 == 2) == held_out]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.goal, self.place, self.time = self.goals[self.np_random.integers(len(self.goals))], (0, 0), 0
        return np.array(self.place), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = tuple(  # type: ignore[assignment]
            min(max(at + by, 0), SIDE - 1) for at, by in zip(self.place, MOVES[action], strict=True)
        )
        self.time += 1
        return np.array(self.place), float(self.place == self.goal), self.time == LENGTH, False, {}


class Arms(gymnasium.Env[Any, int]):
    """A bandit, of which an episode is one pull. held_out: whether arms differ less than in training."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(5)

    def __init__(self, held_out: bool) -> None:
        self.chances = UNLIKE[held_out]
        self._noise: np.random.Generator | None = None  # not of the task: pulls of one arm differ

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._noise = self._noise or np.random.default_rng(seed)
        self.arm = int(self.np_random.integers(5))
        return 0, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self._noise is not None
        return 1, float(self._noise.random() < self.chances[action == self.arm]), True, False, {}


WORLDS: dict[str, tuple[type[Goals] | type[Arms], int]] = {"goals": (Goals, 4), "arms": (Arms, PULLS)}
"""What makes a world, and how many episodes a trial has."""


@torch.no_grad()
def play(trainer: Trainer, world: str, held_out: bool) -> dict[str, float]:
    """What the policy, which draws its actions, gets in trials that it does not learn from."""
    make, episodes = WORLDS[world]
    network, encode = trainer.network, trainer.worlds.observations.encode
    draw = torch.Generator().manual_seed(0)
    worlds = [Trials(make(held_out), episodes) for _ in range(TRIALS)]
    seen = [trial.reset(seed=1000 + number)[0] for number, trial in enumerate(worlds)]
    state, action, paid = start_carry(network, TRIALS)
    starts, over, rewards = torch.ones(TRIALS, dtype=torch.bool), False, list[Tensor]()
    while not over:
        outputs, _, state = network.step(network.input(as_tensor(encode(seen)), action, paid, starts), state, starts)
        action = network.actions.sample(outputs, network.log_std, draw)
        stepped = [trial.step(way) for trial, way in zip(worlds, network.actions.to_world(action), strict=True)]
        seen, over = [observation for observation, *_ in stepped], stepped[0][2]  # all trials are equally long
        paid, starts = torch.tensor([reward for _, reward, *_ in stepped]), torch.zeros(TRIALS, dtype=torch.bool)
        rewards.append(paid)
    quarter = len(rewards) // 4
    first, last = (torch.stack(part).mean().item() for part in (rewards[:quarter], rewards[-quarter:]))
    return {"first": round(first, 3), "last": round(last, 3)}


def train(world: str, word: str, seed: int, steps: int) -> dict[str, Any]:
    """Train one cell."""
    memory, of_memory = named(word)
    make, episodes = WORLDS[world]
    settings = PpoSettings(
        world,
        memory,
        of_memory,
        steps=steps,
        seed=seed,
        trial=episodes,
        reward_input=True,
        rollout=64,
        chunk=64,
        width=64,
    )
    trainer, began = Trainer(settings, partial(make, False)), time.process_time()
    rows = list(trainer.train())
    seconds = round(time.process_time() - began, 1)
    trained, held_out = (play(trainer, world, other) for other in (False, True))
    same = {"world": world, "memory": word, "seed": seed, "steps": rows[-1]["steps"], "seconds": seconds}
    return {**same, "trained": trained, "held out": held_out}


def bounds(world: str, held_out: bool) -> dict[str, float]:
    """The mean reward of a step for somebody who knows the task, and of the best that is always done."""
    if world == "arms":
        other, good = UNLIKE[held_out]
        return {"best": good, "blind": round(other + (good - other) / 5, 3)}
    # Who goes straight to the goal stands on it in all steps but those of the way.
    shares = [(LENGTH - sum(goal) + 1) / LENGTH for goal in Goals(held_out).goals]
    return {"best": round(float(np.mean(shares)), 3), "blind": round(max(shares) / len(shares), 3)}


def main(words: list[str] | None = None) -> None:
    options = cell_arguments(__doc__, steps=1_000_000, worlds=WORLDS, memories=MEMORIES).parse_args(words)
    cells = (
        train(world, memory, seed, options.steps)
        for seed, world, memory in itertools.product(options.seeds, options.worlds, options.memories)
    )
    ends = {name: {half: bounds(name, half == "held out") for half in ("trained", "held out")} for name in WORLDS}

    def report(cells: list[Row]) -> Row:
        unit = "mean reward of a step in the first and in the last quarter of a trial"
        return {"seeds": options.seeds, "unit": unit, "bounds": ends, "cells": cells}

    collect("trials", words, options.json, cells, report)


if __name__ == "__main__":
    main()
