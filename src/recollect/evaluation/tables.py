"""The tables of a run, as text cells: what the report and the terminal print.

`result.json` holds them as numbers:

    {"tables": [{"title": "...", "note": "...", "rows": [
        {"arm": "untrained", "metric": "f1", "mean": 0.35, "low": 0.27, "high": 0.43, "n": 54, "before": ..., ...}]}]}

Rows of one table may carry several metrics: they become columns. `emphasis: true` marks the row that the run is about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.evaluation.curves import arm_name, metric_name
from recollect.learning.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class TableRow:
    cells: tuple[str, ...]
    emphasis: bool = False


@dataclass(frozen=True, slots=True)
class ResultTable:
    title: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    note: str = ""


def tables_of(run: RunFolder) -> list[ResultTable]:
    """The final tables; before the run is finished, the latest measurement of each arm."""
    result = run.result()
    if result is not None:
        return [
            table_of_rows(str(each["title"]), each["rows"], str(each.get("note", "")))
            for each in result.get("tables", ())
        ]
    evals = run.evals()
    if not evals:
        return []
    latest: dict[tuple[object, ...], Mapping[str, Any]] = {}
    for row in evals:
        latest[(row.get("role"), row.get("split"), row["arm"], row["metric"])] = row
    tables = []
    for role, split in dict.fromkeys((key[0], key[1]) for key in latest):
        rows = [row for key, row in latest.items() if key[:2] == (role, split)]
        named = ", ".join(str(each) for each in (role, split) if each)
        steps = {int(row["step"]) for row in rows}
        note = f"Not finished: latest measurement of each arm, up to step {max(steps)}."
        tables.append(table_of_rows(f"Held-out questions{f' ({named})' if named else ''}", rows, note))
    return tables


def table_of_rows(title: str, rows: Sequence[Mapping[str, Any]], note: str = "") -> ResultTable:
    """One line per arm, one column per metric: mean, 95 % interval, and the number of questions."""
    metrics = list(dict.fromkeys(str(row["metric"]) for row in rows))
    arms = list(dict.fromkeys(str(row["arm"]) for row in rows))
    lines = []
    for arm in arms:
        of_arm = {str(row["metric"]): row for row in rows if row["arm"] == arm}
        cells = [str(next(iter(of_arm.values())).get("label") or arm_name(arm))]
        for metric in metrics:
            row = of_arm.get(metric)
            cells += ["", ""] if row is None else [f"{float(row['mean']):.3f}", interval(row)]
        cells.append(" / ".join(dict.fromkeys(str(row["n"]) for row in of_arm.values())))
        emphasis = any(row.get("emphasis") for row in of_arm.values()) or arm == "trained"
        lines.append(TableRow(tuple(cells), emphasis))
    columns = ["arm", *(column for metric in metrics for column in (metric_name(metric), "95 % interval")), "n"]
    return ResultTable(title, tuple(columns), tuple(lines), note)


def interval(row: Mapping[str, Any]) -> str:
    """`[0.27, 0.43]`, or nothing where it was not measured."""
    if row.get("low") is None or row.get("high") is None:
        return ""
    return f"[{float(row['low']):.3f}, {float(row['high']):.3f}]"
