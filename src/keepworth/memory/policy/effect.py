"""The default policy: what the memory's search finds, in its order, until rewards say surely that an item helps or harms here.

The effect of an item near a situation is the mean reward of the times it was shown less the mean reward of the times it was
withheld, both weighted by how near their situations were (Nadaraya 1964, Watson 1964). Items are withheld at random, at a
disclosed rate, so that there is something to compare with: what is shown in easy cases looks helpful without helping. What was
not shown for another reason counts only where the very same was asked. Of an item that advises an action the effect is the mean
reward after that action less the mean reward after others. Nobody draws actions at random, so that is no experiment.

Nothing is moved before the evidence outweighs chance by `SURE` to one: the Bayes factor of two different means against one,
of rewards between the lowest and the highest, with even priors. It may be looked at after every reward: averaged over that prior,
a factor of `SURE` is ever met with a probability of at most 1 / `SURE` where the item makes no difference (Ville's inequality).
The searches of one episode share its reward, so together they weigh as one.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lgamma
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.item import Item
from keepworth.memory.policy.pool import Pool, advice, grown
from keepworth.memory.policy.presenters import lines
from keepworth.memory.policy.slots import Candidates, Policy, Query, Use, Values, need
from keepworth.memory.search.index import in_eight_bits, of_eight_bits
from keepworth.memory.search.search import Worth

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.memory.policy.propensity import Slate

    Bytes = npt.NDArray[np.int8]
    Floats = npt.NDArray[np.float64]
    Vectors = npt.NDArray[np.float32]
    Rows = npt.NDArray[np.int64]

NAME = "effect"
WITHHOLD = 0.02
"""Share of searches in which one item, drawn evenly, is withheld, or one that was moved down is shown."""
LEAST = 10.0
"""How often an item must have been shown near here, with a reward, before it is withheld: there is nothing to compare before."""
SURE = 100.0
NEWEST = 20_000
"""Rewarded choices that are remembered: the latest."""
BANDWIDTH = 0.1
MANY = 1_000_000_000
"""Places of a selection that shows as many as are asked for."""
FAR = 1e-3
"""Evidence of less weight than this, beside 1 at the same situation, is not looked at."""


SAME = 0.999
"""The cosine from which two situations are taken for the same one."""


UNKNOWN = Worth(0.0, 0.0, 0.0, 0.0, 1.0)
"""Of an item where nothing was rewarded yet."""


class _Evidence:
    """Rows of the table, by what they are about."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: dict[str, array[int]] = {}

    def add(self, key: str, row: int) -> None:
        found = self.rows.get(key)
        if found is None:
            found = self.rows[key] = array("q")
        found.append(row)

    def of(self, key: str) -> Rows:
        found = self.rows.get(key)
        return _NONE if found is None else np.frombuffer(found, dtype=np.int64).copy()

    def shift(self, by: int) -> None:
        for key, found in list(self.rows.items()):
            kept = array("q", [row - by for row in found if row >= by])
            if kept:
                self.rows[key] = kept
            else:
                del self.rows[key]


_NONE: Rows = np.zeros(0, dtype=np.int64)


