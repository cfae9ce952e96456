"""Cells of a table, world by memory by seed, each a run's folder; and the table that is computed from them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from keepworth.base.json_values import read_json
from keepworth.control.published import find_published

TASKS = (
    *("RepeatPreviousEasy", "RepeatPreviousMedium", "RepeatFirstEasy", "RepeatFirstMedium", "AutoencodeEasy"),
    *("CountRecallEasy", "HigherLowerEasy", "MultiarmedBanditEasy", "PositionOnlyCartPoleEasy"),
    *("NoisyPositionOnlyCartPoleEasy", "ConcentrationEasy", "MineSweeperEasy"),
)
"""The twelve worlds of POPGym in which memories are compared."""
MEMORIES = (
    *("mlp", "frame_stack", "gru", "lstm", "indrnn", "lmu", "lru", "s5", "linear_attention", "mingru", "selective"),
    *("ffm", "rotating_gates"),
)
"""The memories that the table compares."""


@dataclass(frozen=True, slots=True)
class TableCell:
    """The result of one run.

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
    """Returns the folder of a cell's run.

    Args:
        folder: The folder of the table.
        world: The Gymnasium id of the world.
        memory: The name of the memory.
        seed: The seed of the run.
    """
    return folder / f"{world}--{memory}--{seed}"


def read_cells(folder: Path) -> list[TableCell]:
    """Reads all finished cells, from the curves of their folders."""
    cells = []
    for path in sorted(folder.glob("*/curve.json")):
        about = read_json(path, f"Remove {path.parent}, and train it again.")
        settings, rows = about["settings"], [dict(zip(about["columns"], row, strict=True)) for row in about["rows"]]
        returns = [row["return"] for row in rows if row["return"] is not None]
        if about["done"] and returns:
            of = (settings["world"], settings["memory"], settings["seed"], rows[-1]["steps"])
            speed = rows[-1]["steps"] / max(rows[-1]["seconds"], 1e-9)
            cells.append(TableCell(*of, max(returns), rows[-1]["recent"], round(speed)))
    return cells


def summarise(cells: list[TableCell]) -> dict[str, Any]:
    """Returns the table: per world and memory the mean, least and greatest `best` over seeds and the mean `last`, and mean ranks.
    A rank is 1 for the best mean `best` of a world; a memory's mean rank is over the worlds in which all memories were run."""
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
            world: {"gru": of[0], "best": of[1], "whose": of[2]} for world in worlds if (of := find_published(world))
        },
    }
