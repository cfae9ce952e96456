"""Feedback: what a memory is told of an episode that it took part in."""

from __future__ import annotations

from collections.abc import Callable

from keepworth.environments.environment import Step
from keepworth.episodes.decision import Decision
from keepworth.episodes.episode import UNSOUND, Episode
from keepworth.episodes.interaction import Observation
from keepworth.episodes.reward import RewardScope
from keepworth.memory.episode import LiveEpisode


class Feedback:
    """Rewards are 0 to 1, and given in the range that the memory has. Of single steps it is told what the environment says of
    each, else 1 where the situation moved on and 0 where it stayed as it was, and the episode's reward for the last; of an
    episode in which it knows of one action the reward alone.

    by: on whose word, "" for the program's own. reward_as, step_reward_as: what is told
    in place of a reward and of a step's, for controls.
    """

    def __init__(
        self,
        memory: LiveEpisode,
        *,
        by: str = "",
        reward_as: Callable[[float], float] = float,
        step_reward_as: Callable[[float], float] = float,
    ) -> None:
        self.memory, self._by = memory, by
        self._reward_as, self._step_reward_as = reward_as, step_reward_as
        self._low, self._high = memory.reward_range or (0.0, 1.0)
        self._seen = ""
        self._progress: float | None = None
        self._credited = 0

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """What memory was asked and chose, as it has it on file."""
        return self.memory.record().decisions

    def before(self, observation: Observation) -> None:
        """Before the agent acts on `observation`."""
        if len(observation.actions) == 1:
            return
        if self.memory.acts > self._credited:
            moved = float(observation.text != self._seen)
            self._step(moved if self._progress is None else self._progress)
        self._seen, self._progress = observation.text, None

    def after(self, observation: Observation, step: Step) -> None:
        """What the environment answered to an action on `observation`."""
        if len(observation.actions) != 1:
            own = [term.value for term in step.rewards if term.scope is RewardScope.STEP]
            self._progress = sum(own) if own else None

    def ended(self, episode: Episode) -> None:
        """How it went. An episode that says nothing about the agent stays open in memory."""
        if episode.stop in UNSOUND:
            return
        # Only what is said of the whole: where it was cut off before that, it came to nothing.
        whole = (term for term in episode.rewards if term.scope is RewardScope.EPISODE and not term.shaping)
        reward = sum(term.value * term.weight for term in whole)
        if self.memory.acts > max(1, self._credited):
            self._step(reward if self._progress is None else self._progress)
        self.memory.reward(self._scaled(self._reward_as(reward)), by=self._by)

    def _step(self, value: float) -> None:
        self._credited = self.memory.acts
        self.memory.step_reward(self._scaled(self._step_reward_as(value)))

    def _scaled(self, value: float) -> float:
        return self._low + value * (self._high - self._low)
