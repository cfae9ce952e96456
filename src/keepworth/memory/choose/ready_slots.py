"""Slots that policies are made of: retrievers, valuers, and the candidates from the same episode.

Retrievers choose among `eligible` items, so all methods choose from the same ones. A valuer's state depends on nothing but what
it was given, so a replay gives the same state again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from keepworth.base.arrays import Floats, Rows, Vectors
from keepworth.memory.choose.pool import Pool, grown
from keepworth.memory.choose.slates import Mixture
from keepworth.memory.choose.slots import Candidates, Policy, Query, Retriever, Selector, Use, Values, need
from keepworth.memory.errors import InvalidPolicy

BLOCK = 64
NOTHING = Candidates(np.zeros(0, dtype=np.intp), np.zeros(0))


def top(similarities: Floats | Vectors, rows: Rows, k: int, above: float = -np.inf) -> Candidates:
    """Returns the `k` most similar rows above a threshold, best first; the newer row wins a tie.

    Args:
        similarities: That of each row.
        rows: The rows, in ascending order.
        k: The most that are returned.
        above: The similarity that has to be exceeded.
    """
    if not len(rows):
        return NOTHING
    if len(rows) > max(BLOCK * BLOCK, 4 * BLOCK * k):
        # Each of the k best blocks has an entry at least as large as the k-th best block's maximum. A block is every
        # len(rows) // BLOCK-th entry: maxima over the first axis are an order of magnitude cheaper than over the last.
        whole = len(rows) // BLOCK * BLOCK
        maxima = similarities[:whole].reshape(BLOCK, -1).max(axis=0)
        best = np.flatnonzero(similarities >= np.partition(maxima, len(maxima) - k)[len(maxima) - k])
        similarities, rows = similarities[best], rows[best]
    elif len(rows) > 4 * k:
        best = np.argpartition(-similarities, k)[: k + 1]
        # Ties at the border must not depend on argpartition's order.
        best = np.flatnonzero(similarities >= similarities[best].min())
        similarities, rows = similarities[best], rows[best]
    order = np.lexsort((-rows, -similarities))[:k]
    if above > -np.inf:
        order = order[similarities[order].astype(np.float64) > above]
    return Candidates(rows[order], similarities[order].astype(np.float64))


def eligible(query: Query, pool: Pool) -> Rows:
    """Returns the rows that may be shown, oldest first: where actions are known, only items that speak of one of them."""
    rows = pool.active()
    if not query.actions:
        return rows
    pool.scan(query.vector, rows)  # scans all rows, so that later similarities of some of them are cached
    return pool.speaking_of(rows, query.actions)


@dataclass(frozen=True, slots=True)
class MostSimilar:
    """Retrieves the `k` active items of highest cosine above `threshold`."""

    k: int = 4
    threshold: float = -1.0

    def __post_init__(self) -> None:
        need("the retrieval", count={"k": self.k})

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        rows = eligible(query, pool)
        return top(pool.scan(query.vector, rows), rows, self.k, self.threshold)


@dataclass(frozen=True, slots=True)
class MostRecent:
    """Retrieves the `k` newest active items, newest first, whatever the query (ExpRecent, arXiv 2511.20857)."""

    k: int = 4

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        rows = eligible(query, pool)[-self.k :][::-1]
        return Candidates(rows, pool.similarities(query.vector, rows))


@dataclass(frozen=True, slots=True)
class WithSameEpisode:
    """Retrieves what `retriever` finds, and the `recent` newest items as far as they are of the same episode."""

    retriever: Retriever
    recent: int = 12

    def __post_init__(self) -> None:
        need("the retrieval", count={"recent": self.recent})

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        result = self.retriever(query, pool)
        tail = pool.active()[-self.recent :]
        here = tail[(pool.episode[tail] == query.episode) & ~np.isin(tail, result.rows)]
        here = pool.speaking_of(here, query.actions) if query.actions else here
        if not len(here):
            return result
        return Candidates(
            np.concatenate([result.rows, here]),
            np.concatenate([result.similarities, pool.similarities(query.vector, here)]),
        )


@dataclass(frozen=True, slots=True)
class WithNotes:
    """Retrieves what `retriever` finds, and behind it the most similar notes of people, so that `most` notes compete by value."""

    retriever: Retriever
    most: int = 12

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        result, rows = self.retriever(query, pool), eligible(query, pool)
        notes = rows[(pool.content[rows] < 0) & ~np.isin(rows, result.rows)]
        room = self.most - int((pool.content[result.rows] < 0).sum())
        if not len(notes) or room < 1:
            return result
        more = top(pool.scan(query.vector, notes), notes, room)
        return Candidates(
            np.concatenate([result.rows, more.rows]), np.concatenate([result.similarities, more.similarities])
        )


class Column:
    """Holds one float per row, 0 until set, and grows with the rows."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data: Floats = np.zeros(64)

    def upto(self, n: int) -> Floats:
        if n > len(self.data):
            self.data = grown(self.data, max(n, 2 * len(self.data)))
        return self.data