class Effect:
    """The evidence, and what it says of items, which are known by id.

    bandwidth: of the kernel exp((cosine - 1) / bandwidth); newest: how many rewarded choices count; bounds: the lowest and the
    highest reward there can be, where that is known."""

    def __init__(
        self, bandwidth: float = BANDWIDTH, newest: int = NEWEST, bounds: tuple[float, float] | None = None
    ) -> None:
        need("the effect", positive={"bandwidth": bandwidth}, count={"newest": newest})
        self.bandwidth, self.newest, self.bounds = bandwidth, newest, bounds
        self.reset()

    def reset(self) -> None:
        self._vectors: Vectors = np.zeros((0, 0), dtype=np.float32)
        self._rewards = np.zeros(0)
        self._weight = np.zeros(0)
        self._count = self._first = 0
        self._span: tuple[float, float] | None = None
        self._places: dict[str, int] = {}
        self._shown, self._withheld, self._unshown, self._after = _Evidence(), _Evidence(), _Evidence(), _Evidence()
        self._acted = array("q")

    def __len__(self) -> int:
        return self._count - self._first

    def learn(self, use: Use, pool: Pool) -> None:
        ids = [pool.items[row].id for row in use.candidates.rows.tolist()]
        left_out = {*use.slate, *use.withheld}
        self.add(
            of_eight_bits(in_eight_bits(use.query.vector)),  # as it is on file
            use.raw_reward,
            [ids[place] for place in use.slate],
            [ids[place] for place in use.withheld],
            unshown=[id for place, id in enumerate(ids) if place not in left_out],
            action=use.taken,
            weight=use.weight,
            decision=use.decision,
        )

    def add(
        self,
        vector: Vectors,
        reward: float,
        shown: Sequence[str],
        withheld: Sequence[str] = (),
        *,
        unshown: Sequence[str] = (),
        action: str = "",
        weight: float = 1.0,
        decision: str = "",
    ) -> None:
        """A rewarded choice. withheld: what was left out at random; unshown: candidates that were not shown for another reason;
        action: what was done, "" where nobody said; weight: 1 over how many choices share the reward. A later reward of the
        same decision counts instead of the earlier one."""
        if decision and (before := self._places.get(decision, -1)) >= self._first:
            self._weight[before] = 0.0
        if self._count == len(self._rewards):
            self._make_room(len(vector))
        m = self._count
        self._vectors[m], self._rewards[m], self._weight[m], self._span = vector, reward, weight, None
        if decision:
            self._places[decision] = m
        for table, ids in ((self._shown, shown), (self._withheld, withheld), (self._unshown, unshown)):
            for id in ids:
                table.add(id, m)
        if action:
            self._after.add(action, m)
            self._acted.append(m)
        self._count = m + 1
        self._first = max(self._first, self._count - self.newest)

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        items = [pool.items[row] for row in candidates.rows.tolist()]
        worth = self.worth(query.vector, query.text, items)
        means = np.array([each.effect for each in worth])
        return Values(means, np.zeros(len(means)), worth=worth)

    def worth(self, vector: Vectors, situation: str, items: Sequence[Item]) -> tuple[Worth, ...]:
        """What is known of showing each item in a situation."""
        if not len(self) or not items:
            return (UNKNOWN,) * len(items)
        listed = [self._evidence(item, situation) for item in items]
        asked = np.unique(np.concatenate([rows for each in listed for rows in each]))
        asked = asked[asked >= self._first]
        near = np.zeros(self._count - self._first)
        same = np.zeros(self._count - self._first, dtype=bool)
        if 4 * len(asked) > len(self):
            cosines = self._vectors[self._first : self._count] @ vector.astype(np.float32)
            near[:], same[:] = np.exp((cosines - 1.0) / self.bandwidth), cosines >= SAME
        elif len(asked):
            cosines = self._vectors[asked] @ vector.astype(np.float32)
            places = asked - self._first
            near[places], same[places] = np.exp((cosines - 1.0) / self.bandwidth), cosines >= SAME
        near *= self._weight[self._first : self._count]
        near[near < FAR] = 0.0
        return tuple(self._compared(*each, near, same) for each in listed)

    def _evidence(self, item: Item, situation: str) -> tuple[Rows, Rows, Rows]:
        """Choices with the item, choices in which it was withheld, and those that did not show it; of a warning choices after
        another action than it warns of, and after that one."""
        pairs = advice(item, situation)
        if not pairs or not self._acted:
            return self._shown.of(item.id), self._withheld.of(item.id), self._unshown.of(item.id)
        wanted = {action for action, weight in pairs if weight > 0} or {action for action, _ in pairs}
        taken = np.unique(np.concatenate([_NONE, *(self._after.of(action) for action in wanted)]))
        others = np.setdiff1d(np.frombuffer(self._acted, dtype=np.int64), taken)
        return (taken, others, _NONE) if pairs[0][1] > 0 else (others, taken, _NONE)

    def _compared(self, shown: Rows, withheld: Rows, unshown: Rows, near: Floats, same: npt.NDArray[np.bool_]) -> Worth:
        low, high = self._bounds()
        shown, withheld, unshown = (rows[rows >= self._first] - self._first for rows in (shown, withheld, unshown))
        withheld = np.concatenate([withheld, unshown[same[unshown]]])
        rewards = self._rewards[self._first : self._count]
        n1, n0 = float(near[shown].sum()), float(near[withheld].sum())
        s1, s0 = float(near[shown] @ rewards[shown]), float(near[withheld] @ rewards[withheld])
        usual = (s1 + s0) / (n1 + n0) if n1 + n0 else 0.0
        mean1, mean0 = (s1 / n1 if n1 else usual), (s0 / n0 if n0 else usual)
        if not n1 or not n0 or not high > low:
            return Worth(mean1, mean0, n1, n0, 1.0)
        won1, won0 = n1 * (mean1 - low) / (high - low), n0 * (mean0 - low) / (high - low)
        return Worth(mean1, mean0, n1, n0, bayes_factor(won1, n1 - won1, won0, n0 - won0))

    def _bounds(self) -> tuple[float, float]:
        """Of the rewards that count, which may be older than the bounds that were declared."""
        if self._span is None:
            rewards = self._rewards[self._first : self._count]
            rewards = rewards[self._weight[self._first : self._count] > 0.0]
            low, high = self.bounds or (math.inf, -math.inf)
            self._span = min(low, float(rewards.min())), max(high, float(rewards.max()))
        return self._span

    def _make_room(self, width: int) -> None:
        """Longer columns, without what is older than the newest: rows are numbered anew."""
        gone, kept = self._first, slice(self._first, self._count)
        size = max(64, 2 * (self._count - gone))
        self._vectors = grown(self._vectors[kept], size, width)
        self._rewards, self._weight = grown(self._rewards[kept], size), grown(self._weight[kept], size)
        if gone:
            for table in (self._shown, self._withheld, self._unshown, self._after):
                table.shift(gone)
            self._acted = array("q", [row - gone for row in self._acted if row >= gone])
            self._places = {id: row - gone for id, row in self._places.items() if row >= gone}
        self._first, self._count = 0, self._count - gone


