"""Writes the evidence of agents of control from `benchmarks/control/bonuses.json` and `predictions.json`.

python -m benchmarks.methods.agents

A cell of a bonus is rooms, varying or static, and a seed. A bonus is held against none and against its amounts in another order,
a prediction against none and against targets of other steps (`rules.py` has the comparisons of each).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from benchmarks.methods.write import arm, begin, gap, measuring, worded, write
from benchmarks.record import arguments
from benchmarks.tables import read

NAMES = {"e3b": "e3b", "noveld": "noveld", "both": "e3b_noveld"}


def main() -> None:
    begin(measuring(arguments(__doc__, json=False)).parse_args())
    bonuses = read("control/bonuses")
    for bonus, name in NAMES.items():
        write(name, f"{bonuses['command']}; python -m benchmarks.methods.agents", **judge_bonus(bonus, bonuses))
    predictions = read("control/predictions")
    for loss in ("observation", "latent"):
        command = f"{predictions['command']}; python -m benchmarks.methods.agents"
        write(f"predict_{loss}", command, **judge_prediction(loss, predictions))


def judge_bonus(bonus: str, measured: dict[str, Any]) -> dict[str, Any]:
    """The fields of the evidence of a bonus."""
    cells = {(cell["rooms"], cell["kind"], cell["seed"], cell["arm"]): cell["success"] for cell in measured["cells"]}
    places = [place for *place, name in cells if name == bonus]
    success = {name: [cells[(*place, name)] for place in places] for name in ("none", "shuffled", bonus)}
    groups = dict.fromkeys((rooms, kind) for rooms, kind, _ in places)
    means = ", ".join(
        f"{rooms.split('-')[2]} {kind} {np.mean([cells[rooms, kind, seed, bonus] for seed in measured['seeds']]):.2f}"
        f" (none {np.mean([cells[rooms, kind, seed, 'none'] for seed in measured['seeds']]):.2f})"
        for rooms, kind in groups
    )
    return {
        "sentence": f"Episodes that reached the goal: {means}. Worlds are MiniGrid's, and far fewer steps than the paper's.",
        "model": f"GRU, recurrent PPO, {measured['cells'][0]['steps']:,} steps",
        "n": len(places),
        "seeds": len(measured["seeds"]),
        "unit": measured["unit"],
        "arms": [arm(name, values) for name, values in success.items()],
        "comparisons": [gap(name, success[bonus], success[name]) for name in ("none", "shuffled")],
        "controls": ["no bonus", "the amounts of E3B in an order drawn by chance"],
    }


def judge_prediction(loss: str, measured: dict[str, Any]) -> dict[str, Any]:
    """The fields of the evidence of an auxiliary prediction."""
    cells = {(cell["world"], cell["arm"], cell["seed"]): cell["whole"] for cell in measured["cells"]}
    seeds, whole_world = measured["seeds"], 5 * len(measured["seeds"])
    counted = Counter(world for world, _, _ in cells)
    worlds = [world for world, cells_there in counted.items() if cells_there == whole_world]
    arms, comparisons, phrases = [], [], []
    for world in worlds:
        short = world.removeprefix("popgym-").removeprefix("keepworth/").removesuffix("-v0")
        whole = {arm: [cells[world, arm, seed] for seed in seeds] for arm in ("none", loss, f"{loss}, shuffled")}
        arms += [arm(f"{short}: {name}", values, within=None) for name, values in whole.items()]
        none, shuffled = (gap(f"{short}: {name}", whole[loss], whole[name]) for name in ("none", f"{loss}, shuffled"))
        comparisons += [none, shuffled]
        phrases.append(f"{short} {' and '.join(worded(of, beside='') for of in (none, shuffled))}")
    return {
        "sentence": f"Mean return over training, above that without and above that with shuffled targets: {'; '.join(phrases)}. "
        f"What shuffled targets give as well is not prediction. Worlds that were run: {len(worlds)} of 3.",
        "model": "GRU of width 32, recurrent PPO, 25,000 to 40,000 steps",
        "n": len(worlds) * len(seeds),
        "seeds": len(seeds),
        "unit": "mean return of the episodes of an update, over all of training",
        "arms": arms,
        "comparisons": comparisons,
        "controls": ["no prediction", "targets of other steps, drawn by chance"],
    }


if __name__ == "__main__":
    main()
