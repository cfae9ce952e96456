"""Dials that make any world of control as difficult as industrial plants are, and behaviours that log it as people do.

Observations are late, actions are late, a process that the agent does not control drives the world, and some states are not
allowed: the four properties of NeoRL-2 (arXiv 2503.19267). Its data come from careful, mixed and aimless operators."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from keepworth.base.needs import needs_control

import gymnasium
import numpy as np
from gymnasium import spaces

from keepworth.base.errors import KeepworthError, require_known

BEHAVIOURS = {
    "conservative": "always what the good policy does",
    "mixed": "half of the episodes the good policy, the others at random",
    "play": "a few steps long the good policy, an action at random, or one action held",
}
Transition = tuple[Any, Any, float, Any, bool]
"""An observation, the action, its reward, the next observation, and whether the episode terminated there."""


@dataclass(frozen=True, slots=True)
class Dials:
    """How a world is made more difficult; by default not at all.

    Attributes:
        delay: Steps by which observations are late. Until then the first observation is shown.
        lag: Steps by which actions are late. Until then the world gets its first action, or the middle of a box.
        drive: Standard deviation of the noise of a process that drives the world, x' = 0.9 x + drive * noise. x is appended to
            each observation. It is added to an action of a box; while |x| is above 1, a discrete action is replaced by the next
            one.
        feature: The part of an observation that is bounded.
        bound: Its greatest allowed size; None for any.
        price: The reward that a step outside costs. `info["violation"]` says whether it was one.
        summed: Whether the rewards of an episode are paid in one sum, with its last step.
    """

    delay: int = 0
    lag: int = 0
    drive: float = 0.0
    feature: int = 0
    bound: float | None = None
    price: float = 1.0
    summed: bool = False

    def __post_init__(self) -> None:
        if min(self.delay, self.lag, self.drive, self.feature) < 0:
            raise KeepworthError(
                f"{self}: delay, lag, drive and feature are 0 or more.", "Leave out what is not wanted."
            )


class Dialled(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A world under `Dials`. The bound applies to the true observation, not to the delayed one."""

    def __init__(self, world: gymnasium.Env[Any, Any], dials: Dials) -> None:
        super().__init__(world)
        space = world.action_space
        bounded = isinstance(space, spaces.Discrete) or (isinstance(space, spaces.Box) and space.is_bounded())
        if (dials.drive or dials.lag) and not bounded:
            raise KeepworthError(
                f"{space}: a drive or a lag needs single actions, or a box with bounds.",
                "Leave both at 0, or wrap the world so that its actions are of such a space.",
            )
        self.dials = dials
        if dials.drive:
            shown = spaces.Box(-np.inf, np.inf, (1,), np.float32)
            self.observation_space = spaces.Tuple([world.observation_space, shown])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets the world, with no pending actions, and the drive at 0."""
        observation, info = self.env.reset(seed=seed, options=options)
        if seed is not None or not hasattr(self, "noise"):
            self.noise = np.random.default_rng(seed)
        self.level = self.owed = 0.0
        self.seen = deque([observation] * (self.dials.delay + 1), maxlen=self.dials.delay + 1)
        self.under_way = deque([self._idle()] * self.dials.lag)
        return self._shown(), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Steps the world with the action that is due."""
        self.under_way.append(action)
        observation, reward, over, cut, info = self.env.step(self._driven(self.under_way.popleft()))
        self.level = 0.9 * self.level + self.dials.drive * self.noise.standard_normal()
        self.seen.append(observation)
        if self.dials.bound is not None:
            violation = bool(abs(np.ravel(observation)[self.dials.feature]) > self.dials.bound)
            reward, info = float(reward) - self.dials.price * violation, {**info, "violation": violation}
        if self.dials.summed:
            self.owed += float(reward)
            reward = self.owed if over or cut else 0.0
        return self._shown(), float(reward), over, cut, info

    def _idle(self) -> Any:
        space = self.env.action_space
        if isinstance(space, spaces.Box):
            return (space.low + space.high) / 2
        return space.start if isinstance(space, spaces.Discrete) else 0

    def _driven(self, action: Any) -> Any:
        space = self.env.action_space
        if isinstance(space, spaces.Box):
            return np.clip(action + self.level, space.low, space.high).astype(space.dtype)
        if isinstance(space, spaces.Discrete) and abs(self.level) > 1:
            return space.start + (action - space.start + 1) % space.n
        return action

    def _shown(self) -> Any:
        late = self.seen[0]
        return (late, np.array([self.level], np.float32)) if self.dials.drive else late


def dialled(world: str, **dials: Any) -> Dialled:
    """Makes a world by its Gymnasium id under dials: see `Dials`."""
    return Dialled(gymnasium.make(world), Dials(**dials))


def behave(
    world: gymnasium.Env[Any, Any], name: str, good: Callable[[Any], Any], episodes: int, seed: int = 0
) -> Iterator[list[Transition]]:
    """Yields the logs of a world under a behaviour, episode by episode.

    Args:
        world: An environment of Gymnasium, which is reset before each episode.
        name: One of `BEHAVIOURS`.
        good: Maps an observation to a good action.
        episodes: How many episodes are played.
        seed: The seed of the world and of the behaviour's draws.
    """
    require_known("behaviour", name, BEHAVIOURS)
    draw = np.random.default_rng(seed)
    world.action_space.seed(seed)
    for episode in range(episodes):
        observation, _ = world.reset(seed=seed if episode == 0 else None)
        mood, left = ("good" if name == "conservative" or draw.random() < 0.5 else "random"), 0
        held, log, over, cut = None, list[Transition](), False, False
        while not (over or cut):
            if name == "play" and not left:
                mood, left = ("good", "random", "held")[draw.integers(3)], int(draw.integers(1, 9))
                held = world.action_space.sample()
            left -= name == "play"
            if mood == "good":
                action = good(observation)
            else:
                action = held if mood == "held" else world.action_space.sample()
            after, reward, over, cut, _ = world.step(action)
            log.append((observation, action, float(reward), after, over))
            observation = after
        yield log
