"""Search by words in a file: the full-text index proposes rows, and BM25 over the whole query ranks them.

The index has no early termination, so its cost is the number of postings read. Common words are therefore not used to propose
rows (they still count in the score) when there are rarer ones. A query of common words alone looks for rows that hold several of
them at once: those score best, and are few enough to be ranked, if need be the newest of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.memory.search.index import CorpusStatistics
from keepworth.memory.store.connection import AnyConnection, WantedRows, WordRanker

if TYPE_CHECKING:
    from keepworth.memory.search.columns import Mask
    from keepworth.memory.store.derived import CorpusState

POSTINGS = 10_000
"""Most postings that one search reads: at half a microsecond each, about 5 ms."""
SKIPPING = 0.1
"""Cost of a posting outside the scope, relative to one inside it."""
JOINT = 15_000
"""Most postings for a query of common words alone, which finds more for the higher cost."""
RANKED = 2.5
"""Cost of ranking a row that holds several words, in postings."""
PASSED = 0.15
"""Cost of a posting that is only tested for whether its row holds the other words, in postings."""
TOGETHER = 3
"""Number of common words, the rarest of the query, that a proposed row must hold: too many rows hold two of them, and few hold
all of a long query. Chosen on queries of two to five common words."""
LEAST = 100
"""Fewest rows that are proposed, for BM25 over the whole query to rank."""


RANKED_WHOLE = 1000
"""Most rows kept by a filter for which nothing is proposed: all are ranked, which costs no more."""
WHOLE = 10
"""Cost of reading and ranking one row that a filter kept, in postings."""
COUNTED_TOGETHER = 16
"""Number of words whose counts are looked up in one call."""

FEW = 500
"""Number of postings up to which the full-text index ranks rows by itself."""
COMMON = 100
"""Number of items that hold a word above which it is common."""
MOST_RARE = 65_536
"""Most rare words whose counts are cached."""


class WordStatistics:
    """How many current items hold each word: of common words cached until the memory has grown or shrunk by a tenth, of rare
    ones until the full-text index has another number of items. Thread-safe."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._documents = 0
        self._rare: dict[str, int] = {}
        self._indexed: tuple[Any, int] | None = None
        self._lock = threading.Lock()

    def of(self, connection: AnyConnection, corpus: CorpusState, terms: Sequence[str]) -> CorpusStatistics:
        """Return the statistics of terms over the current items of all scopes; terms that no item holds are left out.

        Args:
            connection: A connection to the memory.
            corpus: The state of all items that this connection sees.
            terms: The words of a query, as stems.
        """
        with self._lock:
            if abs(corpus.documents - self._documents) * 10 > self._documents or len(self._counts) > 200_000:
                self._counts = {}
                self._documents = corpus.documents
            indexed = (corpus.state[2], corpus.documents - len(corpus.tail))
            if self._indexed != indexed or len(self._rare) > MOST_RARE:
                self._rare, self._indexed = {}, indexed
            remembered, rare = self._counts, self._rare
        out = {}
        unknown = [term for term in terms if term not in remembered and term not in rare]
        fresh: dict[str, int] = {}
        for start in range(0, len(unknown), COUNTED_TOGETHER):
            part = unknown[start : start + COUNTED_TOGETHER]
            counts = connection.full_text.counts(connection, part)
            fresh.update((term, count or 0) for term, count in zip(part, counts, strict=True))
        for term, count in fresh.items():
            (remembered if count > COMMON else rare)[term] = count
        for term in terms:
            if count := remembered.get(term) or rare.get(term) or fresh.get(term, 0):
                out[term] = count
        for *_, words in corpus.tail.values():
            for term in words.intersection(terms):
                out[term] = out.get(term, 0) + 1
        return CorpusStatistics(corpus.documents, corpus.words, out)


