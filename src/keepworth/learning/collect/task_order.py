"""In what order tasks are trained on: functions of the step and the seed, with no state to lose."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from keepworth.episodes.errors import KeepworthError

T = TypeVar("T")


def batch(items: Sequence[T], size: int, step: int, seed: int | str) -> list[T]:
    """The items of step `step` (from 0): each once per pass, every pass in another seeded order.

    Raises KeepworthError where there are none."""
    _require(items)
    return [_drawn(items, position, f"{seed}") for position in range(step * size, (step + 1) * size)]


def balanced(items: Sequence[T], kind_of: Callable[[T], str], size: int, step: int, seed: int | str) -> list[T]:
    """The same with kinds in turn: over any stretch of the training their counts differ by one at most, however many items
    each kind has; within a kind each item comes once per pass.

    A kind with few items is repeated more often than the others: that is the price, and what it is for (uniform sampling
    would rarely train it)."""
    _require(items)
    by_kind: dict[str, list[T]] = {}
    for item in items:
        by_kind.setdefault(kind_of(item), []).append(item)
    kinds = sorted(by_kind)
    chosen = []
    for position in range(step * size, (step + 1) * size):
        turn, place = divmod(position, len(kinds))
        kind = kinds[place]
        chosen.append(_drawn(by_kind[kind], turn, f"{seed}/{kind}"))
    return chosen


def _drawn(items: Sequence[T], position: int, seed: str) -> T:
    epoch, index = divmod(position, len(items))
    order = list(range(len(items)))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return items[order[index]]


def _require(items: Sequence[T]) -> None:
    if not items:
        raise KeepworthError("There is nothing to train on.", "Choose other tasks: see --print-config.")
