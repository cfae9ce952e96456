"""What predicting teaches a memory: recurrent PPO with and without auxiliary losses, in worlds where memory is slow to learn.

    python -m benchmarks.control.predictions --json benchmarks/control/predictions.json

Three worlds: a cue that is asked for 7 steps later, where nothing before the answer pays; POPGym's RepeatPreviousEasy, where each
step pays; and its CartPole that shows positions alone, where the next observation needs the one before. A cell is a world, an arm
and a seed, of a GRU of width 32. `whole` is the mean of the returns over all of training, so that who learns sooner has more;
`last` is that of its last tenth. The controls are no prediction, and for each loss the same with targets of other steps, drawn by
chance, which has the size and the heads of the loss and no information. The action before is no input, as in the ladder. Steps
and the weight of the losses (.1, which was better than 1 in three looks of four) were chosen on seed 100.
Only the cue was measured with all seeds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.speed.setting import machine
from keepworth.control.ppo import Trainer
from keepworth.control.prediction import Prediction
from keepworth.control.settings import PpoSettings

STEPS = {
    "keepworth/Cue8-v0": 40_000,
    "popgym-RepeatPreviousEasy-v0": 40_000,
    "popgym-PositionOnlyCartPoleEasy-v0": 25_000,
}
"""Of all worlds of a cell together."""
ARMS = ("none", "observation", "observation, shuffled", "latent", "latent, shuffled")


def shuffle(prediction: Prediction, seed: int) -> None:
    """Make the targets of each step those of another, drawn by chance."""
    draw, targets = torch.Generator().manual_seed(seed), prediction.targets

    def mixed(*given: Tensor) -> list[tuple[int, Tensor]]:
        pairs = []
        for ahead, target in targets(*given):
            rows = target.flatten(0, 1)
            pairs.append((ahead, rows[torch.randperm(len(rows), generator=draw)].view_as(target)))
        return pairs

    prediction.targets = mixed  # type: ignore[method-assign]


def train(world: str, arm: str, seed: int, steps: int, weight: float) -> dict[str, Any]:
    """Train one cell."""
    predict, _, shuffled = arm.partition(", ")
    settings = PpoSettings(
        world,
        "gru",
        steps=steps,
        seed=seed,
        envs=32,
        rollout=32,
        chunk=32,
        width=32,
        learning_rate=2e-3,
        action_input=False,
        predict=predict,
        predict_weight=weight,
    )
    trainer, began = Trainer(settings), time.process_time()
    if shuffled and trainer.prediction:
        shuffle(trainer.prediction, seed)
    returns = [float(row["return"] or 0.0) for row in trainer.train()]
    return {
        "world": world,
        "arm": arm,
        "seed": seed,
        "whole": round(float(np.mean(returns)), 4),
        "last": round(float(np.mean(returns[-max(1, len(returns) // 10) :])), 4),
        "steps": trainer.curve[-1]["steps"],
        "seconds": round(time.process_time() - began, 1),
    }


def main(words: list[str] | None = None) -> None:
    """Train every cell, and print or write JSON; what is written has all cells that are done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="*", default=list(STEPS))
    parser.add_argument("--arms", nargs="*", default=list(ARMS))
    parser.add_argument("--seeds", nargs="*", type=int, default=list(range(5)))
    parser.add_argument("--steps", type=int, default=0, help="other steps than those of the worlds")
    parser.add_argument("--weight", type=float, default=0.1)
    parser.add_argument("--json", type=Path, help="goes on with what is there")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    there = options.json and options.json.is_file()
    cells = json.loads(options.json.read_text(encoding="utf-8"))["cells"] if there else []
    done = {(cell["seed"], cell["world"], cell["arm"]) for cell in cells}
    for seed, world, arm in itertools.product(options.seeds, options.worlds, options.arms):
        if (seed, world, arm) in done:
            continue
        cells.append(train(world, arm, seed, options.steps or STEPS[world], options.weight))
        print(json.dumps(cells[-1]), flush=True)
        report = {
            "command": "python -m benchmarks.control.predictions " + " ".join(words or sys.argv[1:]),
            "machine": machine(1, ("torch", "gymnasium", "popgym", "numpy")),
            "seeds": options.seeds,
            "unit": "mean return of the episodes of an update, over all of training; last: over its last tenth",
            "weight": options.weight,
            "cells": cells,
        }
        if options.json:
            options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
