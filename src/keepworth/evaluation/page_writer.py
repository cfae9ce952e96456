"""The one writer of pages: facts, sections, tables, charts, settings and a browser of answers, in one file that needs nothing
else, online or off.

What is handed in as a section is HTML and made here; everything else is text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from keepworth.learning.run_folder import flatten
from keepworth.page import PARTS, STYLE, asset
from keepworth.page.charts import Panel, chart, embedded

HtmlCell = tuple[str, object]
"""Of a table: its HTML, and what it is sorted by."""


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
    """A page of `sections` by heading, without those that are empty. footer: HTML."""
    style, script = asset(STYLE), f"{asset(PARTS)}\n{asset('report.js', 'keepworth.evaluation', 'page')}"
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
    """A remark below a table or a chart."""
    return f'<p class="note">{escape(text)}</p>' if text else ""


def charts(panels: Sequence[Panel]) -> str:
    """One grid per role."""
    grids = []
    for role in dict.fromkeys(panel.role for panel in panels):
        drawn = "".join(chart(panel) for panel in panels if panel.role == role)
        grids.append(f'{f"<h3>{escape(role.capitalize())}</h3>" if role else ""}<div class="charts">{drawn}</div>')
    return "".join(grids)


def settings(values: Mapping[str, Any]) -> str:
    """A line for each setting, nested ones by their dotted names."""
    lines = "".join(
        f"<div><span>{escape(key)}</span><code>{escape(_plain(value))}</code></div>"
        for key, value in flatten(values).items()
    )
    return f'<div class="card settings">{lines}</div>'


def _plain(value: object) -> str:
    if isinstance(value, list | tuple) and value:
        return ", ".join(map(str, value))
    return "not set" if value is None else str(value)


def number(value: Any, form: str = ".3f") -> HtmlCell:
    """A number as a cell; an empty one for None and for what is not finite."""
    finite = isinstance(value, int | float) and math.isfinite(value)
    return (f"{value:{form}}", value) if finite else ("", None)


def interval(low: float, high: float, form: str = "+.3f") -> HtmlCell:
    """An interval as a cell, sorted by its lower end."""
    return f"[{low:{form}}, {high:{form}}]", low


def table(rows: Sequence[Mapping[str, HtmlCell | str]], *, sortable: bool = False) -> str:
    """Rows by heading: a table where there is room, cards on a phone, sorted by what is clicked. A plain text is a cell of
    itself; a column of numbers is set to the right; one without a name, such as that of a mark, is not sorted by."""
    if not rows:
        return ""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[_cell(row.get(name, ("", None))) for name in names] for row in rows]
    numeric = [bool(name) and all(_is_number(row[place][1]) for row in cells) for place, name in enumerate(names)]
    kinds = [" class=number" if right else "" for right in numeric]
    heads = ""
    for place, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        label = f'<button type="button" data-sort="{place}">{escape(name)}</button>' if sortable else escape(name)
        heads += f"<th{kind}>{label}</th>" if name else "<td></td>"
    lines = ""
    for row in cells:
        lines += "<tr>"
        for name, kind, (html, value) in zip(names, kinds, row, strict=True):
            by = "" if value is None else escape(str(value))
            lines += f'<td{kind} data-label="{escape(name)}" data-value="{by}">{html}</td>'
        lines += "</tr>"
    shape = "cards sortable" if sortable else "cards"
    return (
        f'<div class="card"><table class="{shape}"><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>'
    )


def _cell(given: HtmlCell | str) -> HtmlCell:
    return (escape(given), given) if isinstance(given, str) else given


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def browser(
    records: Sequence[Mapping[str, Any]],
    texts: Iterable[str],
    choices: Mapping[str, tuple[str, Iterable[tuple[str, str]]]],
    unit: str = "episodes",
) -> str:
    """Everything that was asked and answered, to be filtered and read. records: as `report.js` reads them; texts: those that they
    name by number; choices: of each filter its label and the (value, text) pairs of its options."""
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
        f'<script type="application/json" id="episodes">{embedded({"texts": list(texts), "episodes": records})}</script>'
    )


def all_or(values: Iterable[object]) -> list[tuple[str, str]]:
    """The options of a filter: all, or one of these."""
    return [("", "all"), *((str(value), str(value)) for value in dict.fromkeys(values))]
