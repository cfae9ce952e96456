"""The ledger: what showing an item added, from times when chance decided whether it was shown.

A row of evidence is one episode and one item under test: a, 1 where the item was shown and 0 where it was withheld; p, the
probability of a = 1 that was drawn with and logged (0 < p < 1); y, the reward; g, what reward was expected before either was
known. Because p is known,

    psi = (a - p) / (p (1 - p)) * (y - g)

has the expectation y(shown) - y(withheld) of that episode, given all that came before, whatever g is: nothing that makes an
item be shown in easy cases can bias it. g only takes out what the situation explains, and so narrows the interval. The effect
is the mean of psi: the running mean effect over the episodes in which the item was under test, and over the draws of other
items.

It is the augmented inverse propensity estimator ("Doubly Robust Policy Evaluation and Learning", arXiv 1103.4601, eq. 1, for
one item): with models m1 and m0 of both outcomes it is psi at g = (1 - p) m1 + p m0.

The interval, for 1 - `alpha`, holds at all times at once, so it may be looked at after every reward (`half_width`): the
asymptotic confidence sequence of "Time-uniform central limit theory and asymptotic confidence sequences", arXiv 2103.06476,
Theorem 2.2. It is asymptotic: with few rows it rests on `deviation`, in which `PRIOR` rows count as if rewards were as far
apart as they can be, and on `LEAST_EACH` rows of each kind.

Items that chance left out in the same episodes, as many as somebody tests, have one regression instead, which takes out of a
reward what the other items did: `keepworth.memory.choose.joint`.

Where three or more reward, the interval holds whichever one of them is not believed: it reaches over those without each person's
rows. So nobody makes an effect clear alone, however many rewards that person gives. The program's own rewards always count.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from sys import intern
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.base.notebook import paragraph, table
from keepworth.memory.choose.joint import fit

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.base.arrays import Floats

    Rows = npt.NDArray[np.int64]

ALPHA = 0.05
PRIOR = 200.0
"""Number of imagined rows of the largest possible variance that `deviation` adds. Without them, intervals of a few
hundred rows, a tenth of which were withheld, are too narrow (`benchmarks/ledger`)."""
LEAST_EACH = 20
"""Number of rows with the item, and of rows without it, that an interval needs."""
NARROWEST_AT = 300.0
"""The number of rows at which the sequence is as narrow as it can be made."""
NEGLIGIBLE = 0.05
"""An item makes no difference if the whole interval of its effect is within this share of the range of rewards."""
OFFSET_ROWS, LARGEST_WEIGHT = 20.0, 10.0
"""In `_beyond`: number of imagined rows of 0, and the largest weight of one row."""
GONE = -1
"""Stands for the number of a row that was withdrawn, as the episode also showed the item without a draw."""
JOINT_ROWS, JOINT_PEOPLE = 4_000, 5
"""Of items that are tested together: the most episodes that count, the newest; and of how many people, those who reward most,
each is left out once."""
EXPECTED, EXPECTED_ROWS = 0.1, 100.0
"""Prior mean of the cost of withholding an item, as a share of the range of rewards, and its weight in rows."""


def scores(a: Floats, p: Floats, y: Floats, g: Floats | float) -> Floats:
    """Return psi of each row, whose mean is the effect.

    Args:
        a: 1 where the item was shown, 0 where it was withheld.
        p: The probability with which it was shown.
        y: The reward.
        g: The reward that was expected before either was known.
    """
    return (a - p) / (p * (1.0 - p)) * (y - g)


def snips(a: Floats, p: Floats, y: Floats) -> float:
    """Return the self-normalised estimate ("The Self-Normalized Estimator for Counterfactual Learning", NeurIPS 2015), or nan
    without rows of both kinds.

    Args:
        a: 1 where the item was shown, 0 where it was withheld.
        p: The probability with which it was shown.
        y: The reward.
    """
    shown, withheld = a / p, (1.0 - a) / (1.0 - p)
    if not shown.sum() or not withheld.sum():
        return math.nan
    return float(shown @ y / shown.sum() - withheld @ y / withheld.sum())


def deviation(n: Any, total: Any, squares: Any, most: Any) -> Any:
    """Return the standard deviation of psi that intervals use, of numbers or of arrays of one shape.

    Args:
        n: The number of rows.
        total, squares: The sums of psi and of its square.
        most: The mean over rows of the largest possible variance, (range of rewards)^2 / 4 / (p (1 - p)).
    """
    spread = np.maximum(squares - total * total / np.maximum(n, 1), 0.0)
    return np.sqrt((spread + PRIOR * most) / (n + PRIOR))


def half_width(n: Any, deviation: Any, alpha: float = ALPHA) -> Any:
    """Return half the width of the interval around a mean, which holds at all n at once (arXiv 2103.06476, eq. 10, with
    rho^2 of its appendix B.2 for `NARROWEST_AT`). Takes numbers or arrays of one shape.

    Args:
        n: The number of rows, above 0.
        deviation: The standard deviation of a row.
        alpha: The probability that the interval misses at any n.
    """
    rho = (-2.0 * math.log(alpha) + math.log(-2.0 * math.log(alpha) + 1.0)) / NARROWEST_AT
    inside = 2.0 * (n * rho + 1.0) / (n * n * rho) * np.log(np.sqrt(n * rho + 1.0) / alpha)
    return deviation * np.sqrt(inside)


def rows_needed(effect: float, deviation: float) -> int:
    """Return how many rows there must be in all before the interval excludes 0 if the effect stays what it is; at most a
    million."""
    return 1 + bisect_left(range(1, 1_000_000), True, key=lambda rows: abs(effect) > half_width(float(rows), deviation))


def rate(withhold: float, cost: float, budget: float) -> float:
    """Return the probability with which an item under test is withheld. It is never below half of `withhold`: slower
    tests cost no less in all, because they take longer.

    Args:
        withhold: The largest probability.
        cost: The expected cost of withholding the item once, as a share of the range of rewards.
        budget: The expected cost per episode that is allowed, as such a share too.
    """
    return min(max(budget / max(cost, 1e-12), withhold / 2.0), withhold)


def expected_cost(n: Any, total: Any, span: float) -> Any:
    """Return the expected cost of withholding an item once, as a share of the range of rewards: its effect, shrunk
    towards `EXPECTED`. Takes numbers or arrays of one shape.

    Args:
        n: The number of rows.
        total: The sum of psi.
        span: The highest reward less the lowest.
    """
    return (total / (span or 1.0) + EXPECTED * EXPECTED_ROWS) / (n + EXPECTED_ROWS)


@dataclass(frozen=True, slots=True)
class Account:
    """What is known of one item from the episodes in which chance decided whether it was shown. In the unit of the rewards.

    shown, withheld: rows of each kind; effect: mean reward with the item less that without, beyond what the situations
    explain, each by its weights (`snips`), which is right a little more often than `mean`, that of psi; low, high: of the 95
    % interval around `mean` that may be looked at after every reward, infinite before there is one; deviation: of psi, as the
    interval takes it; span: of the rewards, highest less lowest; cost: what the draws that were not the policy's choice have
    cost so far, by the estimated effect, negative where they paid.
    success, usual: the mean reward of all the times it was shown, for whatever reason, and of all choices: what a counter
    would say; seen: how many times that is.
    chance: of an item that was tested together with others, the probability that it matters at all; nan for others."""

    item: str
    shown: int
    withheld: int
    effect: float
    mean: float
    low: float
    high: float
    deviation: float
    span: float
    cost: float
    success: float = math.nan
    usual: float = math.nan
    seen: float = 0.0
    chance: float = math.nan

    def __str__(self) -> str:
        sure = f", {self.effect:+.2f} ({self.low:+.2f} to {self.high:+.2f})" if math.isfinite(self.high) else ""
        return f"{self.item}: {self.verdict}{sure}"

    @property
    def rows(self) -> int:
        return self.shown + self.withheld

    @property
    def interval(self) -> tuple[float, float]:
        return self.low, self.high

    @property
    def needed(self) -> int:
        """Return how many more tested episodes it takes until the interval excludes 0 if the effect stays what it is."""
        if self.clear or not self.rows or not self.span:
            return 0
        return max(0, rows_needed(self.mean, self.deviation) - self.rows)

    @property
    def clear(self) -> bool:
        """Return whether the interval excludes 0."""
        return self.low > 0.0 or self.high < 0.0

    @property
    def negligible(self) -> bool:
        """Return whether the effect is surely too small to matter."""
        return self.span > 0.0 and max(-self.low, self.high) <= NEGLIGIBLE * self.span

    @property
    def over(self) -> bool:
        """Return whether nothing is left to test."""
        return self.clear or self.negligible

    @property
    def withholding_costs(self) -> float:
        """See `expected_cost`."""
        return float(expected_cost(self.rows, self.effect * self.rows, self.span))

    @property
    def verdict(self) -> str:
        if self.negligible:
            return "makes no difference"
        if self.clear:
            return "helps" if self.low > 0.0 else "harms"
        if not self.rows:
            return "not tested"
        if not self.span:
            return "all rewards were the same"
        if min(self.shown, self.withheld) < LEAST_EACH:
            return "too few to say"
        return "not known yet"


def account(
    item: str,
    a: Floats,
    p: Floats,
    y: Floats,
    g: Floats,
    span: float,
    *,
    expected: Floats | float = 0.0,
    by: Rows | None = None,
) -> Account:
    """Make an account from rows in order, each column of shape (n,).

    Args:
        item: The id of the item.
        a: 1 where the item was shown, 0 where it was withheld.
        p: The probability with which it was shown.
        y: The reward.
        g: The reward that was expected before either was known.
        span: The highest reward less the lowest.
        expected: The reward expected from the situation alone, for the self-normalised effect.
        by: The number of the person who rewarded, 0 for the program itself; None if nobody is known.
    """
    n, shown = len(a), int(a.sum())
    if not n:
        return Account(item, 0, 0, 0.0, 0.0, -math.inf, math.inf, 0.0, span, 0.0)
    psi = scores(a, p, y, g)
    mean, effect = float(psi.mean()), snips(a, p, y - expected)
    effect = mean if math.isnan(effect) else effect
    most = 0.25 * span * span / (p * (1.0 - p))  # the largest variance that psi can have
    spread = float(deviation(n, float(psi.sum()), float(psi @ psi), float(most.mean())))
    low, high = -math.inf, math.inf
    if span > 0.0:
        if min(shown, n - shown) >= LEAST_EACH:
            margin = float(half_width(float(n), spread))
            low, high = mean - margin, mean + margin
            if by is not None and len(np.unique(by)) > 2:
                low, high = _whoever_is_left_out((low, high), a, psi, most, by)
        # No effect is larger than the range of rewards.
        effect = min(max(effect, -span), span)
        low, high = (min(max(end, -span), span) if math.isfinite(end) else end for end in (low, high))
    return Account(item, shown, n - shown, effect, mean, low, high, spread, span, effect * _turned(a, p))


def _turned(a: Floats, p: Floats) -> float:
    """Return how often an item was withheld that is usually shown, less how often one was shown that is usually hidden."""
    usual = p >= 0.5
    return float((usual * (1.0 - a)).sum() - (~usual * a).sum())


def _whoever_is_left_out(
    interval: tuple[float, float], a: Floats, psi: Floats, most: Floats, by: Rows
) -> tuple[float, float]:
    """Widen an interval to cover those that remain without any one person's rows. There is none if too few rows remain."""
    people = np.unique(by[by > 0])
    n, shown, total, squares, largest = (
        column.sum() - np.bincount(by, column)[people] for column in (np.ones(len(by)), a, psi, psi * psi, most)
    )
    if min(shown.min(), (n - shown).min()) < LEAST_EACH:
        return -math.inf, math.inf
    margin = half_width(n, deviation(n, total, squares, largest / n))
    return min(interval[0], float((total / n - margin).min())), max(interval[1], float((total / n + margin).max()))


