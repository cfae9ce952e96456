"""The tables of `ledger.json` in docs/worth.md and docs/appendix/worth.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.ledger.worlds import WORLDS
from benchmarks.tables import DOCS, markdown, read


def percent(share: float) -> str:
    return f"{100.0 * share:.1f}"


def right(result: dict[str, Any]) -> str:
    rows = []
    for world in WORLDS:
        own = {name: row for name, row in result["core"].items() if name.startswith(f"{world.name} | ")}
        cells = {name.partition(" | ")[2]: row for name, row in own.items()}  # by effect and kind
        large = [row for name, row in cells.items() if abs(float(name.split(" | ")[0])) == 0.2]
        fixed = [
            value
            for row in cells.values()
            for key, value in row.items()
            if key in ("fixed_200", "fixed_500", "fixed_1000")
        ]
        fooled = cells["-0.2 | confounded"]
        rows.append(
            (
                world.name,
                percent(min(row["sign_200"] for row in large)),
                percent(min(row["any_time"] for row in cells.values())),
                f"{percent(min(fixed))} to {percent(max(fixed))}",
                percent(fooled["sign_200"]),
                percent(fooled["counter_right"]),
                percent(fooled["kernel_right"]),
            )
        )
    head = (
        "world, in %",
        "sign right after 200",
        "any-time interval holds at every look",
        "fixed interval holds",
        "confounded and harmful: ledger right",
        "counter right",
        "kernel mean right",
    )
    return markdown(head, rows)


def costs(result: dict[str, Any]) -> str:
    items = dict.fromkeys(name.split(" | ")[0] for name in result["cost"])
    rates = dict.fromkeys(tuple(name.split(" | ")[1:3]) for name in result["cost"])
    rows = [
        (
            item,
            *(
                f"{result['cost'][f'{item} | {withhold} | {budget} | {length}']['points'] + 0.0:.1f}"
                for withhold, budget in rates
                for length in (600, 2000)
            ),
        )
        for item in items
    ]
    head = ["items shown in every search"]
    for withhold, budget in rates:
        head += [
            f"withhold {100 * float(withhold):g} %, budget {100 * float(budget):g}: {length:,} episodes"
            for length in (600, 2000)
        ]
    return markdown(head, rows)


def tables() -> Iterator[tuple[Path, str, str]]:
    result = read("ledger/ledger")
    yield DOCS / "worth.md", "right", right(result)
    yield DOCS / "worth.md", "costs", costs(result)
