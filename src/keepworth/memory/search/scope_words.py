"""Keeps the words of small scopes in memory, so that searching one person's items again need not read the index of everybody's.

The full-text index of the file is ordered by words and holds the items of all: the more others have written, the more of it is
read to find what one person said. Here an inverted index holds the items of one scope alone. It is a cache that follows the
journal; hits are looked up in the file before they are shown.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.search.index import CorpusStatistics, InvertedIndex, in_mask
from keepworth.memory.search.terms import QueryTerms

if TYPE_CHECKING:
    from keepworth.memory.search.columns import Mask

LARGEST = 5_000
"""Largest number of current items in a scope that is indexed here; a larger one is searched in the file."""
MOST_WORDS = 1_000_000
"""Largest number of words of all scopes, of about 80 bytes each; the scope that was searched least recently is dropped first."""
Row = tuple[int, str]
"""Number and text of an item."""


@dataclass(slots=True)
class _Scope:
    """The inverted index of one scope."""

    index: InvertedIndex = field(default_factory=InvertedIndex)
    numbers: list[int] = field(default_factory=list)  # the item number of each row
    row_of: dict[int, int] = field(default_factory=dict)  # the row of each current item, by number

    def add(self, number: int, text: str, latin: str | None = None) -> None:
        self.row_of[number] = len(self.numbers)
        self.numbers.append(number)
        self.index.add(text, latin)


class ScopeWords:
    """The inverted indexes of several scopes, by scope id. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        with self._lock:
            self._scopes: OrderedDict[int, _Scope] = OrderedDict()
            self._asked: OrderedDict[tuple[int, ...], None] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of words in all indexes."""
        return sum(scope.index.words for scope in self._scopes.values())

    def asked_before(self, ids: tuple[int, ...]) -> bool:
        """Note a search of these scopes, and return whether they were searched recently. Reading them whole pays from the second
        search on."""
        with self._lock:
            again = ids in self._asked
            self._asked[ids] = None
            self._asked.move_to_end(ids)
            if len(self._asked) > LARGEST:
                self._asked.popitem(last=False)
            return again

    def missing(self, ids: Iterable[int]) -> list[int]:
        """Return the scopes that have no index."""
        with self._lock:
            return [id for id in ids if id not in self._scopes]

    def put(self, id: int, rows: Iterable[Row], latin: str | None = None) -> None:
        """Index all current items of a scope. latin: the language of its Latin words, if known; see `terms`."""
        scope = _Scope()
        for number, text in rows:
            scope.add(number, text, latin)
        with self._lock:
            self._scopes[id] = scope
            if len(self) > MOST_WORDS:
                while len(self._scopes) > 1 and len(self) > MOST_WORDS // 2:
                    self._scopes.popitem(last=False)

    def change(self, id: int, number: int, text: str | None) -> None:
        """Set an item's text, or remove the item if it is None. A scope without an index is ignored."""
        with self._lock:
            scope = self._scopes.get(id)
            if scope is None:
                return
            scope.row_of.pop(number, None)
            if text is not None:
                scope.add(number, text)
            if len(scope.numbers) > 2 * len(scope.row_of) + 64:  # rows that count no more: read it anew
                del self._scopes[id]

    def scores(
        self,
        ids: Sequence[int],
        terms: QueryTerms,
        statistics: CorpusStatistics,
        count: int,
        mask: Mask | None = None,
    ) -> list[tuple[int, float]] | None:
        """Return the `count` best (item number, BM25) of these scopes that `mask` admits by their numbers, best first, ties by
        number. Scores equal those of `InvertedIndex.scores`. Returns None if one of the scopes has no index."""
        scored: list[tuple[int, float]] = []
        with self._lock:
            for id in ids:
                scope = self._scopes.get(id)
                if scope is None:
                    return None
                self._scopes.move_to_end(id)
                out = scope.index.scores(terms, statistics)
                if len(scope.row_of) < len(scope.numbers):
                    there = np.fromiter(scope.row_of.values(), np.intp, len(scope.row_of))
                    current = np.zeros(len(out))
                    current[there] = out[there]
                    out = current
                rows = np.flatnonzero(out)
                if mask is not None:
                    numbers = np.fromiter((scope.numbers[row] for row in rows), np.int64, len(rows))
                    rows = rows[in_mask(mask, numbers)]
                if len(rows) > count:
                    rows = rows[out[rows] >= np.partition(out[rows], len(rows) - count)[len(rows) - count]]
                scored += [(scope.numbers[row], score) for row, score in zip(rows, out[rows].tolist(), strict=True)]
        return sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:count]
