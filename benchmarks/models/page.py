"""Put the families and the measured slowdown into docs/models.md.

python -m benchmarks.models.page
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.models.families import FOUND, HERE, LENGTHS, SLOWDOWN
from benchmarks.tables import filled, markdown, takes_nothing

PAGE = HERE.parent.parent / "docs" / "models.md"


def computed(row: dict[str, Any]) -> str:
    if "refused" in row:
        return f"refused: {row['refused']}"
    return str(row["reason"])


def families(rows: list[dict[str, Any]]) -> str:
    trees = "; ".join(row["models"] for row in rows if "refused" not in row and not row["reason"])
    why: dict[str, list[str]] = {}
    for row in rows:
        if row.get("reason") or "refused" in row:
            why.setdefault(computed(row), []).append(row["models"])
    others = markdown(["one branch at a time", "because"], [("; ".join(of), text) for text, of in why.items()], left=2)
    return f"As a tree: {trees}.\n\n{others}"


def summary(record: dict[str, Any]) -> str:
    rows = [row for row in record["families"] if "refused" not in row]
    trees = sum(not row["reason"] for row in rows)
    logprob = max(row[name]["logprob_gap"] for row in rows for name in LENGTHS)
    gradient = max(row[name]["gradient_gap"] for row in rows for name in LENGTHS)
    same, drawn = (
        sum(row["greedy_equal"] + row["seeded_equal"] for row in rows),
        sum(row["drawn"] * 3 for row in rows),
    )
    versions = record["versions"]
    return (
        f"{len(rows)} of {len(record['families'])} families are computed, {trees} of them as a tree. The largest gap of a "
        f"log-probability is {logprob:.1e} nats, the largest relative gap of a gradient {gradient:.1e}; {same:,} of {drawn:,} "
        f"tokens are the same. (transformers {versions['transformers']}, torch {versions['torch']}, seed {record['seed']}.)"
    )


def slower(record: dict[str, Any]) -> str:
    setting = record["setting"]
    lines = []
    for name, ways in record["seconds"].items():
        cells = [f"{sorted(of)[len(of) // 2]:.1f} ({min(of):.1f} to {max(of):.1f})" for of in ways.values()]
        lines.append([name, *cells, f"{record['times'][name]:.1f}"])
    head = [f"{setting['answers']} answers of {setting['tokens']} tokens behind a prompt of {setting['prompt']}"]
    return markdown([*head, *next(iter(record["seconds"].values())), "times as slow"], lines)


def main() -> None:
    takes_nothing(__doc__)
    record = json.loads(FOUND.read_text(encoding="utf-8"))
    filled(PAGE, "families", families(record["families"]))
    filled(PAGE, "families in short", summary(record))
    filled(PAGE, "slowdown", slower(json.loads(SLOWDOWN.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
