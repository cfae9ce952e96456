"""Small worlds of Gymnasium: one that asks for memory, and some that break the contract."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Recall(gymnasium.Env[int, int]):
    """Shows one of two symbols, then blanks; in the last step naming the symbol pays 1, the other -1."""

    observation_space = spaces.Discrete(3)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int = 4, limit: int | None = None) -> None:
        self.length, self.limit = length, limit

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.symbol, self.time = int(self.np_random.integers(2)), 0
        return self.symbol, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.time += 1
        over = self.time == self.length
        reward = (1.0 if action == self.symbol else -1.0) if over else 0.0
        return 2, reward, over, self.time == self.limit, {}


gymnasium.register("tests/Recall-v0", Recall)
gymnasium.register("tests/Lacking-v0", "no_package:World")


class Numbers(gymnasium.Env[Any, Any]):
    """Gives noise of any space and pays 1 for nothing; `gives` stands in the place of the noise from the third step on."""

    def __init__(
        self, observation: spaces.Space[Any], action: spaces.Space[Any], gives: Any = None, pays: float = 1.0
    ) -> None:
        self.observation_space, self.action_space, self.gives, self.pays = observation, action, gives, pays
        self.acted: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.time = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        self.acted.append(action)
        gives = self.gives if self.gives is not None and self.time == 3 else self.observation_space.sample()
        return gives, self.pays if self.time == 3 else 1.0, self.time == 7, False, {}


BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)


class Chain(gymnasium.Env[int, int]):
    """Places in a row: action 1 goes right and 0 goes left. The step beyond the last place pays 1 and ends the episode, every
    other one pays -.1. A limit of time cuts it off."""

    places, limit = 4, 20
    observation_space = spaces.Discrete(places)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.time = int(self.np_random.integers(self.places)), 0
        return self.place, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.time += 1
        self.place = max(0, self.place + (1 if action else -1))
        over = self.place == self.places
        return min(self.place, self.places - 1), 1.0 if over else -0.1, over, self.time == self.limit, {}


class Slope(gymnasium.Env[int, Any]):
    """Three places, one after the other. A step pays 1 minus the square of a third of the distance to the place's best action."""

    best = (-1.0, 0.0, 2.0)
    observation_space = spaces.Discrete(3)
    action_space = spaces.Box(-2.0, 4.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        self.place = 0
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        paid = 1.0 - ((float(action[0]) - self.best[self.place]) / 3) ** 2
        self.place += 1
        return min(self.place, 2), paid, self.place == 3, False, {}
