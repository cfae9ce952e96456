"""What a search ranks: the items of a scope as they are now, and as they were at a snapshot."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.item import EVERYWHERE, HASH_MODULUS, Item, Scope, content_digest, duplicate_key
from keepworth.memory.search.index import CorpusStatistics, InvertedIndex, best
from keepworth.memory.search.search import Ranked
from keepworth.memory.search.terms import QueryTerms, only_latin
from keepworth.memory.search.where import Filter
from keepworth.memory.store import rows
from keepworth.memory.store.connection import AMONG, among, select
from keepworth.memory.store.full_text import CURRENT, WHOLE_TEXT
from keepworth.memory.store.words import LEAST, proposed

if TYPE_CHECKING:
    from keepworth.base.arrays import Vectors
    from keepworth.memory.store.store import Store

ALWAYS_IN_FORCE = f"{CURRENT} AND expires_at = '' AND valid_from = '' AND valid_to = ''"
REMEMBERED = 5000


@dataclass(slots=True)
class ScopeView:
    """The present items of a scope, as a search ranks them. Caches the items that it read. `exact` says that cached words of a
    newer state will not do, as for the base of a bank, which is searched as of one moment."""

    store: Store
    scope: Scope
    nobody: bool = False
    exact: bool = False
    _fetched: dict[str, Item | None] = field(default_factory=dict)
    _plain: set[str] = field(default_factory=set)

    @property
    def on_file(self) -> bool:
        inside = self.store.inside.get((self.scope, self.nobody))  # as far as is known without a look at the file
        return inside is None or bool(self.store.derived.scope_words.missing(inside))

    def fetch(self, ids: Sequence[str]) -> dict[str, Item | None]:
        missing = [id for id in ids if id not in self._fetched]
        if missing:
            if len(self._fetched) > REMEMBERED:
                self._fetched, missing = {}, list(ids)
            self._fetched.update(self.store.fetch(self.scope, missing))
        return {id: self._fetched[id] for id in ids}

    def doubtful(self, ids: Sequence[str]) -> list[str]:
        """Return the ids of items that must be read to tell if they are current and in force; for others a few columns
        suffice."""
        query = f"SELECT n FROM items WHERE n {AMONG} AND {ALWAYS_IN_FORCE}"
        unknown = [int(id[1:]) for id in ids if id not in self._plain and id not in self._fetched]
        if unknown:
            if len(self._plain) > REMEMBERED:
                self._plain.clear()
            with self.store.database.reading() as connection:
                self._plain.update(f"m{n}" for (n,) in select(connection, query, (among(unknown),)))
        return [id for id in ids if id not in self._plain]

    def forget(self, id: str) -> None:
        self._fetched.pop(id, None)
        self._plain.discard(id)

    def languages(self) -> frozenset[str]:
        """Return the languages of the whole store."""
        with self.store.database.reading() as connection:
            return self.store.derived.corpus(connection).languages

    def statistics(self, terms: Sequence[str]) -> CorpusStatistics:
        """Return the statistics of these terms over the whole store."""
        with self.store.database.reading() as connection:
            return self.store.derived.word_counts.of(connection, self.store.derived.corpus(connection), terms)

    def by_words(
        self,
        terms: QueryTerms,
        count: int,
        statistics: CorpusStatistics,
        where: Filter | None = None,
        hidden: Collection[str] = (),
    ) -> Ranked:
        """Return the best items by BM25 of the whole query, from the full-text index and the rows beyond it. See
        `Corpus`.

        Args:
            terms: The words of the query.
            count: The most items.
            statistics: How often words occur in the scope.
            where: A filter; None for all items.
            hidden: The ids of items that are left out.
        """
        store, derived = self.store, self.store.derived
        with store.database.reading() as connection:
            corpus, inside = derived.corpus(connection), store.scope_ids(connection, self.scope, self.nobody)
            mask = derived.mask(connection, where)
            if inside is not None and not hidden:
                held = derived.words_in(connection, corpus, inside, at_once=self.nobody)
                cached = None if held is None else held.scores(sorted(inside), terms, statistics, count, mask)
                if cached is not None and not (self.exact and derived.words_at.head != corpus.seq):
                    return [(f"m{n}", score) for n, score in cached]
            tokens = [] if self.scope == EVERYWHERE else store.scope_tokens(connection, self.scope)
            if tokens is None:
                return []
            share = store.sums(self.scope)[1] / max(1, statistics.documents) if tokens else 1.0
            wanted, ranker = max(2 * count, LEAST), partial(derived.word_ranker, connection, corpus)
            proposed_rows = proposed(connection, statistics, tokens, share, wanted, corpus.seq, mask, ranker)
            query = f"SELECT n, scope, {WHOLE_TEXT}, {ALWAYS_IN_FORCE} FROM items WHERE n {AMONG}"
            read = select(connection, query, (among(proposed_rows),))
        self._plain.update([f"m{n}" for n, _, _, plain in read if plain])
        candidates = [(n, home, text) for n, home, text, _ in read]
        candidates += [(n, home, text) for n, (home, text, words) in corpus.tail.items() if not words.isdisjoint(terms)]
        texts = {n: text for n, home, text in candidates if inside is None or home in inside}
        if mask is not None:
            texts = {n: text for n, text in texts.items() if n < len(mask) and mask[n]}
        scored = derived.ranked_texts.scores(texts, terms, statistics, only_latin(corpus.languages))
        ranked = sorted(scored, key=lambda pair: (-pair[1], pair[0]))
        return [(f"m{n}", score) for n, score in ranked if score > 0 and f"m{n}" not in hidden][:count]

    def vectors_of(self, items: Sequence[Item]) -> dict[str, Vectors]:
        """Return the vectors of items by id: see `Corpus`."""
        return self.store.vectors_for(items)

    def by_meaning(
        self,
        vectors: Vectors,
        count: int,
        where: Filter | None = None,
        hidden: Collection[str] = (),
        *,
        exact: bool = False,
    ) -> list[Ranked]:
        """Return the best items by cosine for each query. See `Corpus`.

        Args:
            vectors: Those of the queries, of shape (queries, dimension).
            count: The most items.
            where: A filter; None for all items.
            hidden: The ids of items that are left out.
            exact: Whether all items are scored, however many there are.
        """
        near = self.store.derived.near
        ranked = near(vectors, count + len(hidden), self.scope, self.nobody, where, exact=exact)
        return [[(f"m{n}", score) for n, score in line if f"m{n}" not in hidden][:count] for line in ranked]


class Snapshot:
    """The items of a scope as they were after journal entry `position`.

    Items that have not changed since are read from their rows. Those that have are restored from the images that the journal
    keeps of everything before it changed."""

    def __init__(self, store: Store, scope: Scope, position: int) -> None:
        self.store = store
        self.scope = scope
        self.position = position
        self.view = ScopeView(store, scope, exact=True)
        self._drift = _Drift({})
        self._drift_head = position

    def sums(self) -> tuple[int, int]:
        """Return (sum of the content digests of all items, number of current items)."""
        total, count = self.store.sums(self.scope)
        images = self._drifted().images
        present = self.store.fetch(self.scope, [f"m{n}" for n in images])
        for n, before in images.items():
            for item, sign in ((before, 1), (present[f"m{n}"], -1)):
                if item is not None:
                    total += sign * content_digest(item)
                    count += sign * item.current
        return total % HASH_MODULUS, count

    def get(self, id: str) -> Item | None:
        return self.fetch((id,))[id]

    def fetch(self, ids: Sequence[str]) -> dict[str, Item | None]:
        """Return items by id as they were at the position."""
        images = self._drifted().images
        out: dict[str, Item | None] = dict.fromkeys(ids)
        numbers = {id: number for id in ids if (number := rows.number_of(id)) is not None and number <= self.position}
        there = self.view.fetch([id for id, number in numbers.items() if number not in images])
        for id, number in numbers.items():
            out[id] = images[number] if number in images else there[id]
        return out

    def doubtful(self, ids: Sequence[str]) -> list[str]:
        """Return the ids whose items have to be read: those changed since the position, and those doubtful in the store."""
        images = self._drifted().ids
        here = set(self.view.doubtful([id for id in ids if id not in images]))
        return [id for id in ids if id in images or id in here]

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

    def closed(self) -> Iterator[Item]:
        drift = self._drifted()
        for item in self.store.items(self.scope, closed=True):
            if int(item.id[1:]) not in drift.images:
                yield item
        for before in drift.images.values():
            if before is not None and not before.current and not before.deleted:
                yield before

    def languages(self) -> frozenset[str]:
        return self.view.languages() | self._drifted().index.languages

    def statistics(self, terms: Sequence[str]) -> CorpusStatistics:
        """Return the statistics of the whole store, corrected for the items of this scope that changed since the position."""
        live = self.view.statistics(terms)
        drift = self._drifted()
        return drift.corrected(live, terms) if drift.images else live

    def by_words(
        self,
        terms: QueryTerms,
        count: int,
        statistics: CorpusStatistics,
        where: Filter | None,
        hidden: frozenset[str],
    ) -> Ranked:
        drift = self._drifted()
        ranked = self.view.by_words(terms, count, statistics, where, hidden | drift.ids)
        if not drift.images:
            return ranked
        ranked.extend(pair for pair in drift.lexical(terms, statistics) if pair[0] not in hidden and pair[1] > 0)
        return sorted(ranked, key=lambda pair: (-pair[1], int(pair[0][1:])))[:count]

    def by_meaning(
        self, vectors: Vectors, count: int, where: Filter | None, hidden: frozenset[str], *, exact: bool = False
    ) -> list[Ranked]:
        drift = self._drifted()
        ranked = self.view.by_meaning(vectors, count, where, hidden | drift.ids, exact=exact)
        past = self.store.vectors_for([item for item in drift.current if item.id not in hidden])
        if not past:
            return ranked
        return [
            sorted(
                [*line, *((id, float((before @ vector).max())) for id, before in past.items())],
                key=lambda pair: -pair[1],
            )[:count]
            for line, vector in zip(ranked, vectors, strict=True)
        ]

    def _drifted(self) -> _Drift:
        """Return the states at the position of the items that changed since."""
        head = self.store.head()
        if head != self._drift_head:
            self.store.refuse_purged(self.position)
            images = self.store.images_at(self.scope, self.position)
            present = self.store.fetch(self.scope, [f"m{n}" for n in images])
            self._drift = _Drift(images, [item for item in present.values() if item is not None])
            for id in self._drift.ids:
                self.view.forget(id)
            self._drift_head = head
        return self._drift


class _Drift:
    """States at a snapshot of the items changed since, by row number (None: did not exist), and an index of the current ones."""

    def __init__(self, images: dict[int, Item | None], present: Sequence[Item] = ()) -> None:
        self.images = images
        self.ids = frozenset(f"m{n}" for n in images)
        self.current = [item for item in images.values() if item is not None and item.current]
        self.index, self._present = InvertedIndex(), InvertedIndex()
        for item in self.current:
            self.index.add(item.indexed_text)
        for item in present:
            if item.current:
                self._present.add(item.indexed_text)

    def corrected(self, live: CorpusStatistics, terms: Sequence[str]) -> CorpusStatistics:
        """Return the live statistics with the present states taken out and the past ones put in."""
        nothing = np.zeros(0, np.intp)
        past, present = self.index.statistics(terms, nothing), self._present.statistics(terms, nothing)
        frequency = {
            term: live.frequency.get(term, 0) + past.frequency.get(term, 0) - present.frequency.get(term, 0)
            for term in terms
        }
        return CorpusStatistics(
            max(0, live.documents + past.documents - present.documents),
            max(0, live.words + past.words - present.words),
            {term: count for term, count in frequency.items() if count > 0},
        )

    def lexical(self, terms: QueryTerms, statistics: CorpusStatistics) -> Ranked:
        scores = self.index.scores(terms, statistics)
        return [(self.current[row].id, float(scores[row])) for row in best(scores, len(self.current))]
