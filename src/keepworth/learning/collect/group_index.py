"""The index of a group: its position in the training and, a billion each, which candidate for that position it is.

Position p is the p-th group (from 0) that the training asks for; with B groups an update it belongs to step p // B. Its own
group is candidate 0. Where that is rejected, fails or is dropped, the position is retried with a later candidate, and positions
after it stay what they are. So the task, the stage and the seeds of a group are functions of its index, and a continued run
finds them again.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

SPAN = 10**9
"""More positions than any training has: position 3 with candidate 4 is the group 4000000003."""
CANDIDATES = 4
"""How many tasks are looked at for one try of a position, where some are put aside or the step has them already."""


def group_at(position: int, candidate: int = 0) -> int:
    return candidate * SPAN + position


def position_of(group: int) -> int:
    return group % SPAN


def candidate_of(group: int) -> int:
    return group // SPAN


def retry_of(group: int) -> int:
    """How many groups of this position came to nothing before."""
    return candidate_of(group) // CANDIDATES


def instead_of(group: int) -> int:
    """The group that comes in the place of this one: the first candidate of the next retry."""
    return group_at(position_of(group), (retry_of(group) + 1) * CANDIDATES)


def draw_seed(seed: int, step: int, group: int) -> int:
    """Of the draws of a step's groups (step from 0); of those that come in the place of others, another."""
    return seed * 1_000_003 + step + retry_of(group) * 7_919_000_003


class GroupOrder:
    """Which group is started next: what is owed to positions whose groups came to nothing, then the next position.

    done: groups that are trained, or that came to nothing."""

    def __init__(self) -> None:
        self.done: set[int] = set()
        self._next = 0
        self._owed: list[tuple[int, int]] = []
        self._filled: set[int] = set()

    def take(self) -> int:
        if self._owed:
            return group_at(*self._owed.pop(0))
        while self._next in self._filled:
            self._filled.discard(self._next)
            self._next += 1
        self._next += 1
        return group_at(self._next - 1)

    def replace(self, group: int) -> None:
        """The group came to nothing: exactly one other is owed to its position."""
        self.done.add(group)
        other = instead_of(group)
        bisect.insort(self._owed, (position_of(other), candidate_of(other)))

    def fill(self, group: int) -> None:
        """This group was found on disk: nothing else is to be started for its position."""
        position = position_of(group)
        self._owed = [each for each in self._owed if each[0] != position]
        if position >= self._next:
            self._filled.add(position)

    def skip(self, positions: int) -> None:
        """So many are behind the training: they were trained by a version that kept no order."""
        self._next = positions

    def state(self) -> dict[str, Any]:
        return {
            "next": self._next,
            "done": to_ranges(self.done),
            "owed": [group_at(*each) for each in self._owed],
            "filled": sorted(self._filled),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._next, self.done = int(state["next"]), from_ranges(state["done"])
        self._owed = sorted((position_of(each), candidate_of(each)) for each in state.get("owed", ()))
        # A group that was found on disk may be trained before the positions ahead of it are begun.
        ahead = {position_of(each) for each in self.done if position_of(each) >= self._next}
        self._filled = ahead | {int(position) for position in state.get("filled", ())}


def to_ranges(numbers: Iterable[int]) -> list[list[int]]:
    """A set of numbers as [first, past the last] pairs: short, because nearly all are neighbours."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number:
            ranges[-1][1] += 1
        else:
            ranges.append([number, number + 1])
    return ranges


def from_ranges(ranges: Sequence[Sequence[int]]) -> set[int]:
    return {number for first, past in ranges for number in range(first, past)}
