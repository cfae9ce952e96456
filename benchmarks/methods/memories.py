"""Writes the evidence of memory modules from `benchmarks/control/ladder_steps.json`, with what `ladder.json`,
`ladder_image_goal.json`, `table_1m.json` and `probes.json` say.

python -m benchmarks.methods.memories

The control is `mlp`, which remembers nothing, the simple rival `gru`. A cell is a horizon and a seed, and its success the share
of 100 episodes.
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
    ladder, modules = read("control/ladder_steps"), methods("memory_module")
    command = f"{ladder['command']}; python -m benchmarks.methods.memories"
    for name in dict.fromkeys(cell["memory"] for cell in ladder["cells"]):
        write(name, command, **judge(name, ladder, modules[name].claim))
    write("recurrent_ppo", command, **judge("gru", ladder, ""))


def judge(name: str, ladder: dict[str, Any], claim: str) -> dict[str, Any]:
    """The fields of the evidence of one module."""
    success = {
        memory: [cell["success"] for cell in ladder["cells"] if cell["memory"] == memory]
        for memory in ("mlp", "gru", name)
    }
    (xi,) = {cell["xi"] for cell in ladder["cells"]}
    others = [other for other in ("mlp", "gru") if other != name]
    comparisons = [gap(other, success[name], success[other]) for other in others]
    sentence = f"Cue {xi} steps before, {ladder['unit'].rpartition(', ')[2]}: {np.mean(success[name]):.2f}"
    sentence += "" if name == "mlp" else f", mlp {np.mean(success['mlp']):.2f}"
    sentence += f", chance {ladder['chance']}"
    if name not in ("mlp", "gru"):
        sentence += f"; against gru {worded(comparisons[-1], 2, '')}"
    tried = "is tried by trmrl_ppo" if name == "trmrl" else "was not tried"
    sentence += f".{in_equal_time(name)}{tables(name)}" + (f" The paper's claim {tried}." if claim else "")
    return {
        "model": "a network of one memory and two layers, trained by recurrent PPO",
        "n": len(success[name]),
        "seeds": len(success[name]),
        "unit": ladder["unit"],
        "arms": [arm(f"{memory} at xi={xi}", values) for memory, values in success.items()],
        "comparisons": comparisons,
        "controls": ["mlp, which remembers nothing", "gru, the simple rival"],
        "sentence": sentence,
    }


def in_equal_time(name: str) -> str:
    """What a ladder of one seed and a minute of processor time a cell says of it."""
    cells = [*read("control/ladder")["cells"], *read("control/ladder_image_goal")["cells"]]
    rungs = {cell["xi"]: cell for cell in reversed(cells) if cell["memory"] == name}
    if not rungs:
        return ""
    rungs = dict(sorted(rungs.items()))
    outside = [str(xi) for xi, cell in rungs.items() if cell["regime"] == "out of reach"]
    text = f" After a minute each, one seed: cue {' / '.join(map(str, rungs))} steps before: "
    text += " / ".join(f"{cell['success']:.2f}" for cell in rungs.values())
    return text + (f"; out of reach: {', '.join(outside)}." if outside else ".")


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
