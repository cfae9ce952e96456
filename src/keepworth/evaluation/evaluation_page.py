"""Pages over evaluations: one page for each, and a board over several. One file each that needs nothing else, online or off."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from keepworth.episodes.episode import Task
from keepworth.episodes.errors import KeepworthError
from keepworth.evaluation.diagnostics import STAGES
from keepworth.evaluation.harness import FREE, EvaluationFolder, Row, unlike
from keepworth.evaluation.page_writer import HtmlCell, all_or, browser, interval, note, number, page, settings, table
from keepworth.evaluation.statistics import Comparison, compared
from keepworth.evaluation.summary import BASELINE, arm_of, per_question
from keepworth.evaluation.system import as_remembered
from keepworth.evaluation.tables import Cell
from keepworth.page.charts import whisker
from keepworth.tasks.benchmark import haystack, place

MEASURED = ("benchmark", "split", "dials", "questions", "of", "tokens", "words", "reader", "encoder", "judge")
"""Of an evaluation's identity, what is said at the top."""
CONTROLS = ("oracle", "random", "latest")
"""Arms that are no memory anybody would use."""
BROWSED = 6_000
"""Answers that a page holds at most: those of the first arms."""


def write_page(folder: Path, summary: Mapping[str, Any], rows: Sequence[Row], tasks: Sequence[Task]) -> Path:
    """`report.html` in the folder of an evaluation. tasks: whose texts the page shows beside the answers."""
    path, arms = folder / "report.html", summary["arms"]
    name = f"{summary['benchmark']}, {summary['split']}"
    sections = {
        "What was answered": _scores(summary),
        "By type of question": _types(arms),
        "Where points went": _points(arms),
        "Evidence found": _evidence(arms),
        "What it cost": _costs(arms),
        "Every answer": _answers(rows, tasks),
        "What was measured": settings({key: each for key, each in summary.items() if key not in ("arms", "gains")}),
    }
    html = page(
        name,
        f"Does memory help? {name}",
        "evaluation",
        sections,
        headline=verdict(summary),
        facts={key: _plain(summary[key]) for key in MEASURED if summary.get(key) not in (None, {}, "")},
        footer="The numbers: <code>summary.json</code>, <code>rows.jsonl</code> and <code>plan.json</code> beside this page.",
    )
    path.write_text(html, encoding="utf-8")
    return path


def verdict(summary: Mapping[str, Any]) -> str:
    """One sentence: whether memory helped."""
    gains = summary["gains"]
    arms = {
        arm: gain
        for arm, gain in gains.items()
        if ("+" not in arm or arm.endswith("+live")) and arm.removesuffix("+live") not in CONTROLS
    }
    if not arms:
        return "Nothing was compared with no memory, so this says how systems stand to each other and not whether memory helps."
    # An arm that answered some questions alone cannot be put beside those that answered all.
    asked = summary["arms"][BASELINE]["questions"]
    part = [f"{arm} answered {gain['n']:,} of {asked:,} questions" for arm, gain in arms.items() if gain["n"] < asked]
    arms = {arm: gain for arm, gain in arms.items() if gain["n"] == asked}
    if not arms:
        return f"No memory answered all questions, so none is called the best: {', '.join(part)}."
    top = max(gain["mean"] for gain in arms.values())
    equal = [arm for arm, gain in arms.items() if round(gain["mean"], 3) == round(top, 3)]
    # Of those that tie, one that was shown as much as the others stands for all.
    equal.sort(key=lambda arm: len(summary["arms"][arm].get("unequal", ())))
    best, called = equal[0], " and ".join(filter(None, (", ".join(equal[:-1]), equal[-1])))
    gain = arms[best]
    interval = f"{gain['mean']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}] in score, {gain['clusters']} clusters"
    room = f" With the evidence alone it is {gains['oracle']['mean']:+.3f}." if "oracle" in gains else ""
    room += "".join(f" With {best}, {each}." for each in summary["arms"][best].get("unequal", ()))
    room += f" Not compared: {', '.join(part)}." if part else ""
    if gain["verdict"] == "helps":
        return f"Memory helps. The most with {called}: {interval}.{room}"
    if gain["verdict"] == "harms":
        return f"Memory harms, even with {called}: {interval}.{room}"
    return f"{gain['verdict'].capitalize()}. The best, {called}: {interval}.{room}"


# Parts of a page.


