"""Rewards: what one counts. Its place on a scale, how much time passes with it, and how much of a memory that several people use
one of them may have."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.errors import InvalidReward
from keepworth.memory.operations import LARGEST_REWARD

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Numbers = npt.NDArray[np.int64]

MARGIN = 0.05
"""A reward this share of the range beyond it is taken as the end of the range, so that the scale settles."""
WINDOW = 40
SHARE = 2.0


class RewardScale:
    """0 is the lowest reward seen and 1 the highest. While all rewards were equal nobody knows which end they are: what lies
    strictly between 0 and 1 counts as 0.5 then, and 0 and 1 as themselves.

    Once the program itself rewards, its rewards alone are the scale. Until then nobody of three people or more sets an end
    alone.
    """

    def __init__(self) -> None:
        self.low = self.high = float("nan")
        self._ends: dict[str, tuple[float, float]] = {}
        self._total, self._count = 0.0, 0.0

    def see(self, rewards: Iterable[float], by: str = "") -> bool:
        """Take note of rewards of a person, "" for the program itself; whether those seen before have another place on the
        scale now."""
        before = (self.low, (self.low + self.high) / 2.0, self.high)
        places = [self.of(each) for each in before] if before[0] == before[0] else []
        for reward in rewards:
            low, high = self._ends.get(by, (reward, reward))
            room = MARGIN * (high - low)
            if reward < low - room:
                low = reward
            elif reward > high + room:
                high = reward
            self._ends[by] = (low, high)
        if not self._ends:
            return False
        lows, highs = zip(*([self._ends[""]] if "" in self._ends else self._ends.values()), strict=True)
        nth = 1 if len(lows) >= 3 else 0
        self.low, self.high = sorted(lows)[nth], sorted(highs, reverse=True)[nth]
        return bool(places) and [self.of(each) for each in before] != places

    def of(self, reward: float) -> float:
        if self.low == self.high:
            return reward if reward in (0.0, 1.0) else 0.5
        return min(1.0, max(0.0, (reward - self.low) / (self.high - self.low)))

    def count(self, index: float, share: float = 1.0) -> None:
        """One more reward that was learned from, by its place on the scale and how much it counts."""
        self._total += share * index
        self._count += share

    def forget(self) -> None:
        self._total, self._count = 0.0, 0.0

    @property
    def usual(self) -> float:
        """The mean place of rewards, drawn to the middle while there are few: strictly between 0 and 1."""
        return (self._total + 1.0) / (self._count + 2.0)


class EpisodeClock:
    """now: the time, in episodes. People are told apart by name; "" is the program itself, which is never held back.

    Evidence fades with time, so whoever makes time pass makes others forgotten. Time passes with episodes, and an episode counts
    less the more of the latest ones are the same person's: nobody has more than `SHARE` times what a person has on average.
    """

    def __init__(self) -> None:
        self._passed = 0.0
        self._people: set[str] = set()
        self._latest: deque[str] = deque(maxlen=WINDOW)

    @property
    def now(self) -> int:
        return int(self._passed + 1e-9)

    def share(self, by: str = "") -> float:
        """How much an episode that ends now on the word of `by` counts, in (0, 1]. Called once for each."""
        self._people.add(by)
        self._latest.append(by)
        return min(1.0, SHARE * WINDOW / (len(self._people) * self._latest.count(by))) if by else 1.0

    def go_on(self, share: float) -> None:
        self._passed += share


def check_range(reward_range: tuple[float, float]) -> None:
    """Raise InvalidReward for a range that holds no rewards."""
    pair = isinstance(reward_range, Sequence) and len(reward_range) == 2
    if not (pair and all(_is_finite(end) for end in reward_range) and reward_range[0] < reward_range[1]):
        raise InvalidReward(
            f"the reward range {reward_range!r:.60} holds no rewards.", "Give (lowest, highest), both finite."
        )


def _is_finite(number: object) -> bool:
    try:
        return isinstance(number, Real) and abs(float(number)) <= LARGEST_REWARD
    except OverflowError:
        return False
