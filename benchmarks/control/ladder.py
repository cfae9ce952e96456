"""The ladder: success against the horizon xi at equal compute, and against the context K at equal xi.

    python -m benchmarks.control.ladder --json benchmarks/control/ladder.json
    python -m benchmarks.control.ladder --rungs 8 --seeds 0 1 2 3 4 --steps 30000 --json benchmarks/control/ladder_steps.json
    python -m benchmarks.control.ladder --rungs 16 --memories frame_stack:frames=4 frame_stack:frames=16 frame_stack:frames=64

A cell is a world "keepworth/CueXI-v0", a memory and a seed: recurrent PPO for so many seconds of processor time, or for so many
steps of the world, or until 99 of the last hundred episodes are right. `success` is the share of the last hundred episodes that
were answered rightly, of a policy that still draws its actions; chance is 0.25. Rollouts and chunks have max(64, xi) steps, so
that a gradient reaches the cue.
The action before is no input: with it a network without memory acts the cue over and over, and reads it there.
`regime` is what success would show of a memory with this K; see `keepworth.control.ladder`. Nothing is tuned per memory or rung.
"""

from __future__ import annotations

import itertools
import time
from statistics import mean
from typing import Any

from benchmarks.control.cells import Row, cell_arguments, collect, spread
from benchmarks.control.probes import named
from keepworth.control.ladder import SYMBOLS, regime
from keepworth.control.ppo import Trainer
from keepworth.control.settings import PpoSettings

MEMORIES = ("mlp", "frame_stack", "gru", "lru", "mingru", "ffm", "transformer_xl", "memory_vla", "rotating_gates")
ENOUGH = 0.99


def climb(word: str, xi: int, seed: int, seconds: float, steps: int | None) -> dict[str, Any]:
    """Train one cell.

    Args:
        word: A memory's name, with settings after a colon.
        xi: How many steps before the question the cue is seen.
        seed: Of the network, the world and the draws.
        seconds: Of processor time, after which it ends; only where `steps` is None.
        steps: Of the world, after which it ends.
    """
    name, of_memory = named(word)
    length = max(64, xi)
    world = f"keepworth/Cue{xi}-v0"
    settings = PpoSettings(world, name, of_memory, seed=seed, rollout=length, chunk=length, action_input=False)
    trainer = Trainer(settings)
    began, row = time.process_time(), {"steps": 0}
    while row["steps"] < steps if steps else time.process_time() - began < seconds:
        row = trainer.update()
        if len(trainer.recent) == 100 and mean(trainer.recent) >= ENOUGH:
            break
    memory = trainer.network.memory
    return {
        "memory": word,
        "K": memory.context,
        "reach": memory.reach,
        "xi": xi,
        "regime": regime(memory.context, memory.reach, (xi, xi)),
        "seed": seed,
        "success": round(mean(trainer.recent), 3),
        "episodes": len(trainer.recent),
        "steps": row["steps"],
        "seconds": round(time.process_time() - began, 1),
    }


def summarise(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per memory and xi the mean, least and greatest success over seeds."""
    rows = []
    for word, xi in dict.fromkeys((cell["memory"], cell["xi"]) for cell in cells):
        group = [cell for cell in cells if (cell["memory"], cell["xi"]) == (word, xi)]
        success = [cell["success"] for cell in group]
        same = {key: group[0][key] for key in ("memory", "K", "reach", "xi", "regime")}
        row = {"success": round(mean(success), 3), "least": min(success), "greatest": max(success)}
        rows.append({**same, "n": len(group), **row, "steps": round(mean(cell["steps"] for cell in group))})
    return rows


def main(words: list[str] | None = None) -> None:
    parser = cell_arguments(__doc__, memories=MEMORIES)
    parser.add_argument("--rungs", nargs="*", type=int, default=[4, 16, 64, 256])
    parser.add_argument("--seconds", type=float, default=60.0, help="processor time of a cell")
    parser.add_argument("--steps", type=int, help="of the world, for each cell, whatever time they take")
    options = parser.parse_args(words)
    made = [
        (word, xi, seed, options.seconds, options.steps)
        for seed, xi, word in itertools.product(options.seeds, options.rungs, options.memories)
    ]
    cells = spread(climb, made, options.processes)

    def report(cells: list[Row]) -> Row:
        end = f"{options.steps:,} steps of the world" if options.steps else f"{options.seconds} s of processor time"
        unit = f"share of the last 100 episodes that were right, within {end}"
        about = {"seeds": options.seeds, "chance": 1 / SYMBOLS, "unit": unit}
        return {**about, "rows": summarise(cells), "cells": cells}

    collect("ladder", words, options.json, cells, report)


if __name__ == "__main__":
    main()
