"""Finding items in a stack of layers: two rankings, filters, fusion, diversity, and an account of every score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypedDict

from keepworth.memory.embedding import Embedder
from keepworth.memory.errors import InvalidFilter, NoEncoder, UnknownOption
from keepworth.memory.item import Item, ItemKind, Status, kind_named, status_named
from keepworth.memory.lexical import CorpusStatistics, term_score, tokens, total
from keepworth.memory.moment import Moment, moment
from keepworth.memory.ranking import (
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
from keepworth.memory.shelf import Stack

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

POOL = 50
"""How many candidates each part of a hybrid search proposes, or five times k where that is more."""

LONGEST_QUERY = 200_000
"""Characters: every word of a query is looked up."""

MOST = 1_000_000_000
"""Hits one search may be asked for; more than a memory holds is as good as all."""

Where = Mapping[str, Any] | Callable[[Item], bool] | None
"""A filter: metadata that must be equal, or a function of the item."""


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
        """`since` and `until` bound the event time, or the time of writing where no other is known: since <= time < until."""
        if self.as_of:
            if not item.valid_at(self.as_of):
                return False
        elif not item.open or not item.in_force(time):
            return False
        when = item.event_time or item.written_at
        return (
            item.status in self.statuses
            and (not self.kinds or item.kind in self.kinds)
            and (not self.since or self.since <= when)
            and (not self.until or when < self.until)
            and self._meets(item)
        )

    def _meets(self, item: Item) -> bool:
        if self.where is None:
            return True
        if callable(self.where):
            return self.where(item)
        return all(key in item.metadata and item.metadata[key] == value for key, value in self.where.items())

    @property
    def beyond_current(self) -> bool:
        """Whether it may admit items that are not current, which the indexes do not hold."""
        return bool(self.as_of) or self.statuses != (Status.ACTIVE,)


EVERYTHING = Selection()


class SearchOptions(TypedDict, total=False):
    """What a search can be told, by keyword, next to how many hits are wanted and by what they are found.

    explain: give each hit `.why`, from which its score can be computed again.
    kinds, statuses, where (metadata that must be equal, or a function of the item), since <= event time < until: filters. An item
    without an event time has the time at which it was written.
    as_of: the items held true at that time, superseded ones too.
    diversity: 0 to 1, weight of unlikeness to what was already taken (needs vectors).
    reranker: scores the pooled candidates anew, (query, texts) -> scores, as a cross-encoder does; its order wins.
    """

    explain: bool
    kinds: Sequence[ItemKind | str]
    statuses: Sequence[Status | str]
    where: Where
    since: Moment
    until: Moment
    as_of: Moment
    diversity: float
    reranker: Reranker | None


def request_for(
    k: int,
    mode: str,
    *,
    explain: bool = False,
    kinds: Sequence[ItemKind | str] = (),
    statuses: Sequence[Status | str] = (Status.ACTIVE,),
    where: Where = None,
    since: Moment = "",
    until: Moment = "",
    as_of: Moment = "",
    diversity: float = 0.0,
    reranker: Reranker | None = None,
) -> Request:
    """SearchOptions, with what they are where not said, checked. Raises InvalidFilter, InvalidTime."""
    selection = Selection(
        tuple(kind_named(kind) for kind in several(kinds, "kinds", "fact")),
        tuple(status_named(status) for status in several(statuses, "statuses", "active")),
        where,
        moment(since),
        moment(until),
        moment(as_of),
    )
    return Request(k, mode, explain, selection, diversity, reranker)


def checked_options(options: Mapping[str, Any]) -> None:
    """Raise UnknownOption for names that SearchOptions does not have."""
    unknown = sorted(set(options) - set(SearchOptions.__annotations__))
    if unknown:
        raise UnknownOption(
            f"a search has no option {unknown[0]!r}: there are top_k, threshold, mode, {', '.join(SearchOptions.__annotations__)}"
        )


def _check_where(where: object) -> None:
    """Raise InvalidFilter for a filter that no item can ever meet: metadata is compared whole, and there are no operators."""
    if where is None or callable(where):
        return
    if not isinstance(where, Mapping):
        raise InvalidFilter(f"where must be metadata as a dictionary or a function of the item, got {where!r:.60}")
    for name, value in where.items():
        if not isinstance(name, str):
            raise InvalidFilter(f"where: names of metadata are text, got {name!r:.40}")
        operators = isinstance(value, Mapping) and any(str(key).startswith("$") for key in value)
        if operators or isinstance(value, (set, frozenset, tuple, bytes)):
            raise InvalidFilter(
                f"where: metadata {name!r} is never equal to {value!r:.60}, and there are no operators: give a function of the "
                f"item, such as where=lambda item: item.metadata.get({name!r}) in (...)"
            )


def several(names: object, what: str, such: str) -> Iterable[Any]:
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise InvalidFilter(f"{what} takes several, got {names!r:.40}: give a list such as [{such!r}]")
    return names


def checked_count(k: int) -> None:
    """Raise InvalidFilter for what cannot be a number of hits."""
    if not isinstance(k, Integral) or isinstance(k, bool) or not 1 <= k <= MOST:
        raise InvalidFilter(f"k must be a whole number from 1 to {MOST:,}, got {k!r:.40}")


@dataclass(frozen=True, slots=True)
class Request:
    """What a search asks for; see `SearchOptions`. Raises InvalidFilter for what does not exist or cannot take effect."""

    k: int
    mode: str = "hybrid"
    explain: bool = False
    selection: Selection = EVERYTHING
    diversity: float = 0.0
    reranker: Reranker | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InvalidFilter(f"mode {self.mode!r} does not exist: use one of {', '.join(MODES)}")
        checked_count(self.k)
        _check_where(self.selection.where)
        if not isinstance(self.diversity, (int, float)) or not 0.0 <= self.diversity <= 1.0:
            raise InvalidFilter(f"diversity must lie in [0, 1], got {self.diversity!r:.40}")
        if self.reranker is not None and not callable(self.reranker):
            raise InvalidFilter(f"reranker must be a function (query, texts) -> scores, got {self.reranker!r:.60}")

    @property
    def pool(self) -> int:
        """Candidates per part: k alone unless something after the ranking chooses among more."""
        plain = self.mode != "hybrid" and not self.diversity and self.reranker is None
        return self.k if plain else max(POOL, 5 * self.k)


def retrieve(
    stack: Stack, embedder: Embedder | None, fusion: Fusion, queries: Sequence[str], request: Request, time: str
) -> list[list[Hit]]:
    """Hits for each query, best first. time: what "now" means for expiry. Raises NoEncoder."""
    if embedder is None and (request.mode != "lexical" or request.diversity):
        raise NoEncoder(f"a {request.mode} search needs an encoder and there is none: give one, or use mode='lexical'")
    searched = with_others(stack, request.selection, time) if request.selection.beyond_current else stack

    def wanted(id: str) -> bool:
        item = stack.get(id)
        return item is not None and request.selection.admits(item, time)

    terms = [list(dict.fromkeys(tokens(query))) for query in queries]
    lexical: list[Ranked] = [[] for _ in queries]
    dense: list[Ranked] = [[] for _ in queries]
    # Over a store, the full-text index is read while the encoder is at work: on a laptop each takes some milliseconds.
    beside = request.mode == "hybrid" and stack.ground is not None
    vectors = embedder.begin(queries) if embedder is not None and beside else None
    if request.mode != "dense":
        lexical = [lexical_ranking(searched, listed, request.pool, wanted) for listed in terms]
    if embedder is not None and request.mode != "lexical":
        encoded = vectors() if vectors is not None else embedder(queries)
        dense = dense_rankings(searched, encoded, request.pool, wanted, embedder)
    out = []
    for query, listed, by_words, by_meaning in zip(queries, terms, lexical, dense, strict=True):
        out.append(_chosen(stack, searched, query, listed, by_words, by_meaning, request, fusion, embedder))
    return out


def with_others(stack: Stack, selection: Selection, time: str) -> Stack:
    """`stack` with the items that are not current but that `selection` admits made searchable."""
    twin = stack.fork()
    others = [item for item in stack.closed() if selection.admits(item, time)]
    for item in others:
        twin.put(replace(item, status=Status.ACTIVE, ended_at="", superseded_by=""))
    if others and stack.ground is not None:
        twin.shelves[-1].preset(stack.ground.vectors_for(others))
    return twin


def statistics(stack: Stack, terms: Sequence[str]) -> CorpusStatistics:
    parts = [shelf.index.statistics(terms, stack.hidden(level)) for level, shelf in enumerate(stack.shelves)]
    if stack.ground is not None:
        parts.append(stack.ground.statistics(terms))
    return total(parts)


def lexical_ranking(stack: Stack, terms: Sequence[str], count: int, wanted: Callable[[str], bool]) -> Ranked:
    """The `count` best wanted items by BM25 over all layers, with the statistics of the whole; zero scores left out."""
    if not terms:
        return []
    corpus = statistics(stack, terms)
    scored = [(level, shelf.index.scores(terms, corpus)) for level, shelf in enumerate(stack.shelves)]
    ground = stack.ground

    def below(number: int) -> Ranked:
        return ground.lexical(terms, number, stack.covered(), corpus) if ground is not None else []

    return _ranked(stack, scored, below, count, wanted, above=0.0)


def dense_rankings(
    stack: Stack, vectors: Vectors, count: int, wanted: Callable[[str], bool], embedder: Embedder
) -> list[Ranked]:
    """Per query the `count` best wanted items by cosine: one matrix product per layer for all of them.

    vectors: (queries, dimension), unit rows.
    """
    scored = [
        (level, vectors @ shelf.vectors(embedder).T) for level, shelf in enumerate(stack.shelves) if shelf.row_ids
    ]
    ground = stack.ground
    covered = stack.covered()
    proposed = ground.dense(vectors, count, covered) if ground is not None else None

    def one(query: int) -> Ranked:
        def below(number: int) -> Ranked:
            if ground is None or proposed is None:
                return []
            return proposed[query] if number == count else ground.dense(vectors[query : query + 1], number, covered)[0]

        mine = [(level, part[query]) for level, part in scored]
        return _ranked(stack, mine, below, count, wanted, above=float("-inf"))

    return [one(query) for query in range(len(vectors))]


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
    scores = np.zeros(0)
    if scored:
        scores = np.concatenate([part for _, part in scored])
        start = 0
        for level, part in scored:
            hidden = stack.hidden(level)
            if len(hidden):
                scores[hidden + start] = -np.inf
            start += len(part)
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


def _chosen(
    stack: Stack,
    searched: Stack,
    query: str,
    terms: list[str],
    lexical: Ranked,
    dense: Ranked,
    request: Request,
    fusion: Fusion,
    embedder: Embedder | None,
) -> list[Hit]:
    ranked = fuse(lexical, dense, fusion) if request.mode == "hybrid" else lexical or dense
    if request.reranker is not None and ranked:
        texts = [item.text for item in _items(stack, ranked)]
        fresh = [float(score) for score in request.reranker(query, texts)]
        if len(fresh) != len(texts):
            raise InvalidFilter(f"the reranker gave {len(fresh)} scores for {len(texts)} texts")
        ranked = sorted(zip((id for id, _ in ranked), fresh, strict=True), key=lambda pair: -pair[1])
    if request.diversity and len(ranked) > 1:
        assert embedder is not None
        likeness = embedder([item.searched_text for item in _items(stack, ranked)])
        order = diversified([score for _, score in ranked], likeness, request.k, request.diversity)
        ranked = [ranked[position] for position in order]
    ranked = ranked[: request.k]
    by_words, by_meaning = dict(lexical), dict(dense)
    hits = [
        Hit(item, score, by_words.get(id), by_meaning.get(id))
        for item, (id, score) in zip(_items(stack, ranked), ranked, strict=True)
    ]
    if not request.explain:
        return hits
    return [_explained(searched, hit, terms, lexical, dense, request, fusion) for hit in hits]


def _explained(
    searched: Stack, hit: Hit, terms: list[str], lexical: Ranked, dense: Ranked, request: Request, fusion: Fusion
) -> Hit:
    ranks = [{id: rank for rank, (id, _) in enumerate(part, start=1)}.get(hit.id) for part in (lexical, dense)]
    corpus = statistics(searched, terms)
    words = tokens(f"{hit.item.key}\n{hit.item.text}" if hit.item.key else hit.item.text)
    counts = Counter(words)
    parts = {
        term: term_score(counts[term], len(words), corpus.weight(term), corpus.mean_length)
        for term in terms
        if term in counts
    }
    if request.reranker is not None:
        formula = f"{hit.score:.10g}"
    elif request.mode == "hybrid":
        top = lexical[0][1] if lexical else 1.0
        formula = fusion_formula(fusion, ranks[0], ranks[1], hit.lexical, hit.dense, top)
    else:
        formula = " + ".join(f"{part:.10g}" for part in (parts.values() if request.mode == "lexical" else (hit.score,)))
    return replace(hit, why=Explanation(ranks[0], ranks[1], parts, formula))


def _items(stack: Stack, ranked: Ranked) -> list[Item]:
    found = (stack.get(id) for id, _ in ranked)
    return [item for item in found if item is not None]