def proposal(frequency: Mapping[str, int], share: float = 1.0, postings: int = POSTINGS) -> tuple[list[str], bool]:
    """Return the words to look rows up by, rarest first, and whether they stay within the cost (else only the newest
    rows are read).

    Args:
        frequency: The number of rows that hold each word.
        share: The fraction of all rows that the scope holds. The index skips postings outside it, for about a tenth of
            their cost.
        postings: The cost: how many entries of the index may be read.
    """
    price = min(1.0, share + SKIPPING)
    chosen: list[str] = []
    used = 0.0
    for term, count in sorted(frequency.items(), key=lambda pair: (pair[1], pair[0])):
        if chosen and used + price * count > postings:
            break
        chosen.append(term)
        used += price * count
    return chosen, used <= postings


def proposed(
    connection: AnyConnection,
    statistics: CorpusStatistics,
    scope_tokens: Sequence[Sequence[str]],
    share: float,
    count: int,
    head: int,
    mask: Mask | None = None,
    ranker: Callable[[], WordRanker | None] = lambda: None,
) -> list[int]:
    """Return rows that may answer a query, at a cost that does not grow with the memory.

    If all words are common, look for rows with several of them, then for the newest rows with one, and for older
    ones as long as there are fewer than `count`.

    Args:
        connection: A connection to the memory.
        statistics: How often the words of the query occur.
        scope_tokens: The tokens of each scope to look in, see `WantedRows`.
        share: The fraction of all rows that the scope holds.
        count: The number of rows that is wanted.
        head: The largest row number there can be.
        mask: By row number, whether a row may be proposed; None for all.
        ranker: It returns what ranks many rows of all scopes, if there is such a thing.
    """
    admitted, index = "", connection.full_text
    if mask is not None:
        few: list[int] = np.flatnonzero(mask).tolist()
        if len(few) <= RANKED_WHOLE:
            # If the index finds the rows that hold a word for less, the others need not be read.
            named, affordable = proposal(statistics.frequency, share, WHOLE * len(few))
            if not affordable or len(named) < len(statistics.frequency):
                return few
            admitted = index.admit(connection, mask, "rowid")
            return index.best(connection, WantedRows(named, scope_tokens, len(few), admitted=admitted))
    chosen, affordable = proposal(statistics.frequency, share, POSTINGS)
    if affordable and not scope_tokens and sum(statistics.frequency[term] for term in chosen) > FEW:
        held = ranker()
        ranked = None if held is None else held.best(connection, chosen, count, mask)
        if ranked is not None:
            return ranked
    if mask is not None:
        admitted = index.admit(connection, mask, "rowid")
    numbers: list[int] = []
    window = head
    if not affordable:
        window = max(POSTINGS, count)
        rarest, part = joint_proposal(statistics, share, JOINT)
        if len(rarest) > 1:
            newest = None if part >= 1.0 else head - int(part * head)
            wanted = WantedRows(rarest, scope_tokens, count, newest, together=True, admitted=admitted)
            numbers = index.best(connection, wanted)
    while len(numbers) < count:
        newest = None if window >= head else head - window
        more = index.best(connection, WantedRows(chosen, scope_tokens, count, newest, admitted=admitted))
        if len(more) >= count or newest is None:
            return list(dict.fromkeys([*numbers, *more]))
        window *= 4
    return numbers


def joint_proposal(statistics: CorpusStatistics, share: float, postings: int = JOINT) -> tuple[list[str], float]:
    """Return the words that rows should all hold, rarest first, and in what fraction of the rows, the newest, they can
    be looked for. Assumes that words occur independently of each other.

    Args:
        statistics: How often the words of the query occur.
        share: The fraction of all rows that the scope holds.
        postings: The cost: how many entries of the index may be read.
    """
    rarest = sorted(statistics.frequency, key=lambda term: (statistics.frequency[term], term))[:TOGETHER]
    expected = float(statistics.documents)
    for term in rarest:
        expected *= statistics.frequency[term] / max(1, statistics.documents)
    price = RANKED * expected + PASSED * sum(statistics.frequency[term] for term in rarest)
    return rarest, min(1.0, postings / max(1.0, min(1.0, share + SKIPPING) * price))
