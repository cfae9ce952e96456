"""Trials: several episodes of one task with one memory, so that later episodes use what earlier ones found out."""

from __future__ import annotations

from typing import Any

from keepworth.base.needs import needs_control

import gymnasium
import numpy as np
from gymnasium import spaces


class Trials(gymnasium.Env[Any, Any]):
    """A number of episodes of a world as one episode.

    A task is a seed: all episodes of a trial are reset with it, so that the world's draws, including noise, are the same in all
    of them. An observation is the world's, and 1 where an episode begins, else 0. The first observation of an episode replaces
    the last one of the episode before, which is not shown."""

    def __init__(self, world: gymnasium.Env[Any, Any], episodes: int) -> None:
        self.world, self.episodes = world, episodes
        self.observation_space = spaces.Tuple([world.observation_space, spaces.Discrete(2)])
        self.action_space = world.action_space
        self._tasks = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins a trial with a new task. `seed` is that of this task and those that follow."""
        if seed is not None:
            self._tasks = np.random.default_rng(seed)
        self.task, self.episode = int(self._tasks.integers(2**31)), 1
        observation, info = self.world.reset(seed=self.task, options=options)
        return (observation, 1), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Steps the episode; the trial ends with its last one."""
        observation, reward, over, cut, info = self.world.step(action)
        begins = (over or cut) and self.episode < self.episodes
        if begins:
            self.episode += 1
            observation, _ = self.world.reset(seed=self.task)
            over = cut = False
        return (observation, int(begins)), float(reward), over, cut, info

    def close(self) -> None:
        """Closes the world."""
        self.world.close()
