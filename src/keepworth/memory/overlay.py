"""`Bank`: a view of a snapshot of a memory within a scope, with changes of its own. A fork shares those changes with its parent,
and copies them only when one of the two writes.

    bank = Bank.empty(encoder)
    bank.add("Ana is allergic to peanuts", event_time="2026-01-31")
    bank.search("what must Ana not eat?", top_k=5)

`fork()` gives every member of a group its own bank over the same items; `apply()` carries out what a model asks for, and never
raises on a bad operation; `content_hash()` identifies the state.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from keepworth.memory.errors import InvalidScope, UnknownItem
from keepworth.memory.item import (
    EVERYWHERE,
    HASH_MODULUS,
    UNKNOWN,
    Clock,
    Item,
    ItemKind,
    Provenance,
    Scope,
    Status,
    Timestamp,
    checked_text,
    content_digest,
    duplicate_key,
    now,
    plain_metadata,
    timestamp,
)
from keepworth.memory.operations import Act, Draft, OperationOutcome, execute, new_item, renamed_act
from keepworth.memory.search.index import CorpusStatistics, Embedder, InvertedIndex, best, cosines, total
from keepworth.memory.search.search import Hit, Ranked, Request, Search, SearchOptions, checked_query, requested
from keepworth.memory.search.terms import QueryTerms
from keepworth.memory.search.where import Filter
from keepworth.records.episode import Operation, OperationKind
from keepworth.records.model import Encoder

if TYPE_CHECKING:
    from keepworth.base.arrays import Rows, Vectors
    from keepworth.memory.store.store import Store
    from keepworth.memory.store.transaction import Transaction
    from keepworth.memory.store.views import Snapshot


class ChangedMeanwhile(Exception):
    """Raised where something was decided by items that others have changed since: nothing was written, and it is to be decided
    again."""


def is_kept(act: Act, outcome: OperationOutcome) -> bool:
    """Return whether a bank keeps an act to commit: one that changed something, or said again what is there, which lives on when
    whoever said it first is rolled back."""
    again = isinstance(act, Operation) and act.kind is OperationKind.ADD and outcome.item != ""
    return outcome.applied or again


class Written:
    """The changes that were written in a bank. Forks share one such object; the next of them to write copies it first.

    `items` holds the latest state of each changed item. Each searchable wording has a row (`row_ids`, `texts`); `hidden` are rows
    that are outdated, `covers` ids whose row in the base is outdated. `by_content` holds ids of open items by `duplicate_key`.
    """

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.row_ids: list[str] = []
        self.row_of: dict[str, int] = {}
        self.texts: list[str] = []
        self.by_content: dict[bytes, tuple[str, ...]] = {}
        self.hidden: list[int] = []
        self.covers: frozenset[str] = frozenset()
        self.index = InvertedIndex()
        self._vectors: list[Vectors | None] = []
        self._whole: tuple[Vectors, Rows] | None = None
        self._lock = threading.Lock()

    def copy(self) -> Written:
        twin = Written()
        twin.items, twin.by_content, twin.row_of = self.items.copy(), self.by_content.copy(), self.row_of.copy()
        twin.row_ids, twin.texts, twin.hidden = self.row_ids.copy(), self.texts.copy(), self.hidden.copy()
        twin.covers, twin.index = self.covers, self.index.copy()
        with self._lock:
            twin._vectors, twin._whole = self._vectors.copy(), self._whole
        return twin

    def add_row(self, item: Item, vectors: Vectors | None = None) -> None:
        """Make the present wording of `item` searchable. Without `vectors`, it is encoded when a dense search first needs it."""
        self.row_of[item.id] = len(self.row_ids)
        self.row_ids.append(item.id)
        self.texts.append(item.searched_text)
        self.index.add(item.indexed_text)
        self._vectors.append(vectors)

    def vectors(self, embedder: Embedder) -> list[Vectors]:
        """Return the vectors of each row, of shape (1 + parts, dimension). Rows without any are encoded, in one batch."""
        with self._lock:
            missing = [row for row, made in enumerate(self._vectors) if made is None]
            if missing:
                fresh = embedder.in_parts([self.texts[row] for row in missing])
                for row, vectors in zip(missing, fresh, strict=True):
                    self._vectors[row] = vectors
            return [made for made in self._vectors if made is not None]

    def cosines(self, queries: Vectors, embedder: Embedder) -> Vectors:
        """Return the best cosine of each row's vectors for each query, of shape (queries, rows). There must be a row."""
        listed = self.vectors(embedder)
        whole = self._whole
        if whole is None or len(whole[1]) != len(listed):
            whole = self._whole = (np.concatenate(listed), np.cumsum([0, *map(len, listed[:-1])]))
        matrix, starts = whole
        scores = cosines(queries, matrix)
        return scores if len(starts) == len(matrix) else np.maximum.reduceat(scores, starts, axis=1)


