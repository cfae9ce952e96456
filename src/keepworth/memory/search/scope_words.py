"""The words of single scopes, in memory: who asks again in a scope of some thousand items is answered by BM25 over all of them.

The full-text index of the file is ordered by words, and holds everybody's: the more others have written, the more of it is read
to find what one person said. Here are the items of one scope alone. It is a cache like that of the vectors: its truth is the
file, it follows the journal, and what it says is looked up there before it is shown.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from keepworth.memory.search.index import CorpusStatistics, InvertedIndex
from keepworth.memory.search.scan import in_mask

if TYPE_CHECKING:
    from keepworth.memory.search.columns import Mask

LARGEST = 5_000
"""Current items in a scope; one with more is searched in the file."""
MOST_WORDS = 1_000_000
"""Words of all scopes that are held, at some 80 bytes each; those of the scope asked least recently go first."""
Row = tuple[int, str]
"""Number and text of an item."""


class _Scope:
    """An index of the items of one scope. numbers: of the item in each row; row_of: of each current item."""

    __slots__ = ("index", "numbers", "row_of")

    def __init__(self) -> None:
        self.index = InvertedIndex()
        self.numbers: list[int] = []
        self.row_of: dict[int, int] = {}

    def add(self, number: int, text: str, latin: str | None = None) -> None:
        self.row_of[number] = len(self.numbers)
        self.numbers.append(number)
        self.index.add(text, latin)


class ScopeWords:
    """Thread-safe. Scopes go by the number that the file gives them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        with self._lock:
            self._scopes: OrderedDict[int, _Scope] = OrderedDict()
            self._asked: OrderedDict[tuple[int, ...], None] = OrderedDict()

    def __len__(self) -> int:
        """Words held."""
        return sum(scope.index.words for scope in self._scopes.values())

    def asked_before(self, ids: tuple[int, ...]) -> bool:
        """Whether these scopes were asked a moment ago: reading them whole pays from the second time on."""
        with self._lock:
            again = ids in self._asked
            self._asked[ids] = None
            self._asked.move_to_end(ids)
            if len(self._asked) > LARGEST:
                self._asked.popitem(last=False)
            return again

    def missing(self, ids: Iterable[int]) -> list[int]:
        with self._lock:
            return [id for id in ids if id not in self._scopes]

    def put(self, id: int, rows: Iterable[Row], latin: str | None = None) -> None:
        """All current items of a scope. latin: see `terms`."""
        scope = _Scope()
        for number, text in rows:
            scope.add(number, text, latin)
        with self._lock:
            self._scopes[id] = scope
            if len(self) > MOST_WORDS:
                while len(self._scopes) > 1 and len(self) > MOST_WORDS // 2:
                    self._scopes.popitem(last=False)

    def change(self, id: int, number: int, text: str | None) -> None:
        """What an item says now; None where it is not current any more. Nothing where its scope is not held."""
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
        terms: Sequence[str],
        statistics: CorpusStatistics,
        count: int,
        mask: Mask | None = None,
    ) -> list[tuple[int, float]] | None:
        """The `count` best (item number, BM25), best first, ties by number; the same scores as `InvertedIndex.scores` gives. None
        where one of the scopes is not held. mask: by item number, those that may be found; all where it is None."""
        import numpy as np

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
