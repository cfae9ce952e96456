"""The ladder: success against the horizon xi at equal compute, and against the context K at equal xi.

    python -m benchmarks.control.ladder --json benchmarks/control/ladder.json
    python -m benchmarks.control.ladder --rungs 16 --memories frame_stack:frames=4 frame_stack:frames=16 frame_stack:frames=64

A cell is a world "keepworth/CueXI-v0", a memory and a seed: recurrent PPO for so many seconds of processor time, or until 99 of
the last hundred episodes are right. `success` is the share of the last hundred episodes that were answered rightly, of a policy
that still draws its actions; chance is 0.25. Rollouts and chunks have max(64, xi) steps, so that a gradient reaches the cue.
The action before is no input: with it a network without memory acts the cue over and over, and reads it there.
`regime` is what success would show of a memory with this K; see `keepworth.control.ladder`. Nothing is tuned per memory or rung.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from benchmarks.control.probes import named
from benchmarks.speed.setting import machine
from keepworth.control.ladder import SYMBOLS, regime
from keepworth.control.ppo import Trainer
from keepworth.control.settings import PpoSettings

MEMORIES = ("mlp", "frame_stack", "gru", "lru", "mingru", "ffm", "transformer_xl", "memory_vla", "rotating_gates")
ENOUGH = 0.99


def climb(word: str, xi: int, seed: int, seconds: float) -> dict[str, Any]:
    """Train one cell. word: a memory's name, with settings after a colon."""
    name, of_memory = named(word)
    length = max(64, xi)
    world = f"keepworth/Cue{xi}-v0"
    settings = PpoSettings(world, name, of_memory, seed=seed, rollout=length, chunk=length, action_input=False)
    trainer = Trainer(settings)
    began = time.process_time()
    while (spent := time.process_time() - began) < seconds:
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
        "seconds": round(spent, 1),
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
    """Climb with every memory, and print or write JSON; what is written has all cells that are done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", nargs="*", default=list(MEMORIES))
    parser.add_argument("--rungs", nargs="*", type=int, default=[4, 16, 64, 256])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=60.0, help="processor time of a cell")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    cells = []
    for seed in options.seeds:
        for xi in options.rungs:
            for word in options.memories:
                cells.append(climb(word, xi, seed, options.seconds))
                print(json.dumps(cells[-1]), flush=True)
                report = {
                    "command": "python -m benchmarks.control.ladder " + " ".join(words or sys.argv[1:]),
                    "machine": machine(1, ("torch", "gymnasium", "numpy")),
                    "seeds": options.seeds,
                    "chance": 1 / SYMBOLS,
                    "unit": f"share of the last 100 episodes that were right, within {options.seconds} s of processor time",
                    "rows": summarise(cells),
                    "cells": cells,
                }
                if options.json:
                    options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
