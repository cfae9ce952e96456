"""The kernel mean of reward, per action or per item: a standard baseline of statistics."""

from __future__ import annotations

import numpy as np

from keepworth.memory.choose.case_policies import BELOW, statistical
from keepworth.memory.choose.pool import Pool
from keepworth.memory.choose.ready_slots import Experiences, on_advice
from keepworth.memory.choose.selection import Coherent
from keepworth.memory.choose.slots import Candidates, Policy, Query, Use, Values, need
from keepworth.registry import Method


class KernelMean:
    """Estimates the mean reward of the advised action in similar situations, minus `prior` (Nadaraya-Watson, 1964). With
    `of_items`, the mean reward after similar items were shown, in any situation.

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
        outcomes, n, rows = self.known, self.known.count, candidates.rows
        places = pool.vectors[rows] if self.of_items else query.vector[None, :]
        cosines = (outcomes.where[:n] @ places.T).astype(np.float64) if n else np.zeros((0, len(places)))
        now = query.time if query.learning else outcomes.latest + 1
        near = np.exp((cosines - 1.0) / self.bandwidth) * (self.keep ** (now - outcomes.time[:n]))[:, None]
        if not self.of_items:
            near = near * pool.actions.sameness(outcomes.what[:n], pool.content[rows])
        mean = (outcomes.reward[:n] @ near + self.weight * self.prior) / (near.sum(axis=0) + self.weight)
        if self.of_items:
            return Values(mean - self.prior, np.zeros(len(rows)))
        return Values(on_advice(mean - self.prior, candidates, pool), np.zeros(len(rows)))

    def learn(self, use: Use, pool: Pool) -> None:
        if self.of_items:
            for row in use.rows:
                self.known.add(pool.vectors[row], 0, use.reward, use.query.time)
        elif (arm := use.arm(pool)) is not None:
            self.known.add(use.query.vector, arm, use.reward, use.query.time)


def kernel_mean(
    *,
    k: int = 4,
    pool: int = 12,
    bandwidth: float = 0.1,
    prior: float = 0.2,
    weight: float = 0.005,
    keep: float = 1.0,
    failures: bool = True,
) -> Policy:
    """Returns a policy that shows the items whose action earned most in similar situations.

    Args:
        k: The most that is shown.
        pool: The most similar cases among which it chooses.
        bandwidth, prior, weight, keep: Those of `KernelMean`.
        failures: Whether failed cases are kept and shown, too.
    """
    return statistical("kernel-mean", KernelMean(bandwidth, prior, weight, keep), pool, Coherent(k), failures)


def kernel_mean_of_items(
    *, k: int = 1, pool: int = 12, bandwidth: float = 0.15, prior: float = 0.3, keep: float = 1.0
) -> Policy:
    """Returns a policy that shows the items similar to those after which most was earned.

    Args:
        k: The most that is shown.
        pool: The most similar cases among which it chooses.
        bandwidth, prior, keep: Those of `KernelMean`, whose weight is 0.3 here.
    """
    valuer = KernelMean(bandwidth, prior, 0.3, keep, of_items=True)
    return statistical("kernel-mean-items", valuer, pool, Coherent(k, BELOW, 0.05), True)


METHODS = (
    Method(
        kind="policy",
        name="kernel-mean",
        title="Kernel mean of actions",
        paper="Nadaraya 1964, Watson 1964",
        about="Predicts the reward of an action as the kernel mean of its outcomes in similar situations",
        tags=("token", "experiential", "retrieval"),
        differs="This is a standard estimator, not published as a memory for agents, and its settings are round numbers.",
        make=kernel_mean,
        on={"k": 4, "pool": 12},
    ),
    Method(
        kind="policy",
        name="kernel-mean-items",
        title="Kernel mean of items",
        paper="Nadaraya 1964, Watson 1964",
        about="Predicts the reward of showing an item as the kernel mean of what followed items like it",
        tags=("token", "factual", "experiential", "retrieval"),
        differs="This is a standard estimator, not published as a memory for agents, and its settings are round numbers.",
        make=kernel_mean_of_items,
        on={"k": 4, "pool": 12},
    ),
)
