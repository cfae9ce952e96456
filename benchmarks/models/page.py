"""The families in docs/models.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.models.families import LENGTHS
from benchmarks.tables import DOCS, markdown, read


def families(rows: list[dict[str, Any]]) -> str:
    trees = "; ".join(row["models"] for row in rows if "refused" not in row)
    why: dict[str, list[str]] = {}
    for row in rows:
        if "refused" in row:
            reason = re.sub(r" by [0-9.e+-]+ from .*", " from the network's own", row["refused"].split(": ", 1)[-1])
            why.setdefault(reason.rstrip("."), []).append(row["models"])
    others = markdown(["refused", "because"], [("; ".join(of), text) for text, of in why.items()], left=2)
    return f"Computed: {trees}.\n\n{others}"


def summary(record: dict[str, Any]) -> str:
    rows = [row for row in record["families"] if "refused" not in row]
    logprob = max(row[name]["logprob_gap"] for row in rows for name in LENGTHS)
    gradient = max(row[name]["gradient_gap"] for row in rows for name in LENGTHS)
    same, drawn = sum(row["greedy_equal"] + row["seeded_equal"] for row in rows), sum(row["drawn"] * 3 for row in rows)
    versions = record["versions"]
    return (
        f"{len(rows)} of {len(record['families'])} families are computed. The largest gap of a "
        f"log-probability is {logprob:.1e} nats, the largest relative gap of a gradient {gradient:.1e}; {same:,} of {drawn:,} "
        f"tokens are the same. (transformers {versions['transformers']}, torch {versions['torch']}, seed {record['seed']}.)"
    )


def tables() -> Iterator[tuple[Path, str, str]]:
    record = read("models/families")
    yield DOCS / "models.md", "families", families(record["families"])
    yield DOCS / "models.md", "families in short", summary(record)
