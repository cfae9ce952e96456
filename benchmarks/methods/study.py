"""Runs a study of the registry and leaves its evidence, `benchmarks/methods/NAME.json`.

python -m benchmarks.methods.study ama
python -m benchmarks.methods.study mind_palace --rows rows.jsonl     what `keepworth methods run mind_palace --json` printed

Numbers are measured anew. Model, controls, verdict and sentence stay as the file has them: somebody concluded them, and has to
read them again beside new numbers. Studies that are run on data from elsewhere have a script of their own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.methods.write import FOLDER, write
from benchmarks.record import arguments
from keepworth.evaluation.study import Rows, Study
from keepworth.registry import method

STUDIES = (
    "ama",
    "cues",
    "difficulty_space",
    "exploitation",
    "game_on",
    "igl_nav",
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
    numbers = {"n": max(row["n"] for row in rows), "seeds": max(row["clusters"] for row in rows), "unit": study.unit}
    concluded = {key: before[key] for key in ("model", "controls", "verdict", "sentence")}
    write(name, before["command"], **concluded, **numbers, **parted(rows))


def parted(rows: Rows) -> dict[str, Any]:
    """The rows of a study as the arms and the comparisons of evidence."""
    parts: dict[str, Any] = {"arms": [], "comparisons": []}
    for row in rows:
        numbers = {"mean": round(row["mean"], 4), "interval": [round(row["low"], 4), round(row["high"], 4)]}
        if " minus " in row["arm"]:
            parts["comparisons"].append({"against": row["arm"], **numbers})
        else:
            parts["arms"].append({"name": row["arm"], **numbers, "n": row["n"]})
    return parts


if __name__ == "__main__":
    main()
