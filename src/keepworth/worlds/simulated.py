"""Simulated agents: frozen policies that follow the items shown, and more reliably the more of them agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.choose.slots import Presented

if TYPE_CHECKING:
    from keepworth.base.arrays import Floats

FOLLOW, AGAINST = 2.5, 1.5
"""The log-odds that an item shown adds to the action it recommends, and subtracts from one that it warns of."""
NONE, FULL = 0.15, 0.5
"""The similarity of a remembered situation up to which it does not count, and that from which it counts fully."""


class TabularAgent:
    """A frozen policy that adds a vote of each item shown to its own log-odds for each action.

    It stands for a model that follows its context, more reliably the more of it agrees. `noise` is one Gumbel draw per action,
    which makes the choice a softmax sample."""

    def __call__(
        self, situation: str, actions: Sequence[str], leaning: Sequence[float], shown: Presented, noise: Floats
    ) -> str:
        logits = np.asarray(leaning, dtype=np.float64) + noise
        for action, weight, similarity in shown.advice:
            if action in actions:
                logits[actions.index(action)] += self.share(similarity) * (FOLLOW if weight > 0 else -AGAINST)
        return actions[int(logits.argmax())]

    def share(self, similarity: float) -> float:
        """Returns the weight of a vote."""
        return 1.0


class LinearAgent(TabularAgent):
    """Weighs votes by the similarity of the remembered situation, because models follow experience where inputs are similar
    (arXiv 2505.16067)."""

    def share(self, similarity: float) -> float:
        return min(1.0, max(0.0, (similarity - NONE) / (FULL - NONE)))


SimulatedAgent = Callable[[str, Sequence[str], Sequence[float], Presented, "Floats"], str]
"""Maps (situation, actions, the agent's log-odds, items shown, noise) to the action."""
