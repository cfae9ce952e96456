"""Finding items in a overlay of layers: two rankings, filters, fusion, diversity, and an account of every score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypedDict

from keepworth.memory.errors import InvalidFilter, NoEncoder, UnknownOption
from keepworth.memory.item import Item, ItemKind, Status, Timestamp, kind_named, status_named, timestamp
from keepworth.memory.overlay.layers import Overlay
from keepworth.memory.search.index import CorpusStatistics, Embedder, best, term_score, tokens, total
from keepworth.memory.search.ranking import (
    MODES,
    Explanation,
    Fusion,
    Hit,
    Ranked,
    Reranker,
    diversified,
    fuse,
    fusion_formula,
)

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
    since: Timestamp
    until: Timestamp
    as_of: Timestamp
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
    since: Timestamp = "",
    until: Timestamp = "",
    as_of: Timestamp = "",
    diversity: float = 0.0,
    reranker: Reranker | None = None,
) -> Request:
    """SearchOptions, with what they are where not said, checked. Raises InvalidFilter, InvalidTime."""
    selection = Selection(
        tuple(kind_named(kind) for kind in several(kinds, "kinds", "fact")),
        tuple(status_named(status) for status in several(statuses, "statuses", "active")),
        where,
        timestamp(since),
        timestamp(until),
        timestamp(as_of),
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
    """What a search asks for; see `SearchOptions`. Raises InvalidFilter for what does not exist or cannot take effect.

    beyond: how many hits after the k best are returned too, where there are any. The k best are the same."""

    k: int
    mode: str = "hybrid"
    explain: bool = False
    selection: Selection = EVERYTHING
    diversity: float = 0.0
    reranker: Reranker | None = None
    beyond: int = 0

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
        return self.k + self.beyond if plain else max(POOL, 5 * self.k)


def retrieve(
    overlay: Overlay, embedder: Embedder | None, fusion: Fusion, queries: Sequence[str], request: Request, time: str
) -> list[list[Hit]]:
    """Hits for each query, best first. time: what "now" means for expiry. Raises NoEncoder."""
    if embedder is None and (request.mode != "lexical" or request.diversity):
        raise NoEncoder(f"a {request.mode} search needs an encoder and there is none: give one, or use mode='lexical'")
    searched = with_others(overlay, request.selection, time) if request.selection.beyond_current else overlay

    def wanted(id: str) -> bool:
        item = overlay.get(id)
        return item is not None and request.selection.admits(item, time)

    terms = [list(dict.fromkeys(tokens(query))) for query in queries]
    lexical: list[Ranked] = [[] for _ in queries]
    dense: list[Ranked] = [[] for _ in queries]
    # Over a store, the full-text index is read while the encoder is at work: on a laptop each takes some milliseconds.
    beside = request.mode == "hybrid" and overlay.base is not None
    vectors = embedder.begin(queries) if embedder is not None and beside else None
    if request.mode != "dense":
        lexical = [lexical_ranking(searched, listed, request.pool, wanted) for listed in terms]
    if embedder is not None and request.mode != "lexical":
        encoded = vectors() if vectors is not None else embedder(queries)
        dense = dense_rankings(searched, encoded, request.pool, wanted, embedder)
    out = []
    for query, listed, by_words, by_meaning in zip(queries, terms, lexical, dense, strict=True):
        out.append(_chosen(overlay, searched, query, listed, by_words, by_meaning, request, fusion, embedder))
    return out


def with_others(overlay: Overlay, selection: Selection, time: str) -> Overlay:
    """`overlay` with the items that are not current but that `selection` admits made searchable."""
    twin = overlay.fork()
    others = [item for item in overlay.closed() if selection.admits(item, time)]
    for item in others:
        twin.put(replace(item, status=Status.ACTIVE, ended_at="", superseded_by=""))
    if others and overlay.base is not None:
        twin.layers[-1].preset(overlay.base.vectors_for(others))
    return twin


def statistics(overlay: Overlay, terms: Sequence[str]) -> CorpusStatistics:
    parts = [layer.index.statistics(terms, overlay.hidden(level)) for level, layer in enumerate(overlay.layers)]
    if overlay.base is not None:
        parts.append(overlay.base.statistics(terms))
    return total(parts)


def lexical_ranking(overlay: Overlay, terms: Sequence[str], count: int, wanted: Callable[[str], bool]) -> Ranked:
    """The `count` best wanted items by BM25 over all layers, with the statistics of the whole; zero scores left out."""
    if not terms:
        return []
    corpus = statistics(overlay, terms)
    scored = [(level, layer.index.scores(terms, corpus)) for level, layer in enumerate(overlay.layers)]
    base = overlay.base

    def below(number: int) -> Ranked:
        return base.lexical(terms, number, overlay.covered(), corpus) if base is not None else []

    return _ranked(overlay, scored, below, count, wanted, above=0.0)


def dense_rankings(
    overlay: Overlay, vectors: Vectors, count: int, wanted: Callable[[str], bool], embedder: Embedder
) -> list[Ranked]:
    """Per query the `count` best wanted items by cosine: one matrix product per layer for all of them.

    vectors: (queries, dimension), unit rows.
    """
    scored = [
        (level, vectors @ layer.vectors(embedder).T) for level, layer in enumerate(overlay.layers) if layer.row_ids
    ]
    base = overlay.base
    covered = overlay.covered()
    proposed = base.dense(vectors, count, covered) if base is not None else None

    def one(query: int) -> Ranked:
        def below(number: int) -> Ranked:
            if base is None or proposed is None:
                return []
            return proposed[query] if number == count else base.dense(vectors[query : query + 1], number, covered)[0]

        mine = [(level, part[query]) for level, part in scored]
        return _ranked(overlay, mine, below, count, wanted, above=float("-inf"))

    return [one(query) for query in range(len(vectors))]


def _ranked(
    overlay: Overlay,
    scored: Sequence[tuple[int, Any]],
    below: Callable[[int], Ranked],
    count: int,
    wanted: Callable[[str], bool],
    above: float,
) -> Ranked:
    """The `count` best wanted rows of all layers, the base first among equals. Looks deeper while filters thin it out."""
    import numpy as np

    ids = [id for level, _ in scored for id in overlay.layers[level].row_ids]
    scores = np.zeros(0)
    if scored:
        scores = np.concatenate([part for _, part in scored])
        start = 0
        for level, part in scored:
            hidden = overlay.hidden(level)
            if len(hidden):
                scores[hidden + start] = -np.inf
            start += len(part)
    reach = count
    while True:
        under = below(reach)
        found = [(ids[row], float(scores[row])) for row in best(scores, reach) if scores[row] > above]
        merged = sorted([*under, *found], key=lambda pair: -pair[1])[:reach]
        if overlay.base is not None:
            overlay.base.fetch([id for id, _ in merged])
        kept = [pair for pair in merged if wanted(pair[0])][:count]
        if len(kept) == count or len(merged) < reach:
            return kept
        reach *= 4


def _chosen(
    overlay: Overlay,
    searched: Overlay,
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
        texts = [item.text for item in _items(overlay, ranked)]
        fresh = [float(score) for score in request.reranker(query, texts)]
        if len(fresh) != len(texts):
            raise InvalidFilter(f"the reranker gave {len(fresh)} scores for {len(texts)} texts")
        ranked = sorted(zip((id for id, _ in ranked), fresh, strict=True), key=lambda pair: -pair[1])
    if request.diversity and len(ranked) > 1:
        assert embedder is not None
        likeness = embedder([item.searched_text for item in _items(overlay, ranked)])
        order = diversified([score for _, score in ranked], likeness, request.k + request.beyond, request.diversity)
        ranked = [ranked[position] for position in order]
    ranked = ranked[: request.k + request.beyond]
    by_words, by_meaning = dict(lexical), dict(dense)
    hits = [
        Hit(item, score, by_words.get(id), by_meaning.get(id))
        for item, (id, score) in zip(_items(overlay, ranked), ranked, strict=True)
    ]
    if not request.explain:
        return hits
    return [_explained(searched, hit, terms, lexical, dense, request, fusion) for hit in hits]


def _explained(
    searched: Overlay, hit: Hit, terms: list[str], lexical: Ranked, dense: Ranked, request: Request, fusion: Fusion
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


def _items(overlay: Overlay, ranked: Ranked) -> list[Item]:
    found = (overlay.get(id) for id, _ in ranked)
    return [item for item in found if item is not None]
