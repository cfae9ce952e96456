"""The default policy: the search's own order, corrected by what rewards say of the items here, as far as they say anything.

An *arm* is what a reward may be owed to: the item that stood first, any item that was shown, or the action that was taken. For
each of these three ways of giving credit there are `MODELS`: estimates of the reward of an arm near a question. Each has its own
idea of how far an arm's record counts, here and over all its uses, and of how fast records age. Beside them stand two that know
no arms: rewards are the same everywhere, or depend on the question alone. Each estimate counts as well as it has predicted the
rewards so far (Bayesian model averaging, with older predictions discounted). So where rewards say nothing of items, the order
stays the search's own, and where they do it changes within a few of them.

    u(arm) = SEARCH * (relative score) + sum over estimates of weight * (reward expected with the arm - reward expected here)

The arm with the largest u comes first. Where a question comes back, another takes its place with about the probability that it
is better (Thompson sampling, with the probabilities computed, so that propensities are exact). What departing from the search's
own order has cost, by the rewards that were expected of that order, is kept within `BOUND` and a share `SLACK` of all rewards
(after "Conservative Bandits", Wu et al. 2016): beyond it the search's own order is shown.

An item's worth wherever it comes up is measured apart from this, by an experiment: see `ledger`.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import product, starmap
from sys import intern
from typing import TYPE_CHECKING

import numpy as np

from keepworth.episodes.text import as_line
from keepworth.memory.item import Item
from keepworth.memory.policy.ledger import EXPECTED, Account, Ledger, account, rate
from keepworth.memory.policy.pool import Pool, advice, grown
from keepworth.memory.policy.propensity import Independent
from keepworth.memory.policy.slots import Candidates, Policy, Query, Use, Values, lines, need
from keepworth.memory.search.index import in_eight_bits, of_eight_bits
from keepworth.memory.search.search import Explanation, Hit, Worth

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Vectors = npt.NDArray[np.float32]
    Rows = npt.NDArray[np.int64]

NAME = "default"
WITHHOLD = 0.01
"""With this probability an item under test is withheld in an episode, or shown where it would not be."""
TOGETHER = 1
"""Items under test in one search: the least known of those that would be shown. The others wait."""
BUDGET = 0.01
"""What a test may be expected to cost per episode, of the range of rewards, before the probability is halved at most."""
LEAST = 10.0
"""How often an item must have been shown, with a reward, before it is put to the test."""
NEWEST = 20_000
"""Rewarded choices that are remembered: the latest."""
BANDWIDTH = 0.1
"""Evidence counts exp((cosine - 1) / BANDWIDTH) of what it would count at the same question."""
RETURNS = 0.02
"""The bandwidth by which a question counts as one that came before."""
FAR = 1e-3
"""Evidence that would count less than this is not looked at."""
SEARCH = 1.0
"""What all of the search's score is worth, of the range of rewards, beside what rewards say."""
KEEP = 0.85
"""What each further reward near a question leaves of the earlier ones there, in the estimates that forget."""
DISCOUNT = 0.995
"""What each further reward leaves of the weight of earlier predictions."""
SURE = 0.08
"""No estimate is surer of a reward than this, so that one surprise does not silence it."""
HOPE = 6.0
"""How many rewards in the middle of the range are supposed beforehand, so that what always failed gives way to what is new."""
OWN, HERE = 0.35, 0.15
"""Prior weights: rewards are the same everywhere; rewards depend on the question alone."""
PLAIN, FORGETTING, NEAREST = range(3)
"""How rewards count near a question: by nearness; the same, but old ones fade; by nearness beside the nearest there is."""
SHARES = (0.5, 0.25, 0.25)
"""What these three have of the other prior weight."""
EXPLORE = 0.5
"""How wide the doubt is that explores, of the deviation of the estimates: all of it where everything is left to gain."""
OFTEN, TRIES = 40.0, 0.4
"""Where a question came back more often than this, others are tried more, up to this share of how often it came back."""
WIDE = 1.5
"""How wide the doubt is that explores there, of what was not tried."""
BOUND, SLACK = 3.0, 0.01
"""What departing from the search's own order may have cost: rewards, and the share of all rewards beside them."""
BLIND = 0.5
"""The least that the search's first choice is supposed to be worth where rewards say nothing of items."""
SAME = 0.01
"""The probability, before the first reward, that all rewards are the same whatever is shown."""
FIRM = 5.0
"""Another equal reward of an item first at a question, after n of them, has the probability (FIRM + n) / (FIRM + n + 1) where
rewards do say something."""
SAME_BOUND, SAME_SLACK = 0.5, 0.005
"""`BOUND` and `SLACK` as long as all rewards were the same."""
UNLIKELY = 0.003
"""What is better with a smaller probability than this is not tried."""
CLEAR = 1.25
"""A gain is clear of chance where it is more than this over the root of how often the item stood first: 2.5 deviations."""
TRUST, MOST_TRUST = 2.0, 4.0
"""The log-odds with which a rewarder is believed at first, and at most."""
ADVISED, SPOKEN = 0.01, 0.1
"""An action is advised from this gain on, where the estimates that know actions have at least this weight together."""
HELPS = 0.05
"""An item with a larger gain is not withheld; with a larger budget for tests, with one as much larger."""
MANY = 1_000_000_000
"""Places of a selection that shows as many as are asked for."""
NOISE = 0.3
"""Variance of a reward beside what a ridge explains, where a question's own variance is 1."""
RIDGES = np.array([1.0, 0.99])
"""Two ridge regressions of the rewards of an action on the question: what each further reward leaves of earlier ones."""
LATEST = 200
"""Rewards of an action that a ridge is made of."""
VOTES = 4
"""Earlier successes that are cited for an action."""

