"""BANKING77 as a stream: customer queries, anonymous labels, and labels that are renamed in mid-stream.

Data: "Efficient Intent Detection with Dual Sentence Encoders" (Casanueva et al., 2020), CC BY 4.0, from
github.com/PolyAI-LDN/task-specific-datasets: a folder with train.csv.gz and test.csv.gz of `text,category`.
"""

from __future__ import annotations

import csv
import gzip
from functools import partial
from pathlib import Path

import numpy as np

from keepworth.environments.scene import Course, Scene, Stream, StreamTask, stream_task
from keepworth.episodes.errors import KeepworthError

CHANCE = 0.15


def banking(
    folder: Path, *, seed: int = 0, order: str = "random", length: int = 300, intents: int = 8, drift: float = 0.5
) -> Stream:
    """`length` training queries of `intents` intents drawn by `seed`; half of the labels are renamed half way.

    The simulated agent knows nothing of the labels, but leans at random. All tasks are equally hard to it: an order other
    than random is another shuffle.
    """
    train, test = read(folder / "train.csv.gz"), read(folder / "test.csv.gz")
    generator = np.random.default_rng([77, seed])
    names = sorted({category for _, category in train})
    picked = [names[place] for place in generator.permutation(len(names))[:intents]]
    labels = tuple(f"label {number}" for number in range(intents))
    first = dict(zip(picked, labels, strict=True))
    moved = picked[: round(drift * intents)]
    later = {**first, **{name: first[moved[(place + 1) % len(moved)]] for place, name in enumerate(moved)}}
    pool = [each for each in train if each[1] in first]
    drawn = [pool[place] for place in generator.permutation(len(pool))[:length]]
    held = [each for each in test if each[1] in first]
    held = [held[place] for place in generator.permutation(len(held))[:60]]
    change = len(drawn) // 2

    def task(key: str, text: str, label: str, rule: str) -> StreamTask:
        leaning = generator.normal(0.0, 0.5, size=intents)
        scene = Scene("", text, labels, right=frozenset({label}), leaning=tuple(leaning.tolist()))
        return stream_task(key, partial(Course, scene), rule, 1.0 - CHANCE)

    tasks = [
        task(f"banking77/{seed}/{number}", text, (later if number >= change else first)[rule], rule)
        for number, (text, rule) in enumerate(drawn)
    ]
    if order != "random":
        again = np.random.default_rng([78, seed, len(order)])
        tasks = [tasks[place] for place in again.permutation(change)] + [
            tasks[change + place] for place in again.permutation(len(tasks) - change)
        ]
    held_out = [
        task(f"banking77/{seed}/held-out/{number}", text, later[rule], rule) for number, (text, rule) in enumerate(held)
    ]
    return Stream("banking77", "train", seed, order, tuple(tasks), tuple(held_out), notes={"change": str(change)})


def read(path: Path) -> list[tuple[str, str]]:
    """(text, category) pairs."""
    if not path.exists():
        raise KeepworthError(
            f"there is no {path}.", "Give the folder that holds BANKING77's train.csv.gz and test.csv.gz."
        )
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or set(rows[0]) != {"text", "category"}:
        raise KeepworthError(f"{path} does not have the columns text and category.", "Use the files as published.")
    return [(each["text"], each["category"]) for each in rows]
