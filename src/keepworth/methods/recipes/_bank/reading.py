"""What a bank is worth: what a frozen reader answers from it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock

from keepworth.episodes.episode import (
    Shown,
)
from keepworth.memory.overlay import Bank
from keepworth.methods.recipes._answerer import Query, Reader
from keepworth.methods.recipes._bank.fact_streams import FactStream
from keepworth.tasks.metrics import token_f1


@dataclass(frozen=True, slots=True)
class BankAnswer:
    """What the reader said, and its token F1. failed: why it said nothing, "" where it did."""

    answer: str
    score: float
    failed: str = ""


Read = Callable[[Sequence[tuple[FactStream, Sequence[str]]]], Sequence[BankAnswer]]
"""(stream, texts in its bank) of several banks in, one answer each out, in their order."""


class BankReading:
    """The `Read` of a frozen reader. A reader that fails costs nobody the run: banks that fail together are read one by one, and
    one that fails by itself is an empty answer, worth 0, counted in `failed`.

    permuted: a control, from which nothing can be learned: the scores of banks that are read together change places, by a draw
    that depends on the banks and this seed alone. One thread reads at a time."""

    def __init__(self, reader: Reader, *, permuted: int | None = None, lock: Lock | None = None) -> None:
        self.reader, self.failed = reader, 0
        self._permuted, self._lock = permuted, lock or Lock()

    @property
    def identity(self) -> str:
        return self.reader.identity

    def __call__(self, banks: Sequence[tuple[FactStream, Sequence[str]]]) -> list[BankAnswer]:
        queries: list[Query] = [(stream.task.input, tuple(texts)) for stream, texts in banks]
        with self._lock:
            answers = self._answers(queries)
            self.failed += sum(bool(failed) for _, failed in answers)
        scores = [
            0.0 if failed else token_f1(answer, stream.task.answers)
            for (answer, failed), (stream, _) in zip(answers, banks, strict=True)
        ]
        if self._permuted is not None:
            named = [(stream.key, query) for (stream, _), query in zip(banks, queries, strict=True)]
            random.Random(f"{self._permuted}|{named!r}").shuffle(scores)
        return [BankAnswer(answer, score, failed) for (answer, failed), score in zip(answers, scores, strict=True)]

    def _answers(self, queries: Sequence[Query]) -> list[tuple[str, str]]:
        """(answer, why there is none) of each."""
        try:
            return [(answer, "") for answer in self.reader.answers(queries)]
        except Exception as error:
            if len(queries) == 1:
                return [("", f"{type(error).__name__}: {error}")]
        return [answer for query in queries for answer in self._answers([query])]


def used_by(query: str, shown: Sequence[Shown], most: int) -> tuple[str, ...]:
    """The ids of at most `most` facts of a bank that are most like question and answer, by BM25; where no word is shared, all."""
    bank = Bank.empty(None)
    fact_of = {bank.add(line.text, deduplicate=False).id: line.item for line in shown}
    hits = bank.search(query, most, mode="lexical") if shown and query.strip() else []
    return tuple(fact_of[hit.id] for hit in hits) or tuple(line.item for line in shown)


# The rollout, and the re-roll of one of its writes.
