"""Simulated agents: frozen policies that follow what memory shows, more surely the more of it agrees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keepworth.episodes.model import Model
from keepworth.episodes.text import as_line
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


# A language model as a policy that scores: the candidate action with the best mean log-probability is taken.
#
# No text is generated, so nothing can be malformed. Scores are calibrated by the contextual prior, log p(a | context) minus
# log p(a | context without the situation and memory), which takes out how likely an action is as a string ("Calibrate
# Before Use", arXiv 2102.09690).


HEAD = "Choose the action that fits the situation.\n"
ASK = "Situation: {situation}\nAction:"
NOTHING = "N/A"
REMEMBERED = 10_000


class ScoringAgent:
    """model: anything that scores.

    The fixed head comes first in every prompt, so that an engine that keeps shared prefixes reads it once. What was scored
    is kept (`REMEMBERED` prompts at most): arms of a comparison that show the same ask once.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._scored: dict[tuple[str, str, tuple[str, ...]], Floats] = {}

    def __call__(
        self, situation: str, actions: Sequence[str], leaning: Sequence[float], shown: Presented, noise: Floats
    ) -> str:
        return actions[int(self.scores(situation, actions, shown.text).argmax())]

    def scores(self, situation: str, actions: Sequence[str], memory: str) -> Floats:
        """Calibrated mean log-probability of each action, shape (len(actions),), in nats per token."""
        return self._raw(situation, actions, memory) - self._raw(NOTHING, actions, "")

    def _raw(self, situation: str, actions: Sequence[str], memory: str) -> Floats:
        key = (situation, memory, tuple(actions))
        if key not in self._scored:
            if len(self._scored) >= REMEMBERED:
                self._scored.clear()
            self._scored[key] = self._ask(situation, actions, memory)
        return self._scored[key]

    def _ask(self, situation: str, actions: Sequence[str], memory: str) -> Floats:
        body = f"{memory}\n" if memory else ""
        prompt = self.model.encode(HEAD + body + ASK.format(situation=as_line(situation)))
        branches = [self.model.encode_continuation(f" {as_line(action)}") for action in actions]
        (scored,) = self.model.score([prompt], [branches])
        return np.array([float(np.mean(tokens)) for tokens in scored])
