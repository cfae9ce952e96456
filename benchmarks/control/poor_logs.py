"""Whether conservative values help forward-backward where logs are poor, and harm nothing where they are good.

    python -m benchmarks.control.poor_logs --json benchmarks/control/poor_logs.json

The world is the square of `benchmarks.control.flicker` without flicker: a point moves by .2 in one of four directions, or
stays. Three kinds of logs, of 20 steps an episode and without rewards: "good", 200 episodes whose actions are drawn evenly;
"few", 10 of these; and "one way", 200 episodes in which nobody ever goes left, so that they show the way to what lies to the
right alone. Four tasks are named afterwards by the rewards of up to 50 logged episodes. A cell is an arm, a kind and a seed, 500
updates without a memory; `score` is the mean share of paid steps over 30 episodes of each task, which begin at even draws.
Arms: forward-backward ("plain"), with conservative values ("conservative"), and with values that are lowered beside those of
choices that are drawn instead of the logged ones ("drawn choices"), the control. `rule` goes straight to the place, by moves
that the logs have, as the oracle; `random` draws its moves. The weight, .03, was chosen among .03, .3 and 3 by runs with seed
1000, which is no seed of the cells.
"""

from __future__ import annotations

import itertools
import time
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from benchmarks.control.cells import Row, cell_arguments, spread
from benchmarks.control.flicker import (
    EPISODES,
    LABELLED,
    LOGGED,
    MOVES,
    PLACES,
    STEPS,
    Square,
    collect_shares,
    label,
    log,
)
from keepworth.control.dials import Transition, behave
from keepworth.control.run import TrainedAgent, play
from keepworth.methods.control import forward_backward
from keepworth.registry import method

ARMS, BOUNDS = ("plain", "conservative", "drawn choices"), ("rule", "random")
KINDS = ("good", "few", "one way")
FEW, LEFT, UPDATES, WEIGHT = 10, 2, 500, 0.03


def log_kind(kind: str, seed: int) -> tuple[list[list[Transition]], list[list[list[float]]]]:
    """Logs of a kind, and by episode and step what each task would have paid."""
    if kind != "one way":
        episodes, paid = log(0.0, seed)
        return (episodes[:FEW], paid[:FEW]) if kind == "few" else (episodes, paid)
    world, draw = Square(0.0), np.random.default_rng(seed)
    choices = [choice for choice in range(len(MOVES)) if choice != LEFT]
    episodes, paid = [], []
    for episode in range(LOGGED):
        observation, _ = world.reset(seed=seed * LOGGED + episode)
        rows, of_tasks, cut = list[Transition](), list[list[float]](), False
        while not cut:
            action = int(draw.choice(choices))
            after, _, over, cut, info = world.step(action)
            rows.append((observation, action, None, after, over))
            of_tasks.append(info["places"])
            observation = after
        episodes.append(rows)
        paid.append(of_tasks)
    return episodes, paid


def drawn_loss(every: Tensor, ahead: Tensor, z: Tensor) -> Tensor:
    """The conservative loss beside the values of drawn choices; see `forward_backward.conservative_loss`."""
    drawn = torch.randint(every.shape[2], (every.shape[1],), generator=torch.Generator().manual_seed(every.shape[1]))
    return CONSERVATIVE(every, forward_backward.of_action(every, drawn), z)


CONSERVATIVE = forward_backward.conservative_loss


def measure(arm: str, kind: str, seed: int, updates: int, weight: float = WEIGHT) -> Row:
    """One cell."""
    began = time.process_time()
    first, scores = 10_000 + EPISODES * seed, list[float]()
    trainer: Any = None
    if arm in ARMS:
        episodes, paid = log_kind(kind, seed)
        loss = drawn_loss if arm == "drawn choices" else CONSERVATIVE
        with patch.object(forward_backward, "conservative_loss", loss):
            trainer = method("control_agent", "conservative_forward_backward").make(
                lambda: Square(0.0), "mlp", logs={"logs": episodes}, updates=updates, size=32, seed=seed, every=updates,
                conservative=0.0 if arm == "plain" else weight, width=64, batch=8, length=STEPS, learning_rate=2e-3,
                tau=0.05, discount=0.8, action_input=False,
            )  # fmt: skip
            list(trainer.train())
    for task in range(len(PLACES)):
        world = Square(0.0, task)
        if trainer is None:
            world.action_space.seed(first + task)
            moves = np.delete(MOVES, LEFT, 0) if kind == "one way" else MOVES
            places = np.delete(np.arange(len(MOVES)), LEFT) if kind == "one way" else np.arange(len(MOVES))

            def act(seen: Any) -> int:
                if arm == "random":
                    return int(world.action_space.sample())  # noqa: B023
                nearest = np.linalg.norm(np.clip(seen + moves, -1.0, 1.0) - PLACES[task], axis=1).argmin()  # noqa: B023
                return int(places[nearest])  # noqa: B023

            logs: Any = behave(world, "conservative", act, EPISODES, first)
        else:
            trainer.name_task(label(episodes, paid, task)[:LABELLED])
            logs = play(TrainedAgent(trainer.network, trainer.worlds), world, EPISODES, seed=first)
        scores.append(float(np.mean([step[2] for episode in logs for step in episode])))
    row = {"arm": arm, "kind": kind, "seed": seed, "score": round(float(np.mean(scores)), 3)}
    return {
        **row,
        "tasks": [round(of, 2) for of in scores],
        "processor": round(time.process_time() - began, 1),
    }


def main(words: list[str] | None = None) -> None:
    parser = cell_arguments(__doc__, arms=(*BOUNDS, *ARMS), kinds=KINDS)
    parser.add_argument("--updates", type=int, default=UPDATES, help="from logs")
    parser.set_defaults(seeds=[1, 2, 3])
    options = parser.parse_args(words)
    every = itertools.product(options.seeds, options.kinds, options.arms)
    cells = spread(measure, [(arm, kind, seed, options.updates) for seed, kind, arm in every], options.processes)

    collect_shares("poor_logs", words, options, cells)


if __name__ == "__main__":
    main()