_NEVER = 1e9
MODELS = tuple(product((_NEVER, 4.0), (0.15, 0.6, 2.5), (PLAIN, FORGETTING, NEAREST)))
"""(how many rewards over all its uses weigh as much as knowing nothing of an arm; how many near the question; how they count
there)"""
_OVERALL, _LOCAL = (np.array([model[part] for model in MODELS])[:, None] for part in (0, 1))
_COUNTS = np.array([model[2] for model in MODELS])
LEAD, SHOWN, DONE = range(3)
"""Who gets the credit: what stood first, all that was shown, the action that was taken."""
_RIDGE = np.where(_OVERALL[:, 0] == _NEVER, -1, (_COUNTS == FORGETTING).astype(np.int64))
"""Of the models of actions: the ridge that takes the place of the record over all uses, -1 for none."""
_PRIOR = np.array(SHARES)[_COUNTS] / (len(MODELS) / len(SHARES)) * (1.0 - OWN - HERE)
_SERIES = np.arange(4 * len(SHARES))[:, None]
_NONE: Rows = np.zeros(0, dtype=np.int64)
UNKNOWN = Worth(0.0, 0.0, 0.0, 0.0, 0.0)
"""Of an item where nothing was rewarded yet."""


@dataclass(frozen=True, slots=True)
class _Arm:
    """The record of an arm wherever it was. rows: those that count, of the table; times, earned: their weights and weighted
    rewards, added up; seen: how many have a weight."""

    rows: Rows
    times: float
    earned: float
    seen: float


