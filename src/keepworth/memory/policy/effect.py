"""The default policy: what the memory's search finds, in its order, until rewards say surely that an item helps or harms here.

The effect of an item near a situation is the mean reward of the times it was shown less the mean reward of the times it was
withheld, both weighted by how near their situations were (Nadaraya 1964, Watson 1964). Items are withheld at random, at a
disclosed rate, so that there is something to compare with: what is shown in easy cases looks helpful without helping. What was
not shown for another reason counts only where the very same was asked. Of an item that advises an action the effect is the mean
reward after that action less the mean reward after others. Nobody draws actions at random, so that is no experiment.

Nothing is moved before the evidence outweighs chance by `SURE` to one: the Bayes factor of two different means against one,
of rewards between the lowest and the highest, with even priors. It may be looked at after every reward: averaged over that
prior, a factor of `SURE` is ever met with a probability of at most 1 / `SURE` where the item makes no difference (Ville's
inequality). The searches of one episode share its reward, so together they weigh as one.

What an item adds wherever it comes up is kept in the ledger (see `ledger`), from the episodes in which chance decided about
it. An item that surely harms by that is moved down too. Once its interval is clear of 0, or too narrow to matter, chance
decides about it no more.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lgamma
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.item import Item
from keepworth.memory.policy.ledger import EXPECTED, Account, Ledger, account, rate
from keepworth.memory.policy.pool import Pool, advice, grown
from keepworth.memory.policy.presenters import lines
from keepworth.memory.policy.propensity import Independent
from keepworth.memory.policy.slots import Candidates, Policy, Query, Use, Values, need
from keepworth.memory.search.index import in_eight_bits, of_eight_bits
from keepworth.memory.search.search import Worth

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.int8]
    Floats = npt.NDArray[np.float64]
    Vectors = npt.NDArray[np.float32]
    Rows = npt.NDArray[np.int64]

NAME = "effect"
WITHHOLD = 0.05
"""With this probability an item under test is withheld in an episode, or shown where it was moved down."""
TOGETHER = 1
"""Items under test in one search: the least known of those that would be shown. The others wait."""
BUDGET = 0.01
"""What a test may be expected to cost per episode, of the range of rewards, before the probability is halved at most."""
LEAST = 10.0
"""How often an item must have been shown, with a reward, before it is put to the test."""
CONTEXT = 1000
"""Rewarded choices, the newest, from which the reward that is expected in a situation is estimated."""
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
        self._count = self._first = self._total = 0
        self.ledger = Ledger()
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
            odds={ids[place]: p for place, p in use.odds.items()},
            expected=use.expected,
            unit=use.unit,
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
        odds: Mapping[str, float] | None = None,
        expected: float = 0.0,
        unit: str = "",
    ) -> None:
        """A rewarded choice. withheld: what was left out at random; unshown: candidates that were not shown for another reason;
        action: what was done, "" where nobody said; weight: 1 over how many choices share the reward; odds, expected, unit: see
        `Ledger.add`. A later reward of the same decision counts instead of the earlier one."""
        if unit or odds:
            bounds = self._bounds() if odds and len(self) else (-math.inf, math.inf)
            known = unit or decision
            self.ledger.add(known, decision, reward, weight, shown, odds or {}, expected, self._total, bounds)
        self._total += 1
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
        return tuple(
            self._compared(*each, near, same, self.account(item.id)) for item, each in zip(items, listed, strict=True)
        )

    def account(self, item: str, *, exact: bool = False) -> Account | None:
        """What the ledger says of an item, by id; None where chance never decided about it."""
        return self.ledger.account(item, self.span, since=self._since, exact=exact)

    @property
    def span(self) -> float:
        """The highest reward less the lowest; 0 before there are two."""
        low, high = self._bounds() if len(self) else (0.0, 0.0)
        return high - low

    @property
    def units(self) -> int:
        """How many episodes and single choices have a reward that counts."""
        return round(float(self._weight[self._first : self._count].sum()))

    @property
    def met(self) -> list[str]:
        """Items, by id, that were shown with a reward or put to the test."""
        return list(dict.fromkeys([*self.ledger.items, *self._shown.rows]))

    def accounts(self, items: Iterable[str], *, exact: bool = False) -> list[Account]:
        """The same of several, beside what a counter of successes says of them."""
        weights, rewards = self._weight[: self._count], self._rewards[: self._count]
        live = weights[self._first :]
        usual = float(live @ rewards[self._first :] / live.sum()) if live.sum() else math.nan
        found = []
        for id in items:
            rows = self._shown.of(id)
            rows = rows[rows >= self._first]
            seen = float(weights[rows].sum())
            success = float(weights[rows] @ rewards[rows]) / seen if seen else math.nan
            nothing = np.zeros(0)
            known = self.account(id, exact=exact) or account(id, nothing, nothing, nothing, nothing, self.span)
            found.append(replace(known, success=success, usual=usual, seen=seen))
        return found

    def in_full(self, item: str, worth: Worth) -> Worth:
        """With what a counter of successes says of the item, where the ledger says something."""
        return worth if worth.overall is None else replace(worth, overall=self.accounts([item])[0])

    @property
    def _since(self) -> int:
        """The number, of all that were added, of the oldest choice that counts."""
        return self._total - len(self)

    def expected(self, vector: Vectors) -> float:
        """The reward that is expected in a situation, whatever is shown: the mean of the newest, by nearness, and of one more
        that had the usual one."""
        first = max(self._first, self._count - CONTEXT)
        weights, rewards = self._weight[first : self._count], self._rewards[first : self._count]
        if not weights.sum():
            return 0.0
        near = np.exp((self._vectors[first : self._count] @ vector.astype(np.float32) - 1.0) / self.bandwidth) * weights
        usual = float(weights @ rewards / weights.sum())
        return float((near @ rewards + usual) / (near.sum() + 1.0))

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

    def _compared(
        self,
        shown: Rows,
        withheld: Rows,
        unshown: Rows,
        near: Floats,
        same: npt.NDArray[np.bool_],
        overall: Account | None,
    ) -> Worth:
        low, high = self._bounds()
        shown, withheld, unshown = (rows[rows >= self._first] - self._first for rows in (shown, withheld, unshown))
        seen = float(self._weight[shown + self._first].sum())
        withheld = np.concatenate([withheld, unshown[same[unshown]]])
        rewards = self._rewards[self._first : self._count]
        n1, n0 = float(near[shown].sum()), float(near[withheld].sum())
        s1, s0 = float(near[shown] @ rewards[shown]), float(near[withheld] @ rewards[withheld])
        usual = (s1 + s0) / (n1 + n0) if n1 + n0 else 0.0
        mean1, mean0 = (s1 / n1 if n1 else usual), (s0 / n0 if n0 else usual)
        if not n1 or not n0 or not high > low:
            return Worth(mean1, mean0, n1, n0, 1.0, seen, overall)
        won1, won0 = n1 * (mean1 - low) / (high - low), n0 * (mean0 - low) / (high - low)
        factor = bayes_factor(won1, n1 - won1, won0, n0 - won0)
        return Worth(mean1, mean0, n1, n0, factor, seen, overall)

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
            self.ledger.forget(self._since)
        self._first, self._count = 0, self._count - gone


def bayes_factor(won: float, lost: float, won_without: float, lost_without: float) -> float:
    """How much likelier two sets of outcomes are with a chance of success each than with the same one, all chances being
    equally likely beforehand. Outcomes between success and failure count as shares of both, which claims less than is known."""
    log = (
        _log_beta(won + 1.0, lost + 1.0)
        + _log_beta(won_without + 1.0, lost_without + 1.0)
        - _log_beta(won + won_without + 1.0, lost + lost_without + 1.0)
    )
    return math.exp(max(-700.0, min(log, 700.0)))


def _log_beta(a: float, b: float) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


@dataclass(frozen=True, slots=True)
class WhereSure:
    """The search's own order; before it what surely helps here, the most first, after it what surely harms, here or wherever it
    comes up.

    withhold, least, budget, together: see `WITHHOLD`, `LEAST`, `BUDGET` and `TOGETHER`."""

    k: int = MANY
    withhold: float = WITHHOLD
    sure: float = SURE
    least: float = LEAST
    budget: float = BUDGET
    together: int = TOGETHER

    def __post_init__(self) -> None:
        need("the selection", count={"k": self.k, "together": self.together}, rate={"withhold": self.withhold})
        need("the selection", positive={"sure": self.sure, "least": self.least, "budget": self.budget})

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Independent:
        places = range(len(values.worth))
        known = [self.moves(each) for each in values.worth]
        up = sorted((place for place in places if known[place] > 0.0), key=lambda place: -known[place])
        down = sorted((place for place in places if known[place] < 0.0), key=lambda place: -known[place])
        order = (*up, *(place for place in places if known[place] == 0.0), *down)
        # The least known first. Of what surely helps here nothing is left to test.
        tests = [
            (place, self.rate(values.worth[place]))
            for place in sorted(places, key=lambda place: values.worth[place].tested)
            if known[place] <= 0.0
        ]
        seen = tuple([each for each in tests if values.worth[each[0]].seen >= self.least])
        lower = tuple([each for each in tests if known[each[0]] < 0.0])
        return Independent(order, self.k, seen, lower, self.together)

    def moves(self, worth: Worth) -> float:
        """The effect by which an item is moved up or down; 0 where it stays where the search put it."""
        if worth.factor >= self.sure:
            return worth.effect
        return worth.overall.effect if worth.overall is not None and worth.overall.high < 0.0 else 0.0

    def rate(self, worth: Worth) -> float:
        """With which probability chance turns round what would become of it."""
        if worth.overall is None:
            return float(rate(self.withhold, EXPECTED, self.budget))
        return 0.0 if worth.overall.over else float(rate(self.withhold, worth.overall.withholding_costs, self.budget))


def situation(goal: str, observation: str) -> str:
    """What is asked; the task where nothing is."""
    return observation or goal


def effect(
    *,
    withhold: float = WITHHOLD,
    sure: float = SURE,
    least: float = LEAST,
    budget: float = BUDGET,
    together: int = TOGETHER,
    bandwidth: float = BANDWIDTH,
    newest: int = NEWEST,
) -> Policy:
    """The default policy. withhold: 0 explores nothing, and then nothing is learned of an item that is always shown, and no
    other policy can be evaluated on its log."""
    selector = WhereSure(MANY, withhold, sure, least, budget, together)
    return Policy(NAME, situation, None, Effect(bandwidth, newest), selector, lines)
