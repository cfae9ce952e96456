"""Recurring worlds for studies of exploration: two bandits and a small grid, and their optimal values by calculation.

For each task and each arm it is drawn whether the arm always pays 0, .4 or 1. `rare`: 1 has probability .2 and .4 has .4, so that
an untried arm pays .36 on average, and a myopic agent stays with .4 once it paid. `common`: 1 has .4 and .4 has .2, so that an
untried arm pays .48, and every agent leaves .4. Three arms, eight pulls a trial; an episode is one pull. `grid`: the four corners
of 3 x 3 cells that are entered in the middle are arms as in `rare`; an episode ends in a corner or after four steps. Before
anything was tried, all actions are equally good.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from keepworth.base.needs import needs_control

import gymnasium
import numpy as np
from gymnasium import spaces

LEVELS = (0.0, 0.4, 1.0)
CHANCES = {"rare": (0.4, 0.4, 0.2), "common": (0.4, 0.2, 0.4), "grid": (0.4, 0.4, 0.2)}
"""World -> the probability of each level for an arm."""
ARMS = {"rare": 3, "common": 3, "grid": 4}
EPISODES = {"rare": 8, "common": 8, "grid": 8}
"""Episodes of a trial."""
CORNERS, STEPS = ((0, 0), (0, 2), (2, 0), (2, 2)), 4
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))


class Bandit(gymnasium.Env[Any, int]):
    """A bandit whose arms are drawn from the seed of `reset`; without `repeats` new ones for every episode from one generator.

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
    """The grid world."""

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
    """Draws the payoffs of the arms of a task."""
    return np.take(LEVELS, np.searchsorted(np.cumsum(CHANCES[world])[:-1], draw.random(ARMS[world]), side="right"))


def make_world(world: str, repeats: bool = True) -> Bandit:
    """Returns a world by its name."""
    return Corners(repeats) if world == "grid" else Bandit(world, repeats)


def mean_of(world: str) -> float:
    """Returns the mean payoff of an untried arm."""
    return float(np.dot(LEVELS, CHANCES[world]))


def calculate(world: str, *, myopic: bool) -> float:
    """Returns the mean reward per episode of the optimal agent that knows all but the task. With `myopic` it maximises each
    episode alone, else the whole trial."""

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
    """Returns the mean reward per episode of "thompson" or "ucb"."""
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
