"""Labelled texts of others as streams: which label is right is found out from rewards alone."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from keepworth.environments.made_up import checked
from keepworth.environments.scene import Course, Scene, Stream, StreamTask, stream_task
from keepworth.environments.streams import World
from keepworth.episodes.errors import KeepworthError
from keepworth.methods.benchmarks._longmemeval import questions
from keepworth.registry import Method
from keepworth.tasks.metrics import tokens
from keepworth.tasks.splits import side

# Labelled texts: which label is right for a text is learned from rewards alone.
#
# The labels are anonymous to the agent, which leans at random. What is split into dev and held-out are the labels themselves
# where there are many ("labels"), else the texts. Two sets are kept for final runs, relations and kinds: they have no dev side.
# Topics was such a set once; what was seen on all of its labels then led to changes, so its held-out labels are not unseen.

CHANCE = 0.15
LABELS = 8
HELD_OUT = 60
FLIPPED = 0.1
COMMON = 8
"""Labels of fewer texts than this are left out where texts are few."""

Labelled = list[tuple[str, str]]
"""(text, label) pairs."""


@dataclass(frozen=True, slots=True)
class LabelSet:
    """folder: within the data, "" for what the package ships. read: the texts of that folder, and the texts for the frozen memory
    where the set has such of its own. splits: what its splits divide: "labels", "texts", or "" where all of it is held out."""

    folder: str
    read: Callable[[Path], tuple[Labelled, Labelled]]
    splits: str


def labelled(
    name: str,
    folder: Path | None = None,
    *,
    variant: str = "clean",
    split: str = "dev",
    seed: int = 0,
    order: str = "random",
    length: int | None = None,
) -> Stream:
    """`length` (300, or as many as there are) texts of at most `LABELS` labels drawn by `seed` from the set `name`.

    variant: "clean"; "near-miss": labels are drawn in pairs whose texts are most alike; "drift": half of the labels are renamed
    half way; "noise": `FLIPPED` of the rewards that memory is told are the opposite. folder: that of the set, or one that holds
    it. All tasks are equally hard to the agent: an order other than random is another shuffle.

    Raises KeepworthError where the data is missing or the set has no such split."""
    known = LABEL_SETS[name]
    number = checked(split, order)
    texts, own = known.read(_within(folder, known.folder))
    texts = _side(texts, known.splits, split, name)
    generator = np.random.default_rng([77, sum(map(ord, name)), number, seed])
    picked = _drawn(texts, variant == "near-miss", generator)
    labels = tuple(f"label {place}" for place in range(len(picked)))
    first = dict(zip(picked, labels, strict=True))
    moved = picked[: len(picked) // 2]
    later = {**first, **{label: first[moved[(place + 1) % len(moved)]] for place, label in enumerate(moved)}}
    pool = [text for text in texts if text[1] in first]
    pool = [pool[place] for place in generator.permutation(len(pool))]
    held = [each for each in own if each[1] in first]
    held = [held[place] for place in generator.permutation(len(held))[:HELD_OUT]]
    if not own:
        many = min(HELD_OUT, len(pool) // 5)
        held, pool = pool[:many], pool[many:]
    drawn = pool[: length or 300]
    change = len(drawn) // 2 if variant == "drift" else len(drawn)

    def task(key: str, text: str, label: str, rule: str) -> StreamTask:
        leaning = generator.normal(0.0, 0.5, size=len(labels))
        scene = Scene("", text, labels, right=frozenset({label}), leaning=tuple(leaning.tolist()))
        return stream_task(key, partial(Course, scene), rule, 1.0 - CHANCE)

    family = f"{name}-{variant}"
    tasks = [
        task(f"{family}/{split}/{seed}/{place}", text, (later if place >= change else first)[rule], rule)
        for place, (text, rule) in enumerate(drawn)
    ]
    if variant == "noise":
        flips = generator.random(len(tasks)) < FLIPPED
        tasks = [replace(each, flipped=bool(flip)) for each, flip in zip(tasks, flips, strict=True)]
    if order != "random":
        again = np.random.default_rng([78, seed, len(order)])
        tasks = [tasks[place] for place in again.permutation(change)] + [
            tasks[change + place] for place in again.permutation(len(tasks) - change)
        ]
    now = later if variant == "drift" else first
    held_out = [
        task(f"{family}/{split}/{seed}/held-out/{place}", text, now[rule], rule)
        for place, (text, rule) in enumerate(held)
    ]
    notes = {"change": str(change)} if variant == "drift" else {}
    return Stream(family, split, seed, order, tuple(tasks), tuple(held_out), notes=notes)


def _side(texts: Labelled, splits: str, split: str, name: str) -> Labelled:
    if not splits:
        if split == "dev":
            raise KeepworthError(f"the set {name} is kept for final runs.", "Use the split held-out.")
        return texts
    held = {label if splits == "labels" else text for text, label in texts}
    held = {each for each in held if side(each) == "test"}
    return [text for text in texts if (text[splits == "labels"] in held) == (split == "held-out")]


def _drawn(texts: Labelled, alike: bool, generator: np.random.Generator) -> list[str]:
    """The labels of one seed. alike: each second one is the label whose texts are most like those of the one before."""
    names = sorted({label for _, label in texts})
    names = [names[place] for place in generator.permutation(len(names))]
    if not alike:
        return names[:LABELS]
    centre = _centres(tuple(sorted(texts)))
    found: list[str] = []
    for name in names:
        if len(found) == LABELS:
            break
        left = [each for each in names if each not in found and each != name]
        if name not in found and left:
            found += [name, max(left, key=lambda other: float(centre[name] @ centre[other]))]
    return found


@lru_cache(maxsize=8)
def _centres(texts: tuple[tuple[str, str], ...]) -> Mapping[str, Any]:
    """The direction of each label's texts, by the words that few texts have."""
    held = [(set(tokens(text)), label) for text, label in texts]
    spread = Counter(word for words, _ in held for word in words)
    place = {word: number for number, word in enumerate(sorted(spread))}
    centre = {label: np.zeros(len(place)) for _, label in texts}
    for words, label in held:
        for word in words:
            centre[label][place[word]] += np.log(len(held) / spread[word])
    return {label: vector / max(float(np.linalg.norm(vector)), 1e-12) for label, vector in centre.items()}


