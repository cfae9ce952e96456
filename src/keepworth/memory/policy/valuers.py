"""Valuers: what showing an item is worth. Those of published methods, a statistician's three, and a control.

All are pure state over row numbers, so `reset` and a replay of the uses that stay give the state after a rollback.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.memory.policy.pool import Pool, grown
from keepworth.memory.policy.slots import Candidates, Query, Use, Valuer, Values, need

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.memory.policy.actions import Actions

    Floats = npt.NDArray[np.float64]
    Vectors = npt.NDArray[np.float32]


class Column:
    """One float per row, 0 until set; grows as rows come."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data: Floats = np.zeros(64)

    def upto(self, n: int) -> Floats:
        if n > len(self.data):
            self.data = grown(self.data, max(n, 2 * len(self.data)))
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

    def __init__(self, rate: float = 0.3) -> None:
        self.rate = rate
        self.reset()

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        return Values(self.q.upto(len(pool))[candidates.rows].copy(), np.zeros(len(candidates.rows)))

    def learn(self, use: Use, pool: Pool) -> None:
        q = self.q.upto(len(pool))
        for row in use.rows:
            q[row] += self.rate * ((2.0 * use.reward - 1.0) - q[row])

    def reset(self) -> None:
        self.q = Column()


class CaseNetwork:
    """Q(s, c): probability that showing case c in state s leads to success, by cross-entropy ("AgentFly", 2508.16153).

    A two-layer network over the concatenated vectors of state and case, trained at every write on a replay buffer. The
    paper fine-tunes its encoder too; here the encoder is frozen and folded to `width` numbers, which is the difference.
    """

    READS_ITEMS = True

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

    def trim(self) -> None:
        n = self._seen
        self._queries, self._cases, self._rewards = self._queries[:n], self._cases[:n], self._rewards[:n]

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
                size = max(64, 2 * self._seen)
                self._queries, self._cases = grown(self._queries, size), grown(self._cases, size)
                self._rewards = grown(self._rewards, size)
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


class KernelQ:
    """Q(s, c) = kernel-weighted mean of the values stored for case c ("AgentFly", arXiv 2508.16153, section 3).

    k(s, s') = exp(-sum_d exp(theta_d) (s_d - s'_d)^2 / bandwidth). Target: r + gamma * alpha * logsumexp(Q(s', .) / alpha),
    with 1/alpha inside the sum, without which the soft-max policy and its value do not agree. theta follows the gradient of
    the squared error. The paper gives no numbers for alpha, gamma, or the rates.
    """

    def __init__(
        self,
        *,
        alpha: float = 0.1,
        gamma: float = 0.95,
        rate: float = 0.5,
        metric_rate: float = 0.05,
        bandwidth: float = 0.5,
        start: float = 0.3,
    ) -> None:
        self.alpha, self.gamma, self.rate = alpha, gamma, rate
        self.metric_rate, self.bandwidth, self.start = metric_rate, bandwidth, start
        self.reset()

    def reset(self) -> None:
        # Situations, each once; by row the numbers of those in which it was shown, and what it was worth there.
        self._where: Vectors = np.zeros((0, 0), dtype=np.float32)
        self._count = 0
        self._entries: dict[int, tuple[list[int], list[float]]] = {}
        self.theta: Floats | None = None

    def trim(self) -> None:
        self._where = self._where[: self._count]

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        means = np.array([self.value(query.vector, int(row))[0] for row in candidates.rows])
        return Values(means, np.zeros(len(means)))

    def value(self, state: Vectors, row: int) -> tuple[float, Floats, Floats]:
        """Q(s, c), the kernel weights, and the squared differences (n, dimension)."""
        found = self._entries.get(row)
        if found is None:
            return self.start, np.zeros(0), np.zeros((0, len(state)))
        if self.theta is None:
            self.theta = np.zeros(len(state))
        squares = (self._where[found[0]] - state).astype(np.float64) ** 2
        distances = squares @ np.exp(self.theta) / self.bandwidth
        weights = np.exp(-(distances - distances.min()))
        weights /= weights.sum()
        return float(weights @ np.array(found[1])), weights, squares

    def learn(self, use: Use, pool: Pool) -> None:
        target = use.reward if use.following is None else 0.0
        if use.following is not None and len(use.following.candidates.rows):
            state = use.following.query.vector
            after = np.array([self.value(state, int(row))[0] for row in use.following.candidates.rows])
            top = after.max()
            target += self.gamma * (top + self.alpha * float(np.log(np.exp((after - top) / self.alpha).sum())))
        if not use.slate:
            return
        if self._count == len(self._where):
            self._where = grown(self._where, max(64, 2 * self._count), len(use.query.vector))
        self._where[self._count] = use.query.vector
        for row in use.rows:
            q, weights, squares = self.value(use.query.vector, row)
            if len(weights):
                stored = np.array(self._entries[row][1])
                assert self.theta is not None
                slope = -(weights * (stored - q)) @ (squares * np.exp(self.theta) / self.bandwidth)
                self.theta = np.clip(self.theta - self.metric_rate * 2.0 * (q - target) * slope, -3.0, 3.0)
            situations, values = self._entries.setdefault(row, ([], []))
            situations.append(self._count)
            values.append(q + self.rate * (target - q))
        self._count += 1


