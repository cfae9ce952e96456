"""Rewards: what one counts. Its place on a scale, how much time passes with it, and how much of a memory that several people use
one of them may have."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.policy.pool import PROGRAM

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
        self._ends: dict[int, tuple[float, float]] = {}
        self._total, self._count = 0.0, 0.0

    def see(self, rewards: Iterable[float], person: int = PROGRAM) -> bool:
        """Take note of rewards of a person; whether those seen before have another place on the scale now."""
        before = (self.low, (self.low + self.high) / 2.0, self.high)
        places = [self.of(each) for each in before] if before[0] == before[0] else []
        for reward in rewards:
            low, high = self._ends.get(person, (reward, reward))
            room = MARGIN * (high - low)
            if reward < low - room:
                low = reward
            elif reward > high + room:
                high = reward
            self._ends[person] = (low, high)
        if not self._ends:
            return False
        lows, highs = zip(*([self._ends[PROGRAM]] if PROGRAM in self._ends else self._ends.values()), strict=True)
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


def capped(weights: Floats, people: Numbers, most: float, asker: int = 0) -> Floats:
    """`weights` of evidence, shape (evidence, situations), such that nobody has more than `most` in one situation, but for the
    asker, who may believe what the asker said, and 0, the program itself. people: on whose word each is, shape (evidence,)."""
    others = (people > 0) & (people != asker)
    if not others.any():
        return weights
    mine = weights[others]
    _, index = np.unique(people[others], return_inverse=True)
    order = np.argsort(index, kind="stable")
    starts = np.flatnonzero(np.diff(index[order], prepend=-1))
    totals = np.add.reduceat(mine[order], starts, axis=0)
    fair: Floats = weights.copy()
    fair[others] = mine * np.minimum(1.0, most / np.maximum(totals, 1e-12))[index]
    return fair


def voices(near: Floats, people: Numbers, own: Numbers | None = None) -> Floats:
    """How many speak for each of several items, shape (items,). A person speaks once, as near as ever; of the program's own
    outcomes each does.

    near: similarity of the situation to those in which its action worked, shape (evidence, items), 0 where it did not. people: on
    whose word each is, shape (evidence,). own: on whose word each item stands, shape (items,), who is not counted then."""
    if not len(people):
        return np.zeros(near.shape[1])
    named, index = np.unique(people, return_inverse=True)
    order = np.argsort(index, kind="stable")
    each = np.maximum.reduceat(near[order], np.searchsorted(index[order], np.arange(len(named))), axis=0)
    if named[0] == 0:
        each[0] = near[people == 0].sum(axis=0)
    if own is not None:
        each[named[:, None] == own[None, :]] = 0.0
    result: Floats = each.sum(axis=0)
    return result
