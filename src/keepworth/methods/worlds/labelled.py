"""Published labelled texts as streams: the right label has to be learned from rewards alone.

The labels are anonymous to the agent, which prefers some at random. Dev and held-out divide the labels where there are many
("labels"), else the texts. Two sets are kept for final runs, relations and kinds: they have no dev side. Topics was such a set
once; results on all of its labels then led to changes, so its held-out labels are not unseen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from keepworth.base.errors import KeepworthError
from keepworth.base.metrics import tokens
from keepworth.methods.worlds._label_sets import LABEL_SETS, Labelled
from keepworth.registry import Method
from keepworth.worlds.course import Course, stream_task
from keepworth.worlds.made_up import check_split
from keepworth.worlds.scene import Scene, Stream, StreamTask
from keepworth.worlds.splits import side
from keepworth.worlds.streams import World

CHANCE = 0.15
LABELS = 8
HELD_OUT = 60
FLIPPED = 0.1


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
    """Builds a stream of texts of at most `LABELS` labels, which are drawn from a set.

    Args:
        name: The set of labelled texts, a name of `LABEL_SETS`.
        folder: The set's folder, or one that contains it.
        variant: "clean"; "near-miss": labels are drawn in pairs with the most similar texts; "drift": half of the labels are
            renamed half way; "noise": `FLIPPED` of the rewards that the memory gets are inverted.
        split: "dev" for tuning, "held-out" for the final run.
        seed: The seed of the labels and of the order.
        order: All tasks are equally hard to the agent: an order other than "random" is another shuffle.
        length: The number of texts; None for 300, or as many as there are.

    Raises:
        KeepworthError: Where the data is missing or the set has no such split.
    """
    labels_of = LABEL_SETS[name]
    number = check_split(split, order)
    texts, test_texts = labels_of.read(folder)
    texts = _side(texts, labels_of.splits, split, name)
    generator = np.random.default_rng([77, sum(map(ord, name)), number, seed])
    picked = _draw_labels(texts, variant == "near-miss", generator)
    labels = tuple(f"label {index}" for index in range(len(picked)))
    first = dict(zip(picked, labels, strict=True))
    moved = picked[: len(picked) // 2]
    later = {**first, **{label: first[moved[(index + 1) % len(moved)]] for index, label in enumerate(moved)}}
    pool = [text for text in texts if text[1] in first]
    pool = [pool[index] for index in generator.permutation(len(pool))]
    held_texts = [text for text in test_texts if text[1] in first]
    held_texts = [held_texts[index] for index in generator.permutation(len(held_texts))[:HELD_OUT]]
    if not test_texts:
        many = min(HELD_OUT, len(pool) // 5)
        held_texts, pool = pool[:many], pool[many:]
    drawn = pool[: length or 300]
    change = len(drawn) // 2 if variant == "drift" else len(drawn)

    def task(key: str, text: str, label: str, rule: str) -> StreamTask:
        leaning = generator.normal(0.0, 0.5, size=len(labels))
        scene = Scene("", text, labels, right=frozenset({label}), leaning=tuple(leaning.tolist()))
        return stream_task(key, partial(Course, scene), rule, 1.0 - CHANCE)

    family = f"{name}-{variant}"
    tasks = [
        task(f"{family}/{split}/{seed}/{index}", text, (later if index >= change else first)[rule], rule)
        for index, (text, rule) in enumerate(drawn)
    ]
    if variant == "noise":
        flips = generator.random(len(tasks)) < FLIPPED
        tasks = [replace(task, flipped=bool(flip)) for task, flip in zip(tasks, flips, strict=True)]
    if order != "random":
        again = np.random.default_rng([78, seed, len(order)])
        parts = tasks[:change], tasks[change:]
        tasks = [part[index] for part in parts for index in again.permutation(len(part))]
    now = later if variant == "drift" else first
    held_key = f"{family}/{split}/{seed}/held-out"
    held_out = [task(f"{held_key}/{index}", text, now[rule], rule) for index, (text, rule) in enumerate(held_texts)]
    notes = {"change": str(change)} if variant == "drift" else {}
    return Stream(family, split, seed, order, tuple(tasks), tuple(held_out), notes=notes)


def _side(texts: Labelled, splits: str, split: str, name: str) -> Labelled:
    if not splits:
        if split == "dev":
            raise KeepworthError(f"the set {name} is kept for final runs.", "Use the split held-out.")
        return texts
    marks = {label if splits == "labels" else text for text, label in texts}
    marks = {mark for mark in marks if side(mark) == "test"}
    return [text for text in texts if (text[splits == "labels"] in marks) == (split == "held-out")]


def _draw_labels(texts: Labelled, alike: bool, generator: np.random.Generator) -> list[str]:
    """Draws the labels of one seed. With `alike`, every second label is the one whose texts are most similar to those of the
    label before."""
    names = sorted({label for _, label in texts})
    names = [names[index] for index in generator.permutation(len(names))]
    if not alike:
        return names[:LABELS]
    centre = _centres(tuple(sorted(texts)))
    labels: list[str] = []
    for name in names:
        if len(labels) == LABELS:
            break
        left = [candidate for candidate in names if candidate not in labels and candidate != name]
        if name not in labels and left:
            labels += [name, max(left, key=lambda other: float(centre[name] @ centre[other]))]
    return labels


@lru_cache(maxsize=8)
def _centres(texts: tuple[tuple[str, str], ...]) -> Mapping[str, Any]:
    """Returns the direction of each label's texts, with words weighted by inverse document frequency."""
    word_sets = [(set(tokens(text)), label) for text, label in texts]
    spread = Counter(word for words, _ in word_sets for word in words)
    column = {word: number for number, word in enumerate(sorted(spread))}
    centre = {label: np.zeros(len(column)) for _, label in texts}
    for words, label in word_sets:
        for word in words:
            centre[label][column[word]] += np.log(len(word_sets) / spread[word])
    return {label: vector / max(float(np.linalg.norm(vector)), 1e-12) for label, vector in centre.items()}


VARIANTS = {
    "clean": "",
    "near-miss": "; labels with texts that are alike",
    "drift": "; half of the labels change half way",
    "noise": "; a tenth of the rewards are wrong",
}
LABELLED = {
    f"{name}-{variant}": (name, variant)
    for name, labels in LABEL_SETS.items()
    for variant in VARIANTS
    if variant != "near-miss" or labels.splits != "texts"
}
"""Every stream of labelled texts: its set and variant. Sets that are split by texts have so few labels that each stream uses all
of them, so they have no near-miss variant."""

METHODS = tuple(
    Method(
        kind="world",
        name=name,
        title=name,
        about=f"Say {LABEL_SETS[of].about}{VARIANTS[variant]}",
        tags=("experiential",),
        differs="Labels are anonymous, and the agent prefers some of them by chance.",
        make=World(partial(labelled, of, variant=variant), "one-step", data=LABEL_SETS[of].folder, length=None),
    )
    for name, (of, variant) in LABELLED.items()
)
