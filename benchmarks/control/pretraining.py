"""What an encoder and a reward that are learned from demonstrations without actions are worth, each alone and both.

    python -m benchmarks.control.pretraining --json benchmarks/control/pretraining.json

The rooms and the learner of `benchmarks.control.few_demonstrations`, with 20 demonstrations of its planner and so many steps.
`success` is the share of 100 episodes that reach the goal, with actions drawn from the policy; `whole` the same of the episodes
of training, the mean over it. Arms: the encoder by NCE alone, the reward of progress alone, and both; "both, permuted" has the
observations of all demonstrations dealt out anew, so that neither later observations nor progress mean a thing; "none" is PPO
alone; "imitated alone" is behaviour cloning, which is shown the actions, too, and makes no step of the world. `demonstrator` is
the oracle. Sizes and weights were chosen by runs with seed 0, which is no seed of the cells.
"""

from __future__ import annotations

import itertools
import time
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.control.cells import Row, cell_arguments, collect, spread
from benchmarks.control.few_demonstrations import EPISODES, WORLDS, demonstrate, make_world, success
from keepworth.control.dials import Transition
from keepworth.control.run import TrainedAgent, play
from keepworth.registry import method

WORLD = WORLDS[0]
ARMS: dict[str, dict[str, Any]] = {
    "none": {},
    "NCE": {"weight": 0.0},
    "reward": {"before": 0},
    "both": {},
    "both, permuted": {},
    "imitated alone": {"before": 400, "weight": 0.0},
}
"""The settings of each arm that learns."""
STEPS, DEMONSTRATIONS = 50_000, 20


def permute(logs: list[list[Transition]], seed: int) -> list[list[Transition]]:
    """The logs with the observations of all their steps dealt out anew."""
    seen = [of for log in logs for of in (*(step[0] for step in log), log[-1][3])]
    dealt = iter(np.random.default_rng(seed).permutation(len(seen)).tolist())
    permuted = list[list[Transition]]()
    for log in logs:
        row = [seen[next(dealt)] for _ in range(len(log) + 1)]
        permuted.append([(row[i], *step[1:3], row[i + 1], step[4]) for i, step in enumerate(log)])
    return permuted


def measure(arm: str, seed: int, steps: int) -> Row:
    """One cell."""
    began, row = time.process_time(), {"arm": arm, "seed": seed}
    test, taught = 1_000_000 + EPISODES * seed, 2_000_000 + 1000 * seed
    if arm == "demonstrator":
        row["success"] = success(demonstrate(WORLD, EPISODES, test))
    else:
        settings: dict[str, Any] = {
            "seed": seed, "steps": steps, "envs": 32, "rollout": 64, "chunk": 64, "width": 64, "entropy": 0.003, **ARMS[arm],
        }  # fmt: skip
        named = {"none": "recurrent_ppo", "imitated alone": "il_rl"}.get(arm, "nce_pretraining")
        if arm != "none":
            logs = demonstrate(WORLD, DEMONSTRATIONS, taught)
            settings["demonstrations"] = permute(logs, seed) if arm == "both, permuted" else logs
        trainer = method("control_agent", named).make(partial(make_world, WORLD), "gru", **settings)
        if arm == "imitated alone":
            trainer.imitate()
        else:
            curve = [float(np.mean([paid > 0 for paid in trainer.recent] or [0])) for _ in trainer.train()]
            row["whole"] = round(float(np.mean(curve)), 3)
        agent = TrainedAgent(trainer.network, trainer.worlds)
        torch.manual_seed(seed)
        row["success"] = success(play(agent, make_world(WORLD), EPISODES, seed=test, deterministic=False))
    return {**row, "processor": round(time.process_time() - began, 1)}


def main(words: list[str] | None = None) -> None:
    parser = cell_arguments(__doc__, steps=STEPS, arms=("demonstrator", *ARMS))
    parser.set_defaults(seeds=[1, 2, 3])
    options = parser.parse_args(words)
    pairs = itertools.product(options.seeds, options.arms)
    cells = spread(measure, [(arm, seed, options.steps) for seed, arm in pairs], options.processes)

    def report(rows: list[Row]) -> Row:
        unit = f"share of {EPISODES} episodes that reach the goal, after {options.steps:,} steps"
        return {"seeds": options.seeds, "unit": unit, "cells": rows}

    collect("pretraining", words, options.json, cells, report, ("torch", "gymnasium", "minigrid", "numpy"))


if __name__ == "__main__":
    main()
