"""Bank: what an agent holds. A scoped view over a snapshot of memory, with an overlay of its own.

    bank = Bank.empty(encoder)
    bank.add("Ana is allergic to peanuts", event_time="2026-01-31")
    bank.search("what must Ana not eat?", k=5)

`fork()` gives every member of a group its own overlay over the same items; `apply()` takes what a model asked for and
always answers; `content_hash()` names the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from recollect.episodes.encoder import Encoder
from recollect.episodes.operation import Operation, OperationKind
from recollect.memory.embedding import Embedder
from recollect.memory.errors import InvalidFilter, NoEncoder, UnknownItem
from recollect.memory.item import UNKNOWN, Item, ItemKind, Provenance, Status, checked_text
from recollect.memory.lexical import CorpusStatistics, term_score, tokens, total
from recollect.memory.moment import Clock, Moment, moment, now
from recollect.memory.operations import Act, Assignment, Credit, Draft, Outcome, execute, renamed_act
from recollect.memory.ranking import (
    MODES,
    Explanation,
    Fusion,
    Hit,
    Ranked,
    Reranker,
    best,
    diversified,
    fuse,
    fusion_formula,
)
from recollect.memory.scope import EVERYWHERE, Scope
from recollect.memory.shelf import Ground, Stack

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from recollect.memory.store import Store
    from recollect.memory.transaction import Transaction

    Vectors = npt.NDArray[np.float32]


Where = Mapping[str, Any] | Callable[[Item], bool] | None
"""A filter: metadata that must be equal, or a function of the item."""


@dataclass(frozen=True, slots=True)
class Applied:
    """One entry of a bank's own journal: enough to do it again on the store the bank was opened from."""

    act: Act
    draft: Draft
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Selection:
    """Which items a search may return. kinds: () for all; where: a filter of the caller; as_of: the past, as a time."""

    kinds: tuple[ItemKind, ...] = ()
    statuses: tuple[Status, ...] = (Status.ACTIVE,)
    where: Where = None
    since: str = ""
    until: str = ""
    as_of: str = ""

    def admits(self, item: Item, time: str) -> bool:
        """`since` and `until` bound the event time: since <= time < until."""
        if self.as_of:
            if not item.valid_at(self.as_of):
                return False
        elif (
            not item.open or (item.expires_at and item.expires_at <= time) or (item.valid_to and item.valid_to <= time)
        ):
            return False
        return (
            item.status in self.statuses
            and (not self.kinds or item.kind in self.kinds)
            and (not self.since or self.since <= item.event_time)
            and (not self.until or item.event_time < self.until)
            and self._meets(item)
        )

    def _meets(self, item: Item) -> bool:
        if self.where is None:
            return True
        if callable(self.where):
            return self.where(item)
        return all(item.metadata.get(key) == value for key, value in self.where.items())

    @property
    def past_or_hidden(self) -> bool:
        """Whether it may admit items that are not current, which the indexes do not hold."""
        return bool(self.as_of) or self.statuses != (Status.ACTIVE,)


