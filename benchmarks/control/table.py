"""The table: worlds of POPGym by memories by seeds, a run for each cell, resumable.

    python -m benchmarks.control.table runs/table --steps 1000000 --seeds 0 1 2 --json benchmarks/control/table.json

A cell that is done is left alone, one that was stopped goes on from its checkpoint. Seeds come before worlds and worlds before
memories, so that a table that was stopped early has whole worlds of one seed first. Two processes may share a folder with
--part 0/2 and --part 1/2. Every memory has the trainer's default settings: nothing was tuned per memory or per world.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from benchmarks.speed.setting import machine
from keepworth.control.published import published
from keepworth.control.run import run
from keepworth.control.settings import PpoSettings

TASKS = (
    *("RepeatPreviousEasy", "RepeatPreviousMedium", "RepeatFirstEasy", "RepeatFirstMedium", "AutoencodeEasy"),
    *("CountRecallEasy", "HigherLowerEasy", "MultiarmedBanditEasy", "PositionOnlyCartPoleEasy"),
    *("NoisyPositionOnlyCartPoleEasy", "ConcentrationEasy", "MineSweeperEasy"),
)
"""The twelve worlds of POPGym in which memories are compared."""
MEMORIES = (
    *(
        "mlp",
        "frame_stack",
        "gru",
        "lstm",
        "indrnn",
        "lmu",
        "lru",
        "s5",
        "linear_attention",
        "mingru",
        "selective",
        "ffm",
    ),
    "rotating_gates",
)
"""The memories of the table."""


@dataclass(frozen=True, slots=True)
class TableCell:
    """One run.

    Attributes:
        best: The maximum over training of the mean return of the episodes of an update, as POPGym reports.
        last: The mean return of the last hundred episodes.
    """

    world: str
    memory: str
    seed: int
    steps: int
    best: float
    last: float
    steps_per_second: float


def cell_folder(folder: Path, world: str, memory: str, seed: int) -> Path:
    """Where the run of a cell stands."""
    return folder / f"{world}--{memory}--{seed}"


def read_cells(folder: Path) -> list[TableCell]:
    """All cells that are done, from the curves of their folders."""
    cells = []
    for path in sorted(folder.glob("*/curve.json")):
        about = json.loads(path.read_text(encoding="utf-8"))
        settings, rows = about["settings"], [dict(zip(about["columns"], row, strict=True)) for row in about["rows"]]
        returns = [row["return"] for row in rows if row["return"] is not None]
        if about["done"] and returns:
            of = (settings["world"], settings["memory"], settings["seed"], rows[-1]["steps"])
            speed = rows[-1]["steps"] / max(rows[-1]["seconds"], 1e-9)
            cells.append(TableCell(*of, max(returns), rows[-1]["recent"], round(speed)))
    return cells


def summarise(cells: list[TableCell]) -> dict[str, Any]:
    """The table: per world and memory the mean, least and greatest `best` over seeds and the mean `last`; ranks of memories.

    A rank is 1 for the best mean `best` of a world; a memory's mean rank is over the worlds in which all memories are.
    """
    grouped: dict[tuple[str, str], list[TableCell]] = defaultdict(list)
    for cell in cells:
        grouped[cell.world, cell.memory].append(cell)
    worlds = sorted({cell.world for cell in cells})
    memories = sorted({cell.memory for cell in cells})
    rows = [
        {
            "world": world,
            "memory": memory,
            "n": len(group),
            "seeds": sorted(cell.seed for cell in group),
            "steps": sorted({cell.steps for cell in group}),
            "best": round(mean(cell.best for cell in group), 4),
            "least": round(min(cell.best for cell in group), 4),
            "greatest": round(max(cell.best for cell in group), 4),
            "last": round(mean(cell.last for cell in group), 4),
            "steps_per_second": round(mean(cell.steps_per_second for cell in group)),
        }
        for (world, memory), group in sorted(grouped.items())
    ]
    whole = [world for world in worlds if all((world, memory) in grouped for memory in memories)]
    ranks: dict[str, list[int]] = defaultdict(list)
    for world in whole:
        scores = {memory: mean(cell.best for cell in grouped[world, memory]) for memory in memories}
        for memory in memories:
            ranks[memory].append(1 + sum(other > scores[memory] for other in scores.values()))
    return {
        "rows": rows,
        "ranked_worlds": whole,
        "mean_rank": {memory: round(mean(ranks[memory]), 2) for memory in memories if ranks[memory]},
        "published": {
            world: {"gru": of[0], "best": of[1], "whose": of[2]} for world in worlds if (of := published(world))
        },
    }


def main() -> None:
    """Train what is missing, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--worlds", nargs="*", default=list(TASKS), help="names of POPGym, such as RepeatFirstEasy")
    parser.add_argument("--memories", nargs="*", default=list(MEMORIES))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--envs", type=int, default=PpoSettings.envs)
    parser.add_argument("--part", default="0/1", help="which share of the cells, such as 0/2")
    parser.add_argument("--json", type=Path, help="write the table of all cells that are done")
    options = parser.parse_args()
    torch.set_num_threads(1)
    share, shares = map(int, options.part.split("/"))
    cells = [
        (f"popgym-{world}-v0", memory, seed)
        for seed in options.seeds
        for world in options.worlds
        for memory in options.memories
    ]
    done = {(cell.world, cell.memory, cell.seed) for cell in read_cells(options.folder) if cell.steps >= options.steps}
    for world, memory, seed in cells[share::shares]:
        if (world, memory, seed) in done:
            continue
        settings = PpoSettings(world=world, memory=memory, seed=seed, steps=options.steps, envs=options.envs)
        row = {}
        for row in run(settings, cell_folder(options.folder, world, memory, seed)):  # noqa: B007
            pass
        print(f"{world} {memory} {seed}: {row.get('recent')}, {row.get('seconds')} s", flush=True)
    if options.json:
        report = {
            "command": "python -m benchmarks.control.table " + " ".join(sys.argv[1:]),
            "machine": machine(1, ("torch", "gymnasium", "numpy")),
            "unit": "best: maximum over training of the mean return of the episodes of an update, mean over seeds",
            **summarise(read_cells(options.folder)),
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
