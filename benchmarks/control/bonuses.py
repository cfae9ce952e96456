"""What a bonus for the new is worth: E3B, NovelD and their product in rooms whose only reward is at the goal.

    python -m benchmarks.control.bonuses --json benchmarks/control/bonuses.json

MiniGrid's rooms with closed doors (`pip install minigrid`), an agent that sees 7 x 7 cells as one-hot vectors, recurrent PPO
with a GRU. `varying`: each episode has rooms of its own, as in the claim of E3B. `static`: each world has the same rooms in
every episode, as in the claim of NovelD. A cell is rooms, an arm and a seed, trained for so many steps; `success` is the share
of episodes that reached the goal, in the last quarter of them. The controls are no bonus, and `shuffled`, which pays what E3B
pays in an order drawn by chance among the steps of a rollout. Weights are the same for all and were not tuned.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.control.cells import Row, cell_arguments, collect
from keepworth.control.ppo import Trainer
from keepworth.control.settings import PpoSettings

ARMS = ("none", "shuffled", "e3b", "noveld", "both")
ROOMS = ("MiniGrid-MultiRoom-N2-S4-v0", "MiniGrid-MultiRoom-N4-S5-v0")
KINDS = (11, 6, 4)
"""How many objects, colours and states a cell can have."""


class OneHot(gymnasium.ObservationWrapper[NDArray[np.float32], int, dict[str, Any]]):
    """Shows each of the 7 x 7 cells as one-hot vectors. static: whether every episode has the rooms of the first."""

    def __init__(self, world: gymnasium.Env[Any, Any], *, static: bool) -> None:
        super().__init__(world)
        self._static = static
        self._seed: int | None = None
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (49 * sum(KINDS),), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._seed = seed if seed is not None else self._seed
        return super().reset(seed=self._seed if self._static else seed, options=options)

    def observation(self, observation: dict[str, Any]) -> NDArray[np.float32]:
        cells = observation["image"].reshape(49, 3)
        columns = [np.eye(size, dtype=np.float32)[cells[:, part]] for part, size in enumerate(KINDS)]
        return np.concatenate(columns, axis=1).ravel()


def make_world(rooms: str, static: bool) -> gymnasium.Env[Any, Any]:
    """The rooms, as the agent sees them."""
    import minigrid  # noqa: F401  # registers its worlds

    return OneHot(gymnasium.make(rooms), static=static)


def train(rooms: str, static: bool, arm: str, seed: int, steps: int) -> dict[str, Any]:
    """Train one cell."""
    settings = PpoSettings(rooms, "gru", steps=steps, seed=seed, bonus="e3b" if arm == "shuffled" else arm)
    trainer = Trainer(settings, partial(make_world, rooms, static))
    if arm == "shuffled" and trainer.bonus is not None:
        trainer.bonus.pay = shuffled(trainer.bonus.pay, seed)  # type: ignore[method-assign]
    began, shares = time.process_time(), list[float]()
    for _ in trainer.train():
        shares.append(float(np.mean([value > 0.0 for value in trainer.recent])) if trainer.recent else 0.0)
    late = shares[-max(1, len(shares) // 4) :]
    return {
        "rooms": rooms,
        "kind": "static" if static else "varying",
        "arm": arm,
        "seed": seed,
        "success": round(float(np.mean(late)), 3),
        "whole": round(float(np.mean(shares)), 3),
        "steps": trainer.curve[-1]["steps"],
        "seconds": round(time.process_time() - began, 1),
    }


def shuffled(pay: Callable[[Tensor, Tensor], Tensor], seed: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Pays the same amounts in an order drawn by chance."""
    draw = torch.Generator().manual_seed(seed)

    def pay_shuffled(observations: Tensor, starts: Tensor) -> Tensor:
        paid = pay(observations, starts)
        return paid.flatten()[torch.randperm(paid.numel(), generator=draw)].view_as(paid)

    return pay_shuffled


def main(words: list[str] | None = None) -> None:
    options = cell_arguments(__doc__, steps=300_000, rooms=ROOMS, arms=ARMS).parse_args(words)
    cells = (
        train(rooms, static, arm, seed, options.steps)
        for seed, rooms, static, arm in itertools.product(options.seeds, options.rooms, (False, True), options.arms)
    )

    def report(cells: list[Row]) -> Row:
        unit = "share of episodes that reached the goal, in the last quarter of training; whole: in all of it"
        return {"seeds": options.seeds, "unit": unit, "cells": cells}

    collect("bonuses", words, options.json, cells, report, ("torch", "gymnasium", "minigrid", "numpy"))


if __name__ == "__main__":
    main()
