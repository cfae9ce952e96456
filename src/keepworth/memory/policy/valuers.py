"""Valuers: what showing an item is worth. What several of them share, and a control.

All are pure state over row numbers, so `reset` and a replay of the uses that stay give the state after a rollback.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.policy.pool import Pool, grown
from keepworth.memory.policy.slots import Candidates, Query, Use, Valuer, Values

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.memory.policy.actions import Actions

    Floats = npt.NDArray[np.float64]
    Vectors = npt.NDArray[np.float32]


class Column:
    """One float per row, 0 until set; grows as rows come."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data: Floats = np.zeros(64)

    def upto(self, n: int) -> Floats:
        if n > len(self.data):
            self.data = grown(self.data, max(n, 2 * len(self.data)))
        return self.data


class Unvalued:
    """The similarity stands for the value; nothing is learned (ExpRAG, Memento non-parametric, A-MEM)."""

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        return Values(candidates.similarities, np.zeros(len(candidates.rows)))

    def learn(self, use: Use, pool: Pool) -> None:
        return

    def reset(self) -> None:
        return


WARNING = 0.4
"""What a warning of an action is worth, as a share of what the opposite would be."""


class Experiences:
    """Columns that grow: where (unit vectors), what (numbers), reward, when."""

    def __init__(self) -> None:
        self.count, self.latest = 0, 0
        self.where: Vectors = np.zeros((0, 0), dtype=np.float32)
        self.what, self.reward, self.time = np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0)

    def add(self, where: Vectors, what: int, reward: float, time: int) -> None:
        n = self.count
        if n == len(self.what):
            size = max(64, 2 * n)
            self.where, self.what = grown(self.where, size, len(where)), grown(self.what, size)
            self.reward, self.time = grown(self.reward, size), grown(self.time, size)
        self.where[n], self.what[n], self.reward[n], self.time[n] = where, what, reward, time
        self.count, self.latest = n + 1, time

    def similarity(self, vector: Vectors) -> Floats:
        found: Floats = (self.where[: self.count] @ vector).astype(np.float64)
        return found


def on_advice(gained: Floats, candidates: Candidates, pool: Pool) -> Floats:
    """What an item is worth by its action; a warning of it `WARNING` of the opposite. The more similar item wins a tie."""
    found: Floats = np.where(pool.warns[candidates.rows], -WARNING * gained, gained + 1e-3 * candidates.similarities)
    return found


@dataclass(frozen=True, slots=True)
class Offered:
    """What can be done here, in the place of a pool: one row for each action, which advises it and nothing else."""

    actions: Actions
    content: npt.NDArray[np.int64]
    warns: npt.NDArray[np.bool_]
    conditional: npt.NDArray[np.bool_]
    episode: npt.NDArray[np.int64]


def of_actions(valuer: Valuer, query: Query, pool: Pool) -> Floats:
    """What each of the query's actions is worth here, to a valuer that knows actions: what it would do if it acted itself."""
    numbers = np.array([pool.content_of(action) for action in query.actions], dtype=np.int64)
    n = len(numbers)
    none = np.zeros(n, dtype=bool)
    offered = Offered(pool.actions, numbers, none, none, np.full(n, -1))
    found: Floats = valuer.estimate(query, Candidates(np.arange(n), np.zeros(n)), offered).means  # type: ignore[arg-type]
    return found


class Masked:
    """Estimates what the valuer estimated before it learned anything: its prior, which for `advantage` is a line in similarity.

    What a gain owes to values goes with it. What rewards do otherwise stays: which cases are kept, and their labels.
    """

    def __init__(self, valuer: Valuer) -> None:
        self.learning = valuer
        self.blank = deepcopy(valuer)

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        return self.blank.estimate(query, candidates, pool)

    def learn(self, use: Use, pool: Pool) -> None:
        self.learning.learn(use, pool)

    def reset(self) -> None:
        self.learning.reset()
