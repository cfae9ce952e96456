"""A policy of one's own over plain notes: the mean reward of a note counts beside how well it fits the question."""

import numpy as np

from keepworth import Memory
from keepworth.kit import Candidates, Mixture, Policy, Pool, Query, Use, Values, lines, whole


class MeanReward:
    """Values a note by the mean of the rewards that followed it, one of .5 among them."""

    def __init__(self) -> None:
        self.rewards: dict[str, list[float]] = {}

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        means = [np.mean([0.5, *self.rewards.get(item.id, [])]) for item in candidates.listed(pool)]
        return Values(np.array(means), np.zeros(len(means)))

    def learn(self, use: Use, pool: Pool) -> None:
        for id in use.ids(pool):
            self.rewards.setdefault(id, []).append(use.reward)


def select(query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
    scores = candidates.similarities + 2.0 * values.means
    return Mixture("greedy", scores, np.zeros(len(scores)), query.most)


def mean_reward() -> Policy:
    return Policy("mean-reward", whole, None, MeanReward(), select, lines)


if __name__ == "__main__":
    with Memory(policy=mean_reward) as memory:
        memory.add("To reset the router hold the button.")
        memory.add("To reset the router pull the plug.")
        for _ in range(5):
            hits = memory.search("how do I reset the router", top_k=1)
            right = "hold the button" in hits[0].text
            memory.reward(hits.decision, float(right))
            print("right" if right else "wrong", hits[0].text)
