"""Ticket: the number of a group that is sampled ahead: its place in the training, and which draw for that place it is.

Place p is the p-th group (from 0) that the training asks for; with B groups an update it belongs to step p // B. A place's own
group is draw 0. Where that is rejected, fails or is dropped, a later draw takes its place, and places after it stay what they
are. So the task, the stage and the seeds of a group are functions of its ticket, and a continued run finds them again.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

SPAN = 10**9
"""More places than any training has: place 3 of draw 4 is ticket 4000000003."""
LOOKS = 4
"""How often other tasks are drawn in place of those that were put aside, or that the step has had already."""


def ticket_of(place: int, draw: int = 0) -> int:
    return draw * SPAN + place


def place_of(ticket: int) -> int:
    return ticket % SPAN


def draw_of(ticket: int) -> int:
    return ticket // SPAN


def attempt_of(ticket: int) -> int:
    """How many groups of this place came to nothing before: an attempt has `LOOKS` draws, as in turns."""
    return draw_of(ticket) // LOOKS


def instead_of(ticket: int) -> int:
    """The ticket of the group that takes the place of this one: the first draw of the next attempt."""
    return ticket_of(place_of(ticket), (attempt_of(ticket) + 1) * LOOKS)


class Tickets:
    """Which ticket is started next: what is owed to places whose groups came to nothing, then the next place.

    done: tickets that are trained, or that came to nothing."""

    def __init__(self) -> None:
        self.done: set[int] = set()
        self._next = 0
        self._owed: list[tuple[int, int]] = []
        self._filled: set[int] = set()

    def take(self) -> int:
        if self._owed:
            return ticket_of(*self._owed.pop(0))
        while self._next in self._filled:
            self._filled.discard(self._next)
            self._next += 1
        self._next += 1
        return ticket_of(self._next - 1)

    def replace(self, ticket: int) -> None:
        """The group came to nothing: exactly one other is owed to its place."""
        self.done.add(ticket)
        other = instead_of(ticket)
        bisect.insort(self._owed, (place_of(other), draw_of(other)))

    def fill(self, ticket: int) -> None:
        """A group of this ticket was found on disk: nothing else is to be started for its place."""
        place = place_of(ticket)
        self._owed = [each for each in self._owed if each[0] != place]
        if place >= self._next:
            self._filled.add(place)

    def state(self) -> dict[str, Any]:
        return {
            "next": self._next,
            "done": to_ranges(self.done),
            "owed": [ticket_of(*each) for each in self._owed],
            "filled": sorted(self._filled),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._next, self.done = int(state["next"]), from_ranges(state["done"])
        self._owed = sorted((place_of(each), draw_of(each)) for each in state.get("owed", ()))
        # A group that was found on disk may be trained before the places ahead of it are begun.
        ahead = {place_of(each) for each in self.done if place_of(each) >= self._next}
        self._filled = ahead | {int(place) for place in state.get("filled", ())}


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
