"""Maintainers: items are retired, revised, promoted. Every change is an event of the pool and can be undone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.item import Status
from keepworth.memory.policy.actions import NONE
from keepworth.memory.policy.need import need
from keepworth.memory.policy.normal import ndtr
from keepworth.memory.policy.pool import ACTIVE, CANDIDATE, NOBODY, PROGRAM, Pool
from keepworth.memory.policy.retrievers import top
from keepworth.memory.policy.slots import Use, Valuer
from keepworth.memory.policy.values import Counts, followed, opposed
from keepworth.memory.policy.writers import note_key

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


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


@dataclass(slots=True)
class LinkAndEvolve:
    """A-MEM's two steps for each new note, rule form: link it to near neighbours, and let near ones share its tags.

    Neighbours are addressed by id, links are to items that exist, revisions are versioned, capped, and embedded at once:
    four repairs of faults in the released library.
    """

    k: int = 5
    link_above: float = 0.6
    evolve_above: float = 0.75
    most_revisions: int = 5
    _seen: int = 0

    def __call__(self, pool: Pool, valuer: Valuer, use: Use | None, time: int) -> None:
        if use is not None:
            return
        for row in range(self._seen, len(pool)):
            self._arrived(pool, row, time)
        self._seen = len(pool)

    def _arrived(self, pool: Pool, row: int, time: int) -> None:
        rows = pool.active()
        rows = rows[rows < row]
        near = top(pool.similarities(pool.vectors[row], rows), rows, self.k, self.link_above)
        if not len(near.rows) or "tags" not in pool.items[row].metadata:
            return
        pool.revise(row, time=time, why="linked", links=tuple(int(other) for other in near.rows))
        mine = pool.items[row].metadata
        for other, similarity in zip(near.rows.tolist(), near.similarities, strict=True):
            data = pool.items[other].metadata
            if "tags" not in data:
                continue  # an observation, or a record from outside, which has nothing to share
            fresh = [tag for tag in mine["tags"] if tag not in data["tags"]]
            if similarity < self.evolve_above or not fresh or pool.revisions.get(other, 0) >= self.most_revisions:
                continue
            tags = (*data["tags"], *fresh)
            key = note_key(data["content"], data["keywords"], tags, data["context"])
            pool.revise(other, time=time, why=f"evolved by {pool.items[row].id}", key=key, tags=tags)


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
            agrees = followed(pool, row, use)
            if agrees:
                gained, weight = use.reward - expected, 1.0 if shown else 0.5
            elif use.reward > expected and opposed(pool, row, use):
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
        rows = pool.alike(pool.items[row].key, self.alike)
        same = (pool.content[rows] == pool.content[row]) & (pool.source[rows] == pool.source[row])
        rows = rows[same & (pool.status[rows] == ACTIVE) & (rows != row)]
        if len(rows):
            similarity = pool.similarities(pool.encode(pool.items[row].key), rows)
            other = pool.items[int(rows[int(similarity.argmax())])].id
            pool.set_status(row, Status.ARCHIVED, time=time, why=f"says the same as {other}")
