"""What `advantage` retires and promotes. Every change is an event of the pool and can be undone.

`Crowd` and `Room` decide what has to go where memory is full, so that nobody who writes much drives out what is good. A source
that the program does not vouch for has at most a few items that say the same in one situation. Where memory is full, what was
learned here keeps most of the places, and of those what the program vouches for; the source with the most items gives first; and
what fills much of memory with the same advice goes before what is rare. Else the oldest goes: an order by estimated values was
worse wherever rewards are noisy or the world changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.item import Status
from keepworth.memory.policy.actions import NONE, SURE
from keepworth.memory.policy.pool import ACTIVE, CANDIDATE, NOBODY, PROGRAM, Pool, advice
from keepworth.memory.policy.slots import Use, Valuer, need
from keepworth.methods.policies._slates import ndtr

if TYPE_CHECKING:
    import numpy.typing as npt

    Bools = npt.NDArray[np.bool_]
    Rows = npt.NDArray[np.intp]


@dataclass(slots=True)
class Probation:
    """Ours: what comes from outside is promoted or held back by what its advice led to, per source and per item.

    Evidence is an advantage over p0: of a probe or showing, where the advice was followed; and, at no cost, of any choice
    at a near situation in which the same action was taken for other reasons (a shadow trial) or another action was right.
    The chance that the advantage is positive decides, with thresholds apart so that nothing flickers: from `promote` on the
    source's records are admitted, below `demote` they are taken back, and what still waits is not tried any more.
    """

    promote: float = 0.6
    demote: float = 0.2
    prior: float = 0.15
    noise: float = 0.2
    keep: float = 0.93
    near: float = 0.35
    alarm: float = -0.35
    _sums: dict[int, list[float]] = field(default_factory=dict)

    def __call__(self, pool: Pool, valuer: Valuer, use: Use | None, time: int) -> None:
        if use is None:
            # Later records of a source that has proved itself need not wait for new proof.
            for source in self._sums:
                self._decide(pool, source, time)
            return
        outside = np.flatnonzero(
            (pool.person[use.candidates.rows] == NOBODY) & (pool.content[use.candidates.rows] != NONE)
        )
        foreign = [(place, int(use.candidates.rows[place])) for place in outside]
        if not foreign:
            return
        expected = use.bonus.get("expected", 0.5)
        touched = set()
        for place, row in foreign:
            shown = place in use.slate
            if not shown and use.candidates.similarities[place] < self.near:
                continue
            agrees = _followed(pool, row, use)
            if agrees:
                gained, weight = use.reward - expected, 1.0 if shown else 0.5
            elif use.reward > expected and _opposed(pool, row, use):
                # Another action was right here: had the advice been followed, it would most likely have failed.
                gained, weight = -expected, 0.5
            else:
                continue
            source = int(pool.source[row])
            sums = self._sums.setdefault(source, [0.0, 0.0])
            sums[0] = sums[0] * self.keep + weight * gained
            sums[1] = sums[1] * self.keep + weight
            surprise = use.reward - expected - float(use.values.means[place]) if shown and agrees else 0.0
            if shown and agrees and use.reward < expected and surprise < self.alarm:
                # Trusted advice that fails against expectation costs its source most of its credit at once.
                sums[0] -= 1.0
                sums[1] += 1.0
            touched.add(source)
        for source in touched:
            self._decide(pool, source, time)

    def chance(self, source: int) -> float:
        """P(the source's advice helps), from its discounted sums and a prior at no help."""
        total, weight = self._sums.get(source, [0.0, 0.0])
        precision = 1.0 / self.prior + weight / self.noise
        return float(ndtr((total / self.noise) / np.sqrt(precision)))

    def _decide(self, pool: Pool, source: int, time: int) -> None:
        chance = self.chance(source)
        if self.demote < chance < self.promote:
            return
        rows = np.flatnonzero(pool.source[: len(pool)] == source)
        good = chance >= self.promote
        wanted = Status.ACTIVE if good else Status.QUARANTINED
        for row in rows[np.isin(pool.status[rows], [CANDIDATE] if good else [ACTIVE, CANDIDATE])]:
            pool.set_status(int(row), wanted, time=time, why=f"P(helps) of its source is {chance:.2f}")


@dataclass(frozen=True, slots=True)
class RetireHarmful:
    """Ours: archive an item that was shown although its value was below `below` by `sure` deviations (an exploring choice,
    or a draw from the tail). Undoing the event brings it back. On the word of one person, nothing goes that is not that person's.
    """

    sure: float = 1.0
    below: float = 0.0

    def __call__(self, pool: Pool, valuer: Valuer, use: Use | None, time: int) -> None:
        if use is None or not len(use.candidates.rows):
            return
        person = pool.person_of(use.by)
        for place in use.slate:
            row = int(use.candidates.rows[place])
            if person not in (PROGRAM, pool.person[row]):
                continue
            mean, deviation = float(use.values.means[place]), float(use.values.deviations[place])
            if pool.status[row] == ACTIVE and mean + self.sure * deviation < self.below:
                why = f"value {mean:.2f} with deviation {deviation:.2f}"
                pool.set_status(row, Status.ARCHIVED, time=time, why=why)


@dataclass(frozen=True, slots=True)
class MergeDuplicates:
    """Ours: a new item whose key equals that of an active item with the same advice is archived in its favour."""

    alike: float = 0.999

    def __call__(self, pool: Pool, valuer: Valuer, use: Use | None, time: int) -> None:
        if use is not None or not len(pool):
            return
        row = len(pool) - 1
        if pool.status[row] != ACTIVE or pool.content[row] < 0:
            return
        rows = pool.active()
        near = pool.scan(pool.encode(pool.items[row].key), rows)
        same = (pool.content[rows] == pool.content[row]) & (pool.source[rows] == pool.source[row])
        kept = same & (near >= self.alike) & (rows != row)
        if kept.any():
            other = pool.items[int(rows[kept][int(near[kept].argmax())])].id
            pool.set_status(row, Status.ARCHIVED, time=time, why=f"says the same as {other}")


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


def _followed(pool: Pool, row: int, use: Use) -> bool:
    """Whether the action taken is surely one that the item advises (or, for a warning, one that it does not warn of)."""
    numbers, warns, taken = _spoken_of(pool, row, use)
    if not len(numbers):
        return False
    if warns:
        return bool(pool.actions.apart(numbers, taken).all())
    return bool((pool.actions.sameness(numbers, taken) > SURE).any())


def _opposed(pool: Pool, row: int, use: Use) -> bool:
    """Whether the action taken is surely none that the item advises (or, for a warning, one that it warns of)."""
    numbers, warns, taken = _spoken_of(pool, row, use)
    if not len(numbers):
        return False
    if warns:
        return bool((pool.actions.sameness(numbers, taken) > SURE).any())
    return bool(pool.actions.apart(numbers, taken).all())


def _spoken_of(pool: Pool, row: int, use: Use) -> tuple[npt.NDArray[np.int64], bool, npt.NDArray[np.int64]]:
    """The actions that the item advises, or else warns of; whether it warns; the action taken. By number."""
    pairs = advice(pool.items[row], use.query.text)
    wanted = [action for action, weight in pairs if weight > 0]
    numbers = [pool.content_of(action) for action in wanted or [action for action, _ in pairs]]
    return np.array(numbers, dtype=np.int64), not wanted, np.array([pool.content_of(use.taken)])
