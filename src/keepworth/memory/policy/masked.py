"""A control: the item-value signal masked. Values are learned as ever, and nobody sees them."""

from __future__ import annotations

from copy import deepcopy

from keepworth.memory.policy.pool import Pool
from keepworth.memory.policy.slots import Candidates, Query, Use, Valuer, Values


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
