"""Sets of labelled texts: where each is stored, how it is read, and how it is split."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keepworth.worlds.data_files import WrongFormat, text_of
from keepworth.worlds.data_sets.files import find_data, read_records
from keepworth.worlds.data_sets.longmemeval_questions import questions

COMMON = 8
"""Labels with fewer texts than this are left out of small sets."""

Labelled = list[tuple[str, str]]
"""(text, label) pairs."""


@dataclass(frozen=True, slots=True)
class LabelSet:
    """A set of labelled texts.

    Args:
        folder: Its folder within the data, "" for what the package ships.
        read: Returns the texts, and separate texts for the frozen memory where the set has them. It gets the set's folder, or
            one that contains it.
        splits: What its splits divide: "labels", "texts", or "" where all of it is held out.
        about: What the label says about a text.
    """

    folder: str
    read: Callable[[Path | None], tuple[Labelled, Labelled]]
    splits: str
    about: str


def _banking(data: Path | None) -> tuple[Labelled, Labelled]:
    """Reads BANKING77: customer queries and their intents. "Efficient Intent Detection with Dual Sentence Encoders" (Casanueva et
    al., 2020), CC BY 4.0, from github.com/PolyAI-LDN/task-specific-datasets: train.csv.gz and test.csv.gz of `text,category`."""
    paths = (
        find_data("banking77", (f"{part}.csv.gz",), data, folder="banking77", source="its publisher")
        for part in ("train", "test")
    )
    train, test = map(labelled_table, paths)
    return train, test


def labelled_table(path: Path) -> Labelled:
    """Returns (text, category) of each row; a line break within a text goes. Raises WrongFormat for other columns."""
    rows = list(csv.DictReader(text_of(path).splitlines()))
    if not rows or set(rows[0]) != {"text", "category"}:
        raise WrongFormat(f"{path} does not have the columns text and category.", "Use the files as published.")
    return [(row["text"], row["category"]) for row in rows]


def _tools(data: Path | None) -> tuple[Labelled, Labelled]:
    """Reads BFCL, multi-turn base (Apache 2.0, PyPI bfcl-eval): a user's request, and the function to call first."""
    questions = {line["id"]: line["question"] for line in _lines(data, "bfcl_memory", "multi_turn_base.jsonl")}
    texts = [
        (" ".join(message["content"] for message in turn), calls[0].partition("(")[0])
        for line in _lines(data, "bfcl_memory", "multi_turn_base_answers.jsonl")
        for turn, calls in zip(questions[line["id"]], line["ground_truth"], strict=True)
        if calls and turn
    ]
    return _common(texts), []


def _operations(data: Path | None) -> tuple[Labelled, Labelled]:
    """Reads SVAMP (MIT, arXiv 2103.07191): a problem in words, and the operation that solves it."""
    rows = _lines(data, "svamp", "SVAMP.json")
    spelled = {"Common-Divison": "Common-Division"}
    return [(f"{row['Body']} {row['Question']}", spelled.get(row["Type"], row["Type"])) for row in rows], []


def _subjects(data: Path | None) -> tuple[Labelled, Labelled]:
    """Reads MATH-500 (MIT, arXiv 2103.03874): a problem and its subject."""
    return [(line["problem"], line["subject"]) for line in _lines(data, "math500", "test.jsonl")], []


def _question_types(data: Path | None) -> tuple[Labelled, Labelled]:
    """Reads LongMemEval (MIT, arXiv 2410.10813), as the package ships it: a question and its type."""
    return [(question.text, question.type) for question in questions()], []


def _relations(data: Path | None) -> tuple[Labelled, Labelled]:
    """Reads 2WikiMultiHopQA (Apache 2.0, Ho et al., 2020): a question, and the last relation on the way to its answer."""
    rows = _lines(data, "2wikimultihopqa", "evidence_triples_dev.jsonl.gz")
    return _common([(row["question"], row["evidences"][-1][1]) for row in rows if row["evidences"]]), []


def _topics(data: Path | None) -> tuple[Labelled, Labelled]:
    """Reads PrefEval (CC BY-NC 4.0, Zhao et al., 2025; never shipped): a question and its topic."""
    return [(line["question"], line["topic"]) for line in _lines(data, "prefeval", "explicit_with_mcq.jsonl.gz")], []


_KINDS = (
    "durationqa_f2 mctaco_f2 menatqa_counterfactual menatqa_order menatqa_scope tempreason_l1 tempreason_l2 tempreason_l3 "
    "timeqa_easy timeqa_hard"
)
KINDS = tuple(_KINDS.split())


def _kinds(data: Path | None) -> tuple[Labelled, Labelled]:
    """Reads TimeBench (MIT, Chu et al., 2024): a question about time, and its task among those that ask questions."""
    files = {kind: _lines(data, "timebench", f"{kind}.jsonl.gz") for kind in KINDS}
    return _common([(line["question"], kind) for kind, lines in files.items() for line in lines]), []


def _common(texts: Labelled) -> Labelled:
    """Returns the texts without repetitions whose labels have at least `COMMON` texts."""
    texts = list({text: (text, label) for text, label in reversed(texts)}.values())[::-1]
    many = Counter(label for _, label in texts)
    return [text for text in texts if many[text[1]] >= COMMON]


def _lines(data: Path | None, folder: str, file: str) -> Sequence[Any]:
    """Returns the records of a published file. Raises MissingData, WrongFormat."""
    return read_records(find_data(folder, (file,), data, folder=folder, source="its publisher"), folder)


LABEL_SETS: Mapping[str, LabelSet] = {
    "banking77": LabelSet("banking77", _banking, "labels", "what a customer of a bank wants (BANKING77)"),
    "tools": LabelSet("bfcl_memory", _tools, "labels", "which function a request needs first (BFCL)"),
    "operations": LabelSet("svamp", _operations, "texts", "which operation solves a problem in words (SVAMP)"),
    "subjects": LabelSet("math500", _subjects, "texts", "which subject a problem is of (MATH-500)"),
    "question-types": LabelSet("", _question_types, "texts", "which type a question is of (LongMemEval)"),
    "relations": LabelSet("2wikimultihopqa", _relations, "", "by which relation the answer is found (2WikiMultiHopQA)"),
    "topics": LabelSet("prefeval", _topics, "labels", "which topic a question is of (PrefEval)"),
    "kinds": LabelSet("timebench", _kinds, "", "which kind a question about time is of (TimeBench)"),
}
