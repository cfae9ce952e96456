"""Whether an actor of sequences earns more than SAC where decisions are seldom: Pendulum-v1, decided after every .4 s.

    python -m benchmarks.control.sequences --json benchmarks/control/sequences.json

A step of the world is .1 s here (two of Pendulum-v1), and a decision is for four steps. A cell is an arm and a seed: 3,000
steps, of which the first 600 are drawn evenly, and an update after every second of the others. `score` is the mean return of
ten episodes of 100 steps without exploration. Arms: Sequence RL, whose actor gives four actions at a decision; "recall of
others", in which the later ones are judged at states of other sequences; "SAC, held", whose actions are held for four steps,
with as many steps of the world and 1,300 updates for 1,200; and "SAC, each step", which decides at each step, as the oracle. No
network has a memory, since the pendulum's speed is shown. Seed 0 was looked at first, where 5,000 steps of .05 s had taught no
arm enough, and is no seed of the cells.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import gymnasium
import numpy as np

from benchmarks.control.cells import Row, cell_arguments, collect
from benchmarks.control.off_policy import Held
from keepworth.control.run import TrainedAgent, play
from keepworth.registry import method

ARMS = ("Sequence RL", "recall of others", "SAC, held", "SAC, each step")
STEPS, PERIOD, FRAMES, WARMUP, RATIO, EPISODES = 3000, 4, 2, 600, 0.5, 10


def make_world(arm: str) -> gymnasium.Env[Any, Any]:
    """The pendulum, as an arm sees it."""
    world = Held(gymnasium.make("Pendulum-v1"))
    world.held = FRAMES * (PERIOD if arm == "SAC, held" else 1)
    return world


def measure(arm: str, seed: int, steps: int) -> Row:
    """One cell."""
    began = time.process_time()
    period = PERIOD if arm == "SAC, held" else 1
    settings: dict[str, Any] = {
        "steps": steps // period, "seed": seed, "every": min(200, steps // period), "warmup": min(WARMUP, steps // 2) // period,
        "ratio": RATIO * period, "width": 64, "batch": 24, "length": 8, "learning_rate": 2e-3, "tau": 0.02,
        "discount": 0.96**period, "action_input": False,
    }  # fmt: skip
    if arm.startswith("SAC"):
        made = method("control_agent", "rsac").make(lambda: make_world(arm), "mlp", **settings)
    else:
        recall = "model" if arm == "Sequence RL" else "another"
        del settings["action_input"]
        made = method("control_agent", "sequence_rl").make(lambda: make_world(arm), PERIOD, recall=recall, **settings)
    list(made.train())
    agent = TrainedAgent(made.network, made.worlds)
    episodes = play(agent, make_world(arm), EPISODES, seed=10_000 + EPISODES * seed)
    return {
        "arm": arm,
        "seed": seed,
        "score": round(float(np.mean([sum(step[2] for step in episode) for episode in episodes])), 1),
        "updates": made.learned,
        "processor": round(time.process_time() - began, 1),
    }


def main(words: list[str] | None = None) -> None:
    parser = cell_arguments(__doc__, steps=STEPS, arms=ARMS)
    parser.set_defaults(seeds=[1, 2, 3])
    options = parser.parse_args(words)
    cells = (measure(arm, seed, options.steps) for seed, arm in itertools.product(options.seeds, options.arms))

    def report(rows: list[Row]) -> Row:
        unit = f"mean return of ten episodes without exploration, after {options.steps:,} steps of the world"
        return {"seeds": options.seeds, "unit": unit, "cells": rows}

    collect("sequences", words, options.json, cells, report)


if __name__ == "__main__":
    main()
