"""Writes pages in one file that works offline: facts, sections, tables, charts, settings and a browser of answers.

Sections are HTML that these functions make; all other arguments are text, which is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from keepworth.charts import PARTS, STYLE, asset
from keepworth.charts.charts import Panel, chart, colour_indices, embed_json, whisker
from keepworth.charts.curves import name_after_training
from keepworth.training.run_folder import flatten
from keepworth.training.watch.tables import Cell, ResultTable


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
    style, script = asset(STYLE), f"{asset(PARTS)}\n{asset('report.js', 'keepworth.training.watch', 'page')}"
    body = "\n".join(
        f"<section>{f'<h2>{escape(heading)}</h2>' if heading else ''}{html}</section>"
        for heading, html in sections.items()
        if html
    )
    above = f'<p class="headline">{escape(headline)}</p>' if headline else ""
    if facts:
        listed = "".join(f"<span>{escape(key)} <b>{escape(value)}</b></span>" for key, value in facts.items())
        above += f'<div class="facts">{listed}</div>'
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(name)} · keepworth</title>
<style>
{style}</style>
</head>
<body>
<header>
<div class="brand"><b>keepworth</b> {escape(kind)}</div>
<h1>{escape(title)}</h1>
{above}
</header>
<main>
{body}
</main>
<footer>{footer}</footer>
<script type="module">
{script}</script>
</body>
</html>
"""


def note(text: str) -> str:
    """Returns a remark below a table or a chart."""
    return f'<p class="note">{escape(text)}</p>' if text else ""


def charts(panels: Sequence[Panel]) -> str:
    """Returns one grid of charts per role."""
    grids = []
    for role in dict.fromkeys(panel.role for panel in panels):
        drawn = "".join(chart(panel) for panel in panels if panel.role == role)
        grids.append(f'{f"<h3>{escape(role.capitalize())}</h3>" if role else ""}<div class="charts">{drawn}</div>')
    return "".join(grids)


def settings(values: Mapping[str, Any]) -> str:
    """Returns a line for each setting, nested ones under dotted names."""
    lines = "".join(
        f"<div><span>{escape(key)}</span><code>{escape(_plain(value))}</code></div>"
        for key, value in flatten(values).items()
    )
    return f'<div class="card settings">{lines}</div>'


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
    heads = [("", ""), *((metric, "number") for metric in result.metrics)]
    heads += [(result.counted, "")] if any(row.n for row in result.rows) else []
    if drawn:
        heads.insert(2, ("95 %", ""))
    lines = []
    for row, twin in zip(result.rows, twins, strict=True):
        cells = [
            ("" if cell is None else _estimate(cell), "" if cell is None else f"{cell.mean}") for cell in row.cells
        ]
        if drawn:
            # The same arm before and after training has one colour: a ring, then a disc.
            ring, colour = twin != row.arm, palette[twin]
            cells.insert(1, (whisker(row.cells[0], min(0.0, *ends), max(ends), colour, 160, ring=ring), cells[0][1]))
        cells = [(escape(row.label), row.label), *cells, (escape(row.n), row.n)]
        line = "".join(
            f'<td{_kind(kind)} data-label="{escape(name)}" data-value="{escape(value)}">{html}</td>'
            for (name, kind), (html, value) in zip(heads, cells, strict=False)
        )
        lines.append(f"<tr{_kind('emphasis' * row.emphasis)}>{line}</tr>")
    head = "".join(
        f"<th{_kind(kind)}><button>{escape(name)}</button></th>" if name else "<td></td>" for name, kind in heads
    )
    title = f"<h3>{escape(result.title)}</h3>" if result.title else ""
    return (
        f'{title}<div class="card"><table class="cards sortable"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>{note(result.note)}"
    )


def _estimate(cell: Cell) -> str:
    return f"{cell.text} <small>{cell.interval}</small>" if cell.interval else cell.text


def _kind(name: str) -> str:
    return f' class="{name}"' if name else ""


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
    filters = "".join(
        f'<label>{escape(label)}<select data-filter="{name}">'
        + "".join(f'<option value="{escape(value)}">{escape(text)}</option>' for value, text in options)
        + "</select></label>"
        for name, (label, options) in choices.items()
    )
    filters += '<label>words<input type="search" data-filter="words" placeholder="question or answer"></label>'
    return (
        f'<div class="filters">{filters}<span class="count"></span></div>'
        f'<div class="browser card" id="browser" data-unit="{unit}"><div class="rows"></div><div class="detail"></div></div>'
        f'<script type="application/json" id="episodes">{embed_json({"texts": list(texts), "episodes": records})}</script>'
    )


def all_or(values: Iterable[object]) -> list[tuple[str, str]]:
    """Returns the options of a filter: all, or one of the values."""
    return [("", "all"), *((str(value), str(value)) for value in dict.fromkeys(values))]
