"""The supervised arm: demonstrations in the place of samples, cross-entropy in the place of reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from keepworth.episodes.episode import Group
from keepworth.learning.weights.learner import Learner
from keepworth.learning.weights.master_weights import MasterWeights
from keepworth.models.inprocess import InProcessModel


class Imitator:
    """A learner that imitates the segments of its episodes, whatever their reward. Everything else is the `Learner`'s."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner

    @property
    def model(self) -> InProcessModel:
        return self._learner.model

    @property
    def role(self) -> str:
        return self._learner.role

    @property
    def master_weights(self) -> MasterWeights:
        return self._learner.master_weights

    def update(self, groups: Sequence[Group]) -> dict[str, float]:
        return self._learner.imitate(
            [
                (s.context, s.ids)
                for g in groups
                for e in g.episodes
                for s in e.segments
                if s.role in self._learner.roles
            ]
        )

    def state(self) -> dict[str, Any]:
        return self._learner.state()

    def load(self, state: Mapping[str, Any]) -> None:
        self._learner.load(state)
