"""Whether off-policy learners with a memory balance a pendulum whose speed is not shown: RSAC, RTD3 and RDPG.

    python -m benchmarks.control.off_policy --json benchmarks/control/off_policy.json

Gymnasium's Pendulum-v1 shows the cosine and the sine of the angle, and not its speed. An action is held for four steps of .05
s, so that an episode has 50 decisions. A cell is an arm and a seed. `score` is the mean return of ten episodes without
exploration, after 2,400 decisions; `whole` that of the episodes of training. A GRU of width 64 learns from 32 sequences of 12
decisions, whose first state is the initial one, after every second decision. Arms beside the three: SAC without a memory; SAC
without a memory that is shown the speed, as an oracle; and actions drawn evenly. The settings are the same for all and were
chosen by one run of RSAC with seed 0, which is no seed of the cells; so RTD3 and RDPG are also tried with half of its learning
rate. With --onto the cells of the file are kept.
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
    "RTD3, half the rate": ("td3", "gru"),
    "RDPG, half the rate": ("ddpg", "gru"),
}
"""The learner and the memory of each arm."""
EPISODES, HELD, RATE = 10, 4, 2e-3


class PositionOnly(gymnasium.ObservationWrapper[NDArray[np.float32], Any, Any]):
    """The pendulum without its speed."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("Pendulum-v1"))
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def observation(self, observation: Any) -> NDArray[np.float32]:
        position: NDArray[np.float32] = np.asarray(observation, np.float32)[:2]
        return position


class Held(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A world whose actions are held for some steps, and pay their sum."""

    held = HELD

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(self.held):
            observation, reward, over, cut, info = self.env.step(action)
            total += float(reward)
            if over or cut:
                break
        return observation, total, over, cut, info


def make_world(arm: str) -> gymnasium.Env[Any, Any]:
    """The pendulum, as an arm sees it."""
    return Held(gymnasium.make("Pendulum-v1") if arm == "speed shown" else PositionOnly())


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
        every=min(400, steps),
        warmup=min(400, steps // 2),
        ratio=0.5,
        width=64,
        batch=32,
        length=12,
        learning_rate=RATE / 2 if arm.endswith("half the rate") else RATE,
        tau=0.02,
        discount=0.95,
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
    parser = cell_arguments(__doc__, steps=2400, arms=tuple(ARMS))
    parser.add_argument("--onto", action="store_true", help="keep the cells of the file that --json names")
    parser.set_defaults(seeds=[1, 2, 3])
    options = parser.parse_args(words)
    before = json.loads(options.json.read_text(encoding="utf-8"))["cells"] if options.onto else []
    measured = {(cell["arm"], cell["seed"]): cell for cell in before}
    pairs = sorted(itertools.product(options.seeds, options.arms), key=lambda pair: pair[1].endswith("half the rate"))
    cells = (measured.get((arm, seed)) or train(arm, seed, options.steps) for seed, arm in pairs)

    def report(cells: list[Row]) -> Row:
        unit = f"mean return of {EPISODES} episodes without exploration, after {options.steps:,} decisions"
        return {"seeds": options.seeds, "unit": unit, "cells": cells}

    collect("off_policy", words, options.json, cells, report, ("torch", "gymnasium", "numpy"))


if __name__ == "__main__":
    main()
