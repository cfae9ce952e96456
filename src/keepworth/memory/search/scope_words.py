"""The words of single scopes, in memory: who asks again in a scope of some thousand items is answered by BM25 over all of them.

The full-text index of the file is ordered by words, and holds everybody's: the more others have written, the more of it is read
to find what one person said. Here are the items of one scope alone. It is a cache like that of the vectors: its truth is the
file, it follows the journal, and what it says is looked up there before it is shown.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from keepworth.memory.search.index import K1, B, CorpusStatistics
from keepworth.memory.search.scan import in_mask
from keepworth.memory.search.terms import terms as terms_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from keepworth.memory.search.columns import Mask

    Ints = npt.NDArray[np.int32]

LARGEST = 5_000
"""Current items in a scope; one with more is searched in the file."""
MOST_WORDS = 8_000_000
"""Words of all scopes that are held, at 12 bytes each; those of the scope asked least recently go first."""
LOOSE = 64
"""Items that were added since a scope's arrays were made; with more they are made anew."""
Row = tuple[int, str]
"""Number and text of an item."""


class _Scope:
    """Arrays over the rows of one scope. numbers: of items, ascending; lengths: words in each; terms, holders, counts: which word
    is how often in which row, ordered by word."""

    __slots__ = ("alive", "counts", "holders", "lengths", "loose", "numbers", "terms")

    def __init__(self, rows: Sequence[tuple[int, dict[int, int], int]]) -> None:
        import numpy as np

        self.numbers = np.array([number for number, _, _ in rows], np.int64)
        self.lengths = np.array([length for _, _, length in rows], np.float64)
        self.alive = np.ones(len(rows), bool)
        size = sum(len(counted) for _, counted, _ in rows)
        terms = np.fromiter((term for _, counted, _ in rows for term in counted), np.int32, size)
        counts = np.fromiter((count for _, counted, _ in rows for count in counted.values()), np.int32, size)
        holders = np.repeat(np.arange(len(rows), dtype=np.int32), [len(counted) for _, counted, _ in rows])
        order = np.argsort(terms, kind="stable")
        self.terms, self.holders, self.counts = terms[order], holders[order], counts[order]
        self.loose: dict[int, tuple[dict[int, int], int]] = {}

    @property
    def size(self) -> int:
        return len(self.terms) + sum(len(counted) for counted, _ in self.loose.values())

    def drop(self, number: int) -> None:
        import numpy as np

        self.loose.pop(number, None)
        place = int(np.searchsorted(self.numbers, number))
        if place < len(self.numbers) and self.numbers[place] == number:
            self.alive[place] = False

    def rows(self) -> list[tuple[int, dict[int, int], int]]:
        """As they were given."""
        import numpy as np

        order = np.argsort(self.holders, kind="stable")
        terms, counts = self.terms[order].tolist(), self.counts[order].tolist()
        ends = np.cumsum(np.bincount(self.holders, minlength=len(self.numbers))).tolist()
        listed, start = [], 0
        for number, length, end, alive in zip(
            self.numbers.tolist(), self.lengths.tolist(), ends, self.alive.tolist(), strict=True
        ):
            if alive:
                listed.append((number, dict(zip(terms[start:end], counts[start:end], strict=True)), int(length)))
            start = end
        listed += [(number, counted, length) for number, (counted, length) in self.loose.items()]
        return sorted(listed, key=lambda row: row[0])


class ScopeWords:
    """Thread-safe. Scopes go by the number that the file gives them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        with self._lock:
            self._vocabulary: dict[str, int] = {}
            self._scopes: OrderedDict[int, _Scope] = OrderedDict()
            self._asked: OrderedDict[tuple[int, ...], None] = OrderedDict()

    def __len__(self) -> int:
        """Words held."""
        return sum(scope.size for scope in self._scopes.values())

    def asked_before(self, ids: tuple[int, ...]) -> bool:
        """Whether these scopes were asked a moment ago: reading them whole pays from the second time on."""
        with self._lock:
            known = ids in self._asked
            self._asked[ids] = None
            self._asked.move_to_end(ids)
            if len(self._asked) > LARGEST:
                self._asked.popitem(last=False)
            return known

    def missing(self, ids: Iterable[int]) -> list[int]:
        with self._lock:
            return [id for id in ids if id not in self._scopes]

    def holds(self, id: int) -> bool:
        return id in self._scopes

    def put(self, id: int, rows: Iterable[Row], latin: str | None = None) -> None:
        """All current items of a scope. latin: see `terms`."""
        counted = [(number, *self._counted(text, latin)) for number, text in rows]
        with self._lock:
            self._scopes[id] = _Scope(sorted(counted, key=lambda row: row[0]))
            if len(self) > MOST_WORDS:
                while len(self._scopes) > 1 and len(self) > MOST_WORDS // 2:
                    self._scopes.popitem(last=False)
                if len(self._vocabulary) > MOST_WORDS // 4:  # words that nobody holds any more: begin anew
                    self._scopes.clear()
                    self._vocabulary = {}

    def change(self, id: int, number: int, text: str | None) -> None:
        """What an item says now; None where it is not current any more. Nothing where its scope is not held."""
        scope = self._scopes.get(id)
        if scope is None:
            return
        counted = None if text is None else self._counted(text)
        with self._lock:
            scope.drop(number)
            if counted is not None:
                scope.loose = {**scope.loose, number: counted}
                if len(scope.loose) > LOOSE:
                    self._scopes[id] = _Scope(scope.rows())

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

        with self._lock:
            scopes = []
            for id in ids:
                scope = self._scopes.get(id)
                if scope is None:
                    return None
                self._scopes.move_to_end(id)
                scopes.append((scope, scope.loose))
        weights, mean = statistics.weights(terms)
        known = [
            (number, weight) for term, weight in weights.items() if (number := self._vocabulary.get(term)) is not None
        ]
        found: list[tuple[int, float]] = []
        for scope, loose in scopes:
            out = np.zeros(len(scope.numbers))
            wanted = np.array([number for number, _ in known], np.int32)
            starts = np.searchsorted(scope.terms, wanted, "left").tolist()
            ends = np.searchsorted(scope.terms, wanted, "right").tolist()
            norms = K1 * (1.0 - B + B * scope.lengths / mean)
            for (_, weight), start, end in zip(known, starts, ends, strict=True):
                if start < end:
                    holders, counts = scope.holders[start:end], scope.counts[start:end]
                    out[holders] += weight * counts * (K1 + 1.0) / (counts + norms[holders])
            out[~scope.alive] = 0.0
            if mask is not None:
                out[~in_mask(mask, scope.numbers)] = 0.0
            places = np.flatnonzero(out)
            if len(places) > count:
                least = np.partition(out[places], len(places) - count)[len(places) - count]
                places = places[out[places] >= least]
            found += zip(scope.numbers[places].tolist(), out[places].tolist(), strict=True)
            for number, (counted, length) in loose.items():
                if mask is not None and not (number < len(mask) and mask[number]):
                    continue
                norm = K1 * (1.0 - B + B * length / mean)
                score = sum(w * c * (K1 + 1.0) / (c + norm) for term, w in known if (c := counted.get(term, 0)))
                if score:
                    found.append((number, score))
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:count]

    def _counted(self, text: str, latin: str | None = None) -> tuple[dict[int, int], int]:
        vocabulary = self._vocabulary
        counted = Counter(terms_of(text, latin))
        # One thread at a time may give numbers: two that give a word a number each would make it two words.
        with self._lock:
            numbered = {vocabulary.setdefault(term, len(vocabulary)): count for term, count in counted.items()}
        return numbered, counted.total()