def bayes_factor(won: float, lost: float, won_without: float, lost_without: float) -> float:
    """How much likelier two sets of outcomes are with a chance of success each than with the same one, all chances being equally
    likely beforehand. Outcomes between success and failure count as shares of both, which claims less than is known."""
    log = (
        _log_beta(won + 1.0, lost + 1.0)
        + _log_beta(won_without + 1.0, lost_without + 1.0)
        - _log_beta(won + won_without + 1.0, lost + lost_without + 1.0)
    )
    return math.exp(max(-700.0, min(log, 700.0)))


def _log_beta(a: float, b: float) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


@dataclass(frozen=True, slots=True)
class Flips:
    """One order, in which at rate `rate` one of the `open` positions is flipped: what would be shown is withheld, and what would
    not is shown first. order: positions among the candidates, all of them; k: how many are shown; known: those that may be
    withheld; down: those that were moved down."""

    order: Slate
    k: int
    rate: float
    known: Slate
    down: Slate = ()

    @property
    def open(self) -> Slate:
        shown = self.order[: self.k]
        return (*(each for each in self.known if each in shown), *(each for each in self.down if each not in shown))

    def draw(self, generator: np.random.Generator) -> tuple[Slate, str]:
        open = self.open
        if open and generator.random() < self.rate:
            place = open[int(generator.integers(len(open)))]
            return self.flipped(place), "withheld" if place in self.order[: self.k] else "tried"
        return self.order[: self.k], "main"

    def probability(self, slate: Sequence[int]) -> float:
        slate, open = tuple(slate), self.open
        rate = self.rate if open else 0.0
        found = (1.0 - rate) * (slate == self.order[: self.k])
        if open:
            found += rate * sum(slate == self.flipped(place) for place in open) / len(open)
        return float(found)

    def certain(self) -> Flips:
        return replace(self, rate=0.0)

    def at_most(self, k: int) -> Flips:
        return replace(self, k=min(k, self.k))

    def flipped(self, place: int) -> Slate:
        rest = tuple(other for other in self.order if other != place)
        return rest[: self.k] if place in self.order[: self.k] else (place, *rest)[: self.k]


@dataclass(frozen=True, slots=True)
class WhereSure:
    """The search's own order; before it what surely helps here, the most first, after it what surely harms.

    withhold, least: see `WITHHOLD` and `LEAST`."""

    k: int = MANY
    withhold: float = WITHHOLD
    sure: float = SURE
    least: float = LEAST

    def __post_init__(self) -> None:
        need("the selection", count={"k": self.k}, rate={"withhold": self.withhold}, positive={"sure": self.sure})
        need("the selection", positive={"least": self.least})

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Flips:
        known = [each.effect if each.factor >= self.sure else 0.0 for each in values.worth]
        places = range(len(known))
        up = sorted((place for place in places if known[place] > 0.0), key=lambda place: -known[place])
        down = sorted((place for place in places if known[place] < 0.0), key=lambda place: -known[place])
        order = (*up, *(place for place in places if known[place] == 0.0), *down)
        # What surely helps is withheld no more, and what was rarely shown is not withheld yet.
        enough = tuple(p for p in places if known[p] <= 0.0 and values.worth[p].shown >= self.least)
        return Flips(order, self.k, self.withhold, enough, tuple(down))


def situation(goal: str, observation: str) -> str:
    """What is asked; the task where nothing is."""
    return observation or goal


def effect(
    *,
    withhold: float = WITHHOLD,
    sure: float = SURE,
    least: float = LEAST,
    bandwidth: float = BANDWIDTH,
    newest: int = NEWEST,
) -> Policy:
    """The default policy. withhold: 0 explores nothing, and then no other policy can be evaluated on its log."""
    return Policy(NAME, situation, None, Effect(bandwidth, newest), WhereSure(MANY, withhold, sure, least), lines)
