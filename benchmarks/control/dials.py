"""What each dial costs a network without memory and one with: recurrent PPO on CartPole under one dial at a time.

    python -m benchmarks.control.dials --json benchmarks/control/dials.json

`return` is the mean over the episodes of the last quarter of training, of at most 500 steps; under `bound` a step further than
half a unit from the middle pays 0 in the place of 1. `without` is the same network without memory. Nothing is tuned. Behaviours
are what `behave` logs with a rule for the good policy, over 200 episodes: `spread` is the standard deviation of the cart's place.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from benchmarks.control.cells import Row, cell_arguments, collect
from keepworth.control.dials import BEHAVIOURS, behave, dialled
from keepworth.control.ppo import Trainer
from keepworth.control.settings import PpoSettings

WORLD = "CartPole-v1"
DIALS: dict[str, dict[str, Any]] = {
    "none": {},
    "delay=2": {"delay": 2},
    "lag=2": {"lag": 2},
    "drive=0.5": {"drive": 0.5},
    "bound=0.5": {"bound": 0.5},
}
MEMORIES = ("mlp", "gru")


def trained(dial: str, memory: str, seed: int, steps: int) -> Row:
    begun = time.perf_counter()
    settings = PpoSettings(
        world=WORLD, memory=memory, steps=steps, seed=seed, rollout=64, chunk=64, width=64, learning_rate=3e-3
    )
    rows = [row["return"] for row in Trainer(settings, partial(dialled, WORLD, **DIALS[dial])).train()]
    last = [value for value in rows[-(len(rows) // 4) :] if value is not None and np.isfinite(value)]
    seconds = round(time.perf_counter() - begun, 1)
    return {"dial": dial, "memory": memory, "seed": seed, "return": round(float(np.mean(last)), 2), "seconds": seconds}


def behaved(name: str) -> Row:
    world = gymnasium.make(WORLD)
    logs = list(behave(world, name, lambda seen: int(seen[2] + 0.5 * seen[3] > 0), 200))
    returns = [sum(step[2] for step in log) for log in logs]
    spread = np.std([step[0][0] for log in logs for step in log])
    return {"behaviour": name, "return": round(float(np.mean(returns)), 2), "spread": round(float(spread), 3)}


def report(rows: Iterable[Row]) -> Row:
    """By dial and memory the mean over seeds, their range, and what it is over the network without memory, seed by seed."""
    cells: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        if "dial" in row:
            cells.setdefault((row["dial"], row["memory"]), {})[row["seed"]] = row["return"]
    table = []
    for (dial, memory), of in cells.items():
        without = cells.get((dial, MEMORIES[0]), {})
        over = [round(value - without[seed], 2) for seed, value in of.items() if seed in without]
        values = list(of.values())
        table.append(
            {"dial": dial, "memory": memory, "n": len(values), "mean": round(float(np.mean(values)), 2)}
            | {"range": [min(values), max(values)], "over_no_memory": over}
        )
    return {"world": WORLD, "table": table, "rows": list(rows)}


def main() -> None:
    options = cell_arguments(__doc__, steps=16_384, dials=tuple(DIALS), memories=MEMORIES).parse_args()
    cells = itertools.product(options.seeds, options.dials, options.memories)
    rows = itertools.chain(
        (behaved(name) for name in BEHAVIOURS),
        (trained(dial, memory, seed, options.steps) for seed, dial, memory in cells),
    )
    collect("dials", None, options.json, rows, report)


if __name__ == "__main__":
    main()
