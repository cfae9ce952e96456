"""Dead-end rectification: actions that are likely to end badly are capped, and no failure is shown.

slack = 0.1 is that of the paper's evaluation, and its place in the formula is not verified. It changed no choice on the streams
that were measured; after that was seen, the settings that turn it on were chosen among four on dev streams.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from keepworth.base.arrays import Floats, Numbers, Vectors
from keepworth.memory.choose.case_policies import cases, require_part
from keepworth.memory.choose.pool import Pool
from keepworth.memory.choose.ready_slots import Experiences, MostSimilar
from keepworth.memory.choose.selection import AllRetrieved
from keepworth.memory.choose.slates import Mixture
from keepworth.memory.choose.slots import Candidates, Policy, Query, Use, Values, need
from keepworth.registry import Method

PARTS = ("cap",)


class DeadEnds:
    """Q_D(s, a) in [-1, 0]: minus the estimated probability of an undesired ending after action a (arXiv 2302.14003).

    The auxiliary process pays -1 at an undesired ending, 0 elsewhere, and discounts nothing:

        target = -(1 - outcome) at the last choice, else max over the actions a' offered next of Q_D(s', a')
        Q_D(s, a) = SUM_i w_i * target_i / (SUM_i w_i + weight),   w_i = exp((cosine(s, s_i) - 1) / bandwidth)

    over the times i at which a was done. An action that was never tried has 0, so a situation is a dead end only where all
    actions that are offered in it are known to be dead ends.
    """

    def __init__(self, bandwidth: float = 0.1, weight: float = 0.3) -> None:
        need("dead ends", positive={"bandwidth": bandwidth, "weight": weight})
        self.bandwidth, self.weight = bandwidth, weight
        self.reset()

    def reset(self) -> None:
        self.known = Experiences()

    def values(self, situation: Vectors, actions: Numbers) -> Floats:
        """Returns Q_D of each action."""
        failures, n = self.known, self.known.count
        if not n:
            return np.zeros(len(actions))
        near = np.exp((failures.similarity(situation) - 1.0) / self.bandwidth)
        weights = near[:, None] * (failures.what[:n, None] == actions)
        result: Floats = failures.reward[:n] @ weights / (weights.sum(axis=0) + self.weight)
        return result

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        return Values(self.values(query.vector, pool.content[candidates.rows]), np.zeros(len(candidates.rows)))

    def learn(self, use: Use, pool: Pool) -> None:
        arm = use.arm(pool)
        if arm is None:
            return
        target, following = use.outcome - 1.0, use.following
        if following is not None and following.query.actions:
            offered = np.array([pool.content_of(action) for action in following.query.actions])
            target = float(self.values(following.query.vector, offered).max())
        self.known.add(use.query.vector, arm, target, use.query.time)


@dataclass(frozen=True, slots=True)
class Capped:
    """Ranks cases by their share of a softmax over similarity, in which no action may have more than 1 + Q_D + slack.

    p(a) is the sum of the shares of the cases that advise a; each gets p'(a) / p(a) of its own, p'(a) = min(p(a), 1 + Q_D(s, a) +
    slack). Cases with 1 + Q_D below `slack` are not shown.
    """

    k: int = 4
    temperature: float = 0.1
    slack: float = 0.1

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        rows = candidates.rows
        if not len(rows):
            return Mixture("greedy", np.zeros(0), np.zeros(0), self.k)
        shares = np.exp((candidates.similarities - candidates.similarities.max()) / self.temperature)
        shares /= shares.sum()
        same = pool.content[rows][:, None] == pool.content[rows]
        allowed = np.clip(1.0 + values.means + self.slack, 0.0, 1.0)
        capped = shares * np.minimum(1.0, allowed / (same @ shares))
        scores = np.where(1.0 + values.means < self.slack, -np.inf, capped)
        return Mixture("greedy", scores, np.zeros(len(rows)), self.k)


def dead_ends(
    *,
    k: int = 4,
    pool: int = 12,
    temperature: float = 0.1,
    slack: float = 0.1,
    bandwidth: float = 0.1,
    weight: float = 0.3,
    steps: bool = False,
    without: str = "",
) -> Policy:
    """Returns the policy: similar successes, with a cap on actions that are likely to end badly.

    Args:
        k: The most that is shown.
        pool: The most similar cases among which it chooses.
        temperature: That of the softmax over similarity.
        slack: Added to 1 + Q_D in the cap.
        bandwidth: Bandwidth of the kernel of Q_D.
        weight: Weight of the prior 0 in Q_D, where an outcome of the same situation weighs 1.
        steps: Whether each step of an episode is a case.
        without: "cap" shows the most similar successes.
    """
    require_part(without, PARTS)
    selector = AllRetrieved(k) if without else Capped(k, temperature, slack)
    return cases("dead-ends", MostSimilar(pool), DeadEnds(bandwidth, weight), selector, failures=False, steps=steps)


METHOD = Method(
    kind="policy",
    name="dead-ends",
    title="Rectification by dead-end analysis",
    paper="arXiv 2302.14003",
    about="Shows similar successes and caps the chance of an action that is known to end badly",
    tags=("token", "experiential", "retrieval"),
    claim="Toxic endings become rarer, at hardly any loss (no number checked).",
    differs=(
        "The paper caps a language model's tokens by a network, where here a kernel mean of failures caps the "
        "advice of memory."
    ),
    label="analogue",
    make=dead_ends,
    parts=PARTS,
    on={"slack": 0.5, "bandwidth": 0.2, "weight": 0.05},
)
