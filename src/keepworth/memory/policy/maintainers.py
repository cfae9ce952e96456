"""Maintainers: items are retired. Every change is an event of the pool and can be undone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.item import Status
from keepworth.memory.policy.pool import ACTIVE, Pool
from keepworth.memory.policy.slots import Use, Valuer, need
from keepworth.memory.policy.valuers import Counts

if TYPE_CHECKING:
    import numpy.typing as npt

    Bools = npt.NDArray[np.bool_]
    Rows = npt.NDArray[np.intp]


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


@dataclass(frozen=True, slots=True)
class DeleteByUtility:
    """Archive an item shown at least `least` times whose share of successes is at most `share` (ReMe, equation 3)."""

    least: int = 5
    share: float = 0.5

    def __call__(self, pool: Pool, valuer: Valuer, use: Use | None, time: int) -> None:
        if use is None or not isinstance(valuer, Counts):
            return
        f, u = valuer.shown.upto(len(pool)), valuer.won.upto(len(pool))
        for row in use.rows:
            if pool.status[row] == ACTIVE and f[row] >= self.least and u[row] <= self.share * f[row]:
                why = f"shown {f[row]:.0f} times, {u[row]:.0f} successes"
                pool.set_status(row, Status.ARCHIVED, time=time, why=why)
