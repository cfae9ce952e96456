"""Writes the evidence of off-policy learners from `benchmarks/control/off_policy.json`.

python -m benchmarks.methods.learners

RSAC is held against RTD3 and RDPG, each with the better of its learning rates, and against SAC without a memory; RTD3 and RDPG
are held against RSAC, below which they are claimed to be.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.methods.write import arm, begin, gap, measuring, worded, write
from benchmarks.record import arguments
from benchmarks.tables import read
from keepworth.base.statistics import LEAST

RETURNS = (-3255.0, 0.0)
"""The least and the greatest return of an episode."""


def main() -> None:
    begin(measuring(arguments(__doc__, json=False)).parse_args())
    measured = read("control/off_policy")
    for name in ("RSAC", "RTD3", "RDPG"):
        write(name.lower(), f"{measured['command']}; python -m benchmarks.methods.learners", **judge(name, measured))


def judge(name: str, measured: dict[str, Any]) -> dict[str, Any]:
    """The fields of the evidence of a learner."""
    cells = {(cell["arm"], cell["seed"]): cell["score"] for cell in measured["cells"]}
    names = dict.fromkeys(of for of, _ in cells)
    first = [of for of in names if not of.endswith("half the rate")]
    seeds = [seed for seed in measured["seeds"] if all((of, seed) in cells for of in first)]
    scores = {of: [cells[of, seed] for seed in seeds] for of in names if all((of, seed) in cells for seed in seeds)}
    for learner in ("RTD3", "RDPG"):  # with the better of the rates that were tried with all seeds
        tried = {of: scores.pop(of) for of in list(scores) if of.startswith(learner)}
        scores[learner] = max(tried.values(), key=np.mean)
    others = ("RTD3", "RDPG", "without memory") if name == "RSAC" else ("RSAC", "without memory")
    comparisons = [gap(of, scores[name], scores[of]) for of in others] if len(seeds) >= LEAST else []
    every = ", ".join(f"{score:.0f}" for (of, _), score in cells.items() if of == name)
    means = ", ".join(f"{of} {np.mean(values):.0f}" for of, values in scores.items() if of != name)
    return {
        "sentence": f"Mean return of a pendulum whose speed is not shown, for each seed that was run: {every}; means over "
        f"the seeds of all arms ({len(seeds)}): {means}. {'; '.join(worded(of, 0) for of in comparisons)}".strip(),
        "revision": measured["machine"]["revision"],  # of the cells
        "model": "a GRU of width 64 for the actor and one for the critics",
        "n": len(seeds),
        "seeds": len(seeds),
        "unit": measured["unit"],
        "arms": [arm(of, values, within=RETURNS) for of, values in scores.items()],
        "comparisons": comparisons,
        "controls": ["SAC without a memory", "actions drawn evenly", "SAC that is shown the speed, as the oracle"],
    }


if __name__ == "__main__":
    main()
