"""Bank: what an agent holds. A scoped view over a snapshot of memory, with what was written on it: a fork costs nothing until it
is written, and then a copy of what was written so far.

    bank = Bank.empty(encoder)
    bank.add("Ana is allergic to peanuts", event_time="2026-01-31")
    bank.search("what must Ana not eat?", k=5)

`fork()` gives every member of a group its own overlay over the same items; `apply()` takes what a model asked for and
always answers; `content_hash()` names the state.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from keepworth.episodes.episode import Operation, OperationKind
from keepworth.episodes.model import Encoder
from keepworth.memory.errors import UnknownItem
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
from keepworth.memory.operations import Act, Draft, OperationOutcome, execute, renamed_act
from keepworth.memory.search.index import CorpusStatistics, Embedder, InvertedIndex, total
from keepworth.memory.search.scan import best, cosines
from keepworth.memory.search.search import Hit, Ranked, Request, Search, SearchOptions, checked_query, requested
from keepworth.memory.search.where import Filter

if TYPE_CHECKING:
    from keepworth.episodes.arrays import Rows, Vectors
    from keepworth.memory.store.store import Store
    from keepworth.memory.store.transaction import Transaction
    from keepworth.memory.store.views import Snapshot


class Written:
    """What was written in a bank. It is shared between forks, and copied by whoever writes to it next.

    items: the latest state of every item it has; rows: one per searchable wording, in order of arrival; hidden: rows that no
    longer count; covers: ids whose row on the base no longer counts; by_content: ids of open items, by `duplicate_key`.
    """

    __slots__ = (
        "_lock",
        "_vectors",
        "_whole",
        "by_content",
        "covers",
        "hidden",
        "index",
        "items",
        "row_ids",
        "row_of",
        "texts",
    )

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
        """Make the present wording of `item` searchable. Its vectors are made when a dense search first needs them."""
        self.row_of[item.id] = len(self.row_ids)
        self.row_ids.append(item.id)
        self.texts.append(item.searched_text)
        self.index.add(f"{item.key}\n{item.text}" if item.key else item.text)
        self._vectors.append(vectors)

    def vectors(self, embedder: Embedder) -> list[Vectors]:
        """Of each row: (1 + parts, dimension). Encodes, in one batch, what has none yet."""
        with self._lock:
            missing = [row for row, made in enumerate(self._vectors) if made is None]
            if missing:
                fresh = embedder.in_parts([self.texts[row] for row in missing])
                for row, vectors in zip(missing, fresh, strict=True):
                    self._vectors[row] = vectors
            return [made for made in self._vectors if made is not None]

    def cosines(self, queries: Vectors, embedder: Embedder) -> Vectors:
        """The best of each row's, for each query. Shape (queries, rows); there is at least one row."""
        import numpy as np

        listed = self.vectors(embedder)
        whole = self._whole
        if whole is None or len(whole[1]) != len(listed):
            whole = self._whole = (np.concatenate(listed), np.cumsum([0, *map(len, listed[:-1])]))
        matrix, starts = whole
        scores = cosines(queries, matrix)
        return scores if len(starts) == len(matrix) else np.maximum.reduceat(scores, starts, axis=1)


