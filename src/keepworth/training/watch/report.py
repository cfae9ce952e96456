"""Writes the report of a run: `report.html`, one file that works offline."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from keepworth.base.durable_files import disk
from keepworth.base.text import with_ends
from keepworth.charts.charts import Panel, charts
from keepworth.charts.curves import filter_drawable, panels
from keepworth.training.run_folder import RunFolder, StoredEpisode
from keepworth.training.watch.page_writer import all_or, browser, note, page, settings, table
from keepworth.training.watch.tables import tables_of

EPISODE_LIMIT = 20_000


def write_report(run: RunFolder, *, episode_limit: int = EPISODE_LIMIT) -> Path:
    """Writes the page from the run's folder, and returns its path. Of more than `episode_limit` episodes it holds the latest, and
    says so."""
    measured = panels(run.metrics(), run.evals())
    result = run.result() or {}
    title, headline = str(result.get("title") or ""), str(result.get("headline") or "")
    sections = {
        "What it can answer": "".join(table(result) for result in tables_of(run)),
        "How it learned": charts(filter_drawable(measured)) + _once(measured),
        "Every episode": _episodes(run, episode_limit),
        "Configuration": f"{settings(run.config)}<h3>Where it ran</h3>{settings(run.environment)}",
    }
    footer = f"""The same in the terminal: <code>keepworth show {escape(run.name)}</code>. The numbers:
<code>metrics.jsonl</code>, <code>evals.jsonl</code> and <code>result.json</code> beside this page."""
    path = run.path / "report.html"
    with disk(run.path):
        html = page(
            run.name,
            title or headline or run.name,
            f"run {run.name}",
            sections,
            headline=headline if title else "",
            facts=_facts(run),
            footer=footer,
        )
        path.write_text(html, encoding="utf-8")
    return path


def _once(measured: Sequence[Panel]) -> str:
    """Returns the metrics that have no curve yet, as numbers. Held-out arms that were measured once are in the tables."""
    left = {
        ", ".join(filter(None, (panel.role, panel.title, series.label * (len(panel.series) > 1)))): series
        for panel in measured
        if not panel.held_out and not filter_drawable([panel])
        for series in panel.series
    }
    if not left:
        return ""
    labels = {name: f"{series.values[0]:.3f} at step {series.steps[0]:,}" for name, series in left.items()}
    return f"<h3>Measured once</h3>{settings(labels)}{note('A curve begins with the second step that is measured.')}"


def _facts(run: RunFolder) -> dict[str, str]:
    config, environment, metrics = run.config, run.environment, run.metrics()
    facts = {"recipe": str(config["recipe"])} if config.get("recipe") else {}
    facts |= {key: str(config[key]) for key in ("model", "seed") if isinstance(config.get(key), str | int)}
    if metrics:
        facts["steps"] = f"{metrics[-1]['step']:,}"
    facts |= {key: str(environment[key]) for key in ("threads", "dtype") if key in environment}
    facts["keepworth"] = str(environment.get("keepworth", "?"))
    if run.created is not None:
        facts["begun"] = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created))
    return facts


def _episodes(run: RunFolder, limit: int) -> str:
    stored = list(run.episodes())
    if not stored:
        return ""
    newest = stored[-limit:]
    texts: dict[str, int] = {}
    records = [_record(stored, texts) for stored in newest]
    orders = [("late", "latest first"), ("", "earliest first"), ("worst", "lowest reward"), ("best", "highest reward")]
    choices = {
        "step": ("step", all_or(sorted({stored.step for stored in newest}))),
        "arm": ("arm", all_or(stored.arm for stored in newest)),
        "role": ("role", all_or(stored.episode.role for stored in newest)),
        "order": ("order", orders),
    }
    more = f"The latest {len(newest):,} of {len(stored):,} episodes. All of them: keepworth show {run.name} --episodes"
    return browser(records, texts, choices) + note(more if len(newest) < len(stored) else "")


def _record(stored: StoredEpisode, texts: dict[str, int]) -> dict[str, Any]:
    episode = stored.episode

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    return {
        "step": stored.step,
        "arm": stored.arm,
        "role": episode.role,
        "task": episode.task,
        "question": number(with_ends(episode.question)),
        "answer": episode.answer or with_ends("".join(segment.text for segment in episode.segments[-1:])),
        "expected": list(episode.expected),
        "reward": round(episode.reward, 4),
        "terms": [[term.name, round(term.value, 4), term.weight] for term in episode.rewards],
        "shown": [[shown.item, round(shown.score, 4), number(shown.text)] for shown in episode.shown],
        "operations": [
            [
                operation.operation.kind.value,
                list(operation.operation.targets),
                operation.operation.text,
                operation.status.value,
                operation.outcome,
            ]
            for operation in episode.operations
        ],
        "stop": episode.stop.value,
        "errors": list(episode.errors),
    }