_NO_ARM = _Arm(_NONE, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class _Near:
    """What is known near a question.

    rows: those that count for something, in order; close: whether a row is one of them, of all that are remembered. weight: how
    much each of `rows` counts, in the ways of `SHARES`; then the same where all rows with one item first count as one at most,
    since the failures of one item say little of others; shape (2 * ways, rows). total, earned: sums of the latter, of rows and of
    rewards, shape (ways, 1). usual: the mean reward of an item first at a question, each pair counting once; mean: that
    of all rewards; expected: that of the question, whatever is shown; returns: how often the question came before."""

    rows: Rows
    close: npt.NDArray[np.bool_]
    weight: Floats
    total: Floats
    earned: Floats
    usual: float
    mean: float
    expected: float
    returns: float
    cosine: Floats


@dataclass(frozen=True, slots=True)
class _Judged:
    """Of some arms, by ways of giving credit and their models. gain: expected reward less that expected here, base: the latter,
    near: how many times, shape (ways, models, arms); times, earned: near the question, without forgetting, seen: how many
    rewards it has anywhere, shape (ways, arms)."""

    gain: Floats
    base: Floats
    near: Floats
    times: Floats
    earned: Floats
    seen: Floats


class RewardRecord:
    """Rewarded choices, and what they say of items and actions. Items are known by id.

    bandwidth: see `BANDWIDTH`; newest: how many rewarded choices count; bounds: the lowest and the highest reward there can be,
    where they are not 0 and 1."""

    def __init__(
        self, bandwidth: float = BANDWIDTH, newest: int = NEWEST, bounds: tuple[float, float] | None = None
    ) -> None:
        need("the record of rewards", positive={"bandwidth": bandwidth}, count={"newest": newest})
        self.bandwidth, self.newest, self.bounds = bandwidth, newest, bounds
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._questions: Vectors = np.zeros((0, 0), dtype=np.float32)
        self._numbers: dict[bytes, int] = {}
        self._question, self._lead = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        self._rewards, self._weight, self._credit, self._lost = (np.zeros(0) for _ in range(4))
        self._count = self._first = self._total = 0
        self._rows: tuple[dict[str, array[int]], ...] = {}, {}, {}  # of the table, by way of giving credit and by arm
        self._arms: tuple[dict[str, _Arm], ...] = {}, {}, {}  # what is made of them, until it changes
        self._places: dict[str, int] = {}
        self._slates = self._steps = False
        self._likelihood = np.zeros(2 + 3 * len(MODELS))
        self._weights: dict[bool, Floats] = {}  # until the next reward, as the next
        self._accounts: dict[str, Account] = {}
        self._pull = np.zeros((2, len(RIDGES), 0))
        self._unfitted: set[str] = set()
        self._doubts: dict[str, float] = {}
        self.trusts = array("d")
        self._ordinals: dict[str, int] = {}
        self._pairs: dict[tuple[int, int], tuple[float, float]] = {}
        self._tried = self._hoped = self._surprise = 0.0
        self._sum = self._squares = self._number = 0.0
        self.lost = 0.0
        self.ledger = Ledger()

    def __len__(self) -> int:
        return self._count - self._first

    # Learning.

    def learn(self, use: Use, pool: Pool) -> None:
        ids = [pool.items[row].id for row in use.candidates.rows.tolist()]
        self.add(
            of_eight_bits(in_eight_bits(use.query.vector)),  # as it is on file
            use.reward,
            [ids[place] for place in use.slate],
            action=use.taken,
            weight=use.weight,
            decision=use.decision,
            odds={ids[place]: p for place, p in use.odds.items()},
            expected=use.expected,
            unit=use.unit,
            instead=use.instead,
            by=use.by,
        )

    def add(
        self,
        vector: Vectors,
        reward: float,
        shown: Sequence[str],
        *,
        action: str = "",
        weight: float = 1.0,
        credit: float | None = None,
        decision: str = "",
        odds: Mapping[str, float] | None = None,
        expected: float = 0.0,
        unit: str = "",
        instead: float = math.nan,
        by: str = "",
        stale: bool = False,
        trust: float | None = None,
    ) -> None:
        """A rewarded choice. A later reward of the same decision counts instead of the earlier one.

        Args:
            vector: of the question, as it is on file.
            reward: as it was given; beyond the bounds it counts as the bound.
            shown: ids of the items that were shown, in order.
            action: what was done, "" where nobody said.
            weight: 1 over how many choices share the reward: how much it says of the estimates.
            credit: how much it says of what was chosen here, `weight` if not given.
            odds, expected, unit: see `Ledger.add`.
            instead: the reward that was expected of the search's own order, where another was shown.
            by: who gave the reward, "" for the program itself.
            stale: too old to weigh the estimates.
            trust: what `trusts` had of this choice before, where `weigh` gives what the estimates weigh by now.
        """
        shown = [intern(id) for id in shown]  # many rows name the same items
        self.ledger.add(
            unit or decision,
            decision,
            self._bounded(reward),
            weight,
            shown,
            odds or {},
            expected,
            self._total,
            self.range,
            by,
        )
        reward = self._scaled(reward)
        if trust is None:
            trust = self._believed(by) if by in self._doubts else 1.0
            if not stale and len(self):
                chance = self._predictions(vector, shown, action)
                trust = self._trust(by, float(self.weights @ chance), reward)
                told = reward * np.log(chance) + (1.0 - reward) * np.log(1.0 - chance)
                self._likelihood = DISCOUNT * self._likelihood + weight * trust * told
        self.trusts.append(trust)
        credit = trust * (weight if credit is None else credit)
        weight *= trust
        self._total += 1
        if decision and (before := self._places.get(decision, -1)) >= self._first:
            self._count_in(before, -1.0)
            self._weight[before] = self._credit[before] = 0.0
            self._forget_arms()
        if self._count == len(self._rewards):
            self._make_room()
        row = self._count
        self._question[row], self._rewards[row], self._weight[row] = self._number_of(vector), reward, weight
        self._credit[row] = credit
        self._lost[row] = 0.0 if math.isnan(instead) else instead - reward
        first = action or (shown[0] if shown else "")
        self._lead[row] = self._ordinals.setdefault(first, len(self._ordinals))
        self._count_in(row, 1.0)
        if decision:
            self._places[decision] = row
        if action:
            self._unfitted.add(action)
        for credit, keys in enumerate((shown[:1], shown, [action] if action else [])):
            for key in keys:
                self._rows[credit].setdefault(key, array("q")).append(row)
                self._arms[credit].pop(key, None)
        self._slates = self._slates or len(shown) > 1
        self._steps = self._steps or credit > weight
        self._count = row + 1
        self._weights.clear()
        self._accounts.clear()
        if self._count - self._first > self.newest:
            self._count_in(self._first, -1.0)
            self._first += 1
            self._forget_arms()

    def weighed(self) -> tuple[list[float], dict[str, float]]:
        """By what the estimates weigh, and how far each rewarder is believed: all that a replay would have to judge anew."""
        return self._likelihood.tolist(), dict(self._doubts)

    def weigh(self, likelihood: Sequence[float], doubts: Mapping[str, float]) -> None:
        """Take what `weighed` said after the same rewards."""
        self._likelihood, self._doubts = np.array(likelihood), dict(doubts)
        self._weights.clear()

    def _count_in(self, row: int, sign: float) -> None:
        """Add a row to the sums, or take it out."""
        weight, reward = sign * float(self._weight[row]), float(self._rewards[row])
        pair = int(self._question[row]), int(self._lead[row])
        for turn in (-1.0, 1.0):  # what the pair counted before, and what it counts now
            times, earned = self._pairs.get(pair, (0.0, 0.0))
            self._tried += turn * min(1.0, times)
            self._hoped += turn * earned / max(1.0, times)
            self._surprise += turn * math.log1p(max(times, 0.0) / FIRM)
            if turn < 0.0:
                self._pairs[pair] = times + weight, earned + weight * reward
        self._number += weight
        self._sum += weight * reward
        self._squares += weight * reward * reward
        self.lost += weight * float(self._lost[row])

    def _trust(self, by: str, expected: float, reward: float) -> float:
        """How far a reward counts, on the word of whom it stands: who contradicts again and again what others' rewards say is
        believed less, and nobody less because everybody is surprised. The program's own rewards count fully."""
        if not by:
            return 1.0
        usual = min(max(self._sum / max(self._number, 1e-9), SURE), 1.0 - SURE)
        told = reward * math.log(expected / usual) + (1.0 - reward) * math.log((1.0 - expected) / (1.0 - usual))
        self._doubts[by] = min(MOST_TRUST, max(-MOST_TRUST, 0.99 * self._doubts.get(by, TRUST) + told))
        return self._believed(by)

    def _believed(self, by: str) -> float:
        odds = {name: 1.0 / (1.0 + math.exp(-each)) for name, each in self._doubts.items()}
        return odds[by] / max(odds.values())

    def _predictions(self, vector: Vectors, shown: Sequence[str], action: str) -> Floats:
        """The probability of a reward of 1, by each estimate."""
        near = self._near(vector)
        here = near.expected
        chances = [np.array([near.mean, here])]
        for credits, keys in (((LEAD, SHOWN), shown), ((DONE,), [action] if action else [])):
            judged = self._judge(near, credits, keys) if keys else None
            for way, credit in enumerate(credits):
                if judged is None:
                    chances.append(np.full(len(MODELS), here))
                    continue
                # The reward of several is that of what helps most.
                most = len(keys) if credit == DONE or (credit == SHOWN and self._slates) else 1
                gain, base = judged.gain[way, :, :most], judged.base[way, :, :most]
                best = gain.argmax(axis=1)[:, None]
                chances.append(np.take_along_axis(gain + base, best, axis=1)[:, 0])
        found: Floats = np.clip(np.concatenate(chances), SURE, 1.0 - SURE)
        return found

    def _number_of(self, vector: Vectors) -> int:
        """The number of a question, a new one where it was not asked before."""
        key = blake2b(in_eight_bits(vector).tobytes(), digest_size=16).digest() if vector.any() else b""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            if number == len(self._questions):
                self._questions = grown(self._questions, max(64, 2 * number), len(vector))
            self._questions[number] = vector
        return number

    def _make_room(self) -> None:
        """Longer columns, without what is older than the newest: rows and questions are numbered anew."""
        gone, kept = self._first, slice(self._first, self._count)
        size = max(64, 2 * (self._count - gone))
        if gone:
            numbers, question = np.unique(self._question[kept], return_inverse=True)
            again = {int(number): place for place, number in enumerate(numbers)}
            self._numbers = {key: again[number] for key, number in self._numbers.items() if number in again}
            self._questions = self._questions[numbers]
            self._question[kept] = question
            self._pairs = {(again[of], lead): pair for (of, lead), pair in self._pairs.items() if of in again}
            for arms in self._rows:
                for key, rows in list(arms.items()):
                    arms[key] = array("q", [row - gone for row in rows if row >= gone])
                    if not arms[key]:
                        del arms[key]
            self._forget_arms()
            self._places = {id: row - gone for id, row in self._places.items() if row >= gone}
            self.ledger.forget(self._since)
        self._question, self._lead = grown(self._question[kept], size), grown(self._lead[kept], size)
        self._rewards, self._weight = grown(self._rewards[kept], size), grown(self._weight[kept], size)
        self._credit, self._lost = grown(self._credit[kept], size), grown(self._lost[kept], size)
        self._pull = np.pad(self._pull[:, :, kept], ((0, 0), (0, 0), (0, size - (self._count - gone))))
        self._first, self._count = 0, self._count - gone

    def _forget_arms(self) -> None:
        for arms in self._arms:
            arms.clear()

    # Judging.

    def _arm(self, credit: int, key: str) -> _Arm:
        """The record of an arm. Sums are from the first row to the last, as `_judge` adds."""
        arm = self._arms[credit].get(key)
        if arm is not None or key not in self._rows[credit]:
            return arm or _NO_ARM
        rows = np.array(self._rows[credit][key], dtype=np.int64)
        rows = rows[rows >= self._first]
        weight, times, earned = self._credit[rows], 0.0, 0.0
        if len(rows):
            times, earned = float(weight.cumsum()[-1]), float((weight * self._rewards[rows]).cumsum()[-1])
        arm = self._arms[credit][key] = _Arm(rows, times, earned, float(np.count_nonzero(self._weight[rows] > 0.0)))
        return arm

    @property
    def weights(self) -> Floats:
        """How much each estimate counts: the two that know no arms, then the models of each way of giving credit."""
        return self._weigh(actions=True)

    def _weigh(self, *, actions: bool) -> Floats:
        """The same; without those of actions where nothing that can be shown advises one."""
        if actions not in self._weights:
            lead, done = bool(self._rows[LEAD]), actions and bool(self._rows[DONE])
            credits = np.array([lead, self._slates, done], dtype=np.float64)
            prior = np.concatenate([[OWN, HERE], np.kron(credits / max(1.0, credits.sum()), _PRIOR)])
            likely = prior > 0.0
            log = np.log(prior[likely]) + self._likelihood[likely]
            weights = np.zeros(len(prior))
            weights[likely] = np.exp(log - log.max())
            self._weights[actions] = weights / weights.sum()
        return self._weights[actions]

    @property
    def _usual(self) -> float:
        """The mean reward of an item first at a question, each pair counting once."""
        return (self._hoped + 0.5 * HOPE) / (self._tried + HOPE)

    def _near(self, vector: Vectors, *, blame: bool = False) -> _Near:
        """blame: whether steps divide the failure of their episode among them, for which one that is wrong is enough."""
        n, live = len(self._numbers), slice(self._first, self._count)
        # One thread: what a second one saves here is less than its start costs.
        distance = np.vecdot(self._questions[:n], vector.astype(np.float32)) - np.float32(1.0)
        by_row = distance[self._question[live]]
        nearest = float(by_row.max())
        # Rows that count for nothing are not looked at.
        close = by_row >= self.bandwidth * math.log(FAR) + min(0.0, nearest)
        rows = np.flatnonzero(close)
        there = rows + self._first
        far, own, rewards = by_row[rows], self._credit[there], self._rewards[there]
        if blame:
            own = rewards * own + (1.0 - rewards) * np.minimum(own, self._weight[there])
        counts = np.exp(far / self.bandwidth)
        relative = np.exp((far - nearest) / self.bandwidth)
        counts[counts < FAR] = 0.0
        counts = counts * own
        fading = np.cumsum(counts[::-1])[::-1] - counts
        ways = len(SHARES)
        weight = np.empty((2 * ways, len(rows)))
        weight[PLAIN], weight[FORGETTING], weight[NEAREST] = (
            counts,
            counts * np.exp(fading * math.log(KEEP)),
            relative * own,
        )
        mean = (self._sum + 1.0) / (self._number + 2.0)
        lead, even = self._lead[there], weight[ways:]
        for way in range(ways):
            np.divide(weight[way], np.maximum(np.bincount(lead, weight[way]), 1.0)[lead], out=even[way])
        expected = float(weight[PLAIN] @ rewards + 2.0 * mean) / (float(weight[PLAIN].sum()) + 2.0)
        sums = even.sum(axis=1)[:, None], (even @ rewards)[:, None]
        returns = float((np.exp(far / RETURNS) * own).sum())
        return _Near(there, close, weight, *sums, self._usual, mean, expected, returns, by_row + 1.0)

    def _judge(self, near: _Near, credits: Sequence[int], keys: Sequence[str]) -> _Judged:
        """What the models of some ways of giving credit say of arms; those of actions by themselves."""
        arms = [self._arm(credit, key) for credit in credits for key in keys]
        shape, size, ways = (len(credits), len(keys)), len(arms), len(SHARES)
        listed = [one.rows for one in arms]
        arm, rows = np.arange(size).repeat(list(map(len, listed))), np.concatenate(listed)
        overall = self._regress(near, keys, arm, rows)[None] if credits[0] == DONE else None
        close = near.close[rows - self._first]
        arm, rows = arm[close], rows[close]
        counted = near.weight[:, near.rows.searchsorted(rows)]
        both = np.concatenate([counted, counted * self._rewards[rows]])
        sums = np.bincount((arm + size * _SERIES).ravel(), both.ravel(), size * len(both))
        sums = sums.reshape(4, ways, size)
        others = (near.earned - sums[3] + 2.0 * near.usual) / (near.total - sums[1] + 2.0)
        by_way = np.array([others, sums[0], sums[2]]).reshape(3, ways, *shape).swapaxes(1, 2)
        base, local_times, local = by_way.take(_COUNTS, axis=2)
        all_times, all_earned, seen = np.array([(one.times, one.earned, one.seen) for one in arms]).T.reshape(3, *shape)
        if overall is None:
            overall = (all_earned[:, None] - all_times[:, None] * base) / (all_times[:, None] + _OVERALL)
        gain = overall + (local - local_times * (base + overall)) / (local_times + _LOCAL)
        return _Judged(gain, base, local_times, by_way[1, :, 0], by_way[2, :, 0], seen)

    def _regress(self, near: _Near, keys: Sequence[str], arm: Rows, rows: Rows) -> Floats:
        """What the ridges say of actions beyond what is usual, by model; shape (models, actions)."""
        for key in self._unfitted.intersection(keys):
            self._fit(key)
        of_rewards, of_ones = self._pull[:, :, rows]
        pull = near.cosine[rows - self._first] * RIDGES[:, None] ** (self._count - rows)
        pull = pull * (of_rewards - near.usual * of_ones)
        ridges = [np.bincount(arm, by_row, len(keys)) for by_row in pull]
        return np.stack([*ridges, np.zeros(len(keys))])[_RIDGE]

    def _fit(self, key: str) -> None:
        """Fit the ridges of an action to its latest rewards, and to ones: what is usual changes with the rewards of others."""
        self._unfitted.discard(key)
        rows = np.array(self._rows[DONE].get(key, ()), dtype=np.int64)
        self._pull[:, :, rows] = 0.0
        rows = rows[(rows >= self._first) & (self._credit[rows] > 0.0)][-LATEST:]
        vectors = self._questions[self._question[rows]].astype(np.float64)
        for ridge, keep in enumerate(RIDGES):
            alike = (vectors @ vectors.T) * keep ** np.abs(rows[:, None] - rows)
            alike[np.diag_indices(len(rows))] += NOISE / self._credit[rows]
            goals = np.stack([self._rewards[rows], np.ones(len(rows))], axis=1)
            self._pull[:, ridge, rows] = np.linalg.solve(alike, goals).T

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        items = [pool.items[row] for row in candidates.rows.tolist()]
        return self.judge(query.vector, query.text, items, candidates.similarities)

    def judge(self, vector: Vectors, situation: str, items: Sequence[Item], scores: Floats | None = None) -> Values:
        """What is known of putting each item first where something is asked.

        Args:
            vector: of the question.
            situation: the question, for items whose advice depends on it.
            items: candidates.
            scores: what the search says of each.

        Returns:
            Values with means, the gain in reward over what is expected here, in the mean of all estimates; better, the
            probability that each is better than the one that would be first, times how far the question is one that comes back;
            expected, the reward that is expected here.
        """
        n = len(items)
        if not len(self) or not n:
            return Values(np.zeros(n), np.zeros(n), worth=(UNKNOWN,) * n)
        advised, signs = _advised(items, situation)
        near, weights = self._near(vector), self._weigh(actions=any(advised))
        means, times, earned, seen = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
        found: list[tuple[Floats, Floats, _Judged]] = []  # weights of models, and what they say
        expected = near.expected
        predicted = np.full(n, float(weights[:2] @ [near.mean, expected]))  # the reward with each first
        mean = self._sum / max(self._number, 1e-9)
        # How much rewards vary beside those that are 0 or 1, with the same mean.
        graded = (max(0.0, self._squares - self._number * mean * mean) + 0.5) / (
            self._number * mean * (1.0 - mean) + 0.5
        )
        models = weights[2:].reshape(3, len(MODELS))
        counting = np.flatnonzero(models.sum(axis=1) > 1e-6).tolist()
        ids, of_items = [item.id for item in items], [credit for credit in counting if credit != DONE]
        for credits, keys, sign in ((of_items, ids, np.ones(n)), ([DONE] if DONE in counting else [], advised, signs)):
            if not credits:
                continue
            judged = self._judge(near, credits, keys)
            found.append((models[credits], sign * judged.gain, judged))
            for way, credit in enumerate(credits):
                gain = models[credit] @ judged.gain[way]
                means += sign * gain
                predicted += models[credit] @ judged.base[way] + sign * gain
                if credit != DONE:
                    seen = judged.seen[way]
                if credit != SHOWN:
                    more = judged.times[way] > times
                    times, earned = np.where(more, judged.times[way], times), np.where(more, judged.earned[way], earned)
        sure = max(0.0, 1.0 - float(weights[:2].sum()))
        low, span = self.range[0], self.span
        accounts = [self.ledger.account(id, span, since=self._since) for id in ids]
        clears = (times >= 3.0) & (np.abs(means) * np.sqrt(times) > CLEAR)
        for index, shown_by_chance in enumerate(accounts):
            if shown_by_chance and shown_by_chance.clear and not clears[index]:
                # Where nothing is sure near the question, what the experiment is sure of stands for it.
                predicted[index] += shown_by_chance.effect / span - means[index]
                means[index] = shown_by_chance.effect / span
        with_it = low + span * np.minimum(np.maximum(predicted, 0.0), 1.0)
        without = low + span * np.minimum(np.maximum(predicted - means, 0.0), 1.0)
        columns = (with_it, without, times, earned, np.full(n, sure), seen, clears)
        worth = tuple(starmap(Worth, zip(*(column.tolist() for column in columns), accounts, strict=True)))
        better: Floats = np.zeros(n)
        returns = min(1.0, near.returns / 3.0)
        # No probability is larger than that of rewards saying anything of items.
        if scores is not None and n > 1 and min(0.5, sure) * returns > UNLIKELY:
            searched = in_rewards_of(scores)
            lead = int(np.argmax(searched + means))
            # Nothing can be better than the first by more than is left to the highest reward.
            room = max(0.0, 1.0 - expected - float(means[lead]))
            # What was asked so often will be asked as often again: the others are worth some tries even if rewards say nothing.
            often = 0.0 if self.all_same else min(max(near.returns / OFTEN - 1.0, 0.0), 1.0)
            untried = often * np.maximum(0.0, 1.0 - times / (TRIES * max(near.returns, OFTEN)))
            wide = EXPLORE + (1.0 - EXPLORE) * room * room
            wide = wide + (WIDE - wide) * untried
            for model, gain, judged in found:
                chance = np.minimum(np.maximum(judged.gain + judged.base, 0.02), 0.98)
                variance = chance * (1.0 - chance) / (judged.near + _LOCAL + 1.0)
                first = slice(lead, lead + 1)
                doubt = np.minimum(wide * np.sqrt(graded * (variance + variance[..., first])), room)
                # Nor can another cost more than what the first is expected to bring.
                ahead = np.maximum(searched - searched[lead], -chance[..., first])
                z = (gain - gain[..., first] + ahead) / np.maximum(doubt, 1e-9)
                likely = 1.0 / (1.0 + np.exp(np.minimum(-1.702 * z, 50.0)))  # the normal one's, within 0.01
                for weight, by_model in zip(model, likely, strict=True):
                    better += weight @ by_model
            if self.all_same:
                better /= (1.0 + times) ** 2
            better *= (sure + (1.0 - sure) * room * untried) / sure
            better[lead] = 0.0
            np.minimum(better, 0.5, out=better)
            better *= returns * min(1.0, 0.75 / max(float(better.sum()), 1e-9))
        return Values(means, np.zeros(n), worth, better, expected)

    def advise(self, vector: Vectors, actions: Sequence[str]) -> tuple[tuple[tuple[str, float, float], ...], str]:
        """What rewards say should be done where something is asked, among what can be done.

        Returns:
            (action, 1, similarity of the question where it succeeded) for the nearest `VOTES` successes of the action that they
            speak for, and (action, -1, similarity) for the nearest failure of those that they speak against, the worst first,
            at most `VOTES` together; nothing where they say nothing. The failure of an episode of several steps speaks against
            none of them. And the same as lines of a prompt.
        """
        nothing = ((), "")
        if not self._rows[DONE] or not actions or not len(self):
            return nothing
        weights = self.weights[2 + DONE * len(MODELS) :]
        if weights.sum() < SPOKEN:
            return nothing
        judged = blamed = self._judge(self._near(vector), (DONE,), actions)
        if self._steps:
            blamed = self._judge(self._near(vector, blame=True), (DONE,), actions)
        gains = weights @ blamed.gain[0] / weights.sum()
        best_first = np.argsort(-gains, kind="stable").tolist()
        votes: list[tuple[str, float, float]] = []
        records: list[str] = []
        for place in (best_first[0], *reversed(best_first[1:])):
            against = place != best_first[0]
            if len(votes) == VOTES or (-gains[place] if against else gains[place]) < ADVISED:
                continue
            rows = self._arm(DONE, actions[place]).rows
            rows = rows[(self._credit[rows] > 0.0) & ((self._rewards[rows] < 0.5) == against)]
            if against:
                rows = rows[self._weight[rows] >= self._credit[rows]]
                if not len(rows):
                    continue
            cosines = self._questions[self._question[rows]] @ vector.astype(np.float32)
            nearest = np.sort(cosines)[::-1][: 1 if against else VOTES]
            votes += [(actions[place], -1.0 if against else 1.0, float(cosine)) for cosine in nearest]
            record = Worth(0.0, 0.0, float(judged.times[0, place]), float(judged.earned[0, place]), 1.0).sentence
            if record:
                records.append(f"- {as_line(actions[place])}: {record}")
        return tuple(votes), "\n".join(records)

    def at_stake(self, expected: float, *, shown: bool) -> float:
        """The reward that the search's first choice counts for where another stands first.

        Rewards that say nothing of items say nothing against this one either, so that it may be right though all rewards are 0.
        As long as they are all the same, this grows with each one more.

        Args:
            expected: The reward that was expected of it, from 0 to 1 or beyond.
            shown: Whether it is shown all the same, further down.

        Returns:
            The reward, from 0 to 1: at least `BLIND` as far as rewards say nothing of items, and half of that if it is shown.
        """
        blind = BLIND * float(self.weights[:2].sum())
        if self.all_same:
            blind = SAME / (SAME + (1.0 - SAME) * math.exp(-self._surprise) * 0.5 ** len(self._numbers))
        return min(1.0, max(expected, 0.5 * blind if shown else blind))

    @property
    def may_move(self) -> bool:
        """Whether departing from the search's own order has not cost more than it may."""
        bound, slack = (SAME_BOUND, SAME_SLACK) if self.all_same else (BOUND, SLACK)
        return self.lost <= bound + slack * self._number

    @property
    def all_same(self) -> bool:
        """Whether no reward was other than the others so far, so that nothing speaks for one item more than for another."""
        return self._number * self._squares - self._sum * self._sum <= 1e-9 * self._number * self._number

    # The ledger.

    def account(self, item: str) -> Account | None:
        """What the ledger says of an item, by id; None where chance never decided about it."""
        return self.ledger.account(item, self.span, since=self._since)

    @property
    def range(self) -> tuple[float, float]:
        """The lowest and the highest reward there can be."""
        return self.bounds or (0.0, 1.0)

    @property
    def span(self) -> float:
        low, high = self.range
        return high - low

    @property
    def units(self) -> int:
        """How many episodes and single choices have a reward that counts."""
        return round(self._number)

    @property
    def met(self) -> list[str]:
        """Items, by id, that were shown with a reward or put to the test."""
        return list(dict.fromkeys([*self.ledger.items, *self._rows[SHOWN]]))

    def accounts(self, items: Iterable[str]) -> list[Account]:
        """The same of several, beside what a counter of successes says of them."""
        usual = self.in_rewards(self._sum / self._number) if self._number > 0.0 else math.nan
        found = []
        for id in items:
            rows = self._arm(SHOWN, id).rows
            seen = float(self._weight[rows].sum())
            success = self.in_rewards(float(self._weight[rows] @ self._rewards[rows]) / seen) if seen else math.nan
            nothing = np.zeros(0)
            known = self.account(id) or account(id, nothing, nothing, nothing, nothing, self.span)
            found.append(replace(known, success=success, usual=usual, seen=seen))
        return found

    def in_full(self, item: str, worth: Worth) -> Worth:
        """With what a counter of successes says of the item, where the ledger says something."""
        if worth.overall is None:
            return worth
        if item not in self._accounts:
            self._accounts[item] = self.accounts([item])[0]
        return replace(worth, overall=self._accounts[item])

    @property
    def _since(self) -> int:
        """The number, of all that were added, of the oldest choice that counts."""
        return self._total - len(self)

    def _bounded(self, reward: float) -> float:
        low, high = self.range
        return min(max(reward, low), high)

    def _scaled(self, reward: float) -> float:
        return (self._bounded(reward) - self.range[0]) / self.span

    def in_rewards(self, scaled: float) -> float:
        """A reward on the scale from 0 to 1, as it would be given."""
        return self.range[0] + scaled * self.span


def in_rewards_of(scores: Floats) -> Floats:
    """What the search says of each, as rewards: 0 for the best, less for others."""
    highest = float(np.abs(scores).max(initial=0.0))
    found: Floats = SEARCH * (scores - scores.max()) / highest if highest else np.zeros(len(scores))
    return found


def _advised(items: Sequence[Item], situation: str) -> tuple[list[str], Floats]:
    """The action that each item advises, or warns of, "" for none, and 1, -0.4 or 0: a warning leaves open what is right."""
    keys, sign = [], np.zeros(len(items))
    for place, item in enumerate(items):
        pairs = advice(item, situation) if "do" in item.metadata else ()
        keys.append(pairs[0][0] if pairs else "")
        sign[place] = (1.0 if pairs[0][1] > 0 else -0.4) if pairs else 0.0
    return keys, sign


@dataclass(frozen=True, slots=True)
class Ranked:
    """The search's own order and what rewards say, added up. withhold, least, budget, together: see `WITHHOLD`, `LEAST`, `BUDGET`
    and `TOGETHER`."""

    record: RewardRecord
    k: int = MANY
    withhold: float = WITHHOLD
    least: float = LEAST
    budget: float = BUDGET
    together: int = TOGETHER

    def __post_init__(self) -> None:
        need("the selection", count={"k": self.k, "together": self.together}, rate={"withhold": self.withhold})
        need("the selection", positive={"least": self.least, "budget": self.budget})

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Independent:
        return self.rank(candidates.similarities, values)

    def rank(self, scores: Floats, values: Values) -> Independent:
        """scores: what the search says of each candidate; values: as `RewardRecord.judge` has them."""
        gains = values.means
        searched = in_rewards_of(scores)
        moving = self.record.may_move
        order = tuple(np.argsort(-(searched + gains if moving else searched), kind="stable").tolist())
        challengers: tuple[tuple[int, float], ...] = ()
        if moving and values.better is not None:
            better = values.better.tolist()
            challengers = tuple((place, p) for place, p in enumerate(better) if p > UNLIKELY and place != order[0])
        # The least known first. What helps here is withheld only where the budget is larger than the usual one.
        most, worth = HELPS * self.budget / BUDGET, values.worth
        tested = [place for place, gain in enumerate(gains.tolist()) if gain < most and worth[place].seen >= self.least]
        tested.sort(key=lambda place: worth[place].tested)
        tests = [(place, self.rate(worth[place])) for place in tested]
        main = order[: self.k]
        known = tuple(test for test in tests if test[0] in main)
        down = tuple(test for test in tests if test[0] not in main)
        return Independent(order, self.k, known, down[: self.together], self.together, challengers=challengers)

    def rate(self, worth: Worth) -> float:
        """With which probability chance turns round what would become of it."""
        if worth.overall is None:
            return rate(self.withhold, EXPECTED, self.budget)
        return 0.0 if worth.overall.over else rate(self.withhold, worth.overall.withholding_costs, self.budget)


def explained(hit: Hit, index: int, use: Use, record: RewardRecord) -> Hit:
    """The hit, with what rewards say of it where it stands elsewhere than the search put it, or where all is explained."""
    if not use.values.worth or not isinstance(use.choice, Independent):
        return hit
    worth, position = use.values.worth[index], use.choice.order.index(index)
    moved = ("up" if position < index else "down" if position > index else "") if worth.clear else ""
    if not moved and (not worth.seen or (hit.why is None and worth.times < 0.5)):
        return hit
    why = hit.why or Explanation(None, None, {})
    return replace(hit, why=replace(why, moved=moved, worth=record.in_full(hit.id, worth)))


def situation(goal: str, observation: str) -> str:
    """What is asked; the task where nothing is."""
    return observation or goal


def default(
    *,
    withhold: float = WITHHOLD,
    least: float = LEAST,
    budget: float = BUDGET,
    together: int = TOGETHER,
    bandwidth: float = BANDWIDTH,
    newest: int = NEWEST,
) -> Policy:
    """The default policy.

    Args:
        withhold: probability with which an item under test is left out, for the ledger; 0 tests nothing.
        least: how often an item must have been shown with a reward before it is put to the test.
        budget: what a test may be expected to cost per episode, of the range of rewards.
        together: items under test in one search.
        bandwidth: of nearness of questions, see `BANDWIDTH`.
        newest: how many rewarded choices are remembered.
    """
    record = RewardRecord(bandwidth, newest)
    return Policy(NAME, situation, None, record, Ranked(record, MANY, withhold, least, budget, together), lines)
