"""Maintainers: items are retired. Every change is an event of the pool and can be undone."""

from __future__ import annotations

from dataclasses import dataclass

from keepworth.memory.item import Status
from keepworth.memory.policy.pool import Pool
from keepworth.memory.policy.slots import Use, Valuer, need


@dataclass(frozen=True, slots=True)
class Capacity:
    """At most `most` active items: the oldest are archived, and can be had back by undoing."""

    most: int = 400

    def __post_init__(self) -> None:
        need("maintenance", count={"capacity": self.most})

    def __call__(self, pool: Pool, valuer: Valuer, use: Use | None, time: int) -> None:
        if use is not None:
            return
        rows = pool.advising()
        for row in rows[: max(0, len(rows) - self.most)]:
            pool.set_status(int(row), Status.ARCHIVED, time=time, why="over capacity, oldest first")
