"""Put the tables of the benchmarks of agents into docs/server.md and docs/quickstarts.md.

python -m benchmarks.agents.page
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.tables import filled, markdown, takes_nothing

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "server.md"
QUICKSTARTS = PAGE.with_name("quickstarts.md")


def share(row: dict[str, Any]) -> str:
    return f"{100 * row['mean']:.0f} % ({100 * max(0.0, row['low']):.0f} to {100 * min(1.0, row['high']):.0f})"


def facts(result: dict[str, Any]) -> str:
    scores = (
        "stale answers",
        "stale item among the first 8",
        "current item among the first 8",
        "kept items that hold a fact",
        "facts that did not change and are there",
    )
    rows = [
        (name, arm, *(share(row[arm][score]) for score in scores))
        for name, row in result["planted"].items()
        for arm in ("raw", "rules")
    ]
    return markdown(("conversations", "kept", *scores), rows, left=2)


def updates(result: dict[str, Any]) -> str:
    scores = (
        "stale evidence before current",
        "current evidence before stale",
        "current evidence among the first 8",
        "current evidence is kept",
    )
    rows = [
        (
            arm,
            *(share(result["longmemeval"][arm][score]) for score in scores),
            f"{result['longmemeval'][arm]['words among the first 8']['mean']:.0f}",
        )
        for arm in ("raw", "rules")
    ]
    return markdown(("kept", *scores, "words shown"), rows)


def quickstarts(result: dict[str, Any]) -> str:
    rows = [
        (
            name,
            row["commands"],
            row["lines"],
            f"{row['installing']:.0f}",
            f"{row['seconds']:.0f}",
            "yes" if row["proven"] else "no",
        )
        for name, row in result["quickstarts"].items()
    ]
    head = ("quick start", "commands", "lines", "seconds until installed", "seconds until proven", "proven")
    machine = result["machine"]
    return (
        markdown(head, rows)
        + f"\n\nOnce each, {result['at'][:10]}, Python {machine['python']}, {machine['cores']} cores that other work shared "
        f"(load average {machine['load'][0]:g} at the end)."
    )


def main() -> None:
    takes_nothing(__doc__)
    result = json.loads((HERE / "facts.json").read_text())
    filled(PAGE, "facts", facts(result))
    filled(PAGE, "facts-longmemeval", updates(result))
    filled(QUICKSTARTS, "quickstarts", quickstarts(json.loads((HERE / "quickstarts.json").read_text())))


if __name__ == "__main__":
    main()
