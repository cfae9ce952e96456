"""Retrievers: which items are candidates for a query.

All choose among `eligible` items, so that every method has the same ones before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.policy.pool import Pool
from keepworth.memory.policy.slots import Candidates, Query, Retriever, need

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Vectors = npt.NDArray[np.float32]
    Rows = npt.NDArray[np.intp]

BLOCK = 64
NOTHING = Candidates(np.zeros(0, dtype=np.intp), np.zeros(0))


def top(similarities: Floats | Vectors, rows: Rows, k: int, above: float = -np.inf) -> Candidates:
    """The `k` most similar above a threshold, best first; the newer row wins a tie."""
    if not len(rows):
        return NOTHING
    if len(rows) > max(BLOCK * BLOCK, 4 * BLOCK * k):
        # Each of the k best blocks has an entry at least as large as the k-th best block's maximum. A block is every
        # len(rows) // BLOCK-th entry: maxima over the first axis are an order of magnitude cheaper than over the last.
        whole = len(rows) // BLOCK * BLOCK
        maxima = similarities[:whole].reshape(BLOCK, -1).max(axis=0)
        kept = np.flatnonzero(similarities >= np.partition(maxima, len(maxima) - k)[len(maxima) - k])
        similarities, rows = similarities[kept], rows[kept]
    elif len(rows) > 4 * k:
        kept = np.argpartition(-similarities, k)[: k + 1]
        # Ties at the border must not depend on argpartition's order.
        kept = np.flatnonzero(similarities >= similarities[kept].min())
        similarities, rows = similarities[kept], rows[kept]
    order = np.lexsort((-rows, -similarities))[:k]
    if above > -np.inf:
        order = order[similarities[order].astype(np.float64) > above]
    return Candidates(rows[order], similarities[order].astype(np.float64))


def eligible(query: Query, pool: Pool) -> Rows:
    """Items that may be shown, oldest first; where it is known what can be done here, those that speak of something of it."""
    rows = pool.active()
    if not query.actions:
        return rows
    pool.scan(query.vector, rows)  # of all of them, which serves what is asked of some of them later
    return pool.speaking_of(rows, query.actions)


@dataclass(frozen=True, slots=True)
class MostSimilar:
    """Cosine top-k of the active items, above `threshold`."""

    k: int = 4
    threshold: float = -1.0
    good_only: bool = False

    def __post_init__(self) -> None:
        need("the retrieval", count={"k": self.k})

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        rows = eligible(query, pool)
        if self.good_only:
            rows = rows[pool.good[rows]]
        return top(pool.scan(query.vector, rows), rows, self.k, self.threshold)


@dataclass(frozen=True, slots=True)
class MostRecent:
    """The `k` newest active items, newest first, whatever the query (ExpRecent, arXiv 2511.20857)."""

    k: int = 4

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        rows = eligible(query, pool)[-self.k :][::-1]
        return Candidates(rows, pool.similarities(query.vector, rows))


@dataclass(frozen=True, slots=True)
class WithSameEpisode:
    """What `retriever` finds, and the `recent` newest items of the same episode; those on probation stay last."""

    retriever: Retriever
    recent: int = 12

    def __post_init__(self) -> None:
        need("the retrieval", count={"recent": self.recent})

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        found = self.retriever(query, pool)
        tail = pool.active()[-self.recent :]
        here = tail[(pool.episode[tail] == query.episode) & ~np.isin(tail, found.rows)]
        here = pool.speaking_of(here, query.actions) if query.actions else here
        if not len(here):
            return found
        first = len(found.rows) - found.waiting
        return Candidates(
            np.concatenate([found.rows[:first], here, found.rows[first:]]),
            np.concatenate(
                [found.similarities[:first], pool.similarities(query.vector, here), found.similarities[first:]]
            ),
            found.waiting,
        )
