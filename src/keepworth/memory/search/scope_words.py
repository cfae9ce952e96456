"""Keeps the words of small scopes in memory, so that searching one person's items again need not read the index of everybody's.

The full-text index of the file is ordered by words and holds the items of all: the more others have written, the more of it is
read to find what one person said. Here an index holds the items of one scope alone. It is a cache that follows the journal; hits
are looked up in the file before they are shown.

The cache has a limit in bytes. Where the scopes that are searched do not all fit, those that are held stay, and the others are
searched in the file: to drop a scope that will be searched again, for another one, would mean to index one at every search.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from keepworth.base.recent import Recent
from keepworth.memory.search.index import CorpusStatistics, bm25, in_mask
from keepworth.memory.search.terms import QueryTerms, terms_of_each, terms_of_many
from keepworth.memory.search.terms import terms as terms_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.base.arrays import Floats
    from keepworth.memory.search.columns import Mask

LARGEST = 16_000
"""Largest number of current items in a scope that is indexed here; a larger one is searched in the file."""
MOST_BYTES = 2**28
"""Most bytes of all indexes together."""
BYTES_OF_ITEM = 128
"""Bytes that an item is expected to take before one was indexed; a line of twenty words takes about as many."""
SEARCHES = 65_536
"""Number of scopes, or combinations of scopes, whose last search is remembered."""
BYTES_OF_SCOPE = 2_048
"""Bytes that a scope takes beside the contents of its arrays."""
BYTES_OF_LATER = 80
"""Bytes that a word of an item takes that was written later."""
LATER = 64
"""Number of items that were written later, above which a scope's arrays are made anew if they are also an eighth of all."""
Row = tuple[int, str]
"""Number and text of an item."""


