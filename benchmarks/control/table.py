"""The table: worlds of POPGym by memories by seeds, a run for each cell, resumable.

    python -m benchmarks.control.table runs/table --steps 1000000 --seeds 0 1 2 --json benchmarks/control/table.json

A cell that is done is left alone, one that was stopped goes on. Seeds come before worlds and worlds before memories, so that an
early stop leaves whole worlds of one seed. Two processes may share a folder with --part 0/2 and --part 1/2. With --onto, cells
of the file of --json stay and are not run again. Every memory has the trainer's default settings, in every world.
"""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.methods.write import gap
from benchmarks.record import arguments, save
from benchmarks.speed.setting import machine
from keepworth.base.statistics import LEAST
from keepworth.control.run import run
from keepworth.control.settings import PpoSettings
from keepworth.control.table import MEMORIES, TASKS, TableCell, cell_folder, read_cells, summarise


def main() -> None:
    """Train what is missing, then write the table."""
    parser = arguments(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--worlds", nargs="*", default=list(TASKS), help="names of POPGym, such as RepeatFirstEasy")
    parser.add_argument("--memories", nargs="*", default=list(MEMORIES))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--envs", type=int, default=PpoSettings.envs)
    parser.add_argument("--part", default="0/1", help="which share of the cells, such as 0/2")
    parser.add_argument("--onto", action="store_true", help="keep the cells that the file of --json has")
    options = parser.parse_args()
    earlier = [TableCell(**cell) for cell in json.loads(options.json.read_text())["cells"]] if options.onto else []
    torch.set_num_threads(1)
    share, shares = map(int, options.part.split("/"))
    cells = list(itertools.product(options.seeds, options.worlds, options.memories))
    done = {
        (cell.world, cell.memory, cell.seed)
        for cell in [*earlier, *read_cells(options.folder)]
        if cell.steps >= options.steps
    }
    for seed, name, memory in cells[share::shares]:
        world = f"popgym-{name}-v0"
        if (world, memory, seed) in done:
            continue
        settings = PpoSettings(world=world, memory=memory, seed=seed, steps=options.steps, envs=options.envs)
        *_, row = {}, *run(settings, cell_folder(options.folder, world, memory, seed))
        print(f"{world} {memory} {seed}: {row.get('recent')}, {row.get('seconds')} s", flush=True)
    if options.json:
        command = "python -m benchmarks.control.table " + " ".join(sys.argv[1:])
        setting = machine(1, ("torch", "gymnasium", "numpy"))
        unit = "best: maximum over training of the mean return of the episodes of an update, mean over seeds"
        by_key = {(cell.world, cell.memory, cell.seed): cell for cell in [*earlier, *read_cells(options.folder)]}
        all_cells = [by_key[key] for key in sorted(by_key)]
        made = summarise(all_cells)
        pairs = {"minus_gru": minus_gru(made)}
        save(
            options.json,
            {
                "command": command,
                "machine": setting,
                "unit": unit,
                **made,
                **pairs,
                "cells": list(map(asdict, all_cells)),
            },
        )


def minus_gru(table: dict[str, Any]) -> dict[str, Any]:
    """Of each memory the difference of its `best` and that of gru, paired over the ranked worlds."""
    best = {(row["world"], row["memory"]): row["best"] for row in table["rows"]}
    scores = {memory: [best[world, memory] for world in table["ranked_worlds"]] for memory in table["mean_rank"]}
    return {name: gap("gru", of, scores["gru"]) for name, of in scores.items() if name != "gru" and len(of) >= LEAST}


if __name__ == "__main__":
    main()
