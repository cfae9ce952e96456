"""Whether returns oscillate less where a policy is made of its last critics: CartPole-v1, episodes of at most 200 steps.

    python -m benchmarks.control.staq --json benchmarks/control/staq.json

Arms: StaQ with the last ten critics; "the last critics" is the same with one alone, whose policy is that of its last update;
"actor" is SAC, whose actor learns. All have the same critics, without a memory, 4,000 steps, an update for every fourth, and
the same fixed temperature; a policy of critics is changed after every 25 updates. After every 200 steps two episodes are played
without exploration. `score` is the mean of these means over the last third of the steps, and `oscillation` the standard
deviation of the means there. The settings were chosen by runs with seed 0, which is no seed of the cells.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import gymnasium
import numpy as np

from benchmarks.control.cells import Row, cell_arguments, collect
from keepworth.control.off_policy import OffPolicyTrainer
from keepworth.control.run import TrainedAgent, play
from keepworth.control.settings import OffPolicySettings

ARMS: dict[str, dict[str, Any]] = {
    "StaQ": {"learner": "staq", "stack": 10, "decay": 0.8, "delay": 25},
    "the last critics": {"learner": "staq", "stack": 1, "decay": 0.0, "delay": 25},
    "actor": {"learner": "sac", "tune": False},
}
"""The settings of each arm."""
STEPS, EVERY, EPISODES, LONGEST = 4000, 200, 2, 200


def make_world() -> gymnasium.Env[Any, Any]:
    """The pole on a cart."""
    return gymnasium.make("CartPole-v1", max_episode_steps=LONGEST)


def measure(arm: str, seed: int, steps: int) -> Row:
    """One cell."""
    began = time.process_time()
    settings = OffPolicySettings(
        "cart", "mlp", steps=steps, seed=seed, every=EVERY, warmup=min(500, steps // 2), ratio=0.25, width=32, batch=16,
        length=8, learning_rate=2e-3, tau=0.02, temperature=0.2, action_input=False, **ARMS[arm],
    )  # fmt: skip
    trainer = OffPolicyTrainer(settings, make_world)
    means = []
    for _ in trainer.train():
        agent = TrainedAgent(trainer.network, trainer.worlds)
        episodes = play(agent, make_world(), EPISODES, seed=10_000)
        means.append(float(np.mean([len(episode) for episode in episodes])))
    late = means[-max(1, len(means) // 3) :]
    return {
        "arm": arm,
        "seed": seed,
        "score": round(float(np.mean(late)), 1),
        "oscillation": round(float(np.std(late)), 1),
        "means": [round(mean) for mean in means],
        "processor": round(time.process_time() - began, 1),
    }


def main(words: list[str] | None = None) -> None:
    parser = cell_arguments(__doc__, steps=STEPS, arms=tuple(ARMS))
    parser.set_defaults(seeds=[1, 2, 3])
    options = parser.parse_args(words)
    cells = (measure(arm, seed, options.steps) for seed, arm in itertools.product(options.seeds, options.arms))

    def report(rows: list[Row]) -> Row:
        unit = f"mean length of {EPISODES} episodes without exploration, over the last third of {options.steps:,} steps"
        return {"seeds": options.seeds, "unit": unit, "cells": rows}

    collect("staq", words, options.json, cells, report, ("torch", "gymnasium", "numpy"))


if __name__ == "__main__":
    main()