class _Scope:
    """The words of the items of one scope: a table of postings in arrays, sorted by word, and beside it those of items that were
    written since. Words go by their 64-bit hash, which for the few thousand words of a scope is as good as the word.

    `searched` is the number of the last search of the scope.
    """

    __slots__ = ("_alive", "_counts", "_later", "_lengths", "_numbers", "_rows", "_starts", "_words", "searched")

    def __init__(self, rows: Sequence[Row], latin: str | None) -> None:
        self.searched = 0
        texts = [text for _, text in rows]
        listed = terms_of_many(texts)[0] if latin is None else terms_of_each(texts, latin)
        self._numbers = np.array([number for number, _ in rows], np.int64)
        self._lengths = np.array([len(terms) for terms in listed], np.int32)
        self._alive = np.ones(len(rows), bool)
        self._later: list[dict[int, int]] = []
        words = np.fromiter(map(hash, chain.from_iterable(listed)), np.int64)
        order = np.argsort(words, kind="stable")
        words, places = words[order], np.repeat(np.arange(len(rows), dtype=np.uint16), self._lengths)[order]
        # The same word of the same row stands side by side: one posting, with its count.
        first = np.flatnonzero(np.append(True, (np.diff(words) != 0) | (np.diff(places) != 0))[: len(words)])
        counts = np.diff(np.append(first, len(words))).astype(np.int32)
        self._sort(words[first], places[first], counts)

    def _sort(self, words: npt.NDArray[np.int64], rows: npt.NDArray[np.uint16], counts: npt.NDArray[np.int32]) -> None:
        """Set the table of postings; postings of one word stay in the order of their rows."""
        order = np.argsort(words, kind="stable")
        self._words, starts = np.unique(words[order], return_index=True)
        self._starts = np.append(starts, len(words)).astype(np.int32)
        self._rows = rows[order]
        self._counts = np.minimum(counts[order], 65_535).astype(np.uint16)

    def __len__(self) -> int:
        """Return the number of rows, those that count no more included."""
        return len(self._numbers)

    @property
    def alive(self) -> int:
        return int(self._alive.sum())

    @property
    def bytes(self) -> int:
        table = self._words.nbytes + self._starts.nbytes + self._rows.nbytes + self._counts.nbytes
        items = self._numbers.nbytes + self._lengths.nbytes + self._alive.nbytes
        return BYTES_OF_SCOPE + table + items + sum(BYTES_OF_LATER * len(counts) for counts in self._later)

    def set(self, number: int, text: str | None) -> None:
        """Set the text of an item; None removes it."""
        self._alive[self._numbers == number] = False
        if text is None:
            return
        terms = terms_of(text)
        self._numbers = np.append(self._numbers, number)
        self._lengths = np.append(self._lengths, np.int32(len(terms)))
        self._alive = np.append(self._alive, True)
        self._later.append({hash(term): count for term, count in Counter(terms).items()})
        if len(self._later) > max(LATER, len(self) // 8):
            self._take_in()

    def _take_in(self) -> None:
        """Move the items that were written later into the table."""
        first = len(self) - len(self._later)
        words = [word for counts in self._later for word in counts]
        rows = [row for row, counts in enumerate(self._later, first) for _ in counts]
        counts = [count for counts in self._later for count in counts.values()]
        self._later = []
        self._sort(
            np.append(np.repeat(self._words, np.diff(self._starts)), np.array(words, np.int64)),
            np.append(self._rows, np.array(rows, np.uint16)),
            np.append(self._counts, np.array(counts, np.int32)),
        )

    def scores(self, terms: QueryTerms, statistics: CorpusStatistics) -> Floats:
        """Return the BM25 score of every row, 0 for those without a query term and those that count no more. Shape (rows,)."""
        out = np.zeros(len(self))
        weights, mean_length = statistics.weights(terms)
        first = len(self) - len(self._later)
        for term in terms:
            word = hash(term)
            at = int(np.searchsorted(self._words, word))
            if at < len(self._words) and self._words[at] == word:
                there = slice(self._starts[at], self._starts[at + 1])
                rows = self._rows[there]
                counts = self._counts[there].astype(np.float64)
                out[rows] += bm25(weights[term], counts, self._lengths[rows], mean_length)
            for row, later in enumerate(self._later, first):
                if word in later:
                    out[row] += bm25(weights[term], later[word], self._lengths[row], mean_length)
        out[~self._alive] = 0.0
        return out

    def best(
        self, terms: QueryTerms, statistics: CorpusStatistics, count: int, mask: Mask | None
    ) -> list[tuple[int, float]]:
        """Return number and score of the `count` best items that `mask` admits, and of those level with the last of them."""
        scores = self.scores(terms, statistics)
        rows = np.flatnonzero(scores)
        if mask is not None:
            rows = rows[in_mask(mask, self._numbers[rows])]
        if len(rows) > count:
            rows = rows[scores[rows] >= np.partition(scores[rows], len(rows) - count)[len(rows) - count]]
        return list(zip(self._numbers[rows].tolist(), scores[rows].tolist(), strict=True))


class ScopeWords:
    """The indexes of several scopes, by scope id. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scopes: OrderedDict[int, _Scope] = OrderedDict()  # the one that was searched longest ago first
        self._searched = Recent[tuple[int, ...], int](SEARCHES)  # the number of the last search of each
        self._searches = self.bytes = self._items = 0

    def clear(self) -> None:
        """Drop all indexes. What was searched is still known."""
        with self._lock:
            self._scopes.clear()
            self.bytes = self._items = 0

    def note_search(self, ids: tuple[int, ...]) -> int:
        """Note a search of these scopes, and return the number of the search before it, 0 for none that is remembered."""
        with self._lock:
            self._searches += 1
            before = self._searched.get(ids, 0)
            self._searched[ids] = self._searches
            return before

    def missing(self, ids: Iterable[int]) -> list[int]:
        """Return the scopes that have no index."""
        with self._lock:
            return [id for id in ids if id not in self._scopes]

    def has_room(self, items: int, since: int) -> bool:
        """Return whether an index of so many items fits, if only scopes may be dropped that were last searched before search
        number `since`."""
        with self._lock:
            room = MOST_BYTES - self.bytes - items * (self.bytes // self._items if self._items else BYTES_OF_ITEM)
            for scope in self._scopes.values():
                if room >= 0 or scope.searched >= since:
                    break
                room += scope.bytes
            return room >= 0

    def put(self, id: int, rows: Iterable[Row], latin: str | None = None) -> None:
        """Index all current items of a scope, and drop the scopes that were searched longest ago if there is no room
        for all.

        Args:
            id: The id of the scope.
            rows: The number and the text of each item.
            latin: The language of its Latin words, see `terms`; None if unknown.
        """
        scope = _Scope(list(rows), latin)
        with self._lock:
            scope.searched = self._searches
            self._scopes[id] = scope
            self._count(scope, 1)
            while self.bytes > MOST_BYTES and len(self._scopes) > 1:
                self._count(self._scopes.popitem(last=False)[1], -1)

    def _count(self, scope: _Scope, sign: int) -> None:
        self.bytes += sign * scope.bytes
        self._items += sign * len(scope)

    def change(self, id: int, number: int, text: str | None) -> None:
        """Set an item's text, or remove the item. A scope without an index is ignored.

        Args:
            id: The id of the scope.
            number: The number of the item.
            text: The new text; None removes the item.
        """
        with self._lock:
            scope = self._scopes.get(id)
            if scope is None:
                return
            self._count(scope, -1)
            scope.set(number, text)
            # Where most rows count no more, or where there are many, it is read anew.
            if len(scope) > 2 * scope.alive + LATER or len(scope) > 2 * LARGEST:
                del self._scopes[id]
            else:
                self._count(scope, 1)

    def scores(
        self,
        ids: Sequence[int],
        terms: QueryTerms,
        statistics: CorpusStatistics,
        count: int,
        mask: Mask | None = None,
    ) -> list[tuple[int, float]] | None:
        """Return the best (item number, BM25) of some scopes, best first, ties by number; None if one of them has no
        index. Scores equal those of `InvertedIndex.scores`.

        Args:
            ids: The ids of the scopes.
            terms: The words of the query.
            statistics: How often they occur.
            count: The most items.
            mask: By item number, which items may be returned; None for all.
        """
        scored: list[tuple[int, float]] = []
        with self._lock:
            for id in ids:
                scope = self._scopes.get(id)
                if scope is None:
                    return None
                self._scopes.move_to_end(id)
                scope.searched = self._searches
                if statistics.documents:
                    scored += scope.best(terms, statistics, count, mask)
        return sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:count]
