"""Whether factors of a step help where rewards are paid in one sum: a pendulum whose episode is paid with its last step.

    python -m benchmarks.control.late_rewards --json benchmarks/control/late_rewards.json

The world is that of `benchmarks.control.off_policy` with its speed shown, 50 decisions an episode, and with ten further
numbers that are drawn anew at each step and have nothing to do with its rewards. SAC without a memory, 2,400 decisions, an
update after every second. `score` is the mean return of ten episodes without exploration. Arms: LaRe with the factors of
`squares`; "raw inputs", the same with the observation and the
action themselves (randomised return decomposition); "factors permuted", LaRe with the factors of other steps; "sum alone", SAC
on what is paid; and "true rewards", SAC on the rewards of each step, as the oracle. The settings are those of
`benchmarks.control.off_policy`, and K is 16. Seed 0 was looked at first and is no seed of the cells: after it the numbers that
mean nothing were added, the number of decisions was chosen, and a fourth factor (where the angle will be) beside three.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from benchmarks.control.cells import Row, cell_arguments, collect
from benchmarks.control.off_policy import EPISODES, HELD, RATE, make_world
from keepworth.control.dials import Dialled, Dials
from keepworth.control.run import TrainedAgent, play
from keepworth.registry import method

SHOWN = "speed shown"
"""The arm of `benchmarks.control.off_policy` whose world it is."""
STEPS, NOISE = 2400, 10


class Distracted(gymnasium.ObservationWrapper[Any, Any, Any]):
    """A world that shows numbers beside its observation that mean nothing."""

    def __init__(self, world: gymnasium.Env[Any, Any]) -> None:
        super().__init__(world)
        low, high = (
            np.concatenate([bound, np.full(NOISE, sign)])
            for bound, sign in ((world.observation_space.low, -1.0), (world.observation_space.high, 1.0))
        )
        self.observation_space = gymnasium.spaces.Box(low.astype(np.float32), high.astype(np.float32))

    def observation(self, observation: Any) -> Any:
        return np.concatenate([observation, self.np_random.uniform(-1.0, 1.0, NOISE)]).astype(np.float32)


def show(late: bool) -> gymnasium.Env[Any, Any]:
    """The pendulum, whose rewards are paid in one sum where they are late."""
    return Dialled(Distracted(make_world(SHOWN)), Dials(summed=late))


def squares(features: Tensor, actions: Tensor) -> Tensor:
    """The squares of the angle, of where it will be after half of the decision at this speed, of the speed, and of the torque."""
    angle, speed = torch.atan2(features[..., 1], features[..., 0]), features[..., 2]
    later = torch.remainder(angle + 0.5 * HELD * 0.05 * speed + torch.pi, 2 * torch.pi) - torch.pi
    return torch.stack([angle, later, speed, actions[..., 0]], -1).square()


def permute(seed: int) -> Any:
    """Factors that are those of other steps."""
    draw = torch.Generator().manual_seed(seed)

    def factors(features: Tensor, actions: Tensor) -> Tensor:
        values = squares(features, actions)
        flat = values.reshape(-1, values.shape[-1])
        return flat[torch.randperm(len(flat), generator=draw)].reshape(values.shape)

    return factors


ARMS = ("LaRe", "raw inputs", "factors permuted", "sum alone", "true rewards")


def measure(arm: str, seed: int, steps: int) -> Row:
    """One cell."""
    began = time.process_time()
    settings: dict[str, Any] = {
        "steps": steps, "seed": seed, "every": min(400, steps), "warmup": min(400, steps // 2), "ratio": 0.5, "width": 64,
        "batch": 32, "length": 12, "learning_rate": RATE, "tau": 0.02, "discount": 0.95, "action_input": False,
    }  # fmt: skip
    if arm in ("sum alone", "true rewards"):
        made = method("control_agent", "rsac").make(lambda: show(arm == "sum alone"), "mlp", **settings)
    else:
        factors = {"LaRe": squares, "raw inputs": None, "factors permuted": permute(seed)}[arm]
        made = method("control_agent", "lare").make(lambda: show(True), "mlp", factors=factors, **settings)
    list(made.train())
    agent = TrainedAgent(made.network, made.worlds)
    episodes = play(agent, show(False), EPISODES, seed=10_000 + EPISODES * seed)
    return {
        "arm": arm,
        "seed": seed,
        "score": round(float(np.mean([sum(step[2] for step in episode) for episode in episodes])), 1),
        "steps": made.curve[-1]["steps"],
        "processor": round(time.process_time() - began, 1),
    }


def main(words: list[str] | None = None) -> None:
    parser = cell_arguments(__doc__, steps=STEPS, arms=ARMS)
    parser.set_defaults(seeds=[1, 2, 3])
    options = parser.parse_args(words)
    cells = (measure(arm, seed, options.steps) for seed, arm in itertools.product(options.seeds, options.arms))

    def report(rows: list[Row]) -> Row:
        unit = f"mean return of ten episodes without exploration, after {options.steps:,} decisions"
        return {"seeds": options.seeds, "unit": unit, "cells": rows}

    collect("late_rewards", words, options.json, cells, report)


if __name__ == "__main__":
    main()