def _within(folder: Path | None, name: str) -> Path:
    if not name:
        return Path()
    if folder is None:
        raise KeepworthError(f"this stream needs the data {name}.", "Give the folder that holds it as --data.")
    return folder / name if (folder / name).is_dir() else folder


def _banking(folder: Path) -> tuple[Labelled, Labelled]:
    """BANKING77: customer queries and their intents. "Efficient Intent Detection with Dual Sentence Encoders" (Casanueva et al.,
    2020), CC BY 4.0, from github.com/PolyAI-LDN/task-specific-datasets: train.csv.gz and test.csv.gz of `text,category`."""
    return labelled_table(folder / "train.csv.gz"), labelled_table(folder / "test.csv.gz")


def labelled_table(path: Path) -> Labelled:
    """(text, category) of each row. KeepworthError for a file of another shape."""
    rows = list(csv.DictReader(_text(path).splitlines()))
    if not rows or set(rows[0]) != {"text", "category"}:
        raise KeepworthError(f"{path} does not have the columns text and category.", "Use the files as published.")
    return [(row["text"], row["category"]) for row in rows]


def _tools(folder: Path) -> tuple[Labelled, Labelled]:
    """BFCL, multi-turn base (Apache 2.0, PyPI bfcl-eval): what a user says, and the function that has to be called first."""
    said = {line["id"]: line["question"] for line in _lines(folder / "multi_turn_base.jsonl")}
    found = [
        (" ".join(message["content"] for message in turn), calls[0].partition("(")[0])
        for line in _lines(folder / "multi_turn_base_answers.jsonl")
        for turn, calls in zip(said[line["id"]], line["ground_truth"], strict=True)
        if calls and turn
    ]
    return _common(found), []


def _operations(folder: Path) -> tuple[Labelled, Labelled]:
    """SVAMP (MIT, arXiv 2103.07191): a problem in words, and the operation that solves it."""
    rows = json.loads(_text(folder / "SVAMP.json"))
    spelled = {"Common-Divison": "Common-Division"}
    return [(f"{row['Body']} {row['Question']}", spelled.get(row["Type"], row["Type"])) for row in rows], []


def _subjects(folder: Path) -> tuple[Labelled, Labelled]:
    """MATH-500 (MIT, arXiv 2103.03874): a problem, and the subject that it is of."""
    return [(line["problem"], line["subject"]) for line in _lines(folder / "test.jsonl")], []


