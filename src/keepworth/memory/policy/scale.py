"""Scale: rewards of any size as numbers from 0 to 1, so that what is learned does not depend on what success pays."""

from __future__ import annotations

from collections.abc import Iterable

from keepworth.memory.policy.pool import PROGRAM

MARGIN = 0.05
"""A reward this share of the range beyond it is taken as the end of the range, so that the scale settles."""


class Scale:
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

    def count(self, place: float, share: float = 1.0) -> None:
        """One more reward that was learned from, by its place on the scale and how much it counts."""
        self._total += share * place
        self._count += share

    def forget(self) -> None:
        self._total, self._count = 0.0, 0.0

    @property
    def usual(self) -> float:
        """The mean place of rewards, drawn to the middle while there are few: strictly between 0 and 1."""
        return (self._total + 1.0) / (self._count + 2.0)
