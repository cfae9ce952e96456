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

import itertools
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.control.cells import Row, cell_arguments, collect
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
    parser = cell_arguments(__doc__, worlds=tuple(STEPS), arms=ARMS)
    parser.add_argument("--steps", type=int, default=0, help="other steps than those of the worlds")
    parser.add_argument("--weight", type=float, default=0.1)
    parser.set_defaults(seeds=list(range(5)))
    options = parser.parse_args(words)
    cells = (
        train(world, arm, seed, options.steps or STEPS[world], options.weight)
        for seed, world, arm in itertools.product(options.seeds, options.worlds, options.arms)
    )

    def report(cells: list[Row]) -> Row:
        unit = "mean return of the episodes of an update, over all of training; last: over its last tenth"
        return {"seeds": options.seeds, "unit": unit, "weight": options.weight, "cells": cells}

    collect("predictions", words, options.json, cells, report, ("torch", "gymnasium", "popgym", "numpy"))


if __name__ == "__main__":
    main()
