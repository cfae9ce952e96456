"""Valuers of published methods: none, counts, moving average, and the network of Memento.

All are pure state over row numbers, so `reset` and a replay of the uses that stay give the state after a rollback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.memory.policy.actions import SURE
from keepworth.memory.policy.pool import Pool, advice
from keepworth.memory.policy.slots import Candidates, Query, Use, Values

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Vectors = npt.NDArray[np.float32]


class Column:
    """One float per row, 0 (or `start`) until set; grows as rows come."""

    __slots__ = ("_start", "data")

    def __init__(self, start: float = 0.0) -> None:
        self._start = start
        self.data = np.full(64, start)

    def upto(self, n: int) -> Floats:
        if n > len(self.data):
            larger = np.full(max(n, 2 * len(self.data)), self._start)
            larger[: len(self.data)] = self.data
            self.data = larger
        return self.data


class Unvalued:
    """The similarity stands for the value; nothing is learned (ExpRAG, Memento non-parametric, A-MEM)."""

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        return Values(candidates.similarities, np.zeros(len(candidates.rows)))

    def learn(self, use: Use, pool: Pool) -> None:
        return

    def reset(self) -> None:
        return


class Counts:
    """f: times shown; u: successes of tasks in which it was shown, parts of one where rewards are graded ("Remember Me,
    Refine Me", arXiv 2512.10696, section 3.3)."""

    def __init__(self) -> None:
        self.shown, self.won = Column(), Column()

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        f, u = self.shown.upto(len(pool))[candidates.rows], self.won.upto(len(pool))[candidates.rows]
        return Values(u / np.maximum(f, 1.0), np.sqrt(0.25 / np.maximum(f, 1.0)))

    def learn(self, use: Use, pool: Pool) -> None:
        f, u = self.shown.upto(len(pool)), self.won.upto(len(pool))
        for row in use.rows:
            f[row] += 1.0
            u[row] += use.reward

    def reset(self) -> None:
        self.shown, self.won = Column(), Column()


class MovingAverage:
    """Q <- Q + rate * (r - Q) with r = +1 or -1, for every shown item (MemRL, arXiv 2601.03192, equation 9)."""

    def __init__(self, rate: float = 0.3, start: float = 0.0) -> None:
        self.rate, self.start = rate, start
        self.q = Column(start)

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        return Values(self.q.upto(len(pool))[candidates.rows].copy(), np.zeros(len(candidates.rows)))

    def learn(self, use: Use, pool: Pool) -> None:
        q = self.q.upto(len(pool))
        for row in use.rows:
            q[row] += self.rate * ((2.0 * use.reward - 1.0) - q[row])

    def reset(self) -> None:
        self.q = Column(self.start)


class CaseNetwork:
    """Q(s, c): probability that showing case c in state s leads to success, by cross-entropy ("AgentFly", 2508.16153).

    A two-layer network over the concatenated vectors of state and case, trained at every write on a replay buffer. The
    paper fine-tunes its encoder too; here the encoder is frozen and folded to `width` numbers, which is the difference.
    """

    def __init__(
        self, *, width: int = 128, hidden: int = 64, rate: float = 0.01, batch: int = 32, steps: int = 2, seed: int = 0
    ) -> None:
        self._settings = (width, hidden, rate, batch, steps, seed)
        self.reset()

    def reset(self) -> None:
        width, hidden, self._rate, self._batch, self._steps, seed = self._settings
        self._generator = np.random.default_rng([7, seed])
        scale = 1.0 / np.sqrt(width)
        self._w = {
            "query": self._generator.normal(0.0, scale, (width, hidden)).astype(np.float32),
            "case": self._generator.normal(0.0, scale, (width, hidden)).astype(np.float32),
            "bias": np.zeros(hidden, dtype=np.float32),
            "out": self._generator.normal(0.0, 0.1, hidden).astype(np.float32),
            "base": np.zeros(1, dtype=np.float32),
        }
        self._moments = {name: (np.zeros_like(w), np.zeros_like(w)) for name, w in self._w.items()}
        self._updates = 0
        self._queries: Vectors = np.zeros((64, width), dtype=np.float32)
        self._cases: Vectors = np.zeros((64, width), dtype=np.float32)
        self._rewards: Vectors = np.zeros(64, dtype=np.float32)
        self._seen = 0

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        if not len(candidates.rows):
            return Values(np.zeros(0), np.zeros(0))
        cases = self._folded(pool.vectors[candidates.rows])
        w = self._w
        pre = cases @ w["case"] + (self._folded(query.vector[None]) @ w["query"] + w["bias"])
        logits = np.maximum(pre, 0.0) @ w["out"] + w["base"]
        return Values(_logistic(logits.astype(np.float64)), np.zeros(len(candidates.rows)))

    def learn(self, use: Use, pool: Pool) -> None:
        for row in use.rows:
            if self._seen == len(self._rewards):
                self._queries, self._cases = _doubled(self._queries), _doubled(self._cases)
                self._rewards = _doubled(self._rewards)
            self._queries[self._seen] = self._folded(use.query.vector[None])[0]
            self._cases[self._seen] = self._folded(pool.vectors[row][None])[0]
            self._rewards[self._seen] = use.reward
            self._seen += 1
        if use.slate:
            for _ in range(self._steps):
                self._step()

    def _step(self) -> None:
        picked = self._generator.integers(0, self._seen, size=min(self._batch, self._seen))
        q, c, r = self._queries[picked], self._cases[picked], self._rewards[picked]
        w = self._w
        pre = q @ w["query"] + c @ w["case"] + w["bias"]
        active = np.maximum(pre, 0.0)
        chance = _logistic(active @ w["out"] + w["base"])
        slope = (chance - r) / len(r)
        below = np.outer(slope, w["out"]) * (pre > 0.0)
        gradients = {
            "query": q.T @ below,
            "case": c.T @ below,
            "bias": below.sum(axis=0),
            "out": active.T @ slope,
            "base": np.array([slope.sum()]),
        }
        self._updates += 1
        for name, gradient in gradients.items():
            first, second = self._moments[name]
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            corrected = np.sqrt(second / (1.0 - 0.999**self._updates)) + 1e-8
            w[name] -= self._rate * (first / (1.0 - 0.9**self._updates)) / corrected

    def _folded(self, vectors: Vectors) -> Vectors:
        width = self._settings[0]
        size = vectors.shape[1]
        if size <= width:
            return np.pad(vectors, ((0, 0), (0, width - size)))
        whole = size - size % width
        folded: Vectors = vectors[:, :whole].reshape(len(vectors), -1, width).sum(axis=1)
        return folded


def _logistic(logits: Any) -> Any:
    # Beyond these the result is 0 or 1 anyway, and the exponential overflows.
    return 1.0 / (1.0 + np.exp(-np.clip(logits, -60.0, 60.0)))


def _doubled(column: Vectors) -> Vectors:
    larger = np.zeros((2 * len(column), *column.shape[1:]), dtype=column.dtype)
    larger[: len(column)] = column
    return larger


def followed(pool: Pool, row: int, use: Use) -> bool:
    """Whether the action taken is surely one that the item advises (or, for a warning, one that it does not warn of)."""
    numbers, warns, taken = _spoken_of(pool, row, use)
    if not len(numbers):
        return False
    if warns:
        return bool(pool.actions.apart(numbers, taken).all())
    return bool((pool.actions.sameness(numbers, taken) > SURE).any())


def opposed(pool: Pool, row: int, use: Use) -> bool:
    """Whether the action taken is surely none that the item advises (or, for a warning, one that it warns of)."""
    numbers, warns, taken = _spoken_of(pool, row, use)
    if not len(numbers):
        return False
    if warns:
        return bool((pool.actions.sameness(numbers, taken) > SURE).any())
    return bool(pool.actions.apart(numbers, taken).all())


def _spoken_of(pool: Pool, row: int, use: Use) -> tuple[npt.NDArray[np.int64], bool, npt.NDArray[np.int64]]:
    """The actions that the item advises, or else warns of; whether it warns; the action taken. By number."""
    pairs = advice(pool.items[row], use.query.text)
    wanted = [action for action, weight in pairs if weight > 0]
    numbers = [pool.content_of(action) for action in wanted or [action for action, _ in pairs]]
    return np.array(numbers, dtype=np.int64), not wanted, np.array([pool.content_of(use.taken)])
