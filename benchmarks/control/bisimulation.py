"""Whether a loss of bisimulation helps to learn from few logs in which most of a history means nothing.

    python -m benchmarks.control.bisimulation --json benchmarks/control/bisimulation.json

A corridor of four steps: the first observation is a cue, one of two; at the next two one of eight pictures hangs on the wall,
drawn anew, which means nothing; at the last the door that the cue named pays 1, the other one nothing. Logs are of 80 episodes
whose actions are drawn evenly, so that imitation is at chance, .5; who remembers the cue has 1. IQL with a GRU of width 32 learns
from them for 400 updates. `score` is the share of 200 episodes of other pictures that go through the right door,
without exploration. Arms: with the loss ("bisimulation"), "IQL" without it, "rewards permuted", in whose loss of bisimulation,
and there alone, rewards are those of other steps, and "BC"; "many logs" is IQL with 400 episodes, as the oracle. Weight and sizes
were chosen by runs with seed 0, which is no seed of the cells.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import gymnasium
import numpy as np
import torch

from benchmarks.control.cells import Row, cell_arguments, collect, spread
from keepworth.control.dials import behave
from keepworth.control.run import TrainedAgent, play
from keepworth.registry import method

ARMS = ("bisimulation", "IQL", "rewards permuted", "BC", "many logs")
PICTURES, LENGTH, LOGGED, MANY, EPISODES, UPDATES, WEIGHT = 8, 4, 80, 400, 200, 400, 0.1


class Corridor(gymnasium.Env[int, int]):
    """A cue, pictures, and two doors."""

    observation_space = gymnasium.spaces.Discrete(2 + PICTURES + 1)  # type: ignore[assignment]
    action_space = gymnasium.spaces.Discrete(2)  # type: ignore[assignment]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.cue, self.time = int(self.np_random.integers(2)), 0
        return self.cue, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.time += 1
        over = self.time == LENGTH
        picture = 2 + int(self.np_random.integers(PICTURES))
        at_doors = self.time >= LENGTH - 1
        return 2 + PICTURES if at_doors else picture, float(over and action == self.cue), over, False, {}


def measure(arm: str, seed: int, updates: int) -> Row:
    """One cell."""
    began, world = time.process_time(), Corridor()
    logged = MANY if arm == "many logs" else LOGGED
    logs = {"logs": list(behave(world, "conservative", lambda seen: world.action_space.sample(), logged, 1000 + seed))}
    settings: dict[str, Any] = {
        "seed": seed, "updates": updates, "every": updates, "width": 32, "batch": 32, "length": LENGTH, "learning_rate": 5e-3,
        "tau": 0.05, "discount": 0.95, "hidden": "recomputed", "action_input": False,
    }  # fmt: skip
    if arm in ("bisimulation", "rewards permuted"):
        trainer = method("control_agent", "history_bisimulation").make(Corridor, logs=logs, weight=WEIGHT, **settings)
        if arm == "rewards permuted":
            trainer.further_loss = permuted(trainer.further_loss, seed)
    else:
        learner = {"learner": "bc"} if arm == "BC" else {}
        trainer = method("control_agent", "iql").make(Corridor, logs=logs, **settings, **learner)
    list(trainer.train())
    agent = TrainedAgent(trainer.network, trainer.worlds)
    episodes = play(agent, Corridor(), EPISODES, seed=10_000 + EPISODES * seed)
    score = float(np.mean([sum(step[2] for step in episode) for episode in episodes]))
    return {"arm": arm, "seed": seed, "score": round(score, 3), "processor": round(time.process_time() - began, 1)}


def permuted(loss: Any, seed: int) -> Any:
    """A loss of bisimulation whose rewards are those of other steps."""
    draw = torch.Generator().manual_seed(seed)

    def of(memories: Any, batch: Any, rewards: torch.Tensor, valid: Any) -> Any:
        dealt = rewards.flatten()[torch.randperm(rewards.numel(), generator=draw)].view_as(rewards)
        return loss(memories, batch, dealt, valid)

    return of


def main(words: list[str] | None = None) -> None:
    parser = cell_arguments(__doc__, arms=ARMS)
    parser.add_argument("--updates", type=int, default=UPDATES, help="from logs")
    parser.set_defaults(seeds=[1, 2, 3, 4, 5])
    options = parser.parse_args(words)
    pairs = itertools.product(options.seeds, options.arms)
    cells = spread(measure, [(arm, seed, options.updates) for seed, arm in pairs], options.processes)

    def report(rows: list[Row]) -> Row:
        unit = f"share of {EPISODES} episodes that go through the right door, after {options.updates} updates from logs"
        return {"seeds": options.seeds, "unit": unit, "cells": rows}

    collect("bisimulation", words, options.json, cells, report, ("torch", "gymnasium", "numpy"))


if __name__ == "__main__":
    main()
