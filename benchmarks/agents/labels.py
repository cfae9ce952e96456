"""How many of the sentences that are kept are facts, and of the items that give way are outdated, on real conversations.

    python -m benchmarks.agents.labels --json benchmarks/agents/labels.json

Reads `labels.json`: sentences of LongMemEval's users, labelled by hand by one reader who saw the sentence alone, not what the
rules made of it. A fact tells something of the user, their people, things, habits, tastes or plans, and can be understood by
itself. Drawn from sessions that were not looked at when the rules were mended, so many of each stratum: kept by the rules before
and after, by one of them, by neither. `size` is how many there are in all: shares are weighed by it. "gave way": pairs of what
was taken out of the way by the rules before and after, and whether that was right: the older holds no more, or is said again.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "labels.json"
DRAWS = 4000
OLD, NEW, NEITHER = ("both", "before"), ("both", "after"), ("neither", "neither, asking")


def measured(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Precision and recall before and after. What one of them keeps in other words than the other counts for each."""
    strata: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        strata[row["stratum"]].append(row)
    size = {name: each[0]["size"] for name, each in strata.items()}
    facts = {name: size[name] * sum(row["fact"] for row in each) / len(each) for name, each in strata.items()}
    missed = sum(facts[name] for name in NEITHER)
    found: dict[str, float] = {}
    for when, kept, lost in (("before", OLD, "after"), ("after", NEW, "before")):
        true = sum(facts[name] for name in kept)
        found[f"kept sentences that are facts, {when}"] = true / sum(size[name] for name in kept)
        found[f"facts that are kept, {when}"] = true / (true + missed + facts[lost])
    return found


def with_intervals(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    strata: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        strata[row["stratum"]].append(row)
    draw = random.Random(0)
    drawn = [measured([draw.choice(each) for each in strata.values() for _ in each]) for _ in range(DRAWS)]
    result: dict[str, Any] = {}
    for name, mean in measured(rows).items():
        result[name] = {"mean": mean, **_bounds([each[name] for each in drawn]), "n": len(rows)}
    for name in ("kept sentences that are facts", "facts that are kept"):
        changes = [each[f"{name}, after"] - each[f"{name}, before"] for each in drawn]
        mean = result[f"{name}, after"]["mean"] - result[f"{name}, before"]["mean"]
        result[f"{name}, after less before"] = {"mean": mean, **_bounds(changes), "n": len(rows)}
    return result


def _bounds(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"low": ordered[int(0.025 * len(ordered))], "high": ordered[int(0.975 * len(ordered))]}


def share(rights: Sequence[bool]) -> dict[str, Any]:
    """With Wilson's interval."""
    count, mean, z = len(rights), sum(rights) / len(rights), 1.96
    middle = (mean + z * z / (2 * count)) / (1 + z * z / count)
    reach = z * ((mean * (1 - mean) + z * z / (4 * count)) / count) ** 0.5 / (1 + z * z / count)
    return {"mean": mean, "low": middle - reach, "high": middle + reach, "n": count}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the result beside the labels into this file")
    options = parser.parse_args(argv)
    labels = json.loads(HERE.read_text())
    result = with_intervals(labels["sentences"])
    for when, pairs in labels["gave way"].items():
        result[f"what gave way and was outdated, {when}"] = share([pair["right"] for pair in pairs["sample"]])
        result[f"what gave way in all, {when}"] = {"mean": pairs["in all"], "n": pairs["statements"]}
    for name, row in result.items():
        print(name, {key: round(value, 3) for key, value in row.items()})
    if options.json:
        options.json.write_text(json.dumps({**labels, "result": result}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
