"""Which tasks are sampled for each step, and in what order: functions of the position and the seed, with no state to lose."""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from keepworth.episodes.episode import Group
from keepworth.episodes.errors import KeepworthError

T = TypeVar("T")

# The index of a group: its position in the training and, a billion each, which candidate for that position it is.
#
# Position p is the p-th group (from 0) that the training asks for; with B groups an update it belongs to step p // B. Its own
# group is candidate 0. Where that is rejected or fails, the position is retried with a later candidate, and positions after it
# stay what they are. So the task and the seeds of a group are functions of its index.

SPAN = 10**9
"""More positions than any training has: position 3 with candidate 4 is the group 4000000003."""
CANDIDATES = 4
"""How many tasks are looked at for one try of a position, where the step has them already."""
OTHERS = 64
"""At most so many candidates are looked at for one position: its own, and others in place of those that were rejected."""


class AdmissionError(KeepworthError, ValueError):
    """Settings of asynchronous training that cannot take effect."""


def group_at(position: int, candidate: int = 0) -> int:
    """The index of a candidate for a position."""
    return candidate * SPAN + position


def position_of(group: int) -> int:
    return group % SPAN


def candidate_of(group: int) -> int:
    return group // SPAN


def retry_of(group: int) -> int:
    """How many groups of this position came to nothing before."""
    return candidate_of(group) // CANDIDATES


def draw_seed(seed: int, step: int, group: int) -> int:
    """Of the draws of a step's groups (step from 0); of those that come in the place of others, another."""
    return seed * 1_000_003 + step + retry_of(group) * 7_919_000_003


class GroupOrder:
    """Which group is started next: what is owed to positions whose groups came to nothing, then the next position."""

    def __init__(self) -> None:
        self._next = 0
        self._owed: list[tuple[int, int]] = []

    def take(self) -> int:
        if self._owed:
            return group_at(*self._owed.pop(0))
        self._next += 1
        return group_at(self._next - 1)

    def replace(self, group: int) -> None:
        """The group came to nothing: exactly one other, the first candidate of the next retry, is owed to its position."""
        bisect.insort(self._owed, (position_of(group), (retry_of(group) + 1) * CANDIDATES))

    def state(self) -> dict[str, Any]:
        return {"next": self._next, "owed": [group_at(*owed) for owed in self._owed]}

    def load(self, state: Mapping[str, Any]) -> None:
        self._next = int(state["next"])
        self._owed = sorted((position_of(group), candidate_of(group)) for group in state["owed"])


def batch(items: Sequence[T], size: int, step: int, seed: int | str) -> list[T]:
    """The items of step `step` (from 0): each once per pass, every pass in another seeded order.

    Raises KeepworthError where there are none."""
    return [_drawn(items, position, f"{seed}") for position in range(step * size, (step + 1) * size)]


def balanced(items: Sequence[T], kind_of: Callable[[T], str], size: int, step: int, seed: int | str) -> list[T]:
    """The same with kinds in turn: over any stretch of the training their counts differ by one at most, however many items
    each kind has; within a kind each item comes once per pass. A kind with few items is repeated more often than the others."""
    by_kind: dict[str, list[T]] = {}
    for item in items:
        by_kind.setdefault(kind_of(item), []).append(item)
    kinds = sorted(by_kind) or [""]
    chosen = []
    for position in range(step * size, (step + 1) * size):
        turn, number = divmod(position, len(kinds))
        kind = kinds[number]
        chosen.append(_drawn(by_kind.get(kind, []), turn, f"{seed}/{kind}"))
    return chosen


def drawn_task(items: Sequence[T], kind_of: Callable[[T], str] | None, seed: int, group: int) -> T:
    """The task of the group with an index: a position's own in the order of `batch`, or of `balanced`; others, seeded apart, in
    its place.

    kind_of: the type of a task, where as many of each are wanted."""
    position, candidate = position_of(group), candidate_of(group)
    order, at = (f"{seed}/others", position * OTHERS + candidate) if candidate else (f"{seed}", position)
    (task,) = batch(items, 1, at, order) if kind_of is None else balanced(items, kind_of, 1, at, order)
    return task


def _drawn(items: Sequence[T], position: int, seed: str) -> T:
    if not items:
        raise KeepworthError("There is nothing to train on.", "Choose other tasks: see --print-config.")
    epoch, index = divmod(position, len(items))
    order = list(range(len(items)))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return items[order[index]]


def without_signal(group: Group) -> bool:
    """Whether a group teaches nothing to whoever compares its members."""
    roles = {term.role for episode in group.episodes for term in episode.rewards if term.role} or {""}
    return all(
        len({episode.reward_of(role) if role else episode.reward for episode in group.episodes}) < 2 for role in roles
    )
