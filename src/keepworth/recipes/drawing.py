"""Which task a group is of: a function of the group's index and the seed, with no state to lose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from keepworth.learning.collect.group_index import candidate_of, position_of
from keepworth.learning.collect.task_order import balanced, batch

T = TypeVar("T")
OTHERS = 64
"""At most so many candidates are looked at for one position: its own, and others in place of those that were rejected."""


def drawn_task(items: Sequence[T], kind_of: Callable[[T], str] | None, seed: int, group: int) -> T:
    """The task of a group: a position's own in the order of `batch`, or of `balanced`; others, seeded apart, in its place.

    kind_of: the type of a task, where as many of each are wanted."""
    position, candidate = position_of(group), candidate_of(group)
    order, at = (f"{seed}/others", position * OTHERS + candidate) if candidate else (f"{seed}", position)
    (task,) = batch(items, 1, at, order) if kind_of is None else balanced(items, kind_of, 1, at, order)
    return task
