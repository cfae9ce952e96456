"""The report of a run: `report.html` (one file that needs nothing else, online or off) and `curves.png`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from keepworth.evaluation.curves import Panel, colour_indices, drawn, panels, trained_twin, write_picture
from keepworth.evaluation.svg import chart, embedded, whisker
from keepworth.evaluation.tables import ResultTable, tables_of
from keepworth.learning.run.run_folder import RunFolder, StoredEpisode, disk, flatten
from keepworth.learning.watch.anomalies import anomalies

EPISODE_LIMIT = 20_000


def write_report(run: RunFolder, *, episode_limit: int = EPISODE_LIMIT) -> Path:
    """Make both files anew from what the run folder holds; returns the path of the page.

    Of more than `episode_limit` episodes the page holds the latest, and says so."""
    found = drawn(panels(run.metrics(), run.evals()))
    page = run.path / "report.html"
    with disk(run.path):
        if found:
            write_picture(found, run.path / "curves.png", run.name)
        page.write_text(_page(run, charts_html(found), episode_limit), encoding="utf-8")
    return page


def _page(run: RunFolder, charts: str, episode_limit: int) -> str:
    result = run.result() or {}
    title = str(result.get("title") or result.get("headline") or run.name)
    tables = "".join(table_html(table) for table in tables_of(run))
    headline = (
        f'<p class="headline">{escape(str(result["headline"]))}</p>'
        if result.get("title") and result.get("headline")
        else ""
    )
    body = f"""{f"<section><h2>What it can answer</h2>{tables}</section>" if tables else ""}
{_anomalies(run)}
{f"<section><h2>How it learned</h2>{charts}</section>" if charts else ""}
{_episodes(run, episode_limit)}
<section><h2>Configuration</h2>{settings_html(run.config)}
<h3>Where it ran</h3>{settings_html(run.environment)}</section>"""
    footer = f"""The same in the terminal: <code>keepworth show {escape(run.name)}</code>. The numbers:
<code>metrics.jsonl</code>, <code>evals.jsonl</code> and <code>result.json</code> beside this page."""
    facts = f'{headline}<div class="facts">{_facts(run)}</div>'
    return page_html(run.name, title, f"run {run.name}", facts, body, footer)


def page_html(name: str, title: str, kind: str, below: str, body: str, footer: str) -> str:
    """A page that needs nothing but itself. `below` (the title), `body` and `footer` are HTML, the rest is text."""
    style = (files("keepworth.evaluation") / "page" / "report.css").read_text(encoding="utf-8")
    script = (files("keepworth.evaluation") / "page" / "report.js").read_text(encoding="utf-8")
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
{below}
</header>
<main>
{body}
</main>
<footer>{footer}</footer>
<script>
{script}</script>
</body>
</html>
"""


def charts_html(panels: Sequence[Panel]) -> str:
    """One grid per role."""
    grids = []
    for role in dict.fromkeys(panel.role for panel in panels):
        drawn = "".join(chart(panel) for panel in panels if panel.role == role)
        grids.append(f'{f"<h3>{escape(role.capitalize())}</h3>" if role else ""}<div class="charts">{drawn}</div>')
    return "".join(grids)


def _anomalies(run: RunFolder) -> str:
    found = anomalies(run.metrics())
    if not found:
        return ""
    cards = []
    for each in found:
        steps = f"step {each.last}" if each.first == each.last else f"steps {each.first} to {each.last}"
        where = ", ".join([each.role] * bool(each.role) + [steps] + ["over"] * (not each.now))
        tries = "".join(f"<li>{escape(what)}</li>" for what in each.tries)
        cards.append(
            f'<div class="card anomaly{" now" if each.now else ""}"><h3>{escape(each.name.capitalize())}'
            f"<small>{escape(where)}</small></h3><p>{escape(each.message.capitalize())}.</p>"
            f"<p class='tries'>What to try:</p><ul>{tries}</ul></div>"
        )
    return f'<section><h2>What to look at</h2><div class="anomalies">{"".join(cards)}</div></section>'


def _facts(run: RunFolder) -> str:
    config, environment, metrics = run.config, run.environment, run.metrics()
    facts: list[tuple[str, str]] = []
    if config.get("recipe"):
        facts.append(("recipe", str(config["recipe"])))
    facts += [(key, str(config[key])) for key in ("model", "seed") if isinstance(config.get(key), str | int)]
    if metrics:
        facts.append(("steps", f"{metrics[-1]['step']:,}"))
    facts += [(key, str(environment[key])) for key in ("threads", "dtype") if key in environment]
    facts.append(("keepworth", str(environment.get("keepworth", environment.get("recollect", "?")))))
    created = run.created
    if created is not None:
        facts.append(("begun", time.strftime("%Y-%m-%d %H:%M", time.localtime(created))))
    return "".join(f"<span>{escape(name)} <b>{escape(value)}</b></span>" for name, value in facts)


