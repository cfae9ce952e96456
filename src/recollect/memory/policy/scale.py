"""Scale: rewards of any size as numbers from 0 to 1, so that what is learned does not depend on what success pays."""

from __future__ import annotations

from collections.abc import Iterable

MARGIN = 0.05
"""A reward this share of the range beyond it is taken as the end of the range, so that the scale settles."""


class Scale:
    """0 is the lowest reward seen and 1 the highest. While all rewards were equal nobody knows which end they are: what lies
    strictly between 0 and 1 counts as 0.5 then, and 0 and 1 as themselves."""

    def __init__(self) -> None:
        self.low = self.high = float("nan")
        self._sure = False
        self._total, self._count = 0.0, 0

    def see(self, rewards: Iterable[float], sure: bool = True) -> bool:
        """Take note of rewards; whether those seen before have another place on the scale now.

        sure: they are the program's own. Once there were such, rewards on other people's word do not stretch the scale."""
        before = (self.low, (self.low + self.high) / 2.0, self.high)
        places = [self.of(each) for each in before] if before[0] == before[0] else []
        if self._sure and not sure:
            return False
        if sure and not self._sure:
            self._sure, self.low, self.high = True, float("nan"), float("nan")
        for reward in rewards:
            if self.low != self.low:
                self.low = self.high = reward
            room = MARGIN * (self.high - self.low)
            if reward < self.low - room:
                self.low = reward
            elif reward > self.high + room:
                self.high = reward
        return bool(places) and [self.of(each) for each in before] != places

    def of(self, reward: float) -> float:
        if self.low == self.high:
            return reward if reward in (0.0, 1.0) else 0.5
        return min(1.0, max(0.0, (reward - self.low) / (self.high - self.low)))

    def count(self, place: float) -> None:
        """One more reward that was learned from, by its place on the scale."""
        self._total += place
        self._count += 1

    def forget(self) -> None:
        self._total, self._count = 0.0, 0

    @property
    def usual(self) -> float:
        """The mean place of rewards, drawn to the middle while there are few: strictly between 0 and 1."""
        return (self._total + 1.0) / (self._count + 2.0)
