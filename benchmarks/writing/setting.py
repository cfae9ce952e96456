"""The worlds in which writers are compared, and what the frozen reader answered from their banks.

Streams of facts out of LongMemEval's conversations: 154 questions, three streams each, in five folds of whole
clusters of questions. A writer is trained on four folds and measured on the fifth, so that every question is tested
once by a writer that never saw it. Two readers share the work: each learned to answer on one half of the questions
and reads the other half alone, so that no question is ever read by a model that was taught its answer.

`reads.jsonl.gz` holds every answer's token F1 by (world, stream, what stayed): the reader is frozen and greedy, so an
answer that is on file is the answer. What is missing is asked for with `python -m benchmarks.writing.reads`.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from keepworth.memory.policy.importance import features
from keepworth.tasks.fact_streams import FactStream, folds_of, longmemeval_streams
from keepworth.tasks.splits import draw_order

HERE = Path(__file__).parent
READS = HERE / "reads.jsonl.gz"
WORLDS = {"4 of 16": (16, 4), "4 of 32": (32, 4)}
FOLDS = 5
BANKS = 12
"""Evenly drawn banks of each stream in the log."""
VECTORS = Path("runs") / "vectors"
Stay = tuple[int, ...]


def reader_of(stream: FactStream) -> int:
    """Which of the two readers reads it: the one that never saw its question."""
    return 1 - trained_reader(stream.cluster)


def trained_reader(cluster: str) -> int:
    """Which of the two readers learned from the questions of a cluster."""
    return int(draw_order("reader", cluster), 16) % 2


@dataclass(frozen=True, slots=True)
class Setting:
    """name: of the world. texts: every statement once; vectors: [texts, d], their features; rows: of each stream the texts of its
    facts. folds: of each stream."""

    name: str
    length: int
    budget: int
    streams: tuple[FactStream, ...]
    folds: np.ndarray[Any, np.dtype[np.intp]]
    texts: tuple[str, ...]
    vectors: np.ndarray[Any, np.dtype[np.float64]]
    rows: tuple[np.ndarray[Any, np.dtype[np.intp]], ...]

    def evidence(self, number: int, stay: Iterable[int]) -> float:
        return self.streams[number].evidence_kept(stay)

    @property
    def clusters(self) -> list[str]:
        return [stream.cluster for stream in self.streams]

    def apart(self, fold: int) -> tuple[list[int], list[int]]:
        """The streams to learn from, and those to measure on."""
        return [int(i) for i in np.flatnonzero(self.folds != fold)], [
            int(i) for i in np.flatnonzero(self.folds == fold)
        ]


@cache
def setting(name: str) -> Setting:
    length, budget = WORLDS[name]
    streams = longmemeval_streams(length)
    return setting_of(name, streams, folds_of(streams, FOLDS), budget)


def setting_of(name: str, streams: Sequence[FactStream], folds: Sequence[int], budget: int) -> Setting:
    from keepworth.models.encoders import encoder
    from keepworth.models.kept_vectors import KeptVectors

    texts = tuple(sorted({fact.statement for stream in streams for fact in stream.facts}))
    place = {text: number for number, text in enumerate(texts)}
    rows = tuple(np.array([place[fact.statement] for fact in stream.facts], dtype=np.intp) for stream in streams)
    return Setting(
        name, len(streams[0].facts), budget, tuple(streams), np.array(folds), texts,
        features(texts, KeptVectors(encoder("minilm"), VECTORS)), rows,
    )  # fmt: skip


@dataclass(slots=True)
class Reads:
    """What was answered, and what nobody has asked yet. file: where it is kept."""

    file: Path = READS
    known: dict[tuple[str, str, Stay], float] = field(default_factory=dict)
    wanted: dict[tuple[str, str, Stay], None] = field(default_factory=dict)

    @classmethod
    def on_file(cls, file: Path = READS) -> Reads:
        found = cls(file)
        if file.exists():
            with gzip.open(file, "rt", encoding="utf-8") as lines:
                for line in lines:
                    world, stream, stay, score = json.loads(line)
                    found.known[world, stream, tuple(stay)] = score
        return found

    def f1(self, world: str, stream: FactStream, stay: Sequence[int]) -> float:
        """NaN where it is not on file; it is then wanted."""
        key = world, stream.key, tuple(sorted(stay))
        if key not in self.known:
            self.wanted[key] = None
        return self.known.get(key, float("nan"))

    def save(self) -> None:
        with gzip.GzipFile(self.file, "wb", mtime=0) as file:
            for (world, stream, stay), score in sorted(self.known.items()):
                file.write((json.dumps([world, stream, stay, score], separators=(",", ":")) + "\n").encode())


def random_banks(world: Setting, banks: int) -> list[tuple[int, Stay]]:
    """(stream, what stayed) of `banks` evenly drawn banks of each stream: the log that learning without a reader at hand starts
    from. Every choice of `budget` facts has the same probability."""
    drawn = []
    for number, stream in enumerate(world.streams):
        for bank in range(banks):
            draw = random.Random(f"{stream.key}|{bank}")
            drawn.append((number, tuple(sorted(draw.sample(range(world.length), world.budget)))))
    return drawn


def kept_file(world: str, arm: str) -> Path:
    """What the language model kept as the writer, by arm."""
    return HERE / "kept" / f"{world.replace(' ', '-')}.{arm.replace(', ', '-').replace(' ', '-')}.json"