@dataclass(frozen=True, slots=True)
class Balance:
    """All accounts, and their sums."""

    accounts: tuple[Account, ...]  # the best known first
    rewarded: int  # episodes and single choices with a reward
    span: float  # the highest reward less the lowest, as declared or else as observed

    def __str__(self) -> str:
        return "\n".join(map(str, self.accounts)) or "No item was shown with a reward yet."

    def _repr_html_(self) -> str:
        """Return what is known of each item, for notebooks."""
        rows = [(account.item, str(account)) for account in self.accounts]
        return table(("item", "what it added"), rows) if rows else paragraph(str(self))

    @property
    def gross(self) -> float:
        """Return the reward that tests have cost so far by withholding what helps and showing what harms, by the estimated
        effects."""
        return sum(account.cost for account in self.accounts if account.cost > 0.0)

    @property
    def gain(self) -> float:
        """Return the reward that tests have brought by withholding what harms and showing what helps."""
        return -sum(account.cost for account in self.accounts if account.cost < 0.0)

    @property
    def net(self) -> float:
        return self.gross - self.gain

    def points(self, rewards: float) -> float:
        """Return a sum of rewards per rewarded episode, in percent of the range of rewards."""
        return 100.0 * rewards / (self.rewarded * self.span) if self.rewarded and self.span else 0.0


