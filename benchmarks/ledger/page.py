"""Put the tables of `ledger.json` into docs/worth.md.

python -m benchmarks.ledger.page
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.ledger.worlds import WORLDS
from benchmarks.tables import filled, markdown, takes_nothing

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "worth.md"


def of(part: dict[str, Any], world: str) -> dict[str, dict[str, Any]]:
    """The cells of a world, by effect and kind."""
    return {name.partition(" | ")[2]: row for name, row in part.items() if name.startswith(f"{world} | ")}


def percent(share: float) -> str:
    return f"{100.0 * share:.1f} %"


def right(result: dict[str, Any]) -> str:
    rows = []
    for world in WORLDS:
        cells = of(result["core"], world.name)
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
        "world",
        "sign right after 200",
        "any-time interval holds at every look",
        "fixed interval holds",
        "confounded and harmful: ledger right",
        "counter right",
        "kernel mean right",
    )
    return markdown(head, rows)


def through(result: dict[str, Any]) -> str:
    rows = []
    for world in WORLDS:
        cells, core = of(result["memory"], world.name), of(result["core"], world.name)
        for name, row in cells.items():
            size, _, kind = name.partition(" | ")
            wrong = (percent(row["counter_right"]), percent(row["kernel_right"])) if kind else ("", "")
            sign = (percent(row["sign_200"]), percent(core[name]["sign_200"])) if "sign_200" in row else ("", "")
            rows.append(
                (
                    f"{world.name}, {size}{', confounded' if kind else ''}",
                    row["runs"],
                    f"{row['effect_mean']:+.2f} ({row['effect_sd']:.2f})",
                    f"{core[name]['effect_mean']:+.2f} ({core[name]['effect_sd']:.2f})",
                    *sign,
                    percent(row["any_time"]),
                    *wrong,
                )
            )
    head = (
        "item",
        "runs",
        "effect, mean (sd)",
        "vectorised",
        "sign right",
        "vectorised",
        "any-time holds",
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


def main() -> None:
    takes_nothing(__doc__)
    result = json.loads((Path(__file__).parent / "ledger.json").read_text())
    filled(PAGE, "right", right(result))
    filled(PAGE, "through", through(result))
    filled(PAGE, "costs", costs(result))


if __name__ == "__main__":
    main()