class Overlay:
    """Changes over a base, a snapshot of a memory: the `View` that operations act on and the `Corpus` that searches rank. It can
    be forked, and keeps a count and a content hash up to date. `embedder` makes the vectors of items that are written here."""

    __slots__ = ("_count", "_shared", "_total", "base", "embedder", "next_number", "written")

    def __init__(self, base: Snapshot | None = None, embedder: Embedder | None = None) -> None:
        self.base = base
        self.embedder = embedder
        self.written = Written()
        self._shared = False  # whether a fork uses the same `Written`
        # Relative to the base, whose own sums are read only when needed, which is not for a search.
        self._count = 0
        self._total = 0
        self.next_number = base.position + 1 if base is not None else 1  # in the id of the next new item

    @property
    def count(self) -> int:
        """The number of current items."""
        return self._count + (self.base.sums()[1] if self.base is not None else 0)

    @property
    def total(self) -> int:
        """The sum of the content digests of all items, modulo 2**256."""
        return (self._total + (self.base.sums()[0] if self.base is not None else 0)) % HASH_MODULUS

    @property
    def on_file(self) -> bool:
        return self.base is not None

    def fork(self) -> Overlay:
        """Return an overlay with the same items. What either of the two writes later, the other does not see."""
        self._shared = True
        return copy(self)

    def get(self, id: str) -> Item | None:
        item = self.written.items.get(id)
        return self.base.get(id) if item is None and self.base is not None else item

    def fetch(self, ids: Sequence[str]) -> dict[str, Item | None]:
        """Return several items by id, None for an unknown one."""
        under = self.base.fetch(ids) if self.base is not None else {}
        return {id: self.written.items.get(id) or under.get(id) for id in ids}

    def doubtful(self, ids: Sequence[str]) -> Sequence[str]:
        """Return the ids whose items a search must read to apply its filters: changed ones, and the doubtful ones of the base."""
        if self.base is None:
            return ids
        above = self.written.items
        under = set(self.base.doubtful([id for id in ids if id not in above]))
        return [id for id in ids if id in above or id in under]

    def duplicates_of(self, item: Item) -> list[str]:
        return sorted(self._same(item), key=lambda id: int(id[1:]))

    def _same(self, item: Item) -> tuple[str, ...]:
        """Return the ids of all open items with the same `duplicate_key`."""
        here = self.written.by_content.get(duplicate_key(item))
        if here is None:
            return tuple(self.base.duplicates_of(item)) if self.base is not None else ()
        return here

    def put(self, item: Item, vectors: Vectors | None = None) -> None:
        """Write an item in its new state. `vectors` are those of its wording, if the caller has them."""
        before = self.get(item.id)
        if before is not None and before == item:
            return
        if self._shared:
            self.written, self._shared = self.written.copy(), False
        written = self.written
        if before is not None:
            self._total -= content_digest(before)
            self._count -= before.current
            if before.open:
                written.by_content[duplicate_key(before)] = tuple(id for id in self._same(before) if id != item.id)
        self._total = (self._total + content_digest(item)) % HASH_MODULUS
        self._count += item.current
        if item.open:
            written.by_content[duplicate_key(item)] = (*self._same(item), item.id)
        was = before is not None and before.current
        reworded = before is not None and (before.text != item.text or before.key != item.key)
        if was and (reworded or not item.current):
            row = written.row_of.get(item.id)
            if row is None:
                written.covers |= {item.id}
            else:
                written.hidden.append(row)
        written.items[item.id] = item
        if item.current and (reworded or not was):
            written.add_row(item, vectors)

    def items(self) -> Iterator[Item]:
        """Iterate over all items in their latest state, closed ones too, in the order in which they were first written."""
        under = {} if self.base is None else {item.id: item for item in self.base.items()}
        return iter((under | self.written.items).values())

    def closed(self) -> Iterator[Item]:
        """Iterate over the items that are neither current nor deleted, in their latest state."""
        under = {} if self.base is None else {item.id: item for item in self.base.closed()}
        return (item for item in (under | self.written.items).values() if not item.current and not item.deleted)

    def languages(self) -> frozenset[str]:
        """Return the languages whose stems the words of changes and base hold."""
        return self.written.index.languages.union(() if self.base is None else self.base.languages())

    def statistics(self, terms: Sequence[str]) -> CorpusStatistics:
        """Return what BM25 needs to know of changes and base together."""
        above = self.written.index.statistics(terms, self._hidden())
        return above if self.base is None else total(above, self.base.statistics(terms))

    def by_words(
        self, terms: QueryTerms, count: int, statistics: CorpusStatistics, where: Filter | None = None
    ) -> Ranked:
        """Return the best items by BM25; those with a score of zero are left out.

        Args:
            terms: The words of the query.
            count: The most items.
            statistics: How often words occur in the scope.
            where: A filter; None for all items.
        """
        under: Ranked = []
        if self.base is not None:
            under = self.base.by_words(terms, count, statistics, self._under(where), self.written.covers)
        return self._ranked(self.written.index.scores(terms, statistics), under, count, above=0.0)

    def by_meaning(
        self, vectors: Vectors, count: int, where: Filter | None = None, *, exact: bool = False
    ) -> list[Ranked]:
        """Return the best items by cosine for each query.

        Args:
            vectors: Those of the queries, of shape (queries, dimension).
            count: The most items.
            where: A filter; None for all items.
            exact: Whether all items are scored, however many there are.
        """
        assert self.embedder is not None
        under: list[Ranked] = [[] for _ in vectors]
        if self.base is not None:
            covers = self.written.covers
            under = self.base.by_meaning(vectors, count, self._under(where), covers, exact=exact)
        if not self.written.row_ids:
            return [line[:count] for line in under]
        scored = self.written.cosines(vectors, self.embedder)
        return [self._ranked(part, line, count, above=float("-inf")) for part, line in zip(scored, under, strict=True)]

    def vectors_of(self, items: Sequence[Item]) -> dict[str, Vectors]:
        """Return the vectors of each item, by its id, of shape (1 + parts, dimension)."""
        assert self.embedder is not None
        here, rows = self.written.vectors(self.embedder), self.written.row_of
        out = {item.id: here[rows[item.id]] for item in items if item.id in rows}
        under = [item for item in items if item.id not in out]
        return out | (self.base.store.vectors_for(under) if under and self.base is not None else {})

    def _under(self, where: Filter | None) -> Filter | None:
        """Return the filter for the base. It lets items that were changed here pass, as the base has their old metadata."""
        return None if where is None or where.tree is None else replace(where, but=frozenset(self.written.items))

    def _ranked(self, scores: Any, under: Ranked, count: int, above: float) -> Ranked:
        """Return the `count` best of the base's hits (`under`) and of the rows here that score more than `above`; at equal scores
        the base comes first. `scores`, one for each row, is changed."""
        scores[self._hidden()] = float("-inf")
        ids = self.written.row_ids
        here = [(ids[row], float(scores[row])) for row in best(scores, count) if scores[row] > above]
        return sorted([*under, *here], key=lambda pair: -pair[1])[:count]

    def _hidden(self) -> Rows:
        """Return the indices of outdated rows, as an array of one dimension."""
        return np.asarray(self.written.hidden, dtype=np.intp)

    def with_others(self, request: Request, time: str) -> Overlay:
        """Return this overlay, or, if `request` admits items that are not current, a fork in which those are searchable too."""
        if not request.admits_not_current:
            return self
        twin = self.fork()
        others = [item for item in self.closed() if request.admits(item, time)]
        vectors = (
            self.base.store.vectors_for(others)
            if others and self.base is not None and self.embedder is not None
            else {}
        )
        for item in others:
            current = replace(item, status=Status.ACTIVE, ended_at="", superseded_by="")
            twin.put(current, None if item.id in self.written.items else vectors.get(item.id))
        return twin