def _scores(summary: Mapping[str, Any]) -> str:
    arms, gains = summary["arms"], summary["gains"]
    scores = {arm: values["scores"].get("score") for arm, values in arms.items()}
    measured = [cell for cell in scores.values() if cell is not None]
    if not measured:
        return note("No reader answered: only what was found was measured.")
    least, most = min(0.0, *(cell["low"] for cell in measured)), max(cell["high"] for cell in measured)
    others = [name for name in ("em", "bleu1") if any(name in values["scores"] for values in arms.values())]
    rows: list[dict[str, HtmlCell | str]] = []
    for line, (arm, values) in enumerate(arms.items()):
        cell, gain = scores[arm], gains.get(arm)
        if cell is None:
            rows.append({"system": arm, "score": ("does not fit" if values["does not fit"] else "not answered", None)})
            continue
        over = "" if gain is None else f"{gain['mean']:+.3f} [{gain['low']:+.2f}, {gain['high']:+.2f}]"
        rows.append(
            {
                "system": arm,
                "score": _mean(cell),
                "95 %": interval(cell["low"], cell["high"], ".2f"),
                "": (whisker(Cell(cell["mean"], cell["low"], cell["high"]), least, most, line % 8, 160), cell["mean"]),
                "over no memory": (over, None if gain is None else gain["mean"]),
                **{name.upper(): _mean(values["scores"].get(name)) for name in others},
                "questions": number(cell["n"], ","),
            }
        )
    clusters = max(cell["clusters"] for cell in measured)
    return table(rows) + note(
        f"Intervals of 95 % over {clusters} cluster{'s' * (clusters != 1)}: what is alike, such as the questions over one "
        f"conversation, is resampled together. `{BASELINE}` has no memory, `oracle` is shown the evidence and nothing else."
    )


def _types(arms: Mapping[str, Any]) -> str:
    """The score of each arm in questions of each type; where nobody read, the evidence."""
    shown = {
        arm: values["types"]
        for arm, values in arms.items()
        if any(cells[part] for cells in values.get("types", {}).values() for part in ("scores", "evidence"))
    }
    read = any(cells["scores"] for types in shown.values() for cells in types.values())
    part, name = ("scores", "score") if read else ("evidence", "turn@5")
    counts = {
        each: cells[part][name]["n"] for types in shown.values() for each, cells in types.items() if name in cells[part]
    }
    if not counts:
        return ""
    rows: list[dict[str, HtmlCell | str]] = [
        {
            "system": arm,
            **{f"{each} ({n:,})": _mean(types.get(each, {}).get(part, {}).get(name)) for each, n in counts.items()},
        }
        for arm, types in shown.items()
    ]
    said = "The mean score" if read else "The share of the turns with evidence among the first five items"
    return table(rows) + note(f"{said}; in brackets how many questions.")


def _points(arms: Mapping[str, Any]) -> str:
    """A bar for each arm: what was scored, then what was lost and where."""
    names = [name for name in STAGES if any((values["points"] or {}).get(name) for values in arms.values())]
    if not names:
        return ""
    colours = {"scored": "--good", **{name: f"--c{number % 8}" for number, name in enumerate(names, start=1)}}
    bars = []
    for arm, values in arms.items():
        if not values["points"]:
            continue
        parts = [(name, values["points"].get(name, 0.0)) for name in ("scored", *names)]
        pieces = "".join(
            f'<i style="width:{100 * share:.2f}%;background:var({colours[name]})" title="{escape(name)} {share:.3f}"></i>'
            for name, share in parts
            if share
        )
        text = ", ".join(f"{name} {100 * share:.0f} %" for name, share in parts if share >= 0.005)
        bars.append(
            f'<div class="bar"><b>{escape(arm)}</b><div class="pieces" role="img" aria-label="{escape(text)}">{pieces}</div>'
            f"<small>{escape(text)}</small></div>"
        )
    legend = "".join(
        f'<span class="key"><i style="background:var({colours[name]})"></i>{escape(name)}</span>'
        for name in ("scored", *names)
    )
    return f'<div class="legend">{legend}</div><div class="card bars">{"".join(bars)}</div>' + note(
        "Each point that was not scored counts where its evidence was first lost: never written, lost since, not retrieved, "
        "retrieved and not selected into the budget, or shown and not used by the reader."
    )


def _evidence(arms: Mapping[str, Any]) -> str:
    names = {name for values in arms.values() for name in values["evidence"]}
    wanted = [name for name in ("turn@1", "turn@5", "turn@10", "turn@50", "session@5", "shown") if name in names]
    if not wanted:
        return ""
    rows: list[dict[str, HtmlCell | str]] = [
        {"system": arm, **{name: _mean(values["evidence"].get(name)) for name in wanted}}
        for arm, values in arms.items()
        if values["evidence"]
    ]
    return table(rows) + note(
        "The share of the turns, or sessions, with evidence among the first so many items; shown: within the budget of tokens."
    )


