"""Retrievers: which items are candidates for a query."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recollect.memory.policy.errors import InvalidPolicy, need
from recollect.memory.policy.pool import CANDIDATE, Pool
from recollect.memory.policy.slots import Candidates, Query

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Vectors = npt.NDArray[np.float32]
    Rows = npt.NDArray[np.intp]

AMONG = 3
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


@dataclass(frozen=True, slots=True)
class MostSimilar:
    """Cosine top-k of the active items, above `threshold`."""

    k: int = 4
    threshold: float = -1.0
    good_only: bool = False

    def __post_init__(self) -> None:
        need("the retrieval", count={"k": self.k})

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        rows = pool.active()
        if self.good_only:
            rows = rows[pool.good[rows]]
        return top(pool.scan(query.vector, rows), rows, self.k, self.threshold)


@dataclass(frozen=True, slots=True)
class MostRecent:
    """The `k` newest active items, newest first, whatever the query (ExpRecent, arXiv 2511.20857)."""

    k: int = 4

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        rows = pool.active()[-self.k :][::-1]
        return Candidates(rows, pool.similarities(query.vector, rows))


@dataclass(frozen=True, slots=True)
class Everything:
    """All active items: for valuers that rank the whole store (Memento's parametric read)."""

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        rows = pool.active()
        return Candidates(rows, pool.similarities(query.vector, rows))


@dataclass(frozen=True, slots=True)
class AtRandom:
    """`k` active items drawn without regard to the query: a control."""

    generator: np.random.Generator
    k: int = 4

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        rows = pool.active()
        rows = self.generator.permutation(rows)[: self.k]
        return Candidates(rows, pool.similarities(query.vector, rows))


@dataclass(frozen=True, slots=True)
class GoalAndObservation:
    """share * cos(goal, goal) + (1 - share) * cos(observation, observation), top-k (arXiv 2306.07929, section 3.2).

    Stored keys are "goal | observation"; vectors of the parts are made once per text. Ties go to more visits. Items that are no
    records of its table (observations of this episode, records from outside) have one key, which is compared with both at once.
    """

    k: int = 2
    share: float = 0.5

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        rows = pool.active()
        if not len(rows):
            return NOTHING
        goal, observation = pool.encode(query.goal), pool.encode(query.observation)
        parts = [pool.items[row].metadata for row in rows]
        whole = pool.similarities(query.vector, rows)
        scores = np.array(
            [
                self.share * float(pool.encode(part["goal"]) @ goal)
                + (1.0 - self.share) * float(pool.encode(part["observation"]) @ observation)
                if "goal" in part
                else float(alike)
                for part, alike in zip(parts, whole, strict=True)
            ]
        )
        visits = np.array([part.get("visits", 0) for part in parts])
        order = np.lexsort((-visits, -np.round(scores, 9)))[: self.k]
        return Candidates(rows[order], scores[order])


@dataclass(frozen=True, slots=True)
class WithLinked:
    """Top-k notes, then the notes they link to, at most `k` more (A-MEM, arXiv 2502.12110)."""

    k: int = 5

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        rows = pool.active()
        hits = top(pool.similarities(query.vector, rows), rows, self.k)
        found = [int(row) for row in hits.rows]
        known = set(found)
        for row in list(found):
            for linked in pool.items[row].metadata.get("links", ()):
                if linked not in known and pool.items[linked].current and len(found) < 2 * self.k:
                    known.add(linked)
                    found.append(linked)
        if not found:
            return NOTHING
        both = np.array(found, dtype=np.intp)
        return Candidates(both, pool.similarities(query.vector, both))


@dataclass(frozen=True, slots=True)
class WithProbation:
    """Top-k of the active items, the `recent` newest of the same episode, and the most similar candidates on probation.

    Where the query says what can be done, items whose advice cannot are passed over (among the `AMONG` * k most similar).
    """

    k: int = 12
    probation: int = 4
    threshold: float = 0.0
    recent: int = 12

    def __post_init__(self) -> None:
        need("the retrieval", count={"k": self.k, "recent": self.recent})
        if math.isnan(self.threshold):
            raise InvalidPolicy("the threshold of the retrieval is not a number.", "Give a cosine, or -1 for none.")

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        rows = pool.shown_to(query.by)
        similarities = pool.scan(query.vector, rows)
        found = _possible(top(similarities, rows, AMONG * self.k, self.threshold), query, pool, self.k)
        if len(rows) and pool.episode[rows[-1]] == query.episode:
            tail = slice(-self.recent, None)
            here = (pool.episode[rows[tail]] == query.episode) & ~np.isin(rows[tail], found.rows)
            found = _joined(found, Candidates(rows[tail][here], similarities[tail][here].astype(np.float64)))
        waiting = pool.having(CANDIDATE) if self.probation else np.zeros(0, dtype=np.intp)
        waiting = waiting[pool.outside(waiting, query.by)]
        if not len(waiting):
            return found
        more = top(pool.similarities(query.vector, waiting), waiting, self.probation, self.threshold)
        return _joined(found, more)


def _possible(found: Candidates, query: Query, pool: Pool, k: int) -> Candidates:
    if not query.actions:
        return Candidates(found.rows[:k], found.similarities[:k])
    known = {pool.content_of(action) for action in query.actions}
    kept = [place for place, content in enumerate(pool.content[found.rows].tolist()) if content in known][:k]
    return Candidates(found.rows[kept], found.similarities[kept])


def _joined(first: Candidates, second: Candidates) -> Candidates:
    return Candidates(
        np.concatenate([first.rows, second.rows]), np.concatenate([first.similarities, second.similarities])
    )