@dataclass(frozen=True, slots=True)
class Applied:
    """One entry of a bank's journal: what is needed to carry out the operation again on the store."""

    act: Act
    draft: Draft
    outcome: OperationOutcome


class Bank:
    """A copy of a memory with its own changes. Not thread-safe, but different threads may use forks of one bank at once."""

    __slots__ = ("_clock", "_names", "_overlay", "journal", "scope")

    def __init__(self, overlay: Overlay, scope: Scope, clock: Clock = now) -> None:
        self._overlay = overlay
        self._clock = clock
        self.scope = scope
        self.journal, self._names = list[Applied](), dict[str, str]()  # to commit; ids where that was done

    @classmethod
    def empty(cls, encoder: Encoder | None, *, clock: Clock = now) -> Bank:
        """Make a bank without a file. Without an encoder only lexical searches work."""
        return cls(Overlay(None, None if encoder is None else Embedder(encoder)), EVERYWHERE, clock)

    def __len__(self) -> int:
        """Return the number of current items."""
        return self._overlay.count

    def items(self, *, all_states: bool = False) -> Iterator[Item]:
        """Iterate over the current items in order of writing; with `all_states`, over those in any other state too."""
        return (item for item in self._overlay.items() if all_states or item.current)

    def get(self, id: str) -> Item:
        """Return an item in its latest state, even if it is closed. Raises UnknownItem."""
        item = self._overlay.get(id)
        if item is None:
            raise UnknownItem(f"no item {id!r:.80} in this bank")
        return item

    def find(self, id: str) -> Item | None:
        """Return an item as `get` does, or None if there is no such item."""
        return self._overlay.get(id)

    def with_same_words(self, text: str, draft: Draft) -> list[Item]:
        """Return the open items with the words, the kind, the key and the scope of what is drafted, in order of writing."""
        item = new_item(text, draft, new_id="", now=self._clock())
        return [item for id in self._overlay.duplicates_of(item) if (item := self.get(id)).open]

    def fork(self) -> Bank:
        """Return a bank with the same state and changes to commit. Neither of the two sees what the other writes later."""
        bank = Bank(self._overlay.fork(), self.scope, self._clock)
        bank.journal, bank._names = self.journal.copy(), self._names.copy()
        return bank

    def content_hash(self) -> str:
        """Return 64 hex digits that are equal for equal items, whatever their clocks and value statistics."""
        return f"{self._overlay.total:064x}"

    def add(
        self,
        text: str,
        *,
        provenance: Provenance = UNKNOWN,
        event_time: Timestamp = "",
        kind: ItemKind | str = ItemKind.FACT,
        key: str | None = None,
        trust: float = 1.0,
        metadata: Mapping[str, Any] | None = None,
        deduplicate: bool = True,
    ) -> Item:
        """Remember a text. Raises InvalidText, InvalidTime.

        Args:
            text: What to remember.
            provenance: Where it comes from.
            event_time: When it happened; "" for now.
            kind: The kind of the item.
            key: What searches match instead of the text; None for the text.
            trust: From 0 to 1.
            metadata: Names with values; None for none.
            deduplicate: Whether an exact duplicate of an open item (see `item.duplicate_key`) is not stored again, but
                that item returned.
        """
        checked_text(text)
        if key:
            checked_text(key, "key")
        draft = Draft(
            kind=ItemKind(kind),
            key=key or "",
            scope=self.scope,
            event_time=timestamp(event_time),
            provenance=provenance,
            trust=trust,
            metadata=plain_metadata(metadata),
            deduplicate=deduplicate,
        )
        return self.get(self.perform(Operation(OperationKind.ADD, text=text), draft).item)

    def apply(
        self, operation: Operation, *, provenance: Provenance = UNKNOWN, event_time: Timestamp = ""
    ) -> OperationOutcome:
        """Carry out an operation that an agent asked for. A bad one changes nothing, and the outcome says why.

        Args:
            operation: What to do; any value is accepted.
            provenance: Where it comes from.
            event_time: When it happened; "" for now.
        """
        return self.perform(operation, Draft(scope=self.scope, event_time=timestamp(event_time), provenance=provenance))

    def search(self, query: str, top_k: int | str = 10, **options: Unpack[SearchOptions]) -> list[Hit]:
        """Return the best items for a query, best first.

        Raises InvalidFilter, InvalidText, InvalidTime, and MemoryProblem for a dense search without an encoder.

        Args:
            query: What is looked for.
            top_k: The most items.
            **options: `mode` is "lexical" (BM25), "dense" (cosine) or, by default, "hybrid"; for the others see
                `search.Request`.
        """
        return self._hits([query], requested(top_k, "hybrid", options))[0]

    def _hits(self, queries: Sequence[str], request: Request) -> list[list[Hit]]:
        """Return the hits of each query. All are encoded together, and compared with the vectors in one matrix product."""
        asked, time = [checked_query(query, number) for number, query in enumerate(queries)], self._clock()
        searched = self._overlay.with_others(request, time)
        return Search(self._overlay, self._overlay.embedder, request, time, searched).hits(asked)

    def commit_to(self, store: Store, episode: str = "", *, as_read: bool = False) -> list[OperationOutcome]:
        """Carry out on the store, in one transaction, what was done in this bank. New items get new ids there.

        Args:
            store: The store of the bank's memory.
            episode: The id of the episode that the writes are part of.
            as_read: Whether nothing may have changed since the bank's snapshot.

        Raises:
            InvalidScope: If the bank is of another memory, whose ids are those of other items here.
            ChangedMeanwhile: With `as_read`, if an item of the scope changed since the bank's snapshot.
        """
        base, into = self._overlay.base, store.database
        of = into if base is None else base.store.database
        if of is not into and (into.in_memory or of.path != into.path):
            raise InvalidScope(f"the bank is of another memory, {of.path}: commit it there, not to {into.path}")
        vectors = store.encode(self.texts())

        def work(transaction: Transaction) -> tuple[list[OperationOutcome], dict[str, str]]:
            if as_read and base is not None and transaction.changed_since(base.position):
                raise ChangedMeanwhile(f"items of {self.scope} were changed after entry {base.position}")
            names = dict(self._names)  # a copy, as the transaction may be done again
            return self.replay(transaction, episode, names), names

        outcomes, self._names = store.change(self.scope, work, vectors)
        self.journal = []
        return outcomes

    def replay(
        self, transaction: Transaction, episode: str = "", names: dict[str, str] | None = None
    ) -> list[OperationOutcome]:
        """Carry out what was done in this bank in a transaction of the store, and return the outcomes there.

        Args:
            transaction: The one that writes; it stays open.
            episode: The id of the episode that the writes are part of.
            names: The ids that items of the bank get there are put in here; None for the bank's own names.
        """
        outcomes, names = list[OperationOutcome](), self._names if names is None else names
        for entry in self.journal:
            act = renamed_act(entry.act, names)
            outcome = transaction.perform(act, entry.draft, now=self._clock(), episode=episode)
            if entry.outcome.item and outcome.item:
                names[entry.outcome.item] = outcome.item
            outcomes.append(outcome)
        return outcomes

    def texts(self) -> list[str]:
        """Return the texts of which the store needs vectors before `replay`."""
        new = [entry for entry in self.journal if entry.outcome.applied]
        acts = [(entry.draft.key, entry.act) for entry in new if isinstance(entry.act, Operation)]
        return [text for key, act in acts if (text := key or act.text)]

    def nearest_to(self, texts: Sequence[str], k: int) -> list[list[Item]]:
        """Return for each text the `k` items most like it, best first."""
        return [[hit.item for hit in hits] for hits in self.hits_nearest_to(texts, k)]

    def hits_nearest_to(self, texts: Sequence[str], k: int) -> list[list[Hit]]:
        """Return the same as hits, which know how near they are."""
        if not len(self):
            return [[] for _ in texts]
        mode = "lexical" if self._overlay.embedder is None else "hybrid"
        return self._hits(texts, replace(requested(k, mode, {}), unordered=True))

    @property
    def encoder_name(self) -> str:
        """The name of the model by which items are near each other in meaning; "" without an encoder."""
        return "" if self._overlay.embedder is None else self._overlay.embedder.identity.model

    def similar(self, text: str, k: int) -> list[tuple[Item, float]]:
        """Return the `k` items nearest to `text` in meaning, with their cosines; none without an encoder."""
        if self._overlay.embedder is None or not len(self):
            return []
        return [(hit.item, hit.score) for hit in self.search(text, k, mode="dense")]

    def perform(self, act: Act, draft: Draft) -> OperationOutcome:
        """Carry out an act as `apply` does, with a draft of all fields of the item that it would write. One that asks for what an
        item says already changes nothing, and yet is committed: it holds if what the other came from is rolled back."""
        outcome = execute(self._overlay, act, draft, new_id=f"m{self._overlay.next_number}", now=self._clock())
        if outcome.applied and outcome.item == f"m{self._overlay.next_number}":
            self._overlay.next_number += 1
        if is_kept(act, outcome):
            self.journal.append(Applied(act, draft, outcome))
        return outcome
