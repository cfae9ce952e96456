"""The tables of `memory_and_weights.json` and `memory_and_weights_facts.json` in docs/train_your_agent.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.tables import DOCS, markdown, read


def together(result: dict[str, Any]) -> str:
    rows = []
    for arm in dict.fromkeys(row["arm"] for row in result["rows"]):
        own = [row for row in result["rows"] if row["arm"] == arm]
        rows.append(
            (
                arm,
                mean(own, "untrained"),
                mean(own, "trained"),
                ", ".join(f"{row['trained']:.2f}" for row in own),
                mean(own, "right note first"),
                mean(own, "right note first, learned"),
                f"{sum(row['tokens read'] for row in own) / len(own):,.0f}",
            )
        )
    head = (
        "what learns",
        "right before",
        "after",
        "after, of each seed",
        "a right note comes first: before",
        "after",
        "tokens read",
    )
    return markdown(head, rows)


def mean(rows: list[dict[str, Any]], column: str) -> str:
    if column not in rows[0]:
        return ""
    return f"{sum(row[column] for row in rows) / len(rows):.2f}"


def tables() -> Iterator[tuple[Path, str, str]]:
    yield DOCS / "train_your_agent.md", "together", together(read("training/memory_and_weights"))
    yield DOCS / "train_your_agent.md", "together_facts", together(read("training/memory_and_weights_facts"))
