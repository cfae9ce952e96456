"""A scoped, read-only snapshot of a store, for banks and searches to stand on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from keepworth.memory.item import HASH_MODULUS, Item, content_digest, duplicate_key
from keepworth.memory.scope import Scope
from keepworth.memory.search.lexical import CorpusStatistics, InvertedIndex
from keepworth.memory.search.ranking import Ranked, best
from keepworth.memory.store import rows, words
from keepworth.memory.store.transaction import indexed_text

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from keepworth.memory.store.store import Store

    Vectors = npt.NDArray[np.float32]


REMEMBERED = 5000


class StoreBase:
    """position: the journal entry after which the memory is seen, or None for "as it is at each moment".

    While the store stands at the position, rows are read as they are. What changed since is put back from the images
    the journal keeps of everything before it changed.
    """

    __slots__ = ("_drift", "_drift_head", "_fetched", "position", "scope", "store")

    def __init__(self, store: Store, scope: Scope, position: int | None) -> None:
        self.store = store
        self.scope = scope
        self.position = position
        self._drift = _Drift({})
        self._drift_head = position if position is not None else 0
        self._fetched: dict[str, Item | None] = {}

    @property
    def snapshot(self) -> str:
        return f"s{self.position if self.position is not None else self.store.head()}"

    @property
    def next_number(self) -> int:
        return (self.position if self.position is not None else self.store.head()) + 1

    @property
    def content_sum(self) -> int:
        total, _, _ = self.store.sums(self.scope)
        for n, before in self._drifted().images.items():
            present = self._row(n)
            total -= content_digest(present) if present is not None else 0
            total += content_digest(before) if before is not None else 0
        return total % HASH_MODULUS

    def __len__(self) -> int:
        _, count, _ = self.store.sums(self.scope)
        for n, before in self._drifted().images.items():
            present = self._row(n)
            count += int(before is not None and before.current) - int(present is not None and present.current)
        return count

    def get(self, id: str) -> Item | None:
        number = rows.number_of(id)
        if number is None:
            return None
        if self.position is not None:
            if number > self.position:
                return None
            drift = self._drifted()
            if number in drift.images:
                return drift.images[number]
        if id not in self._fetched:
            self.fetch((id,))
        return self._fetched[id]

    def fetch(self, ids: Sequence[str]) -> dict[str, Item | None]:
        """Read several items at once and remember them: what did not drift is what it was at the position."""
        missing = [id for id in ids if id not in self._fetched]
        if missing:
            if len(self._fetched) > REMEMBERED:
                self._fetched = {}
            self._fetched.update(self.store.fetch(self.scope, missing))
        return {id: self._fetched.get(id) for id in ids}

    def duplicates_of(self, item: Item) -> list[str]:
        drift = self._drifted()
        key = duplicate_key(item)
        past = [
            before.id for before in drift.images.values() if before and before.open and duplicate_key(before) == key
        ]
        return past + [id for id in self.store.with_content(self.scope, item) if int(id[1:]) not in drift.images]

    def items(self) -> Iterator[Item]:
        drift = self._drifted()
        merged = {item.id: item for item in self.store.items(self.scope)}
        for n, before in drift.images.items():
            if before is None:
                merged.pop(f"m{n}", None)
            else:
                merged[f"m{n}"] = before
        return iter(sorted(merged.values(), key=lambda item: int(item.id[1:])))

    def statistics(self, terms: Sequence[str]) -> CorpusStatistics:
        """Of the whole store, corrected for what drifted in this scope."""
        live = self.store.word_statistics(terms)
        drift = self._drifted()
        return drift.corrected(live, terms) if drift.images else live

    def lexical(self, terms: Sequence[str], count: int, hidden: frozenset[str], statistics: CorpusStatistics) -> Ranked:
        """Candidates by the full-text index, ranked by BM25 of the whole query with the statistics given."""
        drift = self._drifted()
        want = count + len(hidden) + len(drift.images)
        tokens = self.store.scope_tokens(self.scope)
        found: dict[int, str] = {}
        if tokens is not None:
            share = self.store.sums(self.scope)[1] / max(1, statistics.documents) if tokens else 1.0
            with self.store.database.reading() as connection:
                least, head = max(2 * want, words.LEAST), self.store.head()
                listed = words.proposed(connection, statistics, tokens, share, least, head)
                found = {**self.store.texts(self.scope, listed), **self.store.unindexed(self.scope, terms)}
        scored = words.scores(found, terms, statistics)
        ranked = [(f"m{n}", score) for n, score in scored if n not in drift.images and f"m{n}" not in hidden]
        ranked.extend(pair for pair in drift.lexical(terms, statistics) if pair[0] not in hidden)
        ranked.sort(key=lambda pair: (-pair[1], int(pair[0][1:])))
        return [pair for pair in ranked[:count] if pair[1] > 0]

    def dense(self, vectors: Vectors, count: int, hidden: frozenset[str]) -> list[Ranked]:
        drift = self._drifted()
        want = count + len(hidden) + len(drift.images)
        found = self.store.dense(self.scope, vectors, want)
        past = drift.vectors(self.store)
        return [
            self._merged(line, drift, past, vector, hidden)[:count] for line, vector in zip(found, vectors, strict=True)
        ]

    def closed(self) -> Iterator[Item]:
        drift = self._drifted()
        for item in self.store.items(self.scope, closed=True):
            if int(item.id[1:]) not in drift.images:
                yield item
        for before in drift.images.values():
            if before is not None and not before.current and not before.deleted:
                yield before

    def vectors_for(self, items: Sequence[Item]) -> dict[str, Vectors]:
        return self.store.vectors_for(items)

    def _merged(
        self,
        found: list[tuple[int, float]],
        drift: _Drift,
        past: dict[str, Vectors],
        vector: Vectors,
        hidden: frozenset[str],
    ) -> Ranked:
        ranked = [(f"m{n}", score) for n, score in found if n not in drift.images and f"m{n}" not in hidden]
        if past:
            ranked.extend((id, float(before @ vector)) for id, before in past.items() if id not in hidden)
            ranked.sort(key=lambda pair: -pair[1])
        return ranked

    def _row(self, number: int) -> Item | None:
        return self.store.fetch(self.scope, [f"m{number}"])[f"m{number}"]

    def _drifted(self) -> _Drift:
        """What the items that changed since the position were at the position."""
        if self.position is None:
            return self._drift
        head = self.store.head()
        if head != self._drift_head:
            self.store.refuse_purged(self.position)
            images = self.store.images_at(self.scope, self.position)
            present = self.store.fetch(self.scope, [f"m{n}" for n in images])
            self._drift = _Drift(images, [item for item in present.values() if item is not None])
            for n in self._drift.images:
                self._fetched.pop(f"m{n}", None)
            self._drift_head = head
        return self._drift


class _Drift:
    """Past states of a few items, by row number (None: was not there yet), and an index over the current ones."""

    __slots__ = ("_ids", "_index", "_present", "images")

    def __init__(self, images: dict[int, Item | None], present: Sequence[Item] = ()) -> None:
        self.images = images
        self._present = InvertedIndex()
        for live in present:
            if live.current:
                self._present.add(indexed_text(live))
        self._ids: list[str] = []
        self._index = InvertedIndex()
        for item in images.values():
            if item is not None and item.current:
                self._ids.append(item.id)
                self._index.add(indexed_text(item))

    def corrected(self, live: CorpusStatistics, terms: Sequence[str]) -> CorpusStatistics:
        """The live statistics with the present states taken out and the past ones put in."""
        import numpy as np

        nothing = np.zeros(0, np.intp)
        past, present = self._index.statistics(terms, nothing), self._present.statistics(terms, nothing)
        frequency = {
            term: live.frequency.get(term, 0) + past.frequency.get(term, 0) - present.frequency.get(term, 0)
            for term in terms
        }
        return CorpusStatistics(
            max(0, live.documents + past.documents - present.documents),
            max(0, live.words + past.words - present.words),
            {term: count for term, count in frequency.items() if count > 0},
        )

    def lexical(self, terms: Sequence[str], statistics: CorpusStatistics) -> Ranked:
        if not self._ids:
            return []
        scores = self._index.scores(terms, statistics)
        return [(self._ids[row], float(scores[row])) for row in best(scores, len(self._ids))]

    def vectors(self, store: Store) -> dict[str, Vectors]:
        wanted = [item for item in self.images.values() if item is not None and item.current]
        return store.vectors_for(wanted) if wanted else {}
