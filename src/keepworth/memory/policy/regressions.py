"""What a statistician would try first: the reward of an action near a situation, by a kernel, by nearest neighbours, by a line.

They know situations (vectors), actions and rewards, and nothing of items, which is why they are the rivals that a more elaborate
memory has to beat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.policy.need import need
from keepworth.memory.policy.pool import Pool
from keepworth.memory.policy.slots import Candidates, Query, Use, Values

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Vectors = npt.NDArray[np.float32]


WARNING = 0.4


class Experiences:
    """Columns that grow: where (unit vectors), what (numbers), reward, when."""

    def __init__(self) -> None:
        self.count, self.latest = 0, 0
        self.where: Vectors = np.zeros((0, 0), dtype=np.float32)
        self.what, self.reward, self.time = np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0)

    def add(self, where: Vectors, what: int, reward: float, time: int) -> None:
        n = self.count
        if n == len(self.what):
            size = max(64, 2 * n)
            self.where = np.resize(self.where, (size, len(where)))
            self.what = np.resize(self.what, size)
            self.reward, self.time = np.resize(self.reward, size), np.resize(self.time, size)
        self.where[n], self.what[n], self.reward[n], self.time[n] = where, what, reward, time
        self.count, self.latest = n + 1, time

    def similarity(self, vector: Vectors) -> Floats:
        found: Floats = (self.where[: self.count] @ vector).astype(np.float64)
        return found


class KernelMean:
    """Mean reward of the advised action at situations like this one (Nadaraya-Watson, 1964), less `prior`, its value where
    nothing is known. With `of_items`: mean reward after items like this one were shown, wherever that was.

    Weights are exp((cosine - 1) / bandwidth), times `keep` for each task since; the prior counts as an experience of weight
    `weight`.
    """

    def __init__(
        self,
        bandwidth: float = 0.1,
        prior: float = 0.2,
        weight: float = 0.005,
        keep: float = 1.0,
        of_items: bool = False,
    ) -> None:
        need("a kernel mean", positive={"bandwidth": bandwidth, "weight": weight}, rate={"prior": prior, "keep": keep})
        self.bandwidth, self.prior, self.weight = bandwidth, prior, weight
        self.keep, self.of_items = keep, of_items
        self.reset()

    def reset(self) -> None:
        self.known = Experiences()

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        known, n, rows = self.known, self.known.count, candidates.rows
        places = pool.vectors[rows] if self.of_items else query.vector[None, :]
        cosines = (known.where[:n] @ places.T).astype(np.float64) if n else np.zeros((0, len(places)))
        now = query.time if query.learning else known.latest + 1
        near = np.exp((cosines - 1.0) / self.bandwidth) * (self.keep ** (now - known.time[:n]))[:, None]
        if not self.of_items:
            near = near * pool.actions.sameness(known.what[:n], pool.content[rows])
        mean = (known.reward[:n] @ near + self.weight * self.prior) / (near.sum(axis=0) + self.weight)
        if self.of_items:
            return Values(mean - self.prior, np.zeros(len(rows)))
        return Values(_advice(mean - self.prior, candidates, pool), np.zeros(len(rows)))

    def learn(self, use: Use, pool: Pool) -> None:
        if self.of_items:
            for row in use.rows:
                self.known.add(pool.vectors[row], 0, use.reward, use.query.time)
        elif use.taken:
            self.known.add(use.query.vector, pool.content_of(use.taken), use.reward, use.query.time)


class NearestMean:
    """Mean reward of the advised action over the `n` nearest situations in which it was taken, weighted by cosine^4 and drawn to
    `prior` by an experience of weight 0.05; less `prior`."""

    def __init__(self, n: int = 5, prior: float = 0.2) -> None:
        need("nearest neighbours", count={"n": n}, rate={"prior": prior})
        self.n, self.prior = n, prior
        self.reset()

    def reset(self) -> None:
        self.known = Experiences()

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        known, rows = self.known, candidates.rows
        near = known.similarity(query.vector) if known.count else np.zeros(0)
        contents = np.unique(pool.content[rows])
        same = pool.actions.sameness(known.what[: known.count], contents)
        means = dict.fromkeys(contents.tolist(), self.prior)
        for column, content in enumerate(contents.tolist()):
            taken = np.flatnonzero(same[:, column] > 0.0)
            taken = taken[np.argsort(-near[taken], kind="stable")[: self.n]]
            weights = np.maximum(near[taken], 0.0) ** 4 * same[taken, column]
            means[content] = float(weights @ known.reward[taken] + 0.05 * self.prior) / float(weights.sum() + 0.05)
        found = np.array([means[content] for content in pool.content[rows].tolist()])
        return Values(_advice(found - self.prior, candidates, pool), np.zeros(len(rows)))

    def learn(self, use: Use, pool: Pool) -> None:
        if use.taken:
            self.known.add(use.query.vector, pool.content_of(use.taken), use.reward, use.query.time)


class LinearReward:
    """One ridge regression of reward on (1/2, situation) per action: disjoint linear bandits (LinUCB, arXiv 1003.0146,
    algorithm 1).

    Means, less `prior`, get `alpha` deviations added while memory learns (the upper confidence bound); with alpha = 0 they are
    left to a selector that draws. deviation: what a draw's deviations are multiplied with.
    """

    def __init__(self, alpha: float = 0.3, ridge: float = 0.3, deviation: float = 0.0, prior: float = 0.2) -> None:
        need("a linear bandit", positive={"ridge": ridge}, rate={"prior": prior})
        self.alpha, self.ridge, self.deviation, self.prior = alpha, ridge, deviation, prior
        self.reset()

    def reset(self) -> None:
        self._inverse: dict[int, Vectors] = {}
        self._sum: dict[int, Vectors] = {}

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        x = self._features(query)
        means, deviations = np.zeros(len(candidates.rows)), np.zeros(len(candidates.rows))
        contents = pool.content[candidates.rows]
        for content in set(contents.tolist()):
            inverse = self._inverse.get(content)
            moved = x / self.ridge if inverse is None else inverse @ x
            deviation = float(np.sqrt(max(float(x @ moved), 0.0)))
            mean = 0.0 if inverse is None else float(moved @ self._sum[content])
            here = contents == content
            means[here] = mean + (self.alpha * deviation if query.learning else 0.0)
            deviations[here] = self.deviation * deviation
        return Values(_advice(means - self.prior, candidates, pool), deviations)

    def learn(self, use: Use, pool: Pool) -> None:
        if not use.taken:
            return
        x, content = self._features(use.query), pool.content_of(use.taken)
        if content not in self._inverse:
            self._inverse[content] = np.eye(len(x), dtype=np.float32) / np.float32(self.ridge)
            self._sum[content] = np.zeros(len(x), dtype=np.float32)
        moved = self._inverse[content] @ x
        self._inverse[content] -= np.outer(moved, moved) / (1.0 + x @ moved)
        self._sum[content] += np.float32(use.reward) * x

    def _features(self, query: Query) -> Vectors:
        found: Vectors = np.concatenate([[np.float32(0.5)], query.vector])
        return found


def _advice(gained: Floats, candidates: Candidates, pool: Pool) -> Floats:
    """What an item is worth by its action; a warning of it `WARNING` of the opposite. The more similar item wins a tie."""
    found: Floats = np.where(pool.warns[candidates.rows], -WARNING * gained, gained + 1e-3 * candidates.similarities)
    return found
