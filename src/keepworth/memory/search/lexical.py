"""Okapi BM25 over an inverted index in memory, exact also where the collection is a stack of layers.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with the non-negative inverse
document frequency ln(1 + (N - n + 0.5) / (n + 0.5)).
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

K1 = 1.2
B = 0.75
_TOKEN = re.compile(r"[^\W_]+")


def tokens(text: str) -> list[str]:
    """Words as the full-text index of the store sees them: runs of letters and digits, lower case, without accents."""
    if text.isascii():
        return _TOKEN.findall(text.lower())
    decomposed = unicodedata.normalize("NFKD", text.lower())
    return _TOKEN.findall("".join(c for c in decomposed if not unicodedata.combining(c)))


def word_count(text: str) -> int:
    """len(tokens(text)), in half the time where the text is plain ASCII."""
    return len(text.translate(_GAPS).split()) if text.isascii() else len(tokens(text))


_GAPS = "".join(chr(code) if chr(code).isalnum() else " " for code in range(128))


@dataclass(frozen=True, slots=True)
class CorpusStatistics:
    """What BM25 needs to know of the whole collection: documents, words in them, and documents with each query term."""

    documents: int
    words: int
    frequency: Mapping[str, int]

    @property
    def mean_length(self) -> float:
        return self.words / self.documents if self.documents else 0.0

    def weight(self, term: str) -> float:
        """Inverse document frequency."""
        n = self.frequency.get(term, 0)
        return math.log(1.0 + (self.documents - n + 0.5) / (n + 0.5))


def total(statistics: Iterable[CorpusStatistics]) -> CorpusStatistics:
    frequency: Counter[str] = Counter()
    documents = words = 0
    for one in statistics:
        documents += one.documents
        words += one.words
        frequency.update(one.frequency)
    return CorpusStatistics(documents, words, frequency)


def term_score(count: int, length: int, weight: float, mean_length: float) -> float:
    """One term's part of a document's BM25 score.

    count: occurrences of the term; length: words of the document; weight: inverse document frequency of the term.
    """
    if count == 0:
        return 0.0
    return weight * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length / mean_length))


class InvertedIndex:
    """Rows are numbered in order of `add` and never leave; callers pass the rows that no longer count as `hidden`."""

    __slots__ = ("_arrays", "_postings", "lengths")

    def __init__(self) -> None:
        self._postings: dict[str, list[tuple[int, int]]] = {}
        self._arrays: dict[str, tuple[int, npt.NDArray[np.intp], npt.NDArray[np.float64]]] = {}
        self.lengths: list[int] = []

    def add(self, text: str) -> None:
        row = len(self.lengths)
        counts = Counter(tokens(text))
        for term, count in counts.items():
            self._postings.setdefault(term, []).append((row, count))
        self.lengths.append(sum(counts.values()))

    def _posting(self, term: str) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]] | None:
        """Rows and counts of one term; arrays are made when first asked for and again after the list has grown."""
        import numpy as np

        entries = self._postings.get(term)
        if entries is None:
            return None
        cached = self._arrays.get(term)
        if cached is None or cached[0] != len(entries):
            rows = np.fromiter((row for row, _ in entries), dtype=np.intp, count=len(entries))
            counts = np.fromiter((count for _, count in entries), dtype=np.float64, count=len(entries))
            cached = (len(entries), rows, counts)
            self._arrays[term] = cached
        return cached[1], cached[2]

    def statistics(self, terms: Sequence[str], hidden: npt.NDArray[np.intp]) -> CorpusStatistics:
        """Over the rows that are not hidden."""
        import numpy as np

        frequency = {}
        for term in terms:
            posting = self._posting(term)
            if posting is None:
                continue
            visible = len(posting[0]) - (int(np.isin(posting[0], hidden).sum()) if len(hidden) else 0)
            if visible:
                frequency[term] = visible
        hidden_words = sum(self.lengths[row] for row in hidden)
        return CorpusStatistics(len(self.lengths) - len(hidden), sum(self.lengths) - hidden_words, frequency)

    def scores(self, terms: Sequence[str], statistics: CorpusStatistics) -> npt.NDArray[np.float64]:
        """BM25 of every row, hidden ones included. Shape (rows,); 0 where no term occurs."""
        import numpy as np

        out = np.zeros(len(self.lengths))
        if not statistics.documents or not self.lengths:
            return out
        lengths = np.asarray(self.lengths, dtype=np.float64)
        mean_length = statistics.mean_length or 1.0
        for term in terms:
            posting = self._posting(term)
            if posting is not None:
                rows, counts = posting
                norm = K1 * (1.0 - B + B * lengths[rows] / mean_length)
                out[rows] += statistics.weight(term) * counts * (K1 + 1.0) / (counts + norm)
        return out
