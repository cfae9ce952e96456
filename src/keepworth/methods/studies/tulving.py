"""Two scores of a finished evaluation of event-book: simple recall and chronological awareness.

`keepworth eval run event-book none bm25 keepworth`, then `keepworth methods run tulving --set folder=runs/eval/event-book`.

After "Episodic Memories Generation and Evaluation Benchmark for Large Language Models", arXiv 2501.13121: simple recall is the
mean over groups of questions, by how many events match (0, 1, 2, 3-5, 6+), of the mean F1 of the sets; chronological awareness is
the mean of the score of latest states and of Kendall's tau of ordered answers, which is 0 unless exactly the right things are
listed. Group 0, where the right answer is "none", is also reported alone, since it measures invented answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from keepworth.base.errors import KeepworthError
from keepworth.base.statistics import LEAST
from keepworth.evaluation.study import Rows, Study, rows_of
from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.evaluation.harness import Row

GROUPS = tuple(f"{group} events" for group in ("0", "1", "2", "3-5", "6+"))
CHRONOLOGY = ("latest", "in order")


def mean_of_types(scores: Mapping[str, Sequence[float]], types: Sequence[str]) -> float | None:
    """Returns the mean over types of the mean of each; None where a type is missing."""
    if not all(scores.get(kind) for kind in types):
        return None
    return sum(sum(scores[kind]) / len(scores[kind]) for kind in types) / len(types)


def run(*, folder: str = "runs/eval/event-book") -> Rows:
    """Returns both scores of every system, their difference, and the gain in recall over no memory, with intervals over books.
    `folder` is that of an evaluation of event-book with a reader."""
    from keepworth.evaluation.comparison import rows_of as read_rows
    from keepworth.evaluation.summary import arm_of

    by_arm: dict[str, list[Row]] = {}
    means: dict[str, dict[str, dict[str, float]]] = {}
    for row in read_rows(Path(folder)):
        by_arm.setdefault(arm_of(row), []).append(row)
    rows: Rows = []
    for arm, asked in by_arm.items():
        books: dict[str, dict[str, list[float]]] = {}
        for row in asked:
            if "score" in row.scores:
                books.setdefault(row.cluster, {}).setdefault(row.type, []).append(row.scores["score"])
        for name, types in (
            ("simple recall", GROUPS),
            ("of what no event matches", GROUPS[:1]),
            ("chronological awareness", CHRONOLOGY),
            ("Kendall's tau", CHRONOLOGY[1:]),
        ):
            of_book = {book: mean_of_types(scores, types) for book, scores in books.items()}
            values = {book: value for book, value in of_book.items() if value is not None}
            means.setdefault(arm, {})[name] = values
            if values:
                rows += rows_of({f"{arm}: {name}": list(values.values())}, list(values))
    for arm, scores_of in means.items():
        recall, aware = scores_of["simple recall"], scores_of["chronological awareness"]
        rows += _difference(f"{arm}: simple recall minus chronological awareness", recall, aware)
        if arm != "none" and "none" in means:
            rows += _difference(f"{arm} minus none: simple recall", recall, means["none"]["simple recall"])
    if not rows:
        raise KeepworthError(
            f"{folder} holds no answers of all types of question to any book of events.",
            "Run all of it with a reader: keepworth eval run event-book SYSTEM...",
        )
    return rows


def _difference(name: str, first: Mapping[str, float], second: Mapping[str, float]) -> Rows:
    """Returns the row of a difference over the books that have both, where they are enough for an interval."""
    books = [book for book in first if book in second]
    gaps = {name: [first[book] - second[book] for book in books]}
    return rows_of(gaps, books, (-1.0, 1.0)) if len(books) >= LEAST else []


METHOD = Method(
    kind="study",
    name="tulving",
    title="Simple recall and chronological awareness",
    paper="arXiv 2501.13121",
    about="Sums an evaluation of event-book up: simple recall, chronological awareness and Kendall's tau of each system",
    claim="Gemini-2.5-pro recalls 0.968 and is aware of chronology with 0.796; GPT-4o 0.670 and 0.204.",
    differs="Intervals are over books; questions are those of event-book.",
    tags=("token", "factual", "retrieval"),
    label="protocol",
    make=Study(run, "score, the mean over books"),
    extra="eval",
)
