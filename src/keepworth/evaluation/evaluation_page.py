"""Presents an evaluation as a verdict, as tables, and as a page in one file that works offline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from keepworth.base.text import in_words
from keepworth.evaluation.diagnostics import STAGES
from keepworth.evaluation.harness import Row
from keepworth.evaluation.summary import BASELINE, arm_of
from keepworth.evaluation.system import as_remembered
from keepworth.records.episode import Task
from keepworth.training.watch.page_writer import all_or, browser, note, page, settings, table
from keepworth.training.watch.tables import ArmRow, Cell, ResultTable
from keepworth.worlds.benchmark import haystack, place

MEASURED = ("benchmark", "split", "dials", "questions", "of", "tokens", "words", "reader", "encoder", "judge")
"""Parts of an evaluation's identity that are shown at the top."""
CONTROLS = ("oracle", "random", "latest")
"""Arms that are controls, not memories to choose from."""
BROWSED = 6_000
"""The most answers of a page, which are those of the first arms."""
EVERYTHING_FITS = (
    "Every memory shows all evidence within the budget of tokens, so this tells no memory from another: what stands first is "
    "turn@1, and a smaller budget (--tokens) leaves something to choose."
)
SCORES = ("score", "f1", "em", "bleu1")
DEPTHS = ("turn@1", "turn@5", "turn@10", "turn@50", "session@5", "shown")


def write_page(folder: Path, summary: Mapping[str, Any], rows: Sequence[Row], tasks: Sequence[Task]) -> Path:
    """Writes `report.html` into the folder of an evaluation, and returns its path.

    Args:
        folder: The folder of the evaluation.
        summary: The content of its summary.json.
        rows: Every answer of every arm.
        tasks: The questions, whose texts stand next to the answers.
    """
    path = folder / "report.html"
    name = f"{summary['benchmark']}, {summary['split']}"
    html = page(
        name,
        f"Does memory help? {name}",
        "evaluation",
        {
            "What was measured": "".join(map(table, tables_of(summary))),
            "Every answer": _answers(rows, tasks),
            "Under what": settings({key: value for key, value in summary.items() if key not in ("arms", "gains")}),
        },
        headline=verdict(summary),
        facts={key: _plain(summary[key]) for key in MEASURED if summary.get(key) not in (None, {}, "")},
        footer="The numbers: <code>summary.json</code>, <code>rows.jsonl</code> and <code>plan.json</code> beside this page.",
    )
    path.write_text(html, encoding="utf-8")
    return path


def verdict(summary: Mapping[str, Any]) -> str:
    """Returns one sentence that says whether memory helped."""
    gains = summary["gains"]
    arms = {
        arm: gain
        for arm, gain in gains.items()
        if ("+" not in arm or arm.endswith("+live")) and arm.removesuffix("+live") not in CONTROLS
    }
    if not arms:
        return "Nothing was compared with no memory, so this says how systems stand to each other and not whether memory helps."
    # An arm that answered only some questions cannot be compared with those that answered all.
    questions = summary["arms"][BASELINE]["questions"]
    part = [
        f"{arm} answered {gain['n']:,} of {questions:,} questions"
        for arm, gain in arms.items()
        if gain["n"] < questions
    ]
    arms = {arm: gain for arm, gain in arms.items() if gain["n"] == questions}
    if not arms:
        return f"No memory answered all questions, so none is called the best: {', '.join(part)}."
    top = max(gain["mean"] for gain in arms.values())
    equal = [arm for arm, gain in arms.items() if round(gain["mean"], 3) == round(top, 3)]
    # Among equal arms, one that was shown as many tokens as the others represents all.
    equal.sort(key=lambda arm: len(summary["arms"][arm].get("unequal", ())))
    best, called = equal[0], in_words(equal)
    gain = arms[best]
    units = (
        f"{gain['clusters']} questions of this memory" if summary.get("one memory") else f"{gain['clusters']} clusters"
    )
    interval = f"{gain['mean']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}] in score, {units}"
    room = f" With the evidence alone it is {gains['oracle']['mean']:+.3f}." if "oracle" in gains else ""
    room += "".join(f" With {best}, {difference}." for difference in summary["arms"][best].get("unequal", ()))
    room += f" Not compared: {', '.join(part)}." if part else ""
    if gain["verdict"] == "helps":
        return f"Memory helps. The most with {called}: {interval}.{room}"
    if gain["verdict"] == "harms":
        return f"Memory harms, even with {called}: {interval}.{room}"
    return f"{gain['verdict'].capitalize()}. The best, {called}: {interval}.{room}"