class Overlay:
    """What was written, on a base: the `View` that operations act on and the `Corpus` that searches rank, with forks, a count and
    an incremental content hash. embedder: makes the vectors of what is written here."""

    __slots__ = ("_count", "_next_number", "_shared", "_total", "base", "embedder", "written")

    def __init__(self, base: Snapshot | None = None, embedder: Embedder | None = None) -> None:
        self.base = base
        self.embedder = embedder
        self.written = Written()
        self._shared = False  # whether a fork has the same
        # Relative to the base, which is asked only when someone wants to know: a search does not.
        self._count = 0
        self._total = 0
        self._next_number = 0

    @property
    def count(self) -> int:
        """How many items are current."""
        return self._count + (self.base.sums()[1] if self.base is not None else 0)

    @property
    def total(self) -> int:
        """Sum of the content digests of all items, modulo 2**256."""
        return (self._total + (self.base.sums()[0] if self.base is not None else 0)) % HASH_MODULUS

    @property
    def next_number(self) -> int:
        """The number in the id of the next new item."""
        if not self._next_number:
            self._next_number = self.base.next_number if self.base is not None else 1
        return self._next_number

    @next_number.setter
    def next_number(self, number: int) -> None:
        self._next_number = number

    @property
    def on_file(self) -> bool:
        return self.base is not None

    def fork(self) -> Overlay:
        """Both sides keep what is there; what either writes later the other does not see."""
        self._shared = True
        twin = Overlay.__new__(Overlay)
        twin.base, twin.embedder, twin.written, twin._shared = self.base, self.embedder, self.written, True
        twin._count, twin._total, twin._next_number = self._count, self._total, self._next_number
        return twin

    def get(self, id: str) -> Item | None:
        item = self.written.items.get(id)
        return self.base.get(id) if item is None and self.base is not None else item

    def fetch(self, ids: Sequence[str]) -> dict[str, Item | None]:
        """Several at once."""
        under = self.base.fetch(ids) if self.base is not None else {}
        return {id: self.written.items.get(id) or under.get(id) for id in ids}

    def doubtful(self, ids: Sequence[str]) -> Sequence[str]:
        """What lies here is at hand; what lies under it is asked for together."""
        if self.base is None:
            return ids
        above = self.written.items
        under = set(self.base.doubtful([id for id in ids if id not in above]))
        return [id for id in ids if id in above or id in under]

    def duplicates_of(self, item: Item) -> list[str]:
        return sorted(self._same(item), key=lambda id: int(id[1:]))

    def _same(self, item: Item) -> tuple[str, ...]:
        """Ids of all open items with this content."""
        here = self.written.by_content.get(duplicate_key(item))
        if here is None:
            return tuple(self.base.duplicates_of(item)) if self.base is not None else ()
        return here

    def put(self, item: Item, vectors: Vectors | None = None) -> None:
        """vectors: of its wording, where they are known."""
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
        """Every item in its latest state, closed ones too, in order of first writing."""
        under = {} if self.base is None else {item.id: item for item in self.base.items()}
        return iter((under | self.written.items).values())

    def closed(self) -> Iterator[Item]:
        """Items that are neither current nor deleted, in their latest state."""
        under = {} if self.base is None else {item.id: item for item in self.base.closed()}
        return (item for item in (under | self.written.items).values() if not item.current and not item.deleted)

    def languages(self) -> frozenset[str]:
        """Of what was written and the base."""
        return self.written.index.languages.union(() if self.base is None else self.base.languages())

    def statistics(self, terms: Sequence[str]) -> CorpusStatistics:
        """Of what was written and the base."""
        above = self.written.index.statistics(terms, self._hidden())
        return above if self.base is None else total([above, self.base.statistics(terms)])

    def by_words(self, terms: Sequence[str], count: int, where: Filter | None = None) -> Ranked:
        """The `count` best by BM25, with the statistics of the whole; zero scores left out."""
        corpus, under = self.statistics(terms), list[tuple[str, float]]()
        if self.base is not None:
            under = self.base.by_words(terms, count, self.written.covers, corpus, self._under(where))
        return self._ranked(self.written.index.scores(terms, corpus), under, count, above=0.0)

    def by_meaning(self, vectors: Vectors, count: int, where: Filter | None = None) -> list[Ranked]:
        """Per query the `count` best by cosine, in one matrix product for all of them. vectors: (queries, dimension)."""
        assert self.embedder is not None
        under: list[Ranked] = [[] for _ in vectors]
        if self.base is not None:
            under = self.base.by_meaning(vectors, count, self.written.covers, self._under(where))
        if not self.written.row_ids:
            return [line[:count] for line in under]
        scored = self.written.cosines(vectors, self.embedder)
        return [self._ranked(part, line, count, above=float("-inf")) for part, line in zip(scored, under, strict=True)]

    def vectors_of(self, items: Sequence[Item]) -> dict[str, Vectors]:
        """As of a `Corpus`."""
        assert self.embedder is not None
        here, rows = self.written.vectors(self.embedder), self.written.row_of
        out = {item.id: here[rows[item.id]] for item in items if item.id in rows}
        under = [item for item in items if item.id not in out]
        return out | (self.base.store.vectors_for(under) if under and self.base is not None else {})

    def _under(self, where: Filter | None) -> Filter | None:
        """The filter for what lies under this; of items that lie here the base may have other metadata."""
        return None if where is None or where.tree is None else replace(where, but=frozenset(self.written.items))

    def _ranked(self, scores: Any, under: Ranked, count: int, above: float) -> Ranked:
        """The `count` best of the rows that count, the base first among equals. scores: of each row; changed."""
        scores[self._hidden()] = float("-inf")
        ids = self.written.row_ids
        here = [(ids[row], float(scores[row])) for row in best(scores, count) if scores[row] > above]
        return sorted([*under, *here], key=lambda pair: -pair[1])[:count]

    def _hidden(self) -> Rows:
        """Rows that no longer count. Shape (h,)."""
        import numpy as np

        return np.asarray(self.written.hidden, dtype=np.intp)

    def with_others(self, request: Request, time: str) -> Overlay:
        """This with the items that are not current but that `request` admits made searchable; itself where it admits none."""
        if not request.of_others:
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
    """One entry of a bank's own journal: enough to do it again on the store the bank was opened from."""

    act: Act
    draft: Draft
    outcome: OperationOutcome


