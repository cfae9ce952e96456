"""Runs a study of the registry and leaves its evidence, `benchmarks/methods/NAME.json`.

python -m benchmarks.methods.study ama
python -m benchmarks.methods.study mind_palace --rows rows.jsonl     what `keepworth methods run mind_palace --json` printed

Numbers are measured anew. Model, controls, verdict and sentence stay as the file has them: somebody concluded them, and has to
read them again beside new numbers. Studies that are run on data from elsewhere have a script of their own.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.methods.write import FOLDER, write
from benchmarks.record import arguments
from keepworth.evaluation.study import Study
from keepworth.registry import method

STUDIES = (
    "ama",
    "cues",
    "exploitation",
    "game_on",
    "macro_hft",
    "mind_palace",
    "persistbench",
    "starling",
    "vilomem",
    "written_or_neural",
)


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("name", choices=STUDIES)
    parser.add_argument("--rows", type=Path, help="rows that were measured before")
    options = parser.parse_args()
    name = options.name
    study = method("study", name).make
    assert isinstance(study, Study)
    before = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    rows = [json.loads(line) for line in options.rows.read_text().splitlines()] if options.rows else study()()
    arms, comparisons = [], []
    for row in rows:
        numbers = {"mean": round(row["mean"], 4), "interval": [round(row["low"], 4), round(row["high"], 4)]}
        if " minus " in row["arm"]:
            comparisons.append({"against": row["arm"], **numbers})
        else:
            arms.append({"name": row["arm"], **numbers, "n": row["n"]})
    numbers = {"n": max(row["n"] for row in rows), "seeds": max(row["clusters"] for row in rows), "unit": study.unit}
    concluded = {key: before[key] for key in ("model", "controls", "verdict", "sentence")}
    write(name, before["command"], **concluded, **numbers, arms=arms, comparisons=comparisons)


if __name__ == "__main__":
    main()