def tables_of(summary: Mapping[str, Any]) -> list[ResultTable]:
    """Returns tables of scores, gains over no memory, lost points, evidence and costs, for the page and the terminal."""
    arms, gains = summary["arms"], summary["gains"]
    clusters = next(iter(arms.values()))["clusters"]
    types = dict.fromkeys(name for values in arms.values() for name in values.get("types", {}))
    part, metric = ("scores", "score") if any(values["scores"] for values in arms.values()) else ("evidence", "turn@5")
    costs = {"tokens": "shown tokens", "ms a question": "ask ms", "ms an entry": "write ms an entry", "calls": "calls"}
    each_arm = {
        arm: values for arm, values in arms.items() if values["does not fit"] < values["questions"] * values["seeds"]
    }
    marked = {
        arm: f"{max((cell['n'] for cell in values['evidence'].values()), default=0):,}" for arm, values in arms.items()
    }
    over = [arm for arm, values in arms.items() if values["shown tokens"] > summary["tokens"]]
    some = f", but for {', '.join(over)}." if over else "."
    some += "".join(f" {arm} does not fit." for arm in arms if arm not in each_arm)
    over_clusters = (
        "95 % intervals over the questions, which are all of one memory: they say how sure a number is for this memory, and "
        "nothing of others."
        if summary.get("one memory")
        else f"95 % intervals over {clusters} cluster{'s' * (clusters != 1)}: questions with something in common, such as one "
        "conversation, are resampled together."
    )
    questions = {arm: f"{values['questions']:,}" for arm, values in arms.items()}
    tables = [
        _table(
            f"{summary['benchmark']}, {summary['split']}",
            {arm: values["scores"] for arm, values in each_arm.items()},
            SCORES,
            over_clusters,
            questions,
        ),
        _table(
            "Over no memory",
            {arm: {"score": gain} for arm, gain in gains.items()},
            ("score",),
            "",
            {
                arm: "; ".join([f"{gain['verdict']} ({gain['n']:,} questions)", *arms[arm].get("unequal", ())])
                for arm, gain in gains.items()
            },
            "verdict",
        ),
        _table(
            "By type of question",
            {
                arm: {name: _mean(cells[part].get(metric)) for name, cells in values.get("types", {}).items()}
                for arm, values in each_arm.items()
            },
            tuple(types),
            "" if part == "scores" else "The share of the turns with evidence among the first five items.",
        ),
        _table(
            "Where points went",
            {
                arm: {name: {"mean": share} for name, share in (values["points"] or {}).items()}
                for arm, values in each_arm.items()
            },
            ("scored", *STAGES),
            "Each point that was not scored counts where its evidence was first lost: never written, lost since, not "
            "retrieved, retrieved and not selected into the budget, or shown and not used by the reader.",
        ),
        _table(
            "Evidence found",
            {arm: values["evidence"] for arm, values in each_arm.items()},
            DEPTHS,
            "The share of the turns, or sessions, with evidence among the first so many items; shown: within the budget. "
            + over_clusters
            + (f" {EVERYTHING_FITS}" if _everything_fits(summary) else ""),
            marked,
            "questions with evidence",
        ),
        _table(
            "What it cost",
            {arm: {name: {"mean": values[key]} for name, key in costs.items()} for arm, values in each_arm.items()},
            tuple(costs),
            f"At most {summary['tokens']} tokens are shown{some}",
        ),
    ]
    return [result for result in tables if result.rows]


def _everything_fits(summary: Mapping[str, Any]) -> bool:
    """Whether every memory showed all evidence of all questions, with room left in the budget."""
    arms = [arm for name, arm in summary["arms"].items() if name != BASELINE and "shown" in arm["evidence"]]
    shown, used = [arm["evidence"]["shown"]["mean"] for arm in arms], [arm["shown tokens"] for arm in arms]
    return bool(shown) and min(shown) == 1.0 and max(used) < summary["tokens"]


def _table(
    title: str,
    cells: Mapping[str, Mapping[str, Any]],
    metrics: Iterable[str],
    note: str = "",
    last: Mapping[str, str] | None = None,
    counted: str = "questions",
) -> ResultTable:
    """Makes a table with a row for each arm, and a column for each of the metrics that some arm has."""
    columns = [name for name in metrics if any(values.get(name) for values in cells.values())]
    rows = [
        ArmRow(arm, arm, tuple(Cell.of(values.get(name)) for name in columns), (last or {}).get(arm, ""))
        for arm, values in cells.items()
    ]
    return ResultTable(title, tuple(columns), tuple(rows) if columns else (), note, counted if last else "")


def _mean(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return {"mean": value["mean"]} if value else None


def _answers(rows: Sequence[Row], tasks: Sequence[Task]) -> str:
    """Returns the HTML of a browser of answers, with what was shown for each."""
    task_by_key = {task.key: task for task in tasks}
    browsed = [row for row in rows if row.key in task_by_key and (row.scores or row.error or row.recall)][:BROWSED]
    if not browsed:
        return ""
    texts: dict[str, int] = {}
    answers: dict[int, dict[str, str]] = {}
    records = []
    for row in browsed:
        # Without a reader the measure is what was found: the share of the evidence that was shown.
        measured = row.scores or {name: share for name, share in row.recall.items() if name in DEPTHS}
        score = row.scores.get("score", 0.0) if row.scores else row.recall.get("shown", 0.0)
        task = task_by_key[row.key]
        of_history = answers.setdefault(id(task.sessions[0]) if task.sessions else 0, {})
        if not of_history:
            of_history.update((place(entry), as_remembered(entry)) for entry in haystack(task))
        shown = [texts.setdefault(of_history.get(id, "(a text of the system's own)"), len(texts)) for id in row.shown]
        records.append(
            {
                "step": row.seed,
                "arm": arm_of(row),
                "role": row.stage if score < 1.0 else "right" if row.scores else "shown",
                "where": " · ".join(filter(None, (arm_of(row), row.type, row.stage))),
                "task": row.key,
                "question": texts.setdefault(task.input, len(texts)),
                "answer": row.answer,
                "expected": list(task.answers),
                "reward": round(score, 4),
                "terms": [[name, round(value, 4), 1] for name, value in measured.items()],
                "shown": [[id, 0, text] for id, text in zip(row.shown, shown, strict=True)],
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
    some = "" if len(browsed) == len(rows) else f"{len(browsed):,} of {len(rows):,} answers are on this page."
    return browser(records, texts, choices, "answers") + note(some)


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {content}" for key, content in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)