class Bank:
    """Not thread-safe itself; forks of one bank may be used by different threads at once."""

    __slots__ = ("_clock", "_embedder", "_overlay", "journal", "scope")

    def __init__(self, overlay: Overlay, scope: Scope, clock: Clock = now) -> None:
        self._overlay = overlay
        self._embedder = overlay.embedder
        self._clock = clock
        self.scope = scope
        self.journal: list[Applied] = []

    @classmethod
    def empty(cls, encoder: Encoder | None, *, clock: Clock = now) -> Bank:
        """A bank in memory alone. Without an encoder only lexical searches work."""
        return cls(Overlay(None, None if encoder is None else Embedder(encoder)), EVERYWHERE, clock)

    @classmethod
    def on(cls, base: Snapshot, embedder: Embedder | None, *, scope: Scope, clock: Clock = now) -> Bank:
        """A bank over a snapshot of a store."""
        return cls(Overlay(base, embedder), scope, clock)

    def __len__(self) -> int:
        """How many items are current."""
        return self._overlay.count

    def items(self, *, all_states: bool = False) -> Iterator[Item]:
        """Current items in order of writing; with `all_states`, superseded, deleted and held back ones too."""
        return (item for item in self._overlay.items() if all_states or item.current)

    def get(self, id: str) -> Item:
        """The item in its latest state, closed ones too. Raises UnknownItem."""
        item = self._overlay.get(id)
        if item is None:
            raise UnknownItem(f"no item {id!r:.80} in this bank")
        return item

    def find(self, id: str) -> Item | None:
        """As `get`; None where there is no such item."""
        return self._overlay.get(id)

    def fork(self) -> Bank:
        """An overlay over the present state, in constant time. Neither side sees what the other writes from here on."""
        return Bank(self._overlay.fork(), self.scope, self._clock)

    def content_hash(self) -> str:
        """64 hex digits over all items but their clocks and value statistics; equal states give equal hashes."""
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
        """Remember `text`. An exact duplicate of an open item (see `item.duplicate_key`) is not stored again: that item is
        returned. Raises InvalidText, InvalidTime."""
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
        """Carry out what an agent asked for. Never raises on a bad operation: it changes nothing and says why."""
        return self.perform(operation, Draft(scope=self.scope, event_time=timestamp(event_time), provenance=provenance))

    def search(self, query: str, k: int = 10, **options: Unpack[SearchOptions]) -> list[Hit]:
        """The `k` best items for `query`, best first.

        mode: "lexical" (BM25), "dense" (cosine) or, by default, "hybrid" (both, see `search.fuse`). options: see
        `search.Request`. Raises InvalidFilter, InvalidText, InvalidTime, and MemoryProblem for a dense search without an encoder.
        """
        return self._hits([query], requested(k, "hybrid", options))[0]

    def _hits(self, queries: Sequence[str], request: Request) -> list[list[Hit]]:
        """Of each query; all are encoded together, and compared with the vectors in one matrix product."""
        asked, time = [checked_query(query, number) for number, query in enumerate(queries)], self._clock()
        searched = self._overlay.with_others(request, time)
        return Search(self._overlay, self._embedder, request, time, searched).hits(asked)

    def commit_to(self, store: Store, episode: str = "") -> list[OperationOutcome]:
        """Do on the store, in one transaction, what was done here; ids that were new here become new ids there."""
        vectors = store.encode(self.texts())
        outcomes = store.change(self.scope, lambda transaction: self.replay(transaction, episode), vectors)
        self.journal = []
        return list(outcomes)

    def replay(self, transaction: Transaction, episode: str = "") -> list[OperationOutcome]:
        """What was done here, done in a transaction of the store."""
        renamed, outcomes = dict[str, str](), list[OperationOutcome]()
        for entry in self.journal:
            act = renamed_act(entry.act, renamed)
            outcome = transaction.perform(act, entry.draft, now=self._clock(), episode=episode)
            if entry.outcome.item and outcome.item:
                renamed[entry.outcome.item] = outcome.item
            outcomes.append(outcome)
        return outcomes

    def texts(self) -> list[str]:
        """What the store needs vectors of before `replay`."""
        acts = [(entry.draft.key, entry.act) for entry in self.journal if isinstance(entry.act, Operation)]
        return [text for key, act in acts if (text := key or act.text)]

    def nearest(self, text: str, k: int) -> list[Item]:
        """The `k` items most like `text`, best first."""
        return self.nearest_to([text], k)[0]

    def nearest_to(self, texts: Sequence[str], k: int) -> list[list[Item]]:
        """For each text the `k` items most like it, best first."""
        if not len(self):
            return [[] for _ in texts]
        mode = "lexical" if self._embedder is None else "hybrid"
        return [[hit.item for hit in hits] for hits in self._hits(texts, requested(k, mode, {}))]

    def similar(self, text: str, k: int) -> list[tuple[Item, float]]:
        """The `k` items nearest to `text` in meaning with their cosines; none without an encoder."""
        if self._embedder is None or not len(self):
            return []
        return [(hit.item, hit.score) for hit in self.search(text, k, mode="dense")]

    def perform(self, act: Act, draft: Draft) -> OperationOutcome:
        """As `apply`, with all that the item would hold."""
        outcome = execute(self._overlay, act, draft, new_id=f"m{self._overlay.next_number}", now=self._clock())
        if outcome.applied:
            if outcome.item == f"m{self._overlay.next_number}":
                self._overlay.next_number += 1
            self.journal.append(Applied(act, draft, outcome))
        return outcome
