"""Bank: what an agent holds. A scoped view over a snapshot of memory, with an overlay of its own.

    bank = Bank.empty(encoder)
    bank.add("Ana is allergic to peanuts", event_time="2026-01-31")
    bank.search("what must Ana not eat?", k=5)

`fork()` gives every member of a group its own overlay over the same items; `apply()` takes what a model asked for and
always answers; `content_hash()` names the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from keepworth.episodes.encoder import Encoder
from keepworth.episodes.operation import Operation, OperationKind
from keepworth.memory.errors import InvalidText, UnknownItem
from keepworth.memory.item import (
    EVERYWHERE,
    UNKNOWN,
    Clock,
    Item,
    ItemKind,
    Provenance,
    Scope,
    Status,
    Timestamp,
    checked_text,
    now,
    plain_metadata,
    timestamp,
)
from keepworth.memory.operations import (
    Act,
    Assignment,
    Credit,
    Draft,
    Outcome,
    checked_reward,
    execute,
    renamed_act,
)
from keepworth.memory.overlay.layers import Base, Overlay
from keepworth.memory.overlay.retrieval import LONGEST_QUERY, SearchOptions, checked_options, request_for, retrieve
from keepworth.memory.search.index import Embedder
from keepworth.memory.search.ranking import Fusion, Hit

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from keepworth.memory.store.store import Store
    from keepworth.memory.store.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Applied:
    """One entry of a bank's own journal: enough to do it again on the store the bank was opened from."""

    act: Act
    draft: Draft
    outcome: Outcome


