"""Worlds that come back, for studies of exploration: two bandits and a small grid, and what is best in them by calculation.

Of each arm it is drawn for each task whether it always pays 0, .4 or 1. `rare`: 1 has a chance of .2 and .4 one of .4, so that
an arm that was not tried pays .36 on average, and who looks at the next pull alone stays with .4 once it paid. `common`: 1 has .4
and .4 has .2, so that such an arm pays .48, and everybody leaves .4. Three arms, eight pulls a trial; an episode is one pull.
`grid`: the four corners of 3 x 3 cells that are entered in the middle are arms as in `rare`; an episode ends in a corner or after
four steps. No action is better than another before something was tried.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from keepworth.episodes.needs import needs_control

import gymnasium
import numpy as np
from gymnasium import spaces

LEVELS = (0.0, 0.4, 1.0)
CHANCES = {"rare": (0.4, 0.4, 0.2), "common": (0.4, 0.2, 0.4), "grid": (0.4, 0.4, 0.2)}
"""World -> how likely an arm pays each level."""
ARMS = {"rare": 3, "common": 3, "grid": 4}
EPISODES = {"rare": 8, "common": 8, "grid": 8}
"""Episodes of a trial."""
CORNERS, STEPS = ((0, 0), (0, 2), (2, 0), (2, 2)), 4
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))


class Bandit(gymnasium.Env[Any, int]):
    """Arms that are drawn from the seed of `reset`; without `repeats` from a generator that goes on, anew for every episode.

    Attributes:
        task: The seed of the arms.
        tried: The last arm that was tried, None before.
    """

    task: int | None
    tried: int | None

    def __init__(self, world: str, repeats: bool = True) -> None:
        self.world, self.repeats = world, repeats
        self.observation_space: gymnasium.Space[Any] = spaces.Discrete(1)
        self.action_space: gymnasium.Space[Any] = spaces.Discrete(ARMS[world])
        self.goes_on: np.random.Generator | None = None
        self.tried = self.task = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.goes_on = self.goes_on or np.random.default_rng(seed)
        if not self.repeats:
            self.pays = draw_arms(self.world, self.goes_on)
        elif seed != self.task:
            self.pays = draw_arms(self.world, np.random.default_rng(seed))
        self.task = seed
        return 0, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.tried = action
        return 0, float(self.pays[action]), True, False, {}


class Corners(Bandit):
    """The grid."""

    def __init__(self, repeats: bool = True) -> None:
        super().__init__("grid", repeats)
        self.observation_space = spaces.MultiDiscrete([3, 3])
        self.action_space = spaces.Discrete(len(MOVES))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.time = (1, 1), 0
        return np.array(self.place), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        row, column = (min(max(at + by, 0), 2) for at, by in zip(self.place, MOVES[action], strict=True))
        self.place, self.time = (row, column), self.time + 1
        if self.place not in CORNERS:
            return np.array(self.place), 0.0, self.time == STEPS, False, {}
        _, paid, *_ = super().step(CORNERS.index(self.place))
        return np.array(self.place), paid, True, False, {}


def draw_arms(world: str, draw: np.random.Generator) -> np.ndarray[Any, Any]:
    """What the arms of a task pay."""
    return np.take(LEVELS, np.searchsorted(np.cumsum(CHANCES[world])[:-1], draw.random(ARMS[world]), side="right"))


def make_world(world: str, repeats: bool = True) -> Bandit:
    """A world by its name."""
    return Corners(repeats) if world == "grid" else Bandit(world, repeats)


def mean_of(world: str) -> float:
    """What an arm pays on average that was not tried."""
    return float(np.dot(LEVELS, CHANCES[world]))


def calculate(world: str, *, myopic: bool) -> float:
    """The mean reward of an episode of a trial for who knows all but the task and acts best, over the whole trial or, where
    `myopic`, for each episode alone."""

    @cache
    def value(untried: int, most: float, left: int) -> float:
        if left == 0:
            return 0.0
        stay = most + value(untried, most, left - 1)
        if not untried:
            return stay
        results = zip(LEVELS, CHANCES[world], strict=True)
        leave = sum(chance * (pays + value(untried - 1, max(most, pays), left - 1)) for pays, chance in results)
        return (leave if mean_of(world) > most else stay) if myopic else max(stay, leave)

    return value(ARMS[world], 0.0, EPISODES[world]) / EPISODES[world]


def play_rule(world: str, rule: str, trials: int, draw: np.random.Generator) -> float:
    """The mean reward of an episode for "thompson" or "ucb"."""
    total = 0.0
    for _ in range(trials):
        pays = draw_arms(world, draw)
        pulls = np.zeros(ARMS[world])
        for time in range(EPISODES[world]):
            if rule == "thompson":
                worth = np.where(pulls > 0, pays, draw_arms(world, draw))
            else:
                bonus = np.sqrt(2 * np.log(time + 1) / np.maximum(pulls, 1))
                worth = np.where(pulls > 0, pays + bonus, np.inf)
            arm = int((worth + 1e-9 * draw.random(ARMS[world])).argmax())
            pulls[arm] += 1
            total += pays[arm]
    return total / trials / EPISODES[world]
