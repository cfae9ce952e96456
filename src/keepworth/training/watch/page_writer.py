"""Writes pages in one file that works offline: facts, sections, tables, charts, settings and a browser of answers.

Sections are HTML that these functions make of templates; all other arguments are text, which is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from keepworth.charts import PARTS, STYLE, asset, render
from keepworth.charts.charts import colour_indices, whisker
from keepworth.charts.curves import name_after_training
from keepworth.training.run_folder import flatten
from keepworth.training.watch.tables import ResultTable


def page(
    name: str,
    title: str,
    kind: str,
    sections: Mapping[str, str],
    *,
    headline: str = "",
    facts: Mapping[str, str] | None = None,
    footer: str,
) -> str:
    """Returns a page of HTML.

    Args:
        name: The name of the run.
        title: The title of what was trained.
        kind: What the page is, above the title.
        sections: The HTML of each section by its heading; empty ones are left out.
        headline: The sentence below the title, "" for none.
        facts: Short facts by their labels; None for none.
        footer: HTML at the end.
    """
    script = f"{asset(PARTS)}\n{asset('report.js', 'keepworth.training.watch', 'page')}"
    values = {"sections": sections, "headline": headline, "facts": facts, "footer": footer}
    return render("page", name=name, title=title, kind=kind, style=asset(STYLE), script=script, **values)


def note(text: str) -> str:
    """Returns a remark below a table or a chart."""
    return render("note", text=text)


def settings(values: Mapping[str, Any]) -> str:
    """Returns a line for each setting, nested ones under dotted names."""
    return render("settings", values={name: _plain(value) for name, value in flatten(values).items()})


def _plain(value: object) -> str:
    if isinstance(value, list | tuple) and value:
        return ", ".join(map(str, value))
    return "not set" if value is None else str(value)


def table(result: ResultTable) -> str:
    """Returns a sortable table, which a phone shows as cards. The first column is also drawn as a chart."""
    twins = [name_after_training(row.arm) for row in result.rows]
    palette = dict(zip(dict.fromkeys(twins), colour_indices(list(dict.fromkeys(twins))), strict=True))
    first = [row.cells[0] for row in result.rows if row.cells and row.cells[0] is not None]
    ends = [end for cell in first for end in (cell.mean, cell.low, cell.high) if end is not None]
    drawn = any(cell.low is not None for cell in first)
    headings = [("", ""), *((metric, "number") for metric in result.metrics)]
    headings += [(result.counted, "")] if any(row.n for row in result.rows) else []
    if drawn:
        headings.insert(2, ("95 %", ""))
    rows = []
    for row, twin in zip(result.rows, twins, strict=True):
        # The text of a cell, its interval, a drawing, and the value that it is sorted by.
        cells = [
            ("", "", "", "") if cell is None else (cell.text, cell.interval, "", str(cell.mean)) for cell in row.cells
        ]
        if drawn:
            # The same arm before and after training has one colour: a ring, then a disc.
            ring = twin != row.arm
            svg = whisker(row.cells[0], min(0.0, *ends), max(ends), palette[twin], 160, ring=ring)
            cells.insert(1, ("", "", svg, cells[0][3]))
        cells = [(row.label, "", "", row.label), *cells, (row.n, "", "", row.n)]
        rows.append((row, cells[: len(headings)]))
    return render("table", result=result, headings=headings, rows=rows)


def browser(
    records: Sequence[Mapping[str, Any]],
    texts: Iterable[str],
    choices: Mapping[str, tuple[str, Iterable[tuple[str, str]]]],
    unit: str = "episodes",
) -> str:
    """Returns a browser to filter and read what was asked and answered.

    Args:
        records: What is browsed, as the page's script reads it.
        texts: The texts that records refer to by number.
        choices: For each filter its label, and the (value, text) pairs of its options.
        unit: What one record is, in the plural.
    """
    return render("browser", choices=choices, unit=unit, episodes={"texts": list(texts), "episodes": records})


def all_or(values: Iterable[object]) -> list[tuple[str, str]]:
    """Returns the options of a filter: all, or one of the values."""
    return [("", "all"), *((str(value), str(value)) for value in dict.fromkeys(values))]