def _costs(arms: Mapping[str, Any]) -> str:
    return table(
        [
            {
                "system": arm,
                "tokens shown": number(values["shown tokens"], ",.0f"),
                "ms a question": number(values["ask ms"], ".1f"),
                "ms an entry": number(values["write ms an entry"], ".2f"),
                "bytes": number(values["bytes"], ","),
                "model calls": number(values["calls"], "g"),
                "failed": number(values["failed"], ","),
            }
            for arm, values in arms.items()
        ]
    )


def _answers(rows: Sequence[Row], tasks: Sequence[Task]) -> str:
    """Every answer with what was shown, wrong ones first."""
    known = {task.key: task for task in tasks}
    kept = [row for row in rows if row.key in known and (row.scores or row.error)][:BROWSED]
    if not kept:
        return ""
    texts: dict[str, int] = {}
    said: dict[int, dict[str, str]] = {}
    records = []
    for row in kept:
        task = known[row.key]
        own = said.setdefault(id(task.sessions[0]) if task.sessions else 0, {})
        if not own:
            own.update((place(entry), as_remembered(entry)) for entry in haystack(task))
        records.append(
            {
                "step": row.seed,
                "arm": arm_of(row),
                "role": row.stage if row.scores.get("score", 0.0) < 1.0 else "right",
                "where": " · ".join(filter(None, (arm_of(row), row.type, row.stage))),
                "task": row.key,
                "question": texts.setdefault(task.input, len(texts)),
                "answer": row.answer,
                "expected": list(task.answers),
                "reward": round(row.scores.get("score", 0.0), 4),
                "terms": [[name, round(value, 4), 1] for name, value in row.scores.items()],
                "shown": [
                    [id, 0, texts.setdefault(own.get(id, "(a text of the system's own)"), len(texts))]
                    for id in row.shown
                ],
                "operations": [],
                "stop": row.type,
                "errors": [row.error] if row.error else [],
            }
        )
    choices = {
        "arm": ("system", all_or(record["arm"] for record in records)),
        "role": ("evidence", all_or(record["role"] for record in records)),
        "order": ("order", [("worst", "lowest score"), ("best", "highest score"), ("", "as asked")]),
    }
    some = "" if len(kept) == len(rows) else f"{len(kept):,} of {len(rows):,} answers are on this page."
    return browser(records, texts, choices, "answers") + note(some)


def _mean(cell: Mapping[str, float] | None) -> HtmlCell:
    return number(None if cell is None else cell["mean"])


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {own}" for key, own in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)


# The board: every system of several evaluations in one table.


def write_board(folders: Sequence[Path], path: Path) -> Path:
    """Raises KeepworthError where a folder holds no finished evaluation."""
    rows = []
    for folder in folders:
        summary = read_summary(folder)
        name = summary["benchmark"] if summary["split"] == "test" else f"{summary['benchmark']}, {summary['split']}"
        for arm, values in summary["arms"].items():
            cell, gain = values["scores"].get("score"), summary["gains"].get(arm)
            reason = "does not fit" if values["does not fit"] else ""
            rows.append(
                {
                    "benchmark": name,
                    "system": arm,
                    "score": (reason, None) if cell is None else _mean(cell),
                    "95 %": ("", None) if cell is None else interval(cell["low"], cell["high"], ".3f"),
                    "over no memory": number(gain and gain["mean"], "+.3f"),
                    "evidence shown": _mean(values["evidence"].get("shown")),
                    "tokens": number(values["shown tokens"], ",.0f"),
                    "ms": number(values["ask ms"], ".1f"),
                    "questions": number(values["questions"], ","),
                    "reader": str(summary["reader"]).split(" ")[0].split("@")[0],
                }
            )
    search = '<label>show<input type="search" data-board="words" placeholder="benchmark or system"></label>'
    html = page(
        "board",
        "Memory systems, side by side",
        "board",
        {"": f'<div class="filters">{search}</div>{table(rows, sortable=True)}'},
        headline="Rows of one benchmark were asked the same questions; rows of different readers or budgets are not to be "
        "compared.",
        footer=f"Made by <code>keepworth eval board</code> from {len(folders)} evaluations.",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html, encoding="utf-8")
    return path


