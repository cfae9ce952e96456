"""The mean reward of an action in the nearest situations, as an estimate of its value."""

from __future__ import annotations

import numpy as np

from keepworth.memory.choose.case_policies import floor, statistical
from keepworth.memory.choose.pool import Pool
from keepworth.memory.choose.ready_slots import Experiences, on_advice
from keepworth.memory.choose.selection import Coherent
from keepworth.memory.choose.slots import Candidates, Policy, Query, Use, Values, need
from keepworth.registry import Method


class NearestMean:
    """Estimates the mean reward of the advised action over the `n` nearest situations in which it was taken, minus `prior`.
    Outcomes are weighted by cosine^4, and the prior counts as one of weight 0.05."""

    def __init__(self, n: int = 5, prior: float = 0.2) -> None:
        need("nearest neighbours", count={"n": n}, rate={"prior": prior})
        self.n, self.prior = n, prior
        self.reset()

    def reset(self) -> None:
        self.known = Experiences()

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        outcomes, rows = self.known, candidates.rows
        near = outcomes.similarity(query.vector) if outcomes.count else np.zeros(0)
        contents = np.unique(pool.content[rows])
        same = pool.actions.sameness(outcomes.what[: outcomes.count], contents)
        means = dict.fromkeys(contents.tolist(), self.prior)
        for column, content in enumerate(contents.tolist()):
            nearest = np.flatnonzero(same[:, column] > 0.0)
            nearest = nearest[np.argsort(-near[nearest], kind="stable")[: self.n]]
            weights = np.maximum(near[nearest], 0.0) ** 4 * same[nearest, column]
            means[content] = float(weights @ outcomes.reward[nearest] + 0.05 * self.prior) / float(weights.sum() + 0.05)
        estimates = np.array([means[content] for content in pool.content[rows].tolist()])
        return Values(on_advice(estimates - self.prior, candidates, pool), np.zeros(len(rows)))

    def learn(self, use: Use, pool: Pool) -> None:
        arm = use.arm(pool)
        if arm is not None:
            self.known.add(use.query.vector, arm, use.reward, use.query.time)


def nearest_mean(*, k: int = 4, pool: int = 12, n: int = 5, prior: float = 0.2, failures: bool = False) -> Policy:
    """Returns a policy that shows the items whose action earned most in the nearest situations in which it was taken.

    Args:
        k: The most that is shown.
        pool: The most similar cases among which it chooses.
        n: How many of the nearest situations count.
        prior: The reward of an action that was never taken.
        failures: Whether failed cases are kept and shown, too.
    """
    return statistical("nearest-mean", NearestMean(n, prior), pool, Coherent(k, floor(failures)), failures)


METHOD = Method(
    kind="policy",
    name="nearest-mean",
    title="Mean of nearest neighbours",
    about="Predicts the reward of an action as its mean in the nearest situations",
    tags=("token", "experiential", "retrieval"),
    differs="This is a standard estimator, not published as a memory for agents, and its settings are round numbers.",
    make=nearest_mean,
    on={"k": 4, "pool": 12},
)
