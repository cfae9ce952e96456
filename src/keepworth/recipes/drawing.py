"""Which tasks a step is sampled from, and with which seed: functions of the step and the attempt, with no state to lose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from keepworth.learning.collect.task_order import balanced, batch

T = TypeVar("T")
ATTEMPTS = 64
"""At most so many draws of tasks are made for one step: its own, and others in place of those that were rejected."""


def drawn_tasks(
    items: Sequence[T], kind_of: Callable[[T], str] | None, seed: int, step: int, attempt: int, count: int
) -> list[T]:
    """The tasks of a step: its own at attempt 0, in the order that they have always had; others, seeded apart, after it.

    kind_of: the type of a task, where as many of each are wanted."""
    order, at = (f"{seed}", step) if not attempt else (f"{seed}/others", step * ATTEMPTS + attempt)
    return batch(items, count, at, order) if kind_of is None else balanced(items, kind_of, count, at, order)


def sampling_seed(seed: int, step: int, attempt: int) -> int:
    """Of the draws of a step; of those for other tasks, another."""
    return seed * 1_000_003 + step + attempt * 7_919_000_003
