"""Episodic values: Memento's multi-step kernel Q, and the table of REMEMBERER."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.memory.item import ItemKind
from keepworth.memory.policy.pool import Advice, Pool
from keepworth.memory.policy.slots import Candidates, Finished, Query, Use, Values

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Vectors = npt.NDArray[np.float32]


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
        self._entries: dict[int, tuple[list[Vectors], list[float]]] = {}
        self.theta: Floats | None = None

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
        squares = (np.stack(found[0]) - state).astype(np.float64) ** 2
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
        for row in use.rows:
            q, weights, squares = self.value(use.query.vector, row)
            if len(weights):
                stored = np.array(self._entries[row][1])
                assert self.theta is not None
                slope = -(weights * (stored - q)) @ (squares * np.exp(self.theta) / self.bandwidth)
                self.theta = np.clip(self.theta - self.metric_rate * 2.0 * (q - target) * slope, -3.0, 3.0)
            vectors, values = self._entries.setdefault(row, ([], []))
            vectors.append(use.query.vector)
            values.append(q + self.rate * (target - q))


@dataclass(slots=True)
class ExperienceTable:
    """REMEMBERER's writer (arXiv 2306.07929): a record per (goal, observation) with a value for each action tried.

    G_t = sum of the next n rewards + gamma^n * max_a Q(k_{t+n}, a); Q <- Q + (G - Q) / N. n = 0 sums to the episode's end,
    as the released scripts do. The step rewards are 0 but for the last, which is the outcome scaled to +1 or -1
    where `signed`; with `steps` every choice has its own reward, scaled alike.
    """

    n: int = 0
    gamma: float = 1.0
    signed: bool = True
    steps: bool = False
    most_actions: int = 20

    def __call__(self, finished: Finished) -> list[Advice]:
        uses, pool = finished.choices, finished.pool
        assert pool is not None
        given = [use.reward for use in uses] if self.steps else [finished.outcome]
        if self.signed:
            given = [2.0 * reward - 1.0 for reward in given]
        rewards = [0.0] * (len(uses) - len(given)) + given
        drafts: dict[tuple[str, str], dict[str, Any]] = {}
        index = {
            (pool.items[row].metadata["goal"], pool.items[row].metadata["observation"]): int(row)
            for row in pool.active()
            if "goal" in pool.items[row].metadata
        }
        for place, use in enumerate(uses):
            reach = len(uses) if not self.n else min(len(uses), place + self.n)
            total = sum(self.gamma ** (step - place) * rewards[step] for step in range(place, reach))
            if reach < len(uses):
                ahead = uses[reach].query
                row = index.get((ahead.goal, ahead.observation))
                if row is not None:
                    total += self.gamma ** (reach - place) * max(pool.items[row].metadata["q"].values())
            key = (use.query.goal, use.query.observation)
            row = index.get(key)
            known = drafts.get(key) or (None if row is None else dict(pool.items[row].metadata))
            record = known or {"goal": key[0], "observation": key[1], "q": {}, "n": {}, "visits": 0}
            q, n = dict(record["q"]), dict(record["n"])
            n[use.taken] = n.get(use.taken, 0) + 1
            q[use.taken] = q.get(use.taken, 0.0) + (total - q.get(use.taken, 0.0)) / n[use.taken]
            if len(q) > self.most_actions:
                worst = min(q, key=lambda action: q[action])
                del q[worst], n[worst]
            fresh = {**record, "q": q, "n": n, "visits": record["visits"] + 1}
            if row is not None:
                best = max(q, key=lambda action: q[action])
                fresh["do"] = (best,) if q[best] > 0 else ()
                fresh["avoid"] = tuple(action for action in q if q[action] <= 0)
                pool.revise(row, time=finished.time, why="value of an action", **fresh)
            else:
                drafts[key] = fresh
        return [_record(fresh) for fresh in drafts.values()]


def _record(data: dict[str, Any]) -> Advice:
    q = data["q"]
    best = max(q, key=lambda action: q[action])
    text = f"{data['goal']} {data['observation']}".strip()
    return Advice(
        text,
        text,
        do=(best,) if q[best] > 0 else (),
        avoid=tuple(action for action in q if q[action] <= 0),
        good=q[best] > 0,
        kind=ItemKind.CASE,
        extra={key: data[key] for key in ("goal", "observation", "q", "n", "visits")},
    )
