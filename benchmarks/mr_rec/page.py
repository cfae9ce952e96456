"""Put what `benchmarks.mr_rec.run` found into docs/recipes.md.

python -m benchmarks.mr_rec.page
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.tables import filled, markdown, takes_nothing

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"


def cell(row: dict[str, Any]) -> str:
    return f"{row['ndcg']:.2f} ({row['low']:.2f} to {row['high']:.2f})"


def gap(row: dict[str, Any]) -> tuple[str, str]:
    return f"{row['arm']} minus {row['minus']}", f"{row['difference']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f})"


def table(record: dict[str, Any]) -> str:
    order = sorted(record["rows"], key=lambda row: float(row["ndcg"]))
    parts = [
        markdown(("what is asked for", "1 / log2(1 + rank)"), [(row["arm"], cell(row)) for row in order]),
        markdown(("difference, request by request", ""), [gap(row) for row in record["gaps"]]),
    ]
    if read := record["read"]:
        head = (f"who says the ideal item, {read['requests']} requests", "1 / log2(1 + rank)")
        parts.append(markdown(head, [(row["arm"], cell(row)) for row in read["rows"]]))
        parts.append(markdown(("difference, request by request", ""), [gap(row) for row in read["gaps"]]))
    parts.append(
        f"{record['training']} training and {record['requests']} test users, one request each, "
        f"{record['candidates']:.0f} candidates on average; {record['seeds']} seeds; 95 % intervals over users."
    )
    return "\n\n".join(parts)


def main() -> None:
    takes_nothing(__doc__)
    record = json.loads((Path(__file__).parent / "mr_rec.json").read_text())
    filled(PAGE, "mr_rec", table(record))


if __name__ == "__main__":
    main()
