"""Writes the evidence of memory modules from `benchmarks/control/ladder.json`, with what `table_1m.json` and `probes.json` say;
that of `image_goal` from a ladder of its own, on another machine, with its own `gru` and `mlp`.

python -m benchmarks.methods.memories

The control is `mlp`, which remembers nothing, the simple rival `gru`. A cell is a horizon and a seed, and its success the share
of 100 episodes; a rung is within reach where the memory can reach so far back. No verdict is given on one seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.methods.write import arm, begin, gap, measuring, worded, write
from benchmarks.record import arguments
from benchmarks.tables import read
from keepworth.registry import methods


def main() -> None:
    begin(measuring(arguments(__doc__, json=False)).parse_args())
    ladder, later = read("control/ladder"), read("control/ladder_image_goal")
    modules = methods("memory_module")
    named = {cell["memory"]: ladder for cell in ladder["cells"] if cell["memory"] in modules}
    for name, of in {"image_goal": later, **named}.items():
        write(name, command(of), **judge(name, of, modules[name].claim))
    write("recurrent_ppo", command(ladder), **judge("gru", ladder, ""))


def command(ladder: dict[str, Any]) -> str:
    return f"{ladder['command']}; python -m benchmarks.methods.memories"


def judge(name: str, ladder: dict[str, Any], claim: str) -> dict[str, Any]:
    """The fields of the evidence of one module."""
    cells = {(cell["memory"], cell["xi"], cell["seed"]): cell for cell in ladder["cells"]}
    reached = {
        (xi, seed): cell["regime"] != "out of reach" for (memory, xi, seed), cell in cells.items() if memory == name
    }
    places = [place for place in reached if all((memory, *place) in cells for memory in ("mlp", "gru"))]
    success = {memory: [cells[memory, *place]["success"] for place in places] for memory in (name, "mlp", "gru")}
    rungs = sorted({xi for xi, _ in places})
    arms, phrases = [], []
    for xi in rungs:
        at = [number for number, place in enumerate(places) if place[0] == xi]
        arms += [arm(f"{memory} at xi={xi}", [values[number] for number in at]) for memory, values in success.items()]
        phrases.append(f"{np.mean([success[name][number] for number in at]):.2f}")
    within = [xi for xi in rungs if any(reached[place] for place in places if place[0] == xi)]
    seeds = {seed for _, seed in places}
    tried = "is tried by trmrl_ppo" if name == "trmrl" else "was not tried"
    others = [other for other in ("mlp", "gru") if other != name]
    comparisons = [gap(f"{other} over all rungs", success[name], success[other]) for other in others if len(places) > 2]
    sentence = f"Cue {' / '.join(map(str, rungs))} steps before: {' / '.join(phrases)}"
    sentence += "" if name == "mlp" else f", mlp {np.mean(success['mlp']):.2f}"
    sentence += f", chance {ladder['chance']}"
    if comparisons and name not in ("mlp", "gru"):
        sentence += f"; against gru {worded(comparisons[-1], 2, '')}"
    outside = [str(xi) for xi in rungs if xi not in within]
    sentence += f"; out of reach: {', '.join(outside)}." if outside else "."
    sentence += " One seed." if len(seeds) == 1 else ""
    sentence += tables(name) + (f" The paper's claim {tried}." if claim else "")
    return {
        "model": "a network of one memory and two layers, trained by recurrent PPO",
        "n": len(places),
        "seeds": len(seeds),
        "unit": ladder["unit"],
        "arms": list({row["name"]: row for row in arms}.values()),
        "comparisons": comparisons,
        "controls": ["mlp, which remembers nothing", "rungs beyond reach", "gru, the simple rival"],
        "sentence": sentence,
    }


def tables(name: str) -> str:
    """What two other runs say of it, with their number of seeds."""
    text = ""
    rows = {row["memory"]: row for row in read("control/table_1m")["rows"]}
    if name in rows and name not in ("mlp", "gru"):
        best, least, rival = (rows[memory]["best"] for memory in (name, "mlp", "gru"))
        text += f" RepeatPreviousEasy, 1M steps, one seed: {best:.2f} (mlp {least:.2f}, gru {rival:.2f})."
    for row in read("control/probes")["rows"]:
        if row["memory"] == name:
            order, storage = (float(np.mean([run["accuracy"] for run in row[task]])) for task in ("order", "storage"))
            text += f" By supervision (10 s): order {order:.2f}, storage {storage:.2f}."
    return text


if __name__ == "__main__":
    main()
