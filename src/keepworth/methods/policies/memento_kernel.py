"""Memento for tasks of several steps: cases are chosen by a Q that a kernel estimates."""

from __future__ import annotations

import numpy as np

from keepworth.base.arrays import Floats, Vectors
from keepworth.memory.choose.case_policies import cases
from keepworth.memory.choose.pool import Pool
from keepworth.memory.choose.ready_slots import MostSimilar
from keepworth.memory.choose.selection import BestValue
from keepworth.memory.choose.slots import Candidates, Policy, Query, Use, Values
from keepworth.registry import Method

BANDWIDTH = 0.5


class KernelQ:
    """Q(s, c) = kernel-weighted mean of the values stored for case c ("AgentFly", arXiv 2508.16153, section 3).

    k(s, s') = exp(-sum_d exp(theta_d) (s_d - s'_d)^2 / BANDWIDTH). Target: r + gamma * alpha * logsumexp(Q(s', .) / alpha),
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
        start: float = 0.3,
    ) -> None:
        self.alpha, self.gamma, self.rate = alpha, gamma, rate
        self.metric_rate, self.start = metric_rate, start
        self.reset()

    def reset(self) -> None:
        # For each row the situations in which it was shown, and its values there.
        self._entries: dict[int, tuple[list[Vectors], list[float]]] = {}
        self.theta: Floats | None = None

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        means = np.array([self.value(query.vector, int(row))[0] for row in candidates.rows])
        return Values(means, np.zeros(len(means)))

    def value(self, state: Vectors, row: int) -> tuple[float, Floats, Floats]:
        """Returns Q(s, c), the kernel weights, and the squared differences (n, dimension)."""
        entry = self._entries.get(row)
        if entry is None:
            return self.start, np.zeros(0), np.zeros((0, len(state)))
        if self.theta is None:
            self.theta = np.zeros(len(state))
        squares = (np.stack(entry[0]) - state).astype(np.float64) ** 2
        distances = squares @ np.exp(self.theta) / BANDWIDTH
        weights = np.exp(-(distances - distances.min()))
        weights /= weights.sum()
        return float(weights @ np.array(entry[1])), weights, squares

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
                slope = -(weights * (stored - q)) @ (squares * np.exp(self.theta) / BANDWIDTH)
                self.theta = np.clip(self.theta - self.metric_rate * 2.0 * (q - target) * slope, -3.0, 3.0)
            situations, values = self._entries.setdefault(row, ([], []))
            situations.append(use.query.vector)
            values.append(q + self.rate * (target - q))


def memento_kernel(
    *,
    k: int = 4,
    pool: int = 12,
    alpha: float = 0.1,
    gamma: float = 0.95,
    failures: bool = True,
    steps: bool = False,
) -> Policy:
    """Returns Memento with kernel estimates: a softmax over Q / alpha among the `pool` most similar cases.

    Args:
        k: The most that is shown.
        pool: The most similar cases among which it chooses.
        alpha: The temperature of the softmax over Q.
        gamma: The discount of a step.
        failures: Whether failed cases are kept and shown, too.
        steps: Whether each step of an episode is a case.
    """
    valuer = KernelQ(alpha=alpha, gamma=gamma)
    return cases("memento-kernel", MostSimilar(pool), valuer, BestValue(k, temperature=alpha), failures, steps)


METHOD = Method(
    kind="policy",
    name="memento-kernel",
    title="Memento, kernel Q",
    paper="arXiv 2508.16153",
    about="Chooses cases by action values that a kernel estimates from similar situations",
    tags=("token", "experiential", "retrieval"),
    differs=(
        "The rates are ours because the paper gives none, and 1/alpha stands inside the log-sum-exp so that "
        "the policy fits its value."
    ),
    make=memento_kernel,
    on={"k": 4, "pool": 12, "gamma": 0.95},
)