class Unvalued:
    """Takes the similarity as the value and learns nothing (ExpRAG, non-parametric Memento, A-MEM)."""

    learns = False

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        return Values(candidates.similarities, np.zeros(len(candidates.rows)))

    def learn(self, use: Use, pool: Pool) -> None:
        return


WARNING = 0.4
"""A warning is worth minus this share of its action's gain."""


class Experiences:
    """Holds experiences in columns that grow: situation (unit vector), number of the action, reward, time."""

    def __init__(self) -> None:
        self.count, self.latest = 0, 0
        self.where: Vectors = np.zeros((0, 0), dtype=np.float32)
        self.what, self.reward, self.time = np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0)

    def add(self, where: Vectors, what: int, reward: float, time: int) -> None:
        """Adds an outcome, as one more row.

        Args:
            where: The vector of the situation, or of the item.
            what: The number of the action that was taken.
            reward: What the action earned.
            time: The number of the task.
        """
        n = self.count
        if n == len(self.what):
            size = max(64, 2 * n)
            self.where, self.what = grown(self.where, size, len(where)), grown(self.what, size)
            self.reward, self.time = grown(self.reward, size), grown(self.time, size)
        self.where[n], self.what[n], self.reward[n], self.time[n] = where, what, reward, time
        self.count, self.latest = n + 1, time

    def similarity(self, vector: Vectors) -> Floats:
        result: Floats = (self.where[: self.count] @ vector).astype(np.float64)
        return result


def on_advice(gained: Floats, candidates: Candidates, pool: Pool) -> Floats:
    """Returns each item's value from the gain of its action.

    Args:
        gained: The gain of the action that each item names; a warning is worth `-WARNING` times it.
        candidates: The items, whose similarity breaks ties.
        pool: The rows of all items, which say what is a warning.
    """
    result: Floats = np.where(pool.warns[candidates.rows], -WARNING * gained, gained + 1e-3 * candidates.similarities)
    return result


PLACES = ("ignored", "among", "newest", "oldest")


def seeing_the_episode(method: Policy, here: str = "among", recent: int = 12) -> Policy:
    """Returns a policy that also has the newest items of the same episode as candidates.

    Args:
        method: The policy that chooses.
        here: "among" leaves their order to the method, "newest" and "oldest" show them before all others, and "ignored" changes
            nothing, as in papers without episodes.
        recent: How many of the newest items are looked at.

    Raises:
        InvalidPolicy: For any other `here`.
    """
    if here not in PLACES:
        raise InvalidPolicy(f"items of the same episode cannot be {here!r}.", f"Use one of {', '.join(PLACES)}.")
    if here == "ignored":
        return method
    assert method.retriever is not None
    method.retriever = WithSameEpisode(method.retriever, recent)
    if here != "among":
        method.selector = SameEpisodeFirst(method.selector, here == "newest")
    return method


@dataclass(frozen=True, slots=True)
class SameEpisodeFirst:
    """Ranks items of the same episode before what `selector` prefers, the newest or the oldest of them first."""

    selector: Selector
    newest: bool = True

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        choice = self.selector(query, candidates, values, pool)
        assert isinstance(choice, Mixture)
        rows = candidates.rows[: len(choice.first)]
        here = np.flatnonzero(pool.episode[rows] == query.episode)
        if not len(here):
            return choice
        scores = choice.first.copy()
        finite = scores[np.isfinite(scores)]
        # Far enough apart that noise cannot change the order.
        step = 1e3 * (1.0 + float(np.abs(finite).max(initial=0.0)))
        ages = np.argsort(np.argsort(rows[here] if self.newest else -rows[here]))
        scores[here] = step * (1.0 + ages)
        return replace(choice, first=scores)
