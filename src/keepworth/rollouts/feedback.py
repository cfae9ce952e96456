"""Feedback: what a memory is told of an episode that it took part in."""

from __future__ import annotations

from collections.abc import Callable

from keepworth.environments.environment import Step
from keepworth.episodes.episode import UNSOUND, Episode
from keepworth.episodes.interaction import Observation
from keepworth.episodes.reward import RewardScope
from keepworth.memory.episode import LiveEpisode


class Feedback:
    """Rewards are 0 to 1, and given in the range that the memory has. Of single steps it is told what the environment says of
    each, else 1 where the situation moved on and 0 where it stayed as it was, and the episode's reward for the last; of an
    episode with a single decision the reward alone.

    by: on whose word, "" for the program's own. told, told_step: what is said in place of a reward and of a step's, for controls.
    """

    def __init__(
        self,
        memory: LiveEpisode,
        *,
        by: str = "",
        told: Callable[[float], float] = float,
        told_step: Callable[[float], float] = float,
    ) -> None:
        self.memory, self._by = memory, by
        self._told, self._told_step = told, told_step
        self._low, self._high = memory.reward_range or (0.0, 1.0)
        self._seen: str | None = None
        self._progress: float | None = None
        self._decisions = 0

    def before(self, observation: Observation) -> None:
        """Before the agent acts on `observation`."""
        if len(observation.actions) == 1:
            return
        if self._seen is not None:
            moved = float(observation.text != self._seen)
            self._step(moved if self._progress is None else self._progress)
        self._seen = observation.text
        self._decisions += 1

    def after(self, observation: Observation, step: Step) -> None:
        """What the environment answered to an action on `observation`."""
        if len(observation.actions) != 1:
            own = [term.value for term in step.rewards if term.scope is RewardScope.STEP]
            self._progress = sum(own) if own else None

    def ended(self, episode: Episode) -> None:
        """How it went. An episode that says nothing about the agent stays open in memory."""
        if episode.stop in UNSOUND:
            return
        reward = episode.metric
        if self._decisions > 1:
            self._step(reward if self._progress is None else self._progress)
        self.memory.reward(self._scaled(self._told(reward)), by=self._by)

    def _step(self, value: float) -> None:
        self.memory.step_reward(self._scaled(self._told_step(value)))

    def _scaled(self, value: float) -> float:
        return self._low + value * (self._high - self._low)
