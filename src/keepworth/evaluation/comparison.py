"""Several runs side by side: what they were set to, what they measured last, and the same curve of each in one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from keepworth.episodes.errors import KeepworthError
from keepworth.evaluation.curves import Panel, Series, arm_name, drawn, metric_name, panels
from keepworth.evaluation.report import charts_html, page_html, settings_html, table_html
from keepworth.evaluation.tables import ArmRow, Cell, ResultTable
from keepworth.learning.run.disk import Row
from keepworth.learning.run.run_folder import RunFolder, disk, flatten
from keepworth.learning.watch.anomalies import anomalies

COMPARED = ("reward", "entropy", "length", "signal", "ess", "gap", "gradient")
"""Training curves that mean the same in every run; of the reward, the total."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """names: of the runs, as told apart; settings: each one that differs, with its value in every run (None: not there);
    table: a column per run; panels: a series per run; anomalies: what held at each run's end."""

    names: tuple[str, ...]
    settings: Mapping[str, tuple[Any, ...]]
    table: ResultTable | None
    panels: tuple[Panel, ...]
    anomalies: Mapping[str, tuple[str, ...]]


def compared(runs: Sequence[RunFolder]) -> Comparison:
    """Raises KeepworthError where there are fewer than two, or one is named twice."""
    if len(runs) < 2:
        raise KeepworthError("A comparison needs at least two runs.", "Name more of them.")
    if len({run.path.resolve() for run in runs}) < len(runs):
        raise KeepworthError("One run is named twice: nothing would differ.", "Name each run once.")
    names = _told_apart(runs)
    evals = {name: run.evals() for name, run in zip(names, runs, strict=True)}
    metrics = {name: run.metrics() for name, run in zip(names, runs, strict=True)}
    by_run = {name: panels(metrics[name], evals[name]) for name in names}
    held = {name: tuple(dict.fromkeys(a.name for a in anomalies(metrics[name]) if a.now)) for name in names}
    return Comparison(
        names,
        differing([run.config for run in runs]),
        _table(evals),
        tuple(drawn(_panels(by_run))),
        {n: a for n, a in held.items() if a},
    )


def differing(configs: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Any, ...]]:
    """Settings that are not the same in all, by their dotted names."""
    flat = [flatten(config) for config in configs]
    keys = dict.fromkeys(key for each in flat for key in each)
    absent = object()
    return {
        key: tuple(each.get(key) for each in flat)
        for key in keys
        if any(each.get(key, absent) != flat[0].get(key, absent) for each in flat)
    }


def write_comparison(runs: Sequence[RunFolder], path: Path) -> Path:
    """The comparison as a page that needs nothing else. Raises KeepworthError, as `compared`, or DiskTrouble."""
    found = compared(runs)
    settings = {
        key: " · ".join(f"{name} {value}" for name, value in zip(found.names, values, strict=True))
        for key, values in found.settings.items()
    }
    wrong = {name: ", ".join(what) for name, what in found.anomalies.items()}
    parts = [
        f"<section><h2>What was measured last</h2>{table_html(found.table)}</section>" if found.table else "",
        f"<section><h2>How they learned</h2>{charts_html(found.panels)}</section>" if found.panels else "",
        f"<section><h2>What to look at</h2>{settings_html(wrong)}</section>" if wrong else "",
        f"<section><h2>What differs in their settings</h2>{settings_html(settings)}</section>" if settings else "",
    ]
    listed = " ".join(escape(str(run.path)) for run in runs)
    footer = f"The same in the terminal: <code>keepworth show {listed}</code>."
    title = " and ".join(found.names) if len(found.names) == 2 else f"{len(found.names)} runs"
    with disk(path):
        path.write_text(page_html(title, title, "comparison", "", "\n".join(parts), footer), encoding="utf-8")
    return path


def _told_apart(runs: Sequence[RunFolder]) -> tuple[str, ...]:
    """Their names; with the folder above where two are called the same."""
    names = [run.name for run in runs]
    return tuple(
        name if names.count(name) == 1 else f"{run.path.resolve().parent.name}/{name}"
        for name, run in zip(names, runs, strict=True)
    )


def _table(evals: Mapping[str, Sequence[Row]]) -> ResultTable | None:
    """The latest value of every arm's leading metric that at least two runs measured: a line each, a column per run."""
    latest: dict[str, dict[str, Row]] = {}
    for name, rows in evals.items():
        leading: dict[tuple[Any, Any], str] = {}
        for row in rows:
            where = (row.get("role"), row.get("split"))
            if leading.setdefault(where, str(row["metric"])) == row["metric"]:
                split = f", {row['split']}" if row.get("split") else ""
                label = f"{metric_name(str(row['metric']))}{split}: {arm_name(str(row['arm']))}"
                latest.setdefault(label, {})[name] = row
    lines = tuple(
        ArmRow(
            arm=label,
            label=label,
            cells=tuple(_cell(by_run.get(name)) for name in evals),
            n=" / ".join(dict.fromkeys(f"{row['n']:,}" for row in by_run.values())),
        )
        for label, by_run in latest.items()
        if len(by_run) > 1
    )
    note = (
        "The latest measurement of each run. The intervals are each run's own over its questions, not of a difference."
    )
    return ResultTable("Held-out", tuple(evals), lines, note) if lines else None


def _cell(row: Row | None) -> Cell | None:
    return None if row is None else Cell(float(row["mean"]), row.get("low"), row.get("high"))


def _panels(by_run: Mapping[str, Sequence[Panel]]) -> list[Panel]:
    """Panels that at least two runs have: the leading held-out arm, or the first series, of each run."""
    keys = dict.fromkeys(panel.key for found in by_run.values() for panel in found)
    merged = []
    for key in keys:
        having = {name: panel for name, found in by_run.items() for panel in found if panel.key == key}
        panel = next(iter(having.values()))
        kind = key.rsplit(".", 1)[-1]
        if len(having) < 2 or not (panel.wide or kind in COMPARED):
            continue
        series = tuple(_led(name, each) for name, each in having.items())
        title = "Reward" if kind == "reward" else panel.title
        merged.append(replace(panel, title=title, series=series, unit=panel.unit.split(", n =")[0]))
    return merged


def _led(name: str, panel: Panel) -> Series:
    """The series of a run that stands for it: the arm that was trained, or the first."""
    series = next((each for each in panel.series if each.key == "trained"), panel.series[0])
    return replace(series, key=name, label=name)
