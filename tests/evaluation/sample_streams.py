"""Rows of streams with made-up numbers: for tests of what reads them, never for documentation."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keepworth.evaluation.stream import Results, StreamRow, table
from keepworth.evaluation.stream_claims import claims
from keepworth.evaluation.stream_page import write_stream_page

ARMS = {"none": 0.3, "exprag": 0.5, "memrl": 0.52, "default": 0.8, "default+shuffled": 0.3, "oracle": 0.9}
"""How often each succeeds."""
NONE = float("nan")


def sample_rows(streams: Mapping[str, Any], *, seeds: int = 12, length: int = 80, attacked: bool = False) -> Results:
    draw = random.Random(3)

    def bits(share: float, count: int) -> str:
        return "".join("1" if draw.random() < share else "0" for _ in range(count))

    rest = (1.0, 0.1 if attacked else NONE, 0.1, 40)
    return Results(
        [
            StreamRow(name, "random", seed, arm, bits(share, length), bits(share, 30), *rest)
            for seed in range(seeds)
            for name, arms in streams.items()
            for arm, share in arms.items()
        ]
    )


def sample_summary(results: Results, **plan: Any) -> dict[str, Any]:
    made = {"streams": results.families, "arms": results.arms, "orders": ["random"], "split": "dev", "agent": "usual"}
    plan = {**made, "method": "default", **plan}
    found = claims(results, plan["method"])
    return {"plan": plan, "seeds": len(results.seeds), "table": table(results), "claims": found}


def sample_page(folder: Path, results: Results, **plan: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return write_stream_page(folder, sample_summary(results, **plan), results)
