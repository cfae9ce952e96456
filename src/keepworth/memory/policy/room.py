"""Room: what has to go where memory is full, so that nobody who writes much drives out what is good.

A source that the program does not vouch for has at most a few items that say the same in one situation. Where memory is full,
what was learned here keeps most of the places, and of those what the program vouches for; the source with the most items gives
first; and what fills much of memory with the same advice goes before what is rare. Else the oldest goes: an order by estimated
values was worse wherever rewards are noisy or the world changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.item import Status
from keepworth.memory.policy.actions import NONE
from keepworth.memory.policy.need import need
from keepworth.memory.policy.pool import ACTIVE, CANDIDATE, NOBODY, PROGRAM, Pool
from keepworth.memory.policy.slots import Use, Valuer

if TYPE_CHECKING:
    import numpy.typing as npt

    Bools = npt.NDArray[np.bool_]
    Rows = npt.NDArray[np.intp]


def living(pool: Pool) -> Rows:
    """Items that take a place: those that are shown, and those on probation."""
    n = len(pool)
    return np.flatnonzero(np.isin(pool.status[:n], (ACTIVE, CANDIDATE)) & (pool.content[:n] != NONE))


@dataclass(slots=True)
class Crowd:
    """At most `most` items of one source that say the same in one situation, closer to each other than `alike`; the oldest are
    archived. What the program vouches for is left alone."""

    most: int = 3
    alike: float = 0.7
    _seen: int = 0

    def __post_init__(self) -> None:
        need("the quota of a source", count={"most": self.most}, rate={"alike": self.alike})

    def __call__(self, pool: Pool, valuer: Valuer, use: Use | None, time: int) -> None:
        if use is not None:
            return
        latest = slice(self._seen, len(pool))
        fresh = self._seen + np.flatnonzero((pool.person[latest] != PROGRAM) & (pool.content[latest] != NONE))
        self._seen = len(pool)
        for row in fresh.tolist():
            n = len(pool)
            rows = np.flatnonzero((pool.source[:n] == pool.source[row]) & np.isin(pool.status[:n], (ACTIVE, CANDIDATE)))
            near = rows[_near(pool, row, rows, self.alike)]
            for other in near[: -self.most].tolist():
                pool.set_status(
                    other, Status.ARCHIVED, time=time, why=f"its source says the same {self.most} times here"
                )


@dataclass(slots=True)
class Room:
    """At most `most` items: what leaves is archived, and can be had back by undoing.

    While there are too many, the source from outside with the most items gives one. Where what was learned here has more than a
    share `guarded` of the places, the person with the most items gives; where what the program vouches for has more, the program.
    It is the oldest of those whose advice, in situations closer than `alike`, has more than a share `crowded` of the places;
    where there are none, the oldest of all.
    """

    most: int = 400
    crowded: float = 0.2
    alike: float = 0.75
    guarded: float = 0.75
    _rows: Rows = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    _repeated: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rates = {"crowded": self.crowded, "alike": self.alike, "guarded": self.guarded}
        need("maintenance", count={"capacity": self.most}, rate=rates)

    def __call__(self, pool: Pool, valuer: Valuer, use: Use | None, time: int) -> None:
        if use is not None:
            return
        rows = living(pool)
        if len(rows) <= self.most:
            return
        self._count(pool, rows)
        while len(rows) > self.most:
            giving = rows[self._giving(pool, rows)]
            repeated = np.array([self._repeated[row] for row in giving.tolist()])
            row = int(giving[np.argmax(repeated > self.crowded * self.most)])
            pool.set_status(row, Status.ARCHIVED, time=time, why="over capacity")
            rows = rows[rows != row]
            self._count(pool, rows)

    def _giving(self, pool: Pool, rows: Rows) -> Bools:
        """The items of whoever has to give one."""
        person = pool.person[rows]
        here: Bools = person != NOBODY
        program: Bools = person == PROGRAM
        if here.sum() <= self.guarded * self.most:
            several = ~here
        elif program.sum() <= self.guarded * self.most:
            several = here & ~program
        else:
            return program
        giving: Bools = several & (pool.source[rows] == np.bincount(pool.source[rows][several]).argmax())
        return giving

    def _count(self, pool: Pool, rows: Rows) -> None:
        """How often others say what each of `rows` says; those that came and went since are counted in and out."""
        for gone in np.setdiff1d(self._rows, rows).tolist():
            del self._repeated[gone]
            self._rows = self._rows[self._rows != gone]
            for other in self._rows[stands_for(pool, gone, self._rows, self.alike)].tolist():
                self._repeated[other] -= 1
        for fresh in np.setdiff1d(rows, self._rows).tolist():
            for other in self._rows[stands_for(pool, fresh, self._rows, self.alike)].tolist():
                self._repeated[other] += 1
            self._repeated[fresh] = int(stood_for(pool, fresh, self._rows, self.alike).sum())
            self._rows = np.append(self._rows, fresh)


def stands_for(pool: Pool, row: int, others: Rows, alike: float) -> Bools:
    """Which of `others` could go because `row` says the same in a situation like theirs: not what another source says that the
    program does not vouch for."""
    if pool.person[row] != PROGRAM:
        others_too = pool.source[others] == pool.source[row]
    else:
        others_too = np.ones(len(others), dtype=bool)
    found: Bools = others_too & _near(pool, row, others, alike)
    return found


def stood_for(pool: Pool, row: int, others: Rows, alike: float) -> Bools:
    """Which of `others` stand for `row`."""
    may = (pool.person[others] == PROGRAM) | (pool.source[others] == pool.source[row])
    found: Bools = may & _near(pool, row, others, alike)
    return found


def _near(pool: Pool, row: int, others: Rows, alike: float) -> Bools:
    """Which of `others` say the same as `row`, the same action to do or to avoid, in a situation at least so much alike."""
    same = (pool.content[others] == pool.content[row]) & (pool.warns[others] == pool.warns[row])
    found = np.zeros(len(others), dtype=bool)
    found[same] = pool.vectors[others[same]] @ pool.vectors[row] >= alike
    return found
