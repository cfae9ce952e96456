"""Which tasks are sampled for each step, and in what order. Both are functions of the position and the seed, without state."""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from keepworth.base.errors import KeepworthError
from keepworth.records.episode import Group

T = TypeVar("T")

# The index of a group: its position in the training, plus a billion times the number of the candidate for that position.
#
# Position p is the p-th group (from 0) that the training asks for; with B groups an update it belongs to step p // B. Its first
# group is candidate 0. Where that is rejected or fails, the position is retried with a later candidate, and later positions do
# not change. So the task and the seeds of a group are functions of its index.

SPAN = 10**9
"""More positions than any training has: position 3 with candidate 4 is the group 4000000003."""
CANDIDATES = 4
"""Candidates that one retry of a position considers, to find a task that the step does not have already."""
OTHERS = 64
"""The most candidates for one position: the first, and those that replace rejected ones."""


class AdmissionError(KeepworthError, ValueError):
    """Settings of asynchronous training would have no effect."""


def position_of(group: int) -> int:
    return group % SPAN


def retry_of(group: int) -> int:
    """Returns how often this position was retried before."""
    return group // (CANDIDATES * SPAN)


def draw_seed(seed: int, step: int, group: int) -> int:
    """Returns the seed of the draws of a step's groups.

    Args:
        seed: The seed of the run.
        step: The number of the step, from 0 on.
        group: The index of a group of the step; groups that replace others get another seed.
    """
    return seed * 1_000_003 + step + retry_of(group) * 7_919_000_003


class GroupOrder:
    """Decides which group is started next: a replacement for a position whose group failed, else the next position."""

    def __init__(self) -> None:
        self._next = 0
        self._owed: list[int] = []

    def take(self) -> int:
        if self._owed:
            return self._owed.pop(0)
        self._next += 1
        return self._next - 1

    def replace(self, group: int) -> None:
        """Notes that the group failed: its position gets exactly one other group, the first candidate of the next retry."""
        other = position_of(group) + (retry_of(group) + 1) * CANDIDATES * SPAN
        bisect.insort(self._owed, other, key=position_of)

    def state(self) -> dict[str, Any]:
        return {"next": self._next, "owed": list(self._owed)}

    def load(self, state: Mapping[str, Any]) -> None:
        self._next = int(state["next"])
        self._owed = sorted(state["owed"], key=position_of)


def batch(items: Sequence[T], size: int, step: int, seed: int | str) -> list[T]:
    """Returns the items of one step: each item comes once per pass, every pass in another seeded order. Raises KeepworthError
    where there are none.

    Args:
        items: All items.
        size: The items of a step. A step may end one pass and begin the next.
        step: The number of the step, from 0 on.
        seed: The seed of the orders.
    """
    return [_drawn(items, position, f"{seed}") for position in range(step * size, (step + 1) * size)]


def draw_task(items: Sequence[T], kind_of: Callable[[T], str] | None, seed: int, group: int) -> T:
    """Returns the task of a group. Candidate 0 of a position follows the order of `batch`; later candidates follow an order with
    another seed.

    Over any stretch of the training the counts of kinds differ by at most one, however many items each kind has. Within a
    kind each item comes once per pass, so a kind with few items is repeated more often.

    Args:
        items: All tasks.
        kind_of: It returns the kind of a task, and kinds come in turn; None for a single kind.
        seed: The seed of the orders.
        group: The index of the group, which says its position and which candidate it is there.
    """
    candidate, position = divmod(group, SPAN)
    order, at = (f"{seed}/others", position * OTHERS + candidate) if candidate else (f"{seed}", position)
    if kind_of is None or not items:
        return _drawn(items, at, order)
    by_kind: dict[str, list[T]] = {}
    for item in items:
        by_kind.setdefault(kind_of(item), []).append(item)
    turn, number = divmod(at, len(by_kind))
    kind = sorted(by_kind)[number]
    return _drawn(by_kind[kind], turn, f"{order}/{kind}")


def _drawn(items: Sequence[T], position: int, seed: str) -> T:
    if not items:
        raise KeepworthError("There is nothing to train on.", "Choose other tasks: see --print-config.")
    epoch, index = divmod(position, len(items))
    order = list(range(len(items)))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return items[order[index]]


def without_signal(group: Group) -> bool:
    """Whether a group's rewards are all equal, so that comparing its members teaches nothing."""
    roles = {term.role for episode in group.episodes for term in episode.rewards if term.role} or {""}
    return all(
        len({episode.reward_of(role) if role else episode.reward for episode in group.episodes}) < 2 for role in roles
    )
