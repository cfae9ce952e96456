"""The page of streams: which memory learned best, and the results of the comparisons. One file that works offline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from keepworth.base.durable_files import disk
from keepworth.base.statistics import LEAST
from keepworth.base.text import in_words
from keepworth.charts.charts import Panel, Series, charts
from keepworth.evaluation.stream import WINDOW, Results, curves
from keepworth.evaluation.stream_claims import rivals
from keepworth.training.watch.page_writer import note, page, settings, table
from keepworth.training.watch.tables import ArmRow, Cell, ResultTable

CURVES = 7
"""The most lines of a chart that can be told apart."""
POINTS = 150
"""The most points of a curve, because a chart has no more pixels."""
CHECKS = {
    "no_lower_than_none": "no lower than without memory",
    "not_worse": "not worse where nothing is hard",
    "gain_left_when_permuted": "learns nothing from the rewards of other tasks",
    "gain_left_when_masked": "gains nothing without the values that it learns",
}
WHEN = {"stream": "while learning", "frozen": "held-out, frozen"}


def write_stream_page(folder: Path, summary: Mapping[str, Any], results: Results) -> Path:
    """Writes `report.html` into the folder of `keepworth eval stream`, and returns its path.

    Args:
        folder: The folder of the evaluation.
        summary: The content of its summary.json.
        results: The rows of all runs.
    """
    plan = summary["plan"]
    streams = list(summary["table"])
    tasks = sorted({len(row.bits) for row in results.rows})
    sections = {
        "How they learned": _curves(results, summary),
        "What was measured": "".join(map(table, tables_of(summary))),
        "What was run": settings({**plan, "seeds": summary["seeds"]}),
    }
    facts = {
        "streams": ", ".join(streams) if len(streams) <= 6 else str(len(streams)),
        "methods and controls": str(len(results.arms)),
        "seeds": str(len(results.seeds)),
        "orders": ", ".join(results.orders),
        "tasks a stream": f"{tasks[0]}" if len(tasks) == 1 else f"{tasks[0]} to {tasks[-1]}",
        "agent": str(plan["agent"]),
        "rules": str(plan["split"]),
    }
    footer = (
        f"The same in the terminal: <code>keepworth show {escape(str(folder))}</code>. The numbers: <code>summary.json</code>, "
        "<code>rows.jsonl</code> and <code>plan.json</code> beside this page."
    )
    title, path = "Which memory learns best?", folder / "report.html"
    with disk(path):
        html = page(folder.name, title, "streams", sections, headline=verdict(summary), facts=facts, footer=footer)
        path.write_text(html, encoding="utf-8")
    return path


def verdict(summary: Mapping[str, Any]) -> str:
    """Returns one sentence: how the method compares with its rivals, or why there is no verdict."""
    method, seeds = summary["plan"]["method"], summary["seeds"]
    best = [claim for claim in summary["claims"]["best_rival"] if claim["measure"] == "stream"]
    arms = list(dict.fromkeys(arm for values in summary["table"].values() for arm in values))
    if not best and (method not in arms or not rivals(arms, method)):
        return "No verdict: it takes two arms that learn from reward."
    if not best:
        return f"No verdict: a comparison needs at least {LEAST} seeds. There {'is' if seeds == 1 else 'are'} {seeds}."
    few = next((claim for claim in best if claim["verdict"] == "too few seeds"), None)
    if few is not None:
        count = len(summary["claims"]["against_rivals"])
        return f"No verdict: {count} comparisons need {few['seeds_needed']} seeds. There are {few['clusters']}."
    ahead = [claim["stream"] for claim in best if claim["leads"]]
    behind = [claim["stream"] for claim in best if claim["counts"].get("behind")]
    level = [claim["stream"] for claim in best if claim["stream"] not in (*ahead, *behind)]
    parts = [
        f"{phrase} on {in_words(names)}"
        for phrase, names in (
            ("ahead of every rival", ahead),
            ("behind at least one rival", behind),
            ("not told apart from the rival with the highest mean", level),
        )
        if names
    ]
    return f"While learning, {method} is {'; '.join(parts)}."


def curve_panels(results: Results, summary: Mapping[str, Any]) -> list[Panel]:
    """Returns a panel for each stream, with the success in a window of tasks: the method, its controls, and the best rivals. A
    stream that is no longer than the window has one point and no panel."""
    method = summary["plan"]["method"]
    shown = _curved(summary["table"], results.arms, method)
    # The method is drawn like the trained model in the report of a run: in the same colour, and on top.
    styles = {method: "trained", f"{method}+shuffled": "untrained", "none": "no_memory"}
    keys = tuple(styles.get(arm, arm) for arm in shown)
    panels = []
    for name in results.families:
        series = curves(results, name)
        lines = []
        for arm, key in zip(shown, keys, strict=True):
            values = series.get(arm, ())
            every = max(1, -(-len(values) // POINTS))
            tasks = len(results.of(name, arm)[0].bits) if values else 0
            at = tuple(range(tasks - len(values) + 1, tasks + 1, every))
            lines.append(Series(key, arm, at, tuple(values[::every])))
        lines = [line for line in lines if len(line.steps) > 1]
        if lines:
            tasks = next(len(row.bits) for row in results.rows if row.family == name)
            unit = f"success, last {min(WINDOW, tasks)} tasks"
            wide = len(results.families) <= 2
            panels.append(Panel(name, name, unit, tuple(lines), held_out=True, wide=wide, among=keys, along="task"))
    return panels


def _curved(table: Mapping[str, Mapping[str, Any]], arms: Sequence[str], method: str) -> list[str]:
    """Returns the arms that have a curve: the method and its controls, then rivals by their means, then the other arms."""

    def mean(arm: str) -> float:
        values = [cells[arm]["auc"] for cells in table.values() if arm in cells]
        return float(sum(values) / len(values))

    controls = [arm for arm in (f"{method}+shuffled", "none", "oracle") if arm in arms]
    first = [arm for arm in (method,) if arm in arms]
    others = sorted(rivals(arms, method), key=mean, reverse=True)
    others += [arm for arm in arms if arm not in (*first, *others, *controls)]
    return [*first, *others[: CURVES - len(first) - len(controls)], *controls]


def _curves(results: Results, summary: Mapping[str, Any]) -> str:
    panels = curve_panels(results, summary)
    if not panels:
        return note(f"These streams are too short for a curve: it takes more than {WINDOW} tasks.")
    over = (
        f"mean over {len(results.seeds)} seeds, in {results.orders[0]} order" if len(results.seeds) > 1 else "one seed"
    )
    shown = _curved(summary["table"], results.arms, summary["plan"]["method"])
    left = ", ".join(arm for arm in results.arms if arm not in shown)
    caption = (
        f"Each point is the share of successes in the last {WINDOW} tasks, {over}. A slope can come "
        f"from the tasks, too: compare the lines, not their ends.{f' Not drawn: {left}.' if left else ''}"
    )
    return charts(panels) + note(caption)


OPTIONAL = {
    "held_out": ("held-out", "held-out: on tasks after the stream, with the memory frozen"),
    "attack": ("attacker", "attacker: how often the agent did what an attacker wanted"),
    "routing_loss": ("lost", "lost: success lost because right advice was kept and not shown"),
    "calls": ("calls", "calls: of the model, a task"),
    "words": ("words", "words: read by the agent, a task"),
}
"""Columns that a stream may lack, and their descriptions."""


def tables_of(summary: Mapping[str, Any]) -> list[ResultTable]:
    """Returns tables of every method on every stream, and of the comparisons, for the page and the terminal."""
    method, claimed, measured = summary["plan"]["method"], summary["claims"], summary["table"]
    tables = []
    for name, arms in measured.items():
        shown = {key: label for key, label in OPTIONAL.items() if any(_cell(arm.get(key)) for arm in arms.values())}
        rows = [
            ArmRow(
                arm,
                arm,
                (_cell(values["auc"]), _cell(values["auc_error"]), *(_cell(values.get(key)) for key in shown)),
                emphasis=arm == method,
            )
            for arm, values in sorted(arms.items(), key=lambda pair: -pair[1]["auc"])
        ]
        heads = ("success", "±", *(head for head, _ in shown.values()))
        about = "; ".join(
            ["success: mean over the stream; ±: its standard error", *(text for _, text in shown.values())]
        )
        tables.append(ResultTable(name, heads, tuple(rows), f"{about}."))
    best = [
        ArmRow(
            claim["name"],
            f"{claim['stream']}, {WHEN[claim['measure']]}",
            (Cell(claim["difference"], claim["low"], claim["high"]), Cell(claim["mean"]), Cell(claim["rival_mean"])),
            f"{claim['verdict']}: {claim['rival']} (against all {claim['rivals']}: "
            + ", ".join(f"{count} {kind}" for kind, count in claim["counts"].items())
            + ")",
        )
        for claim in claimed["best_rival"]
    ]
    needed = next((f" They need {claim['seeds_needed']} seeds." for claim in claimed["against_rivals"]), "")
    checks = [
        ArmRow(claim["name"], f"{question}: {claim['name']}", _difference(claim), "yes" if claim["holds"] else "no")
        for kind, question in CHECKS.items()
        for claim in claimed[kind]
    ]
    tables += [
        ResultTable(
            f"{method} beside the rival with the highest mean",
            ("difference", method, "rival"),
            tuple(best),
            "The rival is the one with the highest mean on these very tasks, which is in its favour. "
            f"{len(claimed['against_rivals'])} comparisons were corrected together, and resample seeds.{needed}",
            "verdict",
        ),
        ResultTable("What should hold", ("difference",), tuple(checks), "", "holds"),
        *(
            ResultTable(
                title,
                ("difference",),
                tuple(
                    ArmRow(
                        claim["name"],
                        claim["name"],
                        _difference(claim),
                        f"{claim['verdict']}, p {claim['adjusted']:.3g}",
                    )
                    for claim in claimed[kind]
                ),
                counted="verdict",
            )
            for kind, title in (("parts", "What each part adds"), ("against_rivals", "Against every rival"))
        ),
    ]
    return [result for result in tables if result.rows]


def _difference(claim: Mapping[str, Any]) -> tuple[Cell]:
    return (Cell(claim["difference"], claim["low"], claim["high"]),)


def _cell(value: float | None) -> Cell | None:
    return Cell(value) if value is not None and math.isfinite(value) else None
