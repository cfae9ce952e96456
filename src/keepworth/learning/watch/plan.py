"""The plan of a long command: what will be done, how long it takes here, and how much of that is left."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

STEP = "step"
"""A unit of work: one step of training. Other kinds are named by whoever plans them."""
RECENT = 8
"""Units of a kind are expected to take as long as the last so many that were done, on average."""


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of the work: `units` of one kind, which are expected to take equally long."""

    name: str
    kind: str
    units: int


class Plan:
    """All parts of the work, with one time left for the whole, from measured speed.

    seconds: of one unit of each kind, measured before. What is done since then is timed and counts more and more.
    """

    def __init__(
        self, parts: Sequence[Part], seconds: Mapping[str, float], clock: Callable[[], float] = lambda: time.monotonic()
    ) -> None:
        self.parts = tuple(part for part in parts if part.units)
        self.seconds_of_each = {kind: float(seconds[kind]) for kind in dict.fromkeys(each.kind for each in self.parts)}
        self._clock = clock
        self._units = {kind: sum(p.units for p in self.parts if p.kind == kind) for kind in self.seconds_of_each}
        self._recent = {kind: deque([each], maxlen=RECENT) for kind, each in self.seconds_of_each.items()}
        self._expected = self.planned
        self._since = clock()

    def seconds(self, part: Part) -> float:
        """What the part was planned to take."""
        return part.units * self.seconds_of_each[part.kind]

    @property
    def planned(self) -> float:
        """Seconds that the whole was planned to take."""
        return sum(self.seconds(part) for part in self.parts)

    def did(self, kind: str, units: int, seconds: float) -> None:
        """`units` of a kind are done and took `seconds`. Raises KeyError for a kind that was not planned."""
        self._recent[kind].append(seconds / units)
        self._units[kind] = max(0, self._units[kind] - units)
        self._expected = sum(n * sum(self._recent[k]) / len(self._recent[k]) for k, n in self._units.items())
        self._since = self._clock()

    def left(self) -> float:
        """Seconds to the end of the whole, at least 0."""
        return max(0.0, self._expected - (self._clock() - self._since))

    def lines(self) -> list[str]:
        """A line per part, with its minutes, and one for the whole."""
        rows = [(part.name, self.seconds(part)) for part in self.parts]
        rows.append(("together", self.planned))
        width = max(len(name) for name, _ in rows)
        return [f"  {name:<{width}}  {seconds / 60:5.1f} min" for name, seconds in rows]
