"""Put what `benchmarks.memory_t1.run` found into docs/recipes.md.

python -m benchmarks.memory_t1.page
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.tables import filled, markdown, takes_nothing

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "recipes.md"
SETS = {
    "longmemeval": "LongMemEval",
    "locomo": "LoCoMo",
}


def cell(each: Mapping[str, float] | None) -> str:
    return "" if each is None else f"{each['mean']:.2f} ({each['low']:.2f} to {each['high']:.2f})"


def levels(sets: Mapping[str, Any]) -> str:
    names = [name for name in SETS if name in sets]
    rows = [[arm, *(cell(sets[name]["arms"].get(arm)) for name in names)] for arm in next(iter(sets.values()))["arms"]]
    heads = [f"{SETS[name]}, {sets[name]['questions']} questions" for name in names]
    return markdown(["arm", *heads], rows)


def pairs(sets: Mapping[str, Any]) -> str:
    names = [name for name in SETS if name in sets]
    by_name = {name: {each["name"]: each for each in sets[name]["pairs"]} for name in names}
    rows = []
    for pair in by_name[names[0]]:
        found = [by_name[name][pair] for name in names]
        rows.append([pair, *(f"{e['difference']:+.2f} ({e['low']:+.2f} to {e['high']:+.2f})" for e in found)])
    return markdown(["difference", *(SETS[name] for name in names)], rows)


def main() -> None:
    takes_nothing(__doc__)
    record = json.loads((Path(__file__).parent / "memory_t1.json").read_text())
    met = record["time ranges"]["test"]
    tuned = record["tuned"][0]
    sets = record["recall@5"]
    parts = [levels(sets), pairs(sets)]
    parts.append(
        f"Three seeds; {tuned['questions']} training questions; {tuned['parameters']:,} numbers learned in "
        f"{record['seconds']['of training a policy']:.0f} s. 95 % intervals: of LongMemEval over groups of questions that "
        f"share no session, of LoCoMo over its eight conversations. Those of differences are corrected together (Holm). The "
        f"rules find the window of Time-Dialog's questions with an overlap of {met['overlap']:.2f} ({met['low']:.2f} to "
        f"{met['high']:.2f}), and exactly in "
        f"{met['exact']:.0%} of {met['questions']} test questions."
    )
    filled(PAGE, "memory_t1", "\n\n".join(parts))


if __name__ == "__main__":
    main()
