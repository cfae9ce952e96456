"""The tables of a run, which the report and the terminal print.

`result.json` holds them as numbers:

    {"headline": "one sentence", "tables": [{"title": "...", "note": "...", "rows": [
        {"arm": "untrained", "label": "...", "metric": "f1", "mean": 0.35, "low": 0.27, "high": 0.43, "n": 54}]}]}

One line per arm; rows of one arm with several metrics become columns. `label`, `low`, `high` and `note` may be left out;
`"emphasis": true` marks the line that the run is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keepworth.charts.curves import arm_name, metric_name
from keepworth.training.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class Cell:
    """A mean with its 95 % interval. The bounds are None where they were not measured."""

    mean: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any] | None) -> Cell | None:
        """Makes a cell from a mapping with a mean and optionally low and high; None where there is no mean."""
        if not row or row.get("mean") is None:
            return None
        low, high = row.get("low"), row.get("high")
        return cls(float(row["mean"]), None if low is None else float(low), None if high is None else float(high))

    @property
    def text(self) -> str:
        return f"{self.mean:,.0f}" if abs(self.mean) >= 100 else f"{self.mean:.3f}"

    @property
    def interval(self) -> str:
        return "" if self.low is None or self.high is None else f"[{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True, slots=True)
class ArmRow:
    """One arm: a cell per metric (None where it was not measured), and the text of the last column, such as the number of
    questions."""

    arm: str
    label: str
    cells: tuple[Cell | None, ...]
    n: str = ""
    emphasis: bool = False


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A table with a line for each arm and a column for each metric. `counted` is the heading of the last column."""

    title: str
    metrics: tuple[str, ...]
    rows: tuple[ArmRow, ...]
    note: str = ""
    counted: str = "n"


def tables_of(run: RunFolder) -> list[ResultTable]:
    """Returns the final tables; before the run is finished, the latest measurement of each arm."""
    result = run.result()
    if result is not None:
        return [
            table_of_rows(_title(table), table["rows"], str(table.get("note", "")))
            for table in result.get("tables", ())
        ]
    latest: dict[tuple[object, ...], Mapping[str, Any]] = {}
    for row in run.evals():
        latest[(row.get("role"), row.get("split"), row["arm"], row["metric"])] = row
    tables = []
    for role, split in dict.fromkeys((key[0], key[1]) for key in latest):
        rows = [row for key, row in latest.items() if key[:2] == (role, split)]
        named = ", ".join(str(part) for part in (role, split) if part)
        note = f"Not finished: the latest measurement of each arm, up to step {max(int(row['step']) for row in rows)}."
        tables.append(table_of_rows(f"Held-out questions{f' ({named})' if named else ''}", rows, note))
    return tables


def _title(table: Mapping[str, Any]) -> str:
    """Returns the title, with the tier of the table's questions where it is known."""
    return f"{table['title']} (tier: {table['tier']})" if table.get("tier") else str(table["title"])


def table_of_rows(title: str, rows: Sequence[Mapping[str, Any]], note: str = "") -> ResultTable:
    """Makes a table with one line per arm and one column per metric, in order of appearance.

    Args:
        title: The title of the table.
        rows: The measurements, as `RunFolder.append_eval` stores them.
        note: A sentence below the table.
    """
    metrics = list(dict.fromkeys(str(row["metric"]) for row in rows))
    arms = list(dict.fromkeys(str(row["arm"]) for row in rows))
    lines = []
    for arm in arms:
        of_arm = {str(row["metric"]): row for row in rows if row["arm"] == arm}
        lines.append(
            ArmRow(
                arm=arm,
                label=str(next(iter(of_arm.values())).get("label") or arm_name(arm, arms)),
                cells=tuple(Cell.of(of_arm.get(metric)) for metric in metrics),
                n=" / ".join(
                    dict.fromkeys(f"{int(row['n']):,}" for row in of_arm.values() if row.get("n") is not None)
                ),
                emphasis=any(row.get("emphasis", arm == "trained") for row in of_arm.values()),
            )
        )
    return ResultTable(title, tuple(metric_name(metric) for metric in metrics), tuple(lines), note)