class Bank:
    """Not thread-safe itself; forks of one bank may be used by different threads at once."""

    __slots__ = ("_clock", "_embedder", "_stack", "fusion", "journal", "scope")

    def __init__(
        self, stack: Stack, embedder: Embedder | None, *, scope: Scope, clock: Clock = now, fusion: Fusion | None = None
    ) -> None:
        self._stack = stack
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
        return cls(Stack(), embedder, scope=scope or EVERYWHERE, clock=clock, fusion=fusion)

    @classmethod
    def on(
        cls,
        ground: Ground,
        embedder: Embedder | None,
        *,
        scope: Scope,
        clock: Clock = now,
        fusion: Fusion | None = None,
    ) -> Bank:
        """A bank over a snapshot of a store."""
        return cls(Stack(ground), embedder, scope=scope, clock=clock, fusion=fusion)

    def __len__(self) -> int:
        """How many items are current."""
        return self._stack.count

    def items(self, *, all_states: bool = False) -> Iterator[Item]:
        """Current items in order of writing; with `all_states`, superseded, deleted and held back ones too."""
        return (item for item in self._stack.items() if all_states or item.current)

    def get(self, id: str) -> Item:
        """The item in its latest state, closed ones too. Raises UnknownItem."""
        item = self._stack.get(id)
        if item is None:
            raise UnknownItem(f"no item {id!r:.80} in this bank")
        return item

    def fork(self) -> Bank:
        """An overlay over the present state, in constant time. Neither side sees what the other writes from here on."""
        return Bank(self._stack.fork(), self._embedder, scope=self.scope, clock=self._clock, fusion=self.fusion)

    def content_hash(self) -> str:
        """64 hex digits over all items but their clocks and value statistics; equal states give equal hashes."""
        return f"{self._stack.total:064x}"

    def add(
        self,
        text: str,
        *,
        provenance: Provenance = UNKNOWN,
        event_time: Moment = "",
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
            event_time=moment(event_time),
            provenance=provenance,
            trust=trust,
            metadata=dict(metadata or {}),
            deduplicate=deduplicate,
        )
        return self.get(self._run(Operation(OperationKind.ADD, text=text), draft).item)

    def add_many(
        self,
        texts: Iterable[str],
        *,
        provenances: Iterable[Provenance] | None = None,
        event_times: Iterable[Moment] | None = None,
        kind: ItemKind | str = ItemKind.FACT,
        deduplicate: bool = True,
    ) -> list[Item]:
        """`add` for many texts; nothing is stored if one of them is bad. Vectors are made in one batch at the first search."""
        texts = list(texts)
        sources = [UNKNOWN] * len(texts) if provenances is None else list(provenances)
        times: list[Moment] = [""] * len(texts) if event_times is None else list(event_times)
        if len(sources) != len(texts) or len(times) != len(texts):
            raise ValueError(f"{len(texts)} texts came with {len(sources)} provenances and {len(times)} event times")
        for number, text in enumerate(texts):
            checked_text(text, f"text number {number}")
        canonical = [moment(time) for time in times]
        return [
            self.add(text, provenance=source, event_time=time, kind=kind, deduplicate=deduplicate)
            for text, source, time in zip(texts, sources, canonical, strict=True)
        ]

    def apply(
        self,
        operation: Operation,
        *,
        provenance: Provenance = UNKNOWN,
        event_time: Moment = "",
        kind: ItemKind | str = ItemKind.FACT,
        key: str = "",
        trust: float = 1.0,
    ) -> Outcome:
        """Carry out what an agent asked for. Never raises on a bad operation: it changes nothing and says why."""
        draft = Draft(
            kind=ItemKind(kind),
            key=key,
            scope=self.scope,
            event_time=moment(event_time),
            provenance=provenance,
            trust=trust,
        )
        return self._run(operation, draft)

    def credit(self, id: str, reward: float, propensity: float = 1.0) -> Item:
        """Note that showing item `id`, which had probability `propensity`, was followed by `reward`."""
        self.get(id)
        self._run(Credit(reward, ((id, propensity),)), Draft(scope=self.scope))
        return self.get(id)

    def set_status(self, id: str, status: Status) -> Item:
        """Hold an item back, or let it be found again."""
        self.get(id)
        self._run(Assignment(id, {"status": status.value}), Draft(scope=self.scope))
        return self.get(id)

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        mode: str = "hybrid",
        explain: bool = False,
        kinds: Sequence[ItemKind | str] = (),
        statuses: Sequence[Status | str] = (Status.ACTIVE,),
        where: Where = None,
        since: Moment = "",
        until: Moment = "",
        as_of: Moment = "",
        diversity: float = 0.0,
        reranker: Reranker | None = None,
    ) -> list[Hit]:
        """The `k` best items for `query`, best first. See `search_many` for the options."""
        return self.search_many(
            [query],
            k,
            mode=mode,
            explain=explain,
            kinds=kinds,
            statuses=statuses,
            where=where,
            since=since,
            until=until,
            as_of=as_of,
            diversity=diversity,
            reranker=reranker,
        )[0]

    def search_many(
        self,
        queries: Sequence[str],
        k: int = 10,
        *,
        mode: str = "hybrid",
        explain: bool = False,
        kinds: Sequence[ItemKind | str] = (),
        statuses: Sequence[Status | str] = (Status.ACTIVE,),
        where: Where = None,
        since: Moment = "",
        until: Moment = "",
        as_of: Moment = "",
        diversity: float = 0.0,
        reranker: Reranker | None = None,
    ) -> list[list[Hit]]:
        """One list of hits per query; queries are encoded together.

        mode: "lexical" (BM25), "dense" (cosine) or "hybrid" (both, fused as `self.fusion` says).
        kinds, statuses, where (metadata that must be equal, or a function of the item), since <= event time < until: filters.
        as_of: the items held true at that time, superseded ones too.
        diversity: 0 to 1, weight of unlikeness to what was already taken (needs vectors).
        reranker: scores the pooled candidates anew, (query, texts) -> scores; its order wins.
        """
        if mode not in MODES:
            raise InvalidFilter(f"mode {mode!r} does not exist: use one of {', '.join(MODES)}")
        if k < 1:
            raise InvalidFilter(f"k must be at least 1, got {k}")
        if not 0.0 <= diversity <= 1.0:
            raise InvalidFilter(f"diversity must lie in [0, 1], got {diversity}")
        if self._embedder is None and (mode != "lexical" or diversity):
            raise NoEncoder(f"a {mode} search needs an encoder and this bank has none: give one, or use mode='lexical'")
        selection = Selection(
            tuple(ItemKind(kind) for kind in kinds),
            tuple(Status(status) for status in statuses),
            where,
            moment(since),
            moment(until),
            moment(as_of),
        )
        stack = self._selected(selection) if selection.past_or_hidden else self._stack
        vectors = self._embedder(queries) if self._embedder is not None and mode != "lexical" else None
        request = _Request(k, mode, explain, selection, diversity, reranker)
        return [
            self._one(stack, query, None if vectors is None else vectors[number], request)
            for number, query in enumerate(queries)
        ]

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
        outcomes = store.change(self.scope, work, vectors)
        self.journal = []
        return list(outcomes)

    def _run(self, act: Act, draft: Draft) -> Outcome:
        outcome = execute(self._stack, act, draft, new_id=f"m{self._stack.next_number}", now=self._clock())
        if outcome.applied:
            if outcome.item == f"m{self._stack.next_number}":
                self._stack.next_number += 1
            self.journal.append(Applied(act, draft, outcome))
        return outcome

    def _selected(self, selection: Selection) -> Stack:
        """Items that are not in the indexes (the past, or held back), made searchable for one search."""
        time = self._clock()
        chosen = Stack()
        for item in self._stack.items():
            if selection.admits(item, time):
                plain = replace(item, status=Status.ACTIVE, ended_at="", superseded_by="", valid_to="", expires_at="")
                chosen.put(plain)
        return chosen

    def _one(self, stack: Stack, query: str, vector: Vectors | None, request: _Request) -> list[Hit]:
        time = self._clock()
        admits = request.selection.admits

        def wanted(id: str) -> bool:
            item = self._stack.get(id)
            return item is not None and admits(item, time)

        terms = list(dict.fromkeys(tokens(query)))
        pool = request.k if request.mode != "hybrid" and not request.widened else max(50, 5 * request.k)
        lexical = [] if request.mode == "dense" else _lexical(stack, terms, pool, wanted)
        dense = [] if vector is None else _dense(stack, vector, pool, wanted, self._embedder)
        if request.mode == "hybrid":
            ranked = fuse(lexical, dense, self.fusion)
        else:
            ranked = lexical or dense
        if request.reranker is not None and ranked:
            texts = [self.get(id).text for id, _ in ranked]
            fresh = [float(score) for score in request.reranker(query, texts)]
            if len(fresh) != len(texts):
                raise InvalidFilter(f"the reranker gave {len(fresh)} scores for {len(texts)} texts")
            ranked = sorted(zip((id for id, _ in ranked), fresh, strict=True), key=lambda pair: -pair[1])
        if request.diversity and len(ranked) > 1:
            assert self._embedder is not None
            likeness = self._embedder([self.get(id).searched_text for id, _ in ranked])
            order = diversified([score for _, score in ranked], likeness, request.k, request.diversity)
            ranked = [ranked[position] for position in order]
        by_lexical, by_dense = dict(lexical), dict(dense)
        hits = [Hit(self.get(id), score, by_lexical.get(id), by_dense.get(id)) for id, score in ranked[: request.k]]
        if not request.explain:
            return hits
        return [self._explained(stack, hit, terms, lexical, dense, request) for hit in hits]

    def _explained(
        self, stack: Stack, hit: Hit, terms: list[str], lexical: Ranked, dense: Ranked, request: _Request
    ) -> Hit:
        ranks = [{id: rank for rank, (id, _) in enumerate(part, start=1)}.get(hit.id) for part in (lexical, dense)]
        statistics = _statistics(stack, terms)
        words = tokens(f"{hit.item.key}\n{hit.item.text}" if hit.item.key else hit.item.text)
        parts = {
            term: term_score(words.count(term), len(words), statistics.weight(term), statistics.mean_length)
            for term in terms
            if term in words
        }
        if request.reranker is not None:
            formula = "given by the reranker"
        elif request.mode == "hybrid":
            top = lexical[0][1] if lexical else 1.0
            formula = fusion_formula(self.fusion, ranks[0], ranks[1], hit.lexical, hit.dense, top)
        else:
            formula = "sum of terms" if request.mode == "lexical" else "cosine"
        return replace(hit, why=Explanation(ranks[0], ranks[1], parts, formula))


