"""A policy over plain notes: UCB1, which also shows notes that were seldom shown before.

Source: Auer et al., "Finite-time analysis of the multiarmed bandit problem", 2002. How well a note fits the question is added."""

import numpy as np

from keepworth.kit import Candidates, Method, Mixture, Policy, Pool, Query, Use, Values, lines, need, whole


class UpperBound:
    """Values a note by its mean reward, one of .5 among them, plus `bonus` * sqrt(ln(all showings) / showings)."""

    def __init__(self, bonus: float) -> None:
        self.bonus, self.rewards = bonus, dict[str, list[float]]()

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        seen = [[0.5, *self.rewards.get(item.id, [])] for item in candidates.listed(pool)]
        counts = np.array([len(rewards) for rewards in seen])
        means = np.array([np.mean(rewards) for rewards in seen])
        return Values(means + self.bonus * np.sqrt(np.log(max(1, counts.sum())) / counts), np.zeros(len(seen)))

    def learn(self, use: Use, pool: Pool) -> None:
        for item in use.shown(pool):
            self.rewards.setdefault(item.id, []).append(use.reward)


def select(query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
    return Mixture("greedy", candidates.similarities + values.means, values.deviations, query.most)


def make(*, bonus: float = 0.3) -> Policy:
    need("upper-bound", positive={"bonus": bonus})
    return Policy("upper-bound", whole, None, UpperBound(bonus), select, lines)


METHOD = Method(
    kind="policy",
    name="upper-bound",
    title="UCB1 over notes",
    about="Shows notes by mean reward and a bonus for the seldom shown",
    make=make,
    tags=("token", "experiential", "retrieval"),
    label="unmeasured",
)
