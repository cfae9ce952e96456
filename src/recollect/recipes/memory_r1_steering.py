"""What the settings of Memory-R1 say about which tasks are trained on, as steering for the trainer's collector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from recollect.learning.difficulty import Band
from recollect.learning.steering import Steering
from recollect.learning.task_order import balanced, batch
from recollect.recipes.memory_r1 import Config, stages_of

T = TypeVar("T")
ATTEMPTS = 64
"""At most so many draws of tasks are made for one step: its own, and others in place of those that were rejected."""


def steering_of(config: Config) -> Steering:
    band = None if config.difficulty is None else Band(*config.difficulty, retry=config.retry)
    return Steering(config.tasks_per_step, stages_of(config), band, config.refill)


def drawn_tasks(
    items: Sequence[T], kind_of: Callable[[T], str], config: Config, step: int, attempt: int, count: int
) -> list[T]:
    """The tasks of a step: its own at attempt 0, in the order that they have always had; others, seeded apart, after it."""
    seed, at = (f"{config.seed}", step) if not attempt else (f"{config.seed}/others", step * ATTEMPTS + attempt)
    if config.balance:
        return balanced(items, kind_of, count, at, seed)
    return batch(items, count, at, seed)


def sampling_seed(config: Config, step: int, attempt: int) -> int:
    """Of the draws of a step; of those for other tasks, another."""
    return config.seed * 1_000_003 + step + attempt * 7_919_000_003
