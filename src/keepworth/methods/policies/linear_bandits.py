"""Linear bandits: ridge regression of reward for each action, by its upper bound or by a draw."""

from __future__ import annotations

import numpy as np

from keepworth.base.arrays import Vectors
from keepworth.memory.choose.case_policies import floor, statistical
from keepworth.memory.choose.pool import Pool
from keepworth.memory.choose.ready_slots import on_advice
from keepworth.memory.choose.selection import Coherent
from keepworth.memory.choose.slots import Candidates, Policy, Query, Use, Values, need
from keepworth.registry import Method

LINEAR_PRIOR = 0.2


class LinearReward:
    """One ridge regression of reward on (1/2, situation) per action: disjoint linear bandits (LinUCB, arXiv 1003.0146, algorithm
    1).

    Means are taken minus `LINEAR_PRIOR`. While the memory learns, `alpha` standard deviations are added (the upper confidence
    bound); Thompson sampling sets alpha = 0 and draws with the standard deviations times `deviation`.
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
        content = use.arm(pool)
        if content is None:
            return
        x = self._features(use.query)
        if content not in self._inverse:
            self._inverse[content] = np.eye(len(x), dtype=np.float32) / np.float32(self.ridge)
            self._sum[content] = np.zeros(len(x), dtype=np.float32)
        moved = self._inverse[content] @ x
        self._inverse[content] -= np.outer(moved, moved) / (1.0 + x @ moved)
        self._sum[content] += np.float32(use.reward) * x

    def _features(self, query: Query) -> Vectors:
        features: Vectors = np.concatenate([[np.float32(0.5)], query.vector])
        return features


def linucb(*, k: int = 4, pool: int = 12, alpha: float = 0.3, ridge: float = 0.3, failures: bool = False) -> Policy:
    """Returns LinUCB: it shows the items whose action has the highest upper bound.

    Args:
        k: The most that is shown.
        pool: The most similar cases among which it chooses.
        alpha: How many standard deviations the bound lies above the mean.
        ridge: The weight of the prior that all coefficients are 0.
        failures: Whether failed cases are kept and shown, too.
    """
    return statistical("linucb", LinearReward(alpha, ridge), pool, Coherent(k, floor(failures), 0.0), failures)


def linear_thompson(
    *, k: int = 4, pool: int = 12, deviation: float = 0.2, ridge: float = 0.3, failures: bool = False
) -> Policy:
    """Returns linear Thompson sampling: it shows the items whose action has the highest draw around its mean.

    Args:
        k: The most that is shown.
        pool: The most similar cases among which it chooses.
        deviation: The factor of the draw's standard deviation.
        ridge: The weight of the prior that all coefficients are 0.
        failures: Whether failed cases are kept and shown, too.
    """
    selection = Coherent(k, floor(failures), 0.0, drawn=True)
    return statistical("linear-thompson", LinearReward(0.0, ridge, deviation), pool, selection, failures)


METHODS = (
    Method(
        kind="policy",
        name="linucb",
        title="LinUCB",
        paper="arXiv 1003.0146",
        about="Fits one ridge regression of reward for each action and takes the highest upper bound",
        tags=("token", "experiential", "retrieval"),
        differs=("The actions of the bandit are what items advise, as this was not published as a memory for agents."),
        make=linucb,
        on={"k": 4, "pool": 12},
    ),
    Method(
        kind="policy",
        name="linear-thompson",
        title="Linear Thompson sampling",
        paper="arXiv 1209.3352",
        about="Fits one ridge regression of reward for each action and takes the highest random draw",
        tags=("token", "experiential", "retrieval"),
        differs=("The actions of the bandit are what items advise, as this was not published as a memory for agents."),
        make=linear_thompson,
        on={"k": 4, "pool": 12},
    ),
)