# What a statistician would try first: the reward of an action near a situation, by a kernel, by nearest neighbours, by a line.
# These know situations (vectors), actions and rewards, and nothing of items: the rivals that a more elaborate memory has to beat.

WARNING = 0.4
LINEAR_PRIOR = 0.2


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
            self.where, self.what = grown(self.where, size, len(where)), grown(self.what, size)
            self.reward, self.time = grown(self.reward, size), grown(self.time, size)
        self.where[n], self.what[n], self.reward[n], self.time[n] = where, what, reward, time
        self.count, self.latest = n + 1, time

    def trim(self) -> None:
        n = self.count
        self.where, self.what, self.reward, self.time = self.where[:n], self.what[:n], self.reward[:n], self.time[:n]

    def similarity(self, vector: Vectors) -> Floats:
        found: Floats = (self.where[: self.count] @ vector).astype(np.float64)
        return found


class KernelMean:
    """Mean reward of the advised action at situations like this one (Nadaraya-Watson, 1964), less `prior`, its value where
    nothing is known. With `of_items`: mean reward after items like this one were shown, wherever that was.

    Weights are exp((cosine - 1) / bandwidth), times `keep` for each task since; the prior counts as an experience of weight
    `weight`.
    """

    READS_ITEMS = True

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
        return Values(on_advice(mean - self.prior, candidates, pool), np.zeros(len(rows)))

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
        return Values(on_advice(found - self.prior, candidates, pool), np.zeros(len(rows)))

    def learn(self, use: Use, pool: Pool) -> None:
        if use.taken:
            self.known.add(use.query.vector, pool.content_of(use.taken), use.reward, use.query.time)


class LinearReward:
    """One ridge regression of reward on (1/2, situation) per action: disjoint linear bandits (LinUCB, arXiv 1003.0146,
    algorithm 1).

    Means, less `LINEAR_PRIOR`, get `alpha` deviations added while memory learns (the upper confidence bound); with alpha = 0 they
    are left to a selector that draws. deviation: what a draw's deviations are multiplied with.
    """

    def __init__(self, alpha: float = 0.3, ridge: float = 0.3, deviation: float = 0.0) -> None:
        need("a linear bandit", positive={"ridge": ridge})
        self.alpha, self.ridge, self.deviation = alpha, ridge, deviation
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
        return Values(on_advice(means - LINEAR_PRIOR, candidates, pool), deviations)

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


def on_advice(gained: Floats, candidates: Candidates, pool: Pool) -> Floats:
    """What an item is worth by its action; a warning of it `WARNING` of the opposite. The more similar item wins a tie."""
    found: Floats = np.where(pool.warns[candidates.rows], -WARNING * gained, gained + 1e-3 * candidates.similarities)
    return found


@dataclass(frozen=True, slots=True)
class Offered:
    """What can be done here, in the place of a pool: one row for each action, which advises it and nothing else."""

    actions: Actions
    content: npt.NDArray[np.int64]
    warns: npt.NDArray[np.bool_]
    conditional: npt.NDArray[np.bool_]
    episode: npt.NDArray[np.int64]


def of_actions(valuer: Valuer, query: Query, pool: Pool) -> Floats:
    """What each of the query's actions is worth here, to a valuer that knows actions: what it would do if it acted itself."""
    numbers = np.array([pool.content_of(action) for action in query.actions], dtype=np.int64)
    n = len(numbers)
    none = np.zeros(n, dtype=bool)
    offered = Offered(pool.actions, numbers, none, none, np.full(n, -1))
    found: Floats = valuer.estimate(query, Candidates(np.arange(n), np.zeros(n)), offered).means  # type: ignore[arg-type]
    return found


class Masked:
    """Estimates what the valuer estimated before it learned anything: its prior, which for `advantage` is a line in similarity.

    What a gain owes to values goes with it. What rewards do otherwise stays: which cases are kept, and their labels.
    """

    def __init__(self, valuer: Valuer) -> None:
        self.learning = valuer
        self.blank = deepcopy(valuer)

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        return self.blank.estimate(query, candidates, pool)

    def learn(self, use: Use, pool: Pool) -> None:
        self.learning.learn(use, pool)

    def reset(self) -> None:
        self.learning.reset()
