"""Values a bank by the answers that a frozen reader gives from it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock

from keepworth.base.metrics import token_f1
from keepworth.memory.overlay import Bank
from keepworth.records.episode import Shown
from keepworth.worlds.answerer import Query, Reader
from keepworth.worlds.fact_streams import FactStream


@dataclass(frozen=True, slots=True)
class BankAnswer:
    """The reader's answer and its token F1. failed: the reader's error, "" without one."""

    answer: str
    score: float
    failed: str = ""


Read = Callable[[Sequence[tuple[FactStream, Sequence[str]]]], Sequence[BankAnswer]]
"""Takes (stream, texts in its bank) of several banks, and returns one answer each, in order."""


class BankReading:
    """The `Read` of a frozen reader. Its errors do not end the run: if a batch of banks fails, each is read alone, and one that
    fails alone counts as an empty answer, worth 0, and in `failed`.

    permuted: a control without a signal: scores of banks that are read together are permuted, by a draw that depends only on the
    banks and this seed. One thread reads at a time.
    """

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
        """Returns (answer, error) for each query."""
        try:
            return [(answer, "") for answer in self.reader.answers(queries)]
        except Exception as error:
            if len(queries) == 1:
                return [("", f"{type(error).__name__}: {error}")]
        return [answer for query in queries for answer in self._answers([query])]


def used_by(query: str, shown: Sequence[Shown], most: int) -> tuple[str, ...]:
    """Returns the ids of the `most` facts of a bank nearest to question and answer by BM25; all where no word is shared."""
    bank = Bank.empty(None)
    fact_of = {bank.add(line.text, deduplicate=False).id: line.item for line in shown}
    hits = bank.search(query, most, mode="lexical") if shown and query.strip() else []
    return tuple(fact_of[hit.id] for hit in hits) or tuple(line.item for line in shown)