@dataclass(frozen=True, slots=True)
class _Request:
    k: int
    mode: str
    explain: bool
    selection: Selection
    diversity: float
    reranker: Reranker | None

    @property
    def widened(self) -> bool:
        """Whether something after the ranking chooses among more than k."""
        return bool(self.diversity) or self.reranker is not None


def _statistics(stack: Stack, terms: Sequence[str]) -> CorpusStatistics:
    parts = [shelf.index.statistics(terms, stack.hidden(level)) for level, shelf in enumerate(stack.shelves)]
    if stack.ground is not None:
        parts.append(stack.ground.statistics(terms))
    return total(parts)


def _lexical(stack: Stack, terms: Sequence[str], count: int, wanted: Callable[[str], bool]) -> Ranked:
    """BM25 over all layers with the statistics of the whole, best first, zero scores left out."""
    statistics = _statistics(stack, terms)
    scored = [(level, shelf.index.scores(terms, statistics)) for level, shelf in enumerate(stack.shelves)]
    ground = stack.ground

    def below(number: int) -> Ranked:
        return ground.lexical(terms, number, stack.covered()) if ground is not None else []

    return _ranked(stack, scored, below, count, wanted, above=0.0)


def _dense(
    stack: Stack, vector: Vectors, count: int, wanted: Callable[[str], bool], embedder: Embedder | None
) -> Ranked:
    """Cosines over all layers, best first."""
    assert embedder is not None
    scored = [(level, shelf.vectors(embedder) @ vector) for level, shelf in enumerate(stack.shelves) if shelf.row_ids]
    ground = stack.ground

    def below(number: int) -> Ranked:
        return ground.dense(vector, number, stack.covered()) if ground is not None else []

    return _ranked(stack, scored, below, count, wanted, above=float("-inf"))


def _ranked(
    stack: Stack,
    scored: Sequence[tuple[int, Any]],
    below: Callable[[int], Ranked],
    count: int,
    wanted: Callable[[str], bool],
    above: float,
) -> Ranked:
    """The `count` best wanted rows of all layers, the ground first among equals. Looks deeper while filters thin it out."""
    import numpy as np

    ids = [id for level, _ in scored for id in stack.shelves[level].row_ids]
    if scored:
        scores = np.concatenate([part for _, part in scored])
        start = 0
        for level, part in scored:
            hidden = stack.hidden(level)
            if len(hidden):
                scores[hidden + start] = -np.inf
            start += len(part)
    else:
        scores = np.zeros(0)
    reach = count
    while True:
        under = below(reach)
        found = [(ids[row], float(scores[row])) for row in best(scores, reach) if scores[row] > above]
        merged = sorted([*under, *found], key=lambda pair: -pair[1])[:reach]
        if stack.ground is not None:
            stack.ground.fetch([id for id, _ in merged])
        kept = [pair for pair in merged if wanted(pair[0])][:count]
        if len(kept) == count or len(merged) < reach:
            return kept
        reach *= 4