def read_summary(folder: Path) -> dict[str, Any]:
    """Raises KeepworthError."""
    path = folder if folder.suffix == ".json" else folder / "summary.json"
    if not path.parent.exists():
        raise KeepworthError(f"there is no folder {path.parent}.", "Name one that `keepworth eval run` has made.")
    if not path.exists() and (path.parent / "plan.json").exists():
        raise KeepworthError(
            f"the evaluation in {path.parent} is not finished.", "Give its command again: it continues."
        )
    if not path.exists():
        raise KeepworthError(f"{path.parent} holds no evaluation.", "Name a folder that `keepworth eval run` has made.")
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise KeepworthError(
            f"{path} holds no summary of an evaluation: {error}.",
            "Name a folder that `keepworth eval run` has finished.",
        ) from error
    if "arms" not in found or "benchmark" not in found:
        raise KeepworthError(f"{path} is no summary of an evaluation.", "Name a folder of `keepworth eval run`.")
    return found


def rows_of(folder: Path) -> list[Row]:
    """Raises KeepworthError where the folder holds no rows."""
    summary = read_summary(folder)
    rows = EvaluationFolder(folder, json.loads((folder / "plan.json").read_text(encoding="utf-8"))).read()
    if not rows:
        raise KeepworthError(f"{folder} holds no rows of {summary['benchmark']}.", "Give its command again.")
    return rows


# Two evaluations, arm against arm.


def compared_arms(one: str, other: str, allow: Sequence[str]) -> list[Comparison]:
    """one, other: `FOLDER:ARM`, or a folder for all of its arms. allow: names of the identity that are meant to differ.

    Raises KeepworthError where anything else differs, or where an arm is not there."""
    (first, arms), (second, others) = _named(one), _named(other)
    identities = [json.loads((folder / "plan.json").read_text(encoding="utf-8")) for folder in (first, second)]
    if unknown := [name for name in allow if name not in identities[0]]:
        raise KeepworthError(
            f"--allow names {unknown[0]!r}, which no evaluation has.", f"There are {', '.join(identities[0])}."
        )
    differing = unlike(identities[0], identities[1], (*FREE, *allow))
    if differing:
        pairs = "; ".join(f"{name}: {identities[0].get(name)} and {identities[1].get(name)}" for name in differing)
        raise KeepworthError(
            f"these are not alike: {pairs}.",
            f"Run both under the same, or say with --allow {','.join(differing)} that it is meant to differ.",
        )
    same = first.resolve() == second.resolve()
    scores: dict[str, dict[str, float]] = {}
    clusters: dict[str, str] = {}
    sides: list[dict[str, str]] = []  # of each side, by arm, what it is called
    for folder, called, wanted in zip((first, second), _told_apart(first, second), (arms, others), strict=True):
        by_arm: dict[str, list[Row]] = {}
        for row in rows_of(folder):
            by_arm.setdefault(arm_of(row), []).append(row)
            clusters[row.key] = row.cluster
        if missing := [arm for arm in wanted if arm not in by_arm]:
            raise KeepworthError(f"{folder} has no arm {missing[0]!r}.", f"There are {', '.join(by_arm)}.")
        sides.append({arm: arm if same else f"{called}:{arm}" for arm in wanted or by_arm})
        scores |= {
            name: per_question(by_arm[arm], lambda row: row.scores.get("score")) for arm, name in sides[-1].items()
        }
    # Without arms: every two of one evaluation, or each arm with itself in the other one.
    whole = not arms and not others
    two_by_two = {
        frozenset((a, b)): (a, b)
        for one_arm, a in sides[0].items()
        for other_arm, b in sides[1].items()
        if a != b and (same or not whole or one_arm == other_arm)
    }
    if not two_by_two:
        raise KeepworthError(
            f"{one} and {other} have nothing to compare.", "Name two arms that differ, or evaluations that share one."
        )
    return compared(scores, list(two_by_two.values()), clusters, within=(-1.0, 1.0))


def _named(text: str) -> tuple[Path, list[str]]:
    """A folder, and the arm behind it. Names of arms have colons too, so the folder is the longest part that is an evaluation."""
    parts = text.split(":")
    for many in range(len(parts), 0, -1):
        path = Path(":".join(parts[:many]))
        if (path / "plan.json").is_file():
            return path, [":".join(parts[many:])] if many < len(parts) else []
    raise KeepworthError(f"{text} names no evaluation.", "Name a folder of `keepworth eval run`, and :ARM behind it.")


def _told_apart(first: Path, second: Path) -> tuple[str, str]:
    """The names of two folders, with as much of what is above them as tells one from the other."""
    one, other = first.resolve().parts, second.resolve().parts
    many = next((many for many in range(1, len(one) + 1) if one[-many:] != other[-many:]), len(one))
    return "/".join(one[-many:]), "/".join(other[-many:])