@dataclass(frozen=True, slots=True)
class Trial:
    """What chance decided in a choice.

    Attributes:
        decision: The id of the choice; "" if unknown.
        unit: What chance decides once for: an episode, or a choice by itself.
        odds: The probabilities of being shown of the items under test.
        expected: The reward expected when it was drawn.
        person: Whom the choice was for, "" if unknown.
        joint: Whether the items under test are learned of together, by one regression.
    """

    decision: str = ""
    unit: str = ""
    odds: Mapping[str, float] = field(default_factory=dict)
    expected: float = 0.0
    person: str = ""
    joint: bool = False


class Ledger:
    """The rows, by item and in order, as they are learned of.

    One episode gives one row for each item that was under test in it: chance decides once per episode, which has one reward.
    a is whether the item was seen in the episode at all: where a choice showed it without a draw there is no row. Where choices
    of an episode have rewards of their own, their mean counts, by weight, of those without a test too. A later reward of the
    same choice takes the place of the earlier one, and g stays what it was."""

    def __init__(self) -> None:
        self._columns: dict[str, _Columns] = {}
        self._units: dict[str, _Unit] = {}  # by episode, or choice outside of one
        self._latest: dict[int, str] = {}  # names of units, by the number of their latest choice
        self._known: dict[str, tuple[float, Account]] = {}
        self._low = 0.0  # the lowest possible reward
        self._people = {"": 0}

    @property
    def items(self) -> Collection[str]:
        """Return the ids of the items that have rows."""
        return self._columns.keys()

    def add(
        self,
        unit: str,
        decision: str,
        reward: float,
        weight: float,
        shown: Collection[str],
        odds: Mapping[str, float],
        expected: float,
        at: int,
        bounds: tuple[float, float] = (-math.inf, math.inf),
        by: str = "",
        *,
        joint: bool = False,
    ) -> None:
        """Add a rewarded choice.

        Args:
            unit: What chance decides once for: the id of an episode, or of a choice by itself.
            decision: The id of the choice.
            reward: What the choice earned, in the caller's unit.
            weight: How much the reward counts among those of the unit.
            shown: The ids of the items that were shown.
            odds: The probability of being shown of each item under test.
            expected: The reward expected when it was drawn.
            at: A number that grows with each choice.
            bounds: The lowest and the highest reward so far.
            by: The person who gave it; "" for the program itself.
            joint: Whether the items under test are learned of together.
        """
        evidence = self._units.get(unit)
        if evidence is None:
            if not odds and unit == decision:
                return
            evidence = self._units[unit] = _Unit()
        tested = {item: p for item, p in odds.items() if 0.0 < p < 1.0}
        if joint:
            self._low = bounds[0] if math.isfinite(bounds[0]) else min(self._low, reward)
            self._forget_joint()
        person = self._people.setdefault(by, len(self._people))
        self._latest.pop(evidence.at, None)
        evidence.rewards[decision], evidence.at, self._latest[at] = (reward, weight), at, unit
        evidence.untested = (*dict.fromkeys((*evidence.untested, *(id for id in shown if id not in tested))),)
        mean = sum(r * w for r, w in evidence.rewards.values()) / sum(w for _, w in evidence.rewards.values())
        for item, row in list(evidence.rows.items()):
            columns = self._columns[item]
            self._known.pop(item, None)
            if item in evidence.untested:
                columns.at[evidence.rows.pop(item)] = GONE
            else:
                columns.y[row], columns.at[row], columns.by[row] = mean, at, person
                columns.a[row] = max(columns.a[row], float(item in shown))
        for item, p in tested.items():
            if item not in evidence.rows and item not in evidence.untested:
                columns = self._columns.setdefault(item, _Columns())
                evidence.rows[item] = len(columns.at)
                columns.append(float(item in shown), p, mean, expected, at, bounds, person, joint)
                self._known.pop(item, None)

    def account(self, item: str, span: float) -> Account | None:
        """Return the account of one item from its rows, or None if it has none."""
        columns = self._columns.get(item)
        if columns is None:
            return None
        cached = self._known.get(item)
        if cached is not None and cached[0] == span:
            return cached[1]
        a, p, y, g, expected = columns.present()
        if not len(a):
            return None
        if any(columns.joint):
            self._fit_jointly(span)
            return self._known[item][1]
        by = np.array(columns.by)[np.array(columns.at) != GONE]
        result = account(item, a, p, y, g, span, expected=expected, by=by)
        self._known[item] = span, result
        return result

    def _forget_joint(self) -> None:
        """Drop the accounts of items that were tested together: a reward of one tells of the others."""
        for item in [item for item, (_, account) in self._known.items() if not math.isnan(account.chance)]:
            del self._known[item]

    def _fit_jointly(self, span: float) -> None:
        """Make the accounts of all items that were tested together."""
        columns = {item: column for item, column in self._columns.items() if any(column.joint)}
        there = {item: np.array(column.at) != GONE for item, column in columns.items()}
        places = {item: np.array(column.at)[there[item]] for item, column in columns.items()}
        at = np.unique(np.concatenate(list(places.values())))[-JOINT_ROWS:]
        a, p = np.full((2, len(at), len(columns)), 0.5)
        y, by = np.zeros(len(at)), np.zeros(len(at), dtype=np.int64)
        for number, (item, column) in enumerate(columns.items()):
            recent = places[item] >= at[0]
            rows = at.searchsorted(places[item][recent])
            a[rows, number], p[rows, number], y[rows], by[rows] = (
                np.array(values)[there[item]][recent] for values in (column.a, column.p, column.y, column.by)
            )
        effects = fit(a, p, y - self._low, span)
        low, high = (effects.effect + sign * effects.half_widths(span, ALPHA) for sign in (-1.0, 1.0))
        people, counts = np.unique(by[by > 0], return_counts=True)
        for person in people[np.argsort(-counts)][:JOINT_PEOPLE] if len(np.unique(by)) > 2 else ():
            others = fit(a[by != person], p[by != person], y[by != person] - self._low, span)
            margin = others.half_widths(span, ALPHA)
            low, high = np.minimum(low, others.effect - margin), np.maximum(high, others.effect + margin)
        for number, (item, column) in enumerate(columns.items()):
            own_a, own_p, own_y, own_g, expected = column.present()
            base = account(item, own_a, own_p, own_y, own_g, span, expected=expected)
            effect, chance = (float(values[number]) for values in (effects.effect, effects.chance))
            ends = (-math.inf, math.inf)
            if min(base.shown, base.withheld) >= LEAST_EACH and span > 0.0:
                ends = max(float(low[number]), -span), min(float(high[number]), span)
            self._known[item] = (
                span,
                replace(
                    base,
                    effect=min(max(effect, -span), span),
                    mean=effect,
                    low=ends[0],
                    high=ends[1],
                    deviation=float(effects.deviation[number]) * math.sqrt(base.rows),
                    cost=chance * effect * _turned(own_a, own_p),
                    chance=chance,
                ),
            )

    def accounts(self, items: Sequence[str], span: float) -> dict[int, Account]:
        """Return the accounts of those items that have rows, by position."""
        accounts = ((index, self.account(item, span)) for index, item in enumerate(items))
        return {index: one for index, one in accounts if one is not None}

    def save(self) -> dict[str, Any]:
        """Return the rows and units as columns. Rows are in the order of their numbers, so that new ones come last."""
        items = {item: number for number, item in enumerate(self._columns)}
        of_item = np.repeat(np.arange(len(items)), [len(columns.at) for columns in self._columns.values()])
        rows = {name: _joined(name, self._columns.values()) for name in _Columns.__slots__}
        # A row that was withdrawn keeps its place among those of its item.
        last = np.maximum.accumulate(rows["at"] + (of_item << 40)) if len(of_item) else of_item
        order = np.argsort(last - (of_item << 40), kind="stable")
        units, rewards = self._units.values(), [one for unit in self._units.values() for one in unit.rewards.items()]
        return {
            "items": list(items),
            "of_item": of_item[order].astype("<i4"),
            "rows": {name: column[order] for name, column in rows.items()},
            "people": list(self._people),
            "low": self._low,
            "units": list(self._units),
            "at": np.array([unit.at for unit in units], "<i8"),
            "sizes": np.array([(len(unit.rewards), len(unit.rows), len(unit.untested)) for unit in units], "<i4"),
            "decisions": [decision for decision, _ in rewards],
            "rewards": np.array([pair for _, pair in rewards], "<f8"),
            "rows_of": np.array([(items[item], row) for unit in units for item, row in unit.rows.items()], "<i4"),
            "untested": [item for unit in units for item in unit.untested],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `save` returned."""
        of_item, items = state["of_item"], state["items"]
        order = np.argsort(of_item, kind="stable")
        ends = np.bincount(of_item, minlength=len(items)).cumsum().tolist()
        columns = {name: column[order] for name, column in state["rows"].items()}
        self._columns = {}
        for item, begin, end in zip(items, [0, *ends], ends, strict=False):
            self._columns[item] = _Columns()
            for name, column in columns.items():
                getattr(self._columns[item], name).frombytes(column[begin:end].tobytes())
        decisions, rewards = iter(state["decisions"]), iter(state["rewards"].tolist())
        tests, untested, units = iter(state["rows_of"].tolist()), iter(state["untested"]), {}
        for name, at, (given, tested, others) in zip(
            state["units"], state["at"].tolist(), state["sizes"].tolist(), strict=True
        ):
            units[name] = _Unit(
                {next(decisions): tuple(next(rewards)) for _ in range(given)},
                {items[item]: row for item, row in islice(tests, tested)},
                tuple(intern(id) for id in islice(untested, others)),
                at,
            )
        self._units, self._latest = units, {unit.at: name for name, unit in units.items()}
        self._low = float(state["low"])
        self._people, self._known = {name: number for number, name in enumerate(state["people"])}, {}

    def withdraw(self, at: int) -> None:
        """Drop the rows of the unit whose latest choice has the number `at`, if it is there."""
        if at in self._latest:
            self._forget_joint()
            for item, row in self._units.pop(self._latest.pop(at)).rows.items():
                self._columns[item].at[row] = GONE
                self._known.pop(item, None)

    def forget(self, before: int) -> None:
        """Drop rows older than number `before`."""
        moved: dict[tuple[str, int], int] = {}
        for item, columns in list(self._columns.items()):
            recent = [row for row, at in enumerate(columns.at) if at >= before]
            moved.update(((item, row), index) for index, row in enumerate(recent))
            columns.keep(recent)
            if not recent:
                del self._columns[item]
        self._known.clear()
        self._units = {name: unit for name, unit in self._units.items() if unit.at >= before}
        self._latest = {unit.at: name for name, unit in self._units.items()}
        for unit in self._units.values():
            unit.rows = {item: moved[item, row] for item, row in unit.rows.items()}


@dataclass(slots=True)
class _Unit:
    """rewards: the latest reward and weight of each choice; rows: where its rows are, by item; untested: items that a choice
    showed without a draw, in a tuple, as sets are large and there are as many as episodes; at: the number of what came last."""

    rewards: dict[str, tuple[float, float]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    untested: tuple[str, ...] = ()
    at: int = GONE


def _joined(name: str, columns: Iterable[_Columns]) -> Any:
    """Return one column of several items as an array."""
    parts = [np.frombuffer(getattr(one, name), getattr(one, name).typecode) for one in columns if one.at]
    return np.concatenate(parts) if parts else np.zeros(0, "q" if name in ("at", "by") else "d")


class _Columns:
    """The rows of one item. by: the number of who rewarded; joint: whether others were tested with it; expected: the reward
    expected from the situation; g: that plus the mean surprise of the item's earlier rows."""

    __slots__ = ("a", "at", "by", "expected", "g", "joint", "p", "y")

    def __init__(self) -> None:
        self.a, self.p, self.y, self.g, self.expected, self.joint = (array("d") for _ in range(6))
        self.at, self.by = array("q"), array("q")

    def append(
        self,
        a: float,
        p: float,
        y: float,
        expected: float,
        at: int,
        bounds: tuple[float, float],
        by: int,
        joint: bool,
    ) -> None:
        g = min(max(expected + self._beyond(), bounds[0]), bounds[1])
        for column, value in ((self.a, a), (self.p, p), (self.y, y), (self.g, g), (self.expected, expected)):
            column.append(value)
        self.joint.append(float(joint))
        self.at.append(at)
        self.by.append(by)

    def keep(self, rows: Sequence[int]) -> None:
        for name in self.__slots__:
            column = getattr(self, name)
            setattr(self, name, array(column.typecode, [column[row] for row in rows]))

    def present(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Return a, p, y, g and the expected rewards of the rows that were not withdrawn, in order."""
        there = np.array(self.at) != GONE
        a, p, y, g, expected = (np.array(column)[there] for column in (self.a, self.p, self.y, self.g, self.expected))
        return a, p, y, g, expected

    def _beyond(self) -> float:
        """Return the mean difference of rewards from what was expected, weighted so that psi varies the least (g = (1 - p) m1 + p
        m0)."""
        if not self.at:
            return 0.0
        a, p, y, _, expected = self.present()
        weights = np.minimum(np.where(a > 0.0, (1.0 - p) / p, p / (1.0 - p)), LARGEST_WEIGHT)
        return float(weights @ (y - expected) / (weights.sum() + OFFSET_ROWS))