def table_html(table: ResultTable) -> str:
    # Before and after training share a colour: a ring, then a disc.
    twins = [trained_twin(row.arm) for row in table.rows]
    palette = dict(zip(dict.fromkeys(twins), colour_indices(list(dict.fromkeys(twins))), strict=True))
    heads, scales = [], []
    # Intervals are drawn while there is room: for one metric wide, for two narrow, beyond that numbers alone.
    width = {1: 220, 2: 110}.get(len(table.metrics), 0)
    for place, metric in enumerate(table.metrics):
        values = [
            value
            for row in table.rows
            if (cell := row.cells[place]) is not None
            for value in (cell.mean, cell.low, cell.high)
            if value is not None
        ]
        scales.append((min(0.0, *values), max(values)) if values else (0.0, 1.0))
        heads.append(
            f'<th class="number">{escape(metric)}</th><th class="interval">95 %</th>{"<th></th>" if width else ""}'
        )
    lines = []
    for row, twin in zip(table.rows, twins, strict=True):
        cells = []
        for cell, (low, high) in zip(row.cells, scales, strict=True):
            mean, interval = (f"{cell.mean:.3f}", cell.interval) if cell else ("", "")
            cells.append(
                f'<td class="number">{mean}</td><td class="interval">{interval}</td>'
                + (
                    f'<td class="plot">{whisker(cell, low, high, palette[twin], width, ring=twin != row.arm)}</td>'
                    if width
                    else ""
                )
            )
        kind = ' class="emphasis"' if row.emphasis else ""
        lines.append(
            f'<tr{kind}><td>{escape(row.label)}</td>{"".join(cells)}<td class="number">{escape(row.n)}</td></tr>'
        )
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<h3>{escape(table.title)}</h3><div class="card scroll"><table class="arms"><thead><tr><th></th>{"".join(heads)}'
        f'<th class="number">questions</th></tr></thead><tbody>{"".join(lines)}</tbody></table></div>{note}'
    )


def _episodes(run: RunFolder, limit: int) -> str:
    stored = list(run.episodes())
    if not stored:
        return ""
    kept = stored[-limit:]
    note = ""
    if len(kept) < len(stored):
        note = (
            f'<p class="note">The latest {len(kept):,} of {len(stored):,} episodes. '
            f"All of them: keepworth show {escape(run.name)} --episodes</p>"
        )
    texts: dict[str, int] = {}
    records = [_record(each, texts) for each in kept]
    steps = sorted({each.step for each in kept})
    arms = dict.fromkeys(each.arm for each in kept)
    roles = dict.fromkeys(each.episode.role for each in kept)
    orders = [("late", "latest first"), ("", "earliest first"), ("worst", "lowest reward"), ("best", "highest reward")]
    filters = "".join(
        [
            _choice("step", [("", "all"), *((str(step), str(step)) for step in steps)]),
            _choice("arm", [("", "all"), *((arm, arm) for arm in arms)]),
            _choice("role", [("", "all"), *((role, role) for role in roles)]),
            _choice("order", orders),
            '<label>words<input type="search" data-filter="words" placeholder="question or answer"></label>',
        ]
    )
    return (
        f'<section><h2>Every episode</h2><div class="filters">{filters}<span class="count"></span></div>'
        f'<div class="browser card" id="browser"><div class="rows"></div><div class="detail"></div></div>{note}'
        f'<script type="application/json" id="episodes">{embedded({"texts": list(texts), "episodes": records})}</script>'
        "</section>"
    )


def _choice(name: str, options: Sequence[tuple[str, str]]) -> str:
    listed = "".join(f'<option value="{escape(value)}">{escape(text)}</option>' for value, text in options)
    return f'<label>{name}<select data-filter="{name}">{listed}</select></label>'


def _record(stored: StoredEpisode, texts: dict[str, int]) -> dict[str, Any]:
    episode = stored.episode

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    return {
        "step": stored.step,
        "arm": stored.arm,
        "role": episode.role,
        "task": episode.task,
        "question": number(episode.question),
        "answer": episode.answer,
        "expected": list(episode.expected),
        "reward": round(episode.reward, 4),
        "terms": [[term.name, round(term.value, 4), term.weight] for term in episode.rewards],
        "shown": [[shown.item, round(shown.score, 4), number(shown.text)] for shown in episode.shown],
        "operations": [
            [
                each.operation.kind.value,
                list(each.operation.targets),
                each.operation.text,
                each.status.value,
                each.outcome,
            ]
            for each in episode.operations
        ],
        "stop": episode.stop.value,
        "errors": list(episode.errors),
    }


def settings_html(values: Mapping[str, Any]) -> str:
    lines = "".join(
        f"<div><span>{escape(key)}</span><code>{escape(_plain(value))}</code></div>"
        for key, value in flatten(values).items()
    )
    return f'<div class="card settings">{lines}</div>'


def _plain(value: object) -> str:
    return "not set" if value is None else str(value)
