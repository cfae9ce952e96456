"""Simulated agents: frozen policies that follow what memory shows, more surely the more of it agrees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.policy.slots import Presented

if TYPE_CHECKING:
    from keepworth.episodes.arrays import Floats

FOLLOW, AGAINST = 2.5, 1.5
"""What a vote of an item shown adds to the log-odds of an action, and takes from those of one that it warns of."""
NONE, FULL = 0.15, 0.5
"""How alike a remembered situation is up to which it does not count, and from which it counts fully."""


class TabularAgent:
    """A frozen policy: its own log-odds for each action, and a vote of each item shown.

    Stands for a model that does what its context says, more surely the more of it agrees. noise: one Gumbel draw per
    action makes the choice a softmax sample.
    """

    def __call__(
        self, situation: str, actions: Sequence[str], leaning: Sequence[float], shown: Presented, noise: Floats
    ) -> str:
        logits = np.asarray(leaning, dtype=np.float64) + noise
        for action, weight, similarity in shown.advice:
            if action in actions:
                logits[actions.index(action)] += self.share(similarity) * (FOLLOW if weight > 0 else -AGAINST)
        return actions[int(logits.argmax())]

    def share(self, similarity: float) -> float:
        """How much a vote counts."""
        return 1.0


class LinearAgent(TabularAgent):
    """Its votes count by how alike the remembered situation is. Models follow experience where the inputs are similar
    (arXiv 2505.16067)."""

    def share(self, similarity: float) -> float:
        return min(1.0, max(0.0, (similarity - NONE) / (FULL - NONE)))


SimulatedAgent = Callable[[str, Sequence[str], Sequence[float], Presented, "Floats"], str]
"""(what is seen, the actions, the simulated agent's log-odds, what memory shows, noise) -> the action taken."""
