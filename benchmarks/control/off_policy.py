"""Whether off-policy learners with a memory balance a pendulum whose speed is not shown: RSAC, RTD3 and RDPG.

    python -m benchmarks.control.off_policy --json benchmarks/control/off_policy.json

Gymnasium's Pendulum-v1 shows the cosine and the sine of the angle, and not its speed. A cell is an arm and a seed. `score` is the
mean return of twenty episodes without exploration, after 10,000 steps; `whole` that of all episodes of training. A GRU of width
64 learns from 32 sequences of 16 steps, whose first state is the initial one, once in four steps. Arms beside the three: SAC
without a memory; SAC without a memory that is shown the speed, as an oracle; and actions drawn evenly. Settings are the same for
all and were chosen by one run of RSAC with seed 0, which is no seed of the cells. With --onto the cells of the file are kept.
"""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from benchmarks.control.cells import Row, cell_arguments, collect
from keepworth.control.off_policy import OffPolicyTrainer
from keepworth.control.run import TrainedAgent
from keepworth.control.settings import OffPolicySettings

ARMS = {
    "RSAC": ("sac", "gru"),
    "RTD3": ("td3", "gru"),
    "RDPG": ("ddpg", "gru"),
    "without memory": ("sac", "mlp"),
    "speed shown": ("sac", "mlp"),
    "random": ("", ""),
}
"""The learner and the memory of each arm."""
EPISODES = 20


class PositionOnly(gymnasium.ObservationWrapper[NDArray[np.float32], Any, Any]):
    """The pendulum without its speed."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("Pendulum-v1"))
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def observation(self, observation: Any) -> NDArray[np.float32]:
        position: NDArray[np.float32] = np.asarray(observation, np.float32)[:2]
        return position


def make_world(arm: str) -> gymnasium.Env[Any, Any]:
    """The pendulum, as an arm sees it."""
    return gymnasium.make("Pendulum-v1") if arm == "speed shown" else PositionOnly()


def train(arm: str, seed: int, steps: int) -> Row:
    """Train one cell, and play without exploration."""
    began, (learner, memory) = time.process_time(), ARMS[arm]
    if not learner:
        return {"arm": arm, "seed": seed, "score": play(arm, None, seed), "whole": None, "steps": 0, "seconds": 0.0}
    settings = OffPolicySettings(
        arm,
        memory,
        learner=learner,
        steps=steps,
        seed=seed,
        every=min(1000, steps),
        warmup=min(1000, steps // 2),
        ratio=0.25,
        width=64,
        batch=32,
        length=16,
        learning_rate=1e-3,
        tau=0.01,
    )
    trainer = OffPolicyTrainer(settings, lambda: make_world(arm))
    returns = [float(row["return"]) for row in trainer.train() if row["return"] is not None]
    return {
        "arm": arm,
        "seed": seed,
        "score": play(arm, TrainedAgent(trainer.network, trainer.worlds), seed),
        "whole": round(float(np.mean(returns)), 1) if returns else None,
        "curve": [round(value) for value in returns],
        "steps": trainer.curve[-1]["steps"],
        "seconds": round(time.process_time() - began, 1),
    }


def play(arm: str, agent: TrainedAgent | None, seed: int) -> float:
    """The mean return of an agent without exploration, or of actions drawn evenly where there is none."""
    world, returns = make_world(arm), []
    world.action_space.seed(seed)
    for episode in range(EPISODES):
        observation, _ = world.reset(seed=10_000 + EPISODES * seed + episode)
        state, over, total = None, False, 0.0
        while not over:
            if agent is None:
                action = world.action_space.sample()
            else:
                action, state = agent.predict(observation, state)
            observation, reward, terminated, truncated, _ = world.step(action)
            over, total = terminated or truncated, total + float(reward)
        returns.append(total)
    return round(float(np.mean(returns)), 1)


def main(words: list[str] | None = None) -> None:
    parser = cell_arguments(__doc__, steps=10_000, arms=tuple(ARMS))
    parser.add_argument("--onto", action="store_true", help="keep the cells of the file that --json names")
    parser.set_defaults(seeds=[1, 2, 3])
    options = parser.parse_args(words)
    before = json.loads(options.json.read_text(encoding="utf-8"))["cells"] if options.onto else []
    measured = {(cell["arm"], cell["seed"]): cell for cell in before}
    cells = (
        measured.get((arm, seed)) or train(arm, seed, options.steps)
        for seed, arm in itertools.product(options.seeds, options.arms)
    )

    def report(cells: list[Row]) -> Row:
        unit = f"mean return of {EPISODES} episodes without exploration, after {options.steps:,} steps"
        return {"seeds": options.seeds, "unit": unit, "cells": cells}

    collect("off_policy", words, options.json, cells, report, ("torch", "gymnasium", "numpy"))


if __name__ == "__main__":
    main()