def _question_types(folder: Path) -> tuple[Labelled, Labelled]:
    """LongMemEval (MIT, arXiv 2410.10813), as the package ships it: a question, and which of its types it is of."""
    return [(question.text, question.type) for question in questions()], []


def _relations(folder: Path) -> tuple[Labelled, Labelled]:
    """2WikiMultiHopQA (Apache 2.0, Ho et al., 2020): a question, and the relation that its answer is found by at last."""
    rows = _lines(folder / "evidence_triples_dev.jsonl.gz")
    return _common([(row["question"], row["evidences"][-1][1]) for row in rows if row["evidences"]]), []


def _topics(folder: Path) -> tuple[Labelled, Labelled]:
    """PrefEval (CC BY-NC 4.0, Zhao et al., 2025; never shipped): a question, and the topic that it is of."""
    return [(line["question"], line["topic"]) for line in _lines(folder / "explicit_with_mcq.jsonl.gz")], []


KINDS = (
    "durationqa_f2",
    "mctaco_f2",
    "menatqa_counterfactual",
    "menatqa_order",
    "menatqa_scope",
    "tempreason_l1",
    "tempreason_l2",
    "tempreason_l3",
    "timeqa_easy",
    "timeqa_hard",
)


def _kinds(folder: Path) -> tuple[Labelled, Labelled]:
    """TimeBench (MIT, Chu et al., 2024): a question about time, and which of its tasks that ask questions it is of."""
    return _common([(line["question"], kind) for kind in KINDS for line in _lines(folder / f"{kind}.jsonl.gz")]), []


def _common(texts: Labelled) -> Labelled:
    """The first text of each wording, of labels that have at least `COMMON`."""
    texts = list({text: (text, label) for text, label in reversed(texts)}.values())[::-1]
    many = Counter(label for _, label in texts)
    return [text for text in texts if many[text[1]] >= COMMON]


def _lines(path: Path) -> Sequence[Any]:
    return [json.loads(line) for line in _text(path).splitlines() if line]


@lru_cache(maxsize=16)
def _text(path: Path) -> str:
    """Raises KeepworthError where there is no such file."""
    if not path.exists():
        raise KeepworthError(f"there is no {path}.", "Give the folder that holds the published files as --data.")
    return gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text(encoding="utf-8")


LABEL_SETS: Mapping[str, LabelSet] = {
    "banking77": LabelSet("banking77", _banking, "labels"),
    "tools": LabelSet("bfcl_memory", _tools, "labels"),
    "operations": LabelSet("svamp", _operations, "texts"),
    "subjects": LabelSet("math500", _subjects, "texts"),
    "question-types": LabelSet("", _question_types, "texts"),
    "relations": LabelSet("2wikimultihopqa", _relations, ""),
    "topics": LabelSet("prefeval", _topics, "labels"),
    "kinds": LabelSet("timebench", _kinds, ""),
}
FEW = ("operations", "subjects", "question-types")
"""Sets of so few labels that all are in every stream: none to draw alike ones from."""
VARIANTS = ("clean", "near-miss", "drift", "noise")
LABELLED = {
    f"{name}-{variant}": (name, variant)
    for name in LABEL_SETS
    for variant in VARIANTS
    if not (variant == "near-miss" and name in FEW)
}
"""Every stream of labelled texts: its set and variant."""

_LABELS = {
    "banking77": "what a customer of a bank wants (BANKING77)",
    "tools": "which function a request needs first (BFCL)",
    "operations": "which operation solves a problem in words (SVAMP)",
    "subjects": "which subject a problem is of (MATH-500)",
    "question-types": "which type a question is of (LongMemEval)",
    "relations": "by which relation the answer is found (2WikiMultiHopQA)",
    "topics": "which topic a question is of (PrefEval)",
    "kinds": "which kind a question about time is of (TimeBench)",
}
_VARIANTS = {
    "clean": "",
    "near-miss": "; labels with texts that are alike",
    "drift": "; half of the labels change half way",
    "noise": "; a tenth of the rewards are wrong",
}

METHODS = tuple(
    Method(
        kind="world",
        name=name,
        title=name,
        about=f"{_LABELS[of]}{_VARIANTS[variant]}",
        differs="labels are anonymous, and the agent leans at random",
        make=World(partial(labelled, of, variant=variant), "one-step", data=LABEL_SETS[of].folder, length=None),
    )
    for name, (of, variant) in LABELLED.items()
)