class Bank:
    """Not thread-safe itself; forks of one bank may be used by different threads at once."""

    __slots__ = ("_clock", "_embedder", "_overlay", "fusion", "journal", "scope")

    def __init__(
        self,
        overlay: Overlay,
        embedder: Embedder | None,
        *,
        scope: Scope,
        clock: Clock = now,
        fusion: Fusion | None = None,
    ) -> None:
        self._overlay = overlay
        self._embedder = embedder
        self._clock = clock
        self.scope = scope
        self.fusion = fusion or Fusion()
        self.journal: list[Applied] = []

    @classmethod
    def empty(
        cls,
        encoder: Encoder | None,
        *,
        scope: Scope | None = None,
        clock: Clock = now,
        fusion: Fusion | None = None,
        cached: int = 20_000,
    ) -> Bank:
        """A bank in memory alone. Without an encoder only lexical searches work; `cached` texts keep their vectors."""
        embedder = None if encoder is None else Embedder(encoder, cached)
        return cls(Overlay(), embedder, scope=scope or EVERYWHERE, clock=clock, fusion=fusion)

    @classmethod
    def on(
        cls,
        base: Base,
        embedder: Embedder | None,
        *,
        scope: Scope,
        clock: Clock = now,
        fusion: Fusion | None = None,
    ) -> Bank:
        """A bank over a snapshot of a store."""
        return cls(Overlay(base), embedder, scope=scope, clock=clock, fusion=fusion)

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

    def fork(self) -> Bank:
        """An overlay over the present state, in constant time. Neither side sees what the other writes from here on."""
        return Bank(self._overlay.fork(), self._embedder, scope=self.scope, clock=self._clock, fusion=self.fusion)

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
        return self.get(self._run(Operation(OperationKind.ADD, text=text), draft).item)

    def add_many(
        self,
        texts: Iterable[str],
        *,
        provenances: Iterable[Provenance] | None = None,
        event_times: Iterable[Timestamp] | None = None,
        kind: ItemKind | str = ItemKind.FACT,
        deduplicate: bool = True,
    ) -> list[Item]:
        """`add` for many texts; nothing is stored if one of them is bad. Vectors are made in one batch at the first search."""
        texts = list(texts)
        sources = [UNKNOWN] * len(texts) if provenances is None else list(provenances)
        times: list[Timestamp] = [""] * len(texts) if event_times is None else list(event_times)
        if len(sources) != len(texts) or len(times) != len(texts):
            raise ValueError(f"{len(texts)} texts came with {len(sources)} provenances and {len(times)} event times")
        for number, text in enumerate(texts):
            checked_text(text, f"text number {number}")
        canonical = [timestamp(time) for time in times]
        return [
            self.add(text, provenance=source, event_time=time, kind=kind, deduplicate=deduplicate)
            for text, source, time in zip(texts, sources, canonical, strict=True)
        ]

    def apply(
        self,
        operation: Operation,
        *,
        provenance: Provenance = UNKNOWN,
        event_time: Timestamp = "",
        kind: ItemKind | str = ItemKind.FACT,
        key: str = "",
        trust: float = 1.0,
    ) -> Outcome:
        """Carry out what an agent asked for. Never raises on a bad operation: it changes nothing and says why."""
        draft = Draft(
            kind=ItemKind(kind),
            key=key,
            scope=self.scope,
            event_time=timestamp(event_time),
            provenance=provenance,
            trust=trust,
        )
        return self._run(operation, draft)

    def credit(self, id: str, reward: float, propensity: float = 1.0) -> Item:
        """Note that showing item `id`, which had probability `propensity`, was followed by `reward`."""
        self.get(id)
        self._run(Credit(checked_reward(reward), ((id, propensity),)), Draft(scope=self.scope))
        return self.get(id)

    def set_status(self, id: str, status: Status) -> Item:
        """Hold an item back, or let it be found again."""
        self.get(id)
        self._run(Assignment(id, {"status": status.value}), Draft(scope=self.scope))
        return self.get(id)

    def search(self, query: str, k: int = 10, *, mode: str = "hybrid", **options: Unpack[SearchOptions]) -> list[Hit]:
        """The `k` best items for `query`, best first. See `search_many`."""
        return self.search_many([query], k, mode=mode, **options)[0]

    def search_many(
        self,
        queries: Sequence[str],
        k: int = 10,
        *,
        mode: str = "hybrid",
        beyond: int = 0,
        **options: Unpack[SearchOptions],
    ) -> list[list[Hit]]:
        """One list of hits per query; queries are encoded together, and compared with the vectors in one matrix product.

        mode: "lexical" (BM25), "dense" (cosine) or "hybrid" (both, fused as `self.fusion` says). options: see
        `retrieval.SearchOptions`. beyond: how many more are returned after them. Raises InvalidFilter, InvalidTime, NoEncoder.
        """
        for number, query in enumerate(queries):
            if not isinstance(query, str):
                raise InvalidText(f"query number {number} must be text, got {type(query).__name__}")
            if len(query) > LONGEST_QUERY:
                raise InvalidText(
                    f"query number {number} is {len(query):,} characters long, the limit is {LONGEST_QUERY:,}: ask with the part "
                    "that matters"
                )
        checked_options(options)
        request = replace(request_for(k, mode, **options), beyond=beyond)
        return retrieve(self._overlay, self._embedder, self.fusion, queries, request, self._clock())

    def commit_to(self, store: Store, episode: str = "") -> list[Outcome]:
        """Do on the store, in one transaction, what was done here; ids that were new here become new ids there."""
        renamed: dict[str, str] = {}

        def work(transaction: Transaction) -> list[Outcome]:
            outcomes = []
            for entry in self.journal:
                act = renamed_act(entry.act, renamed)
                outcome = transaction.perform(act, entry.draft, now=self._clock(), episode=episode)
                if entry.outcome.item and outcome.item:
                    renamed[entry.outcome.item] = outcome.item
                outcomes.append(outcome)
            return outcomes

        texts = [entry.draft.key or entry.act.text for entry in self.journal if isinstance(entry.act, Operation)]
        vectors = store.encode(text for text in texts if text)
        outcomes = store.change(self.scope, work, vectors, bounded=True)
        self.journal = []
        return list(outcomes)

    def _run(self, act: Act, draft: Draft) -> Outcome:
        outcome = execute(self._overlay, act, draft, new_id=f"m{self._overlay.next_number}", now=self._clock())
        if outcome.applied:
            if outcome.item == f"m{self._overlay.next_number}":
                self._overlay.next_number += 1
            self.journal.append(Applied(act, draft, outcome))
        return outcome
