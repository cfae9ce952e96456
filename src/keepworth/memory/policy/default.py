"""The default policy: the order of the search, changed by what rewards say about the items.

An *arm* is a thing that a reward may be credited to. There are five ways of giving credit: to the item that stood first, to every
item that was shown, to the action that was taken, to that action for the same person alone (if there are several persons), or to
the roles in which items that the episode wrote name that action (`named`). For each way there are 18 estimates, the `MODELS`, of
the reward of an arm at a question. They differ in how much they rely on rewards near the question or on all rewards of the arm,
and in how fast rewards age. Two more estimates ignore arms: one expects the same reward everywhere, the other a reward that
depends on the question alone. Estimates are averaged, weighted by how well each predicted the rewards so far (Bayesian model
averaging in which older predictions count less). If rewards do not depend on items, the two estimates without arms predict best
and the order stays that of the search; if they do, it changes within a few rewards.

    u(arm) = SEARCH * (relative score) + sum over estimates of weight * (reward expected with the arm - reward expected here)

The relative score is 0 for the best candidate of the search and negative for the others. Where rewards depend on items, it
shrinks with the number of rewards of the arm near the question, and with the failures of the search's first candidate there
(`_fade`).

The arm with the largest u comes first. If the question came before, another arm takes its place with about the probability that
it is better (Thompson sampling with computed probabilities, so that propensities are exact). What this has cost, by the rewards
expected of the search's own order, must stay below `BOUND` plus the share `SLACK` of all rewards, or else the search's own order
is shown (after "Conservative Bandits", Wu et al. 2016).

The effect of an item over all questions is measured separately, by an experiment: see `ledger`.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import product
from sys import intern
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from keepworth.episodes.text import as_line
from keepworth.memory.errors import InvalidPolicy
from keepworth.memory.item import Item
from keepworth.memory.policy.ledger import EXPECTED, Account, Ledger, Trial, account, rate
from keepworth.memory.policy.named import NONE, ROLES
from keepworth.memory.policy.pool import Pool, advice, grown
from keepworth.memory.policy.propensity import Independent, Slate
from keepworth.memory.policy.rewards import Trust
from keepworth.memory.policy.slots import Candidates, Policy, Query, Use, Values, lines, need
from keepworth.memory.search.index import in_eight_bits, of_eight_bits
from keepworth.memory.search.search import UNEXPLAINED, Hit, Worth

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Vectors = npt.NDArray[np.float32]
    Rows = npt.NDArray[np.int64]

NAME = "default"
RULES = 3
"""Version of how rewards are weighed: a state that was saved under another version is learned anew from the log."""
PARTS = ("roles",)
"""Parts of the policy that an ablation can leave out."""
WITHHOLD = 0.01
"""Probability with which an item under test is withheld in an episode."""
TOGETHER = 1
"""Number of items that one search may test: those with the fewest tests so far."""
BUDGET = 0.01
"""Expected cost of a test for each episode, as a share of the range of rewards, above which `WITHHOLD` is lowered."""
LEAST = 10.0
"""Number of rewarded showings that an item needs before it is tested."""
NEWEST = 20_000
"""Number of rewarded choices that are remembered: the latest ones, of which nobody pushes out those of who gave fewer."""
BANDWIDTH = 0.1
"""A reward at another question counts exp((cosine - 1) / BANDWIDTH) of one at the same question."""
RETURNS = 0.04
"""The same bandwidth for counting how often a question came before."""
FAR = 1e-3
"""Rewards that would count less than this are ignored."""
SEARCH = 1.0
"""Weight of the relative score of the search, where rewards lie between 0 and 1."""
FADE = 2.0
"""Number of rewards near the question after which half of the relative score is gone, if rewards depend on items."""
KEEP = 0.85
"""Factor by which each new reward near a question lowers the earlier ones there, in the estimates that forget."""
DISCOUNT = 0.995
"""Factor by which each new reward lowers the log-likelihood of earlier predictions."""
SURE = 0.08
"""Predicted probabilities lie between this and 1 less this, so that one surprise cannot rule an estimate out."""
HOPE = 6.0
"""Number of imagined rewards of one half in the usual reward of an item that stands first: what always failed then gives way to
what was never tried."""
OWN, HERE = 0.35, 0.15
"""Prior weights of the two estimates without arms: the same reward everywhere; a reward that depends on the question."""
PLAIN, FORGETTING, NEAREST = range(3)
"""How a reward counts near a question: by its cosine; by its cosine and age; by its cosine less that of the nearest question."""
SHARES = (0.5, 0.25, 0.25)
"""How these three share the rest of the prior weight."""
EXPLORE = 0.5
"""Width of the doubt that explores, in standard deviations of the estimates; it grows to 1 as all rewards here fail."""
OFTEN, TRIES = 40.0, 0.4
"""A question that came back more than OFTEN times and mostly fails gets more trials: of all arms together up to the share TRIES
of the times that it came back."""
WIDE = 1.5
"""Width of the doubt there, for what was not tried."""
BOUND, SLACK = 3.0, 0.01
"""What departures from the search's own order may cost in all: BOUND rewards plus the share SLACK of all rewards."""
USED_BY_ONE = 0.5
"""The largest share of that which one person can use up where others give rewards, too."""
BLIND = 0.5
"""Least reward that the search's first candidate is assumed to earn as long as rewards say nothing about items."""
SAME = 0.01
"""Prior probability that all rewards are equal, whatever is shown."""
FIRM = 5.0
"""If rewards depend on items, an item that earned the same reward n times at a question earns it again with the probability
(FIRM + n) / (FIRM + n + 1)."""
SAME_BOUND, SAME_SLACK = 0.5, 0.005
"""`BOUND` and `SLACK` as long as all rewards were equal."""
UNLIKELY = 0.003
"""Arms that are better with a smaller probability than this are not tried."""
CLEAR = 1.25
"""A gain is clear of chance if it exceeds this over the root of the number of rewards: 2.5 standard deviations."""
ADVISED, SPOKEN = 0.01, 0.1
"""An action is advised if its gain is at least ADVISED and the estimates of actions have at least the weight SPOKEN together."""
TELLING, HEARD = 0.1, 0.15
"""The same for a role of an action: its least gain, and the least weight of the estimates of roles. There are few roles, so that
some gain a little by chance."""
HELPS = 0.05
"""An item whose gain near the question is larger is not withheld; a larger budget for tests raises this limit in proportion."""
MANY = 1_000_000_000
"""Stands for no limit."""
NOISE = 0.3
"""Variance of a reward around the ridge regression, whose prior variance at a question is 1."""
RIDGES = np.array([1.0, 0.99])
"""Two kernel ridge regressions of an action's rewards on the question: by what factor each new reward lowers the earlier ones."""
POWER = 3
"""Their kernel is the cosine to this (odd) power, over that of the nearest question."""
STRANGE = 0.05
"""Least value that it is divided by, so that a question unlike all others learns little from them."""
LATEST = 200
"""Number of rewards of an action that a ridge regression uses: the latest ones."""
FAMILIAR = 1.0
"""Number of rewards of a person near a question at which they count as much as those of everybody."""
PROVEN, RIGHT = 5, 0.5
"""The items that rewards speak for at a question are candidates there, wherever the search puts them: at most PROVEN of those
whose rewards at the question sum to RIGHT or more, each times exp((cosine - 1) / RETURNS)."""
QUORUM = 3
"""How many more people must agree than disagree on a shared item before others who share it learn of it: see `consensus`."""
VOTES = 4
"""Number of earlier successes of an action that advice cites."""

_NEVER = 1e9
MODELS = tuple(product((_NEVER, 4.0), (0.15, 0.6, 2.5), (PLAIN, FORGETTING, NEAREST)))
"""(prior count of the arm's mean reward over all uses; prior count of its mean near the question; how rewards count there)"""
_SHAPE = (2, 3, 3)
_OVERALL, _LOCAL = (np.array([model[part] for model in MODELS]).reshape(*_SHAPE, 1) for part in (0, 1))
LEAD, SHOWN, DONE, PERSONAL, NAMED = range(5)
"""What gets the credit: the item that stood first, all that were shown, the action that was taken, that action where it was taken
for the same person, the roles of that action."""
_RIDGE = np.array([[-1, -1, -1], [PLAIN, FORGETTING, PLAIN]])
"""For the models of actions: the number of the ridge regression that replaces the mean over all uses, -1 for none."""
_OF_RIDGES = 1
"""Index of the half of the models of actions that has ridge regressions."""
_PRIOR = np.array([SHARES[counts] for _, _, counts in MODELS]) / (len(MODELS) / len(SHARES)) * (1.0 - OWN - HERE)
_WAYS = np.arange(len(SHARES))[:, None]
AdvicePieces: TypeAlias = "tuple[tuple[str, float, float], ...]"
"""Each (action, 1 for it or -1 against it, similarity of the question that this comes from)."""
_NOTHING: Floats = np.zeros(0)
UNKNOWN = Worth(0.0, 0.0, 0.0, 0.0, 0.0)
"""Stands for an item before the first reward."""


@dataclass(slots=True)
class _Near:
    """The rewarded choices near a question.

    `weight` has four blocks of one row for each of `SHARES`: how much each of `rows` counts; the same, with the rows of one
    leading item capped at 1 together, since failures of one item say little about others; then both blocks times the reward."""

    rows: Rows  # of the choices that count for something, in order
    distance: Vectors  # the cosine of each remembered question with this one, less 1
    weight: Floats  # shape (4 * ways, rows)
    total: Floats  # the sums of the second block of `weight`, shape (ways, 1)
    earned: Floats  # the sums of the fourth block
    usual: float  # mean reward of pairs of a question and the item that stood first there
    mean: float  # of all rewards
    expected: float  # reward at this question, whatever is shown
    returns: float  # how often the question came before


@dataclass(slots=True)
class _Judged:
    """What the models say about some arms."""

    gain: Floats  # expected reward with the arm less `base`, shape (ways of credit, *_SHAPE, arms)
    overall: Floats  # the part of the gain that comes from all uses of the arm
    base: Floats  # expected reward at the question without the arm
    near: Floats  # number of rewards of the arm near the question, with forgetting
    times: Floats  # the same without forgetting, shape (ways of credit, arms)
    earned: Floats  # the sum of these rewards
    seen: Floats  # number of rewards of the arm at all questions


@dataclass(slots=True)
class _Weights:
    """The weights of the estimates: first the two without arms, then the models of each way of giving credit."""

    all: Floats  # they sum to 1
    of_arms: Floats  # those of the models, shape (5, models); 0 for ways of giving credit with next to no weight
    counting: list[bool]  # whether each way of giving credit has more weight than that
    sure: float  # probability that rewards depend on items


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement(Values):
    """What rewards say about some candidates. `times`, `earned`, `seen` and `sure` are those of `Worth`."""

    searched: Floats  # the relative scores of the search
    faded: Floats  # the same after `_fade`
    times: Floats
    earned: Floats
    seen: Floats
    near: Floats  # the gain by the estimates, without the ledger
    without: Floats | None = None  # expected reward with another item first; None before the first reward
    accounts: Mapping[int, Account] = field(default_factory=dict)  # those of the ledger, by candidate
    sure: float = 0.0
    bounds: tuple[float, float] = (0.0, 1.0)  # the range of rewards

    def worth(self, index: int, overall: Account | None) -> Worth:
        """Return what rewards say about a candidate. overall: the ledger's account of it, if there is one."""
        if self.without is None:
            return UNKNOWN
        low, span, other = self.bounds[0], self.bounds[1] - self.bounds[0], float(self.without[index])
        with_it, without = (low + span * min(max(p, 0.0), 1.0) for p in (other + float(self.means[index]), other))
        times, earned, seen = (float(column[index]) for column in (self.times, self.earned, self.seen))
        clear = _is_clear(float(self.near[index]), times)
        return Worth(with_it, without, times, earned, self.sure, seen, clear, overall)


class RewardRecord:
    """The `newest` rewarded choices, and what they say about items, which go by id, and about actions. `bounds` are the lowest
    and the highest possible reward; for `bandwidth` see `BANDWIDTH`."""

    def __init__(
        self,
        bandwidth: float = BANDWIDTH,
        newest: int = NEWEST,
        bounds: tuple[float, float] = (0.0, 1.0),
        *,
        roles: bool = True,
        quorum: int = QUORUM,
    ) -> None:
        need("the record of rewards", positive={"bandwidth": bandwidth}, count={"newest": newest})
        if quorum != 0:
            need("the record of rewards", count={"quorum": quorum})
        self.quorum = quorum
        self.bandwidth, self.newest, self.bounds, self.roles = bandwidth, newest, bounds, roles
        self._widths = np.array([[bandwidth], [bandwidth], [RETURNS]], np.float32)
        self._questions: Vectors = np.zeros((0, 0), dtype=np.float32)
        self._numbers: dict[bytes, int] = {}
        self._question, self._lead, self._action, self._person, self._voice, self._holder, self._source, self._at = (
            np.zeros(0, dtype=np.int64) for _ in range(8)
        )
        self._rewards, self._weight, self._credit, self._lost = (np.zeros(0) for _ in range(4))
        self._counts = np.zeros(0, dtype=bool)  # whether each row counts, or was replaced or pushed out
        self._count = self._first = self._total = self._size = 0
        self._numbered: dict[str, int] = {"": 0}  # items that were shown and what stood first, by number
        # By item: credit, credit * reward and count of the rows where it stood first; the same of those that showed it, and their
        # weight and weight * reward.
        self._sums: Floats = np.zeros((0, 8))
        self._place: Rows = np.zeros(0, dtype=np.int64)  # by item: its place in a list that is being looked up, else -1
        self._shown: npt.NDArray[np.int32] = np.zeros(0, dtype=np.int32)  # the items of all rows, joined
        self._ends: Rows = np.zeros(1, dtype=np.int64)  # row r has the entries from _ends[r] to _ends[r + 1]
        self._actions: dict[str, int] = {"": 0}  # number by name; `_action` has that of each row
        self._roles = np.zeros((0, len(ROLES)), dtype=bool)  # the roles of the action of each row
        self._persons: dict[str, int] = {}  # number by name; `_person` has that of each row
        self._acted_for: set[int] = set()  # the persons for whom actions were taken
        self._places: dict[str, tuple[int, ...]] = {}  # by decision: its rows, one for each source of a reward
        self._sources: dict[
            str, int
        ] = {}  # number by name: whoever rewarded, or the channel of the program's own rewards
        self._names: list[str] = []  # the names of items by number, as far as they were needed
        self._nearest: tuple[Vectors, _Near] | None = None  # a question, and what is near it, until the next reward
        self._holders: dict[str, int] = {}  # number by name: in whose share of the window and of the budget a row is
        self._losses: Floats = np.zeros(64)  # by holder: what departures have cost in rows that count
        self._by_holder: Rows = np.zeros(64, dtype=np.int64)  # by holder: number of rows that count
        self._trust = Trust()
        self._slates = self._steps = False
        self._likelihood = np.zeros(2 + (1 + NAMED) * len(MODELS))
        self._weights: dict[int, _Weights] = {}  # until the next reward, as the next
        self._pull = np.zeros((2, len(RIDGES), 0))
        self._unfitted: set[str] = set()
        self.trusts = array("d")
        self._pairs: dict[tuple[int, int], tuple[float, float]] = {}
        self._tried = self._hoped = self._surprise = 0.0
        self._sum = self._squares = self._number = 0.0
        self.lost = 0.0
        self.ledger = Ledger()

    def __len__(self) -> int:
        return self._size

    # Learning.

    def learn(self, use: Use, pool: Pool) -> None:
        ids = [pool.items[row].id for row in use.candidates.rows.tolist()]
        self.add(
            of_eight_bits(in_eight_bits(use.query.vector)),  # as it is on file
            use.reward,
            [ids[index] for index in use.slate],
            Trial(use.decision, use.unit, {ids[index]: p for index, p in use.odds.items()}, use.expected),
            action=use.taken,
            weight=use.weight,
            instead=use.instead,
            by=use.by,
        )

    def add(
        self,
        vector: Vectors,
        reward: float,
        shown: Sequence[str],
        trial: Trial,
        *,
        action: str = "",
        weight: float = 1.0,
        credit: float | None = None,
        instead: float = math.nan,
        by: str = "",
        source: str = "",
        home: str = "",
        roles: Sequence[int] | None = None,
        stale: bool = False,
        trust: float | None = None,
    ) -> None:
        """Add a rewarded choice. A later reward of the same decision replaces the earlier one from the same source; those from
        several sources count together as one, their mean.

        Args:
            vector: The question's vector, as it is on file.
            reward: The reward as given; beyond the bounds it counts as the bound.
            shown: Ids of the items that were shown, in order.
            trial: The decision, and what chance decided in it.
            action: What was done; "" if unknown.
            weight: How much the reward counts when estimates are weighted: 1 over the number of choices that share it.
            credit: How much the reward counts for the arms of this choice; `weight` if not given.
            instead: The reward that was expected of the search's own order, if another order was shown.
            by: Who gave the reward; "" for the program itself.
            source: Where the reward came from: `by`, or the channel of the program's own.
            home: The user in whose scope the choice was made, "" if in none.
            roles: Roles of the action, if items of the episode name actions.
            stale: Whether the reward is too old to change the weights of the estimates.
            trust: The entry of `trusts` for this choice, if it was computed before.
        """
        shown = [intern(id) for id in shown]  # many rows name the same items
        roles = roles if self.roles and action and roles is not None else ()
        decision, unit = trial.decision, trial.unit or trial.decision
        earned = min(max(reward, self.bounds[0]), self.bounds[1])
        reward, channel = self._scaled(earned), self._sources.setdefault(source or by, len(self._sources))
        rows = self._rows_about(decision)
        others = [row for row in rows if self._source[row] != channel]
        again, several = bool(rows), len(others) + 1
        if others:
            earned = self.in_rewards((reward + sum(self._rewards[others].tolist())) / several)
        self.ledger.add(unit, decision, earned, weight, shown, trial.odds, trial.expected, self._total, self.bounds, by)
        person = self._persons.setdefault(trial.person, len(self._persons))
        if trust is None:
            trust = self._trust.believed(by)
            if not stale and not again and len(self):
                chance = self._predictions(vector, shown, action, roles, person)
                usual = min(max(self._sum / max(self._number, 1e-9), SURE), 1.0 - SURE)
                trust = self._trust.judge(by, float(self._weigh().all @ chance), reward, usual)
                loglik = reward * np.log(chance) + (1.0 - reward) * np.log(1.0 - chance)
                self._likelihood = DISCOUNT * self._likelihood + weight * trust * loglik
        self.trusts.append(trust)
        credit = trust * (weight if credit is None else credit)
        weight *= trust
        if others:
            credit, weight = credit / several, weight / several
        self._total += 1
        for row in rows:
            if row not in others:
                self._retire(row)
            elif len(rows) < several:
                self._reweigh(row, len(rows) / several)
        if self._count == len(self._rewards):
            others = self._make_room(others)
        row = self._count
        self._question[row], self._rewards[row], self._weight[row] = self._number_of(vector), reward, weight
        self._credit[row], self._roles[row], self._voice[row] = credit, False, self._trust.number(by)
        self._person[row], self._holder[row] = person, self._number_of_holder(by or home)
        self._source[row], self._at[row], self._counts[row] = channel, self._total - 1, True
        self._roles[row, list(roles)] = True
        self._lost[row] = 0.0 if math.isnan(instead) else instead - reward
        first, *numbers = (self._number_of_item(id) for id in (action or (shown[0] if shown else ""), *shown))
        self._lead[row], self._action[row] = first, self._actions.setdefault(action, len(self._actions))
        begin, end = int(self._ends[row]), int(self._ends[row]) + len(numbers)
        if end > len(self._shown):
            self._shown = grown(self._shown, 2 * end)
        self._shown[begin:end], self._ends[row + 1] = numbers, end
        self._count_in(row, 1.0)
        if decision:
            self._places[decision] = (*others, row)
        if action:
            self._unfitted.add(action)
            self._acted_for.add(person)
        self._slates = self._slates or len(shown) > 1
        self._steps = self._steps or credit > weight
        self._count = row + 1
        self._sum_up(np.arange(begin, end))
        self._weights.clear()
        self._nearest = None
        if len(self) > self.newest:
            self._retire(self._next_to_go(), pushed_out=True)

    def has(self, decision: str, reward: float, source: str) -> bool:
        """Return whether the latest reward of a decision from this source is this one."""
        channel = self._sources.get(source, -1)
        return any(
            self._source[row] == channel and self._rewards[row] == self._scaled(reward)
            for row in self._rows_about(decision)
        )

    def _rows_about(self, decision: str) -> list[int]:
        """Return the rows that count of the rewards of a decision."""
        return [row for row in self._places.get(decision, ()) if self._counts[row]] if decision else []

    def _next_to_go(self) -> int:
        """Return the oldest row of whoever has the most rows: nobody's rewards push out those of who gave fewer."""
        rows = self._counts[self._first : self._count].nonzero()[0] + self._first
        held = self._by_holder[self._holder[rows]]
        return int(rows[(held == held.max()).argmax()])

    def _retire(self, row: int, *, pushed_out: bool = False) -> None:
        """Let a row count no more, as another replaces it or has pushed it out of the window."""
        self._count_in(row, -1.0)
        self._weight[row] = self._credit[row] = 0.0
        self._counts[row] = False
        if pushed_out and row > self._first:
            self.ledger.withdraw(int(self._at[row]))
        elif pushed_out:
            self._first += int((~self._counts[row : self._count]).cumprod().sum())
        self._sum_again(row)

    def _reweigh(self, row: int, factor: float) -> None:
        """Multiply the weight of a row, as it is the reward of one source more among several."""
        self._count_in(row, -1.0)
        self._weight[row] *= factor
        self._credit[row] *= factor
        self._count_in(row, 1.0)
        self._sum_again(row)

    def weighed(self) -> tuple[list[float], dict[str, float]]:
        """Return the log-likelihoods of the estimates and how far each rewarder is trusted, so that a replay need not compute
        them again."""
        return self._likelihood.tolist(), dict(self._trust.doubts)

    def weigh(self, likelihood: Sequence[float], doubts: Mapping[str, float]) -> None:
        """Restore what `weighed` returned after the same rewards."""
        self._likelihood, self._trust.doubts = np.array(likelihood), dict(doubts)
        self._weights.clear()
        self._nearest = None

    def _count_in(self, row: int, sign: float) -> None:
        """Add a row to the sums (sign 1), or take it out (-1)."""
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
        self._trust.spoken[self._voice[row]] += weight
        self._sum += weight * reward
        self._squares += weight * reward * reward
        self.lost += weight * float(self._lost[row])
        self._losses[self._holder[row]] += weight * float(self._lost[row])
        self._by_holder[self._holder[row]] += int(sign)
        self._size += int(sign)

    def _sum_up(self, entries: Rows) -> None:
        """Add entries of `_shown` to the sums of their items."""
        rows, shown = self._ends[: self._count + 1].searchsorted(entries, "right") - 1, self._shown[entries]
        weight, credit, rewards = self._weight[rows], self._credit[rows], self._rewards[rows]
        columns = np.stack([credit, credit * rewards, weight > 0.0, weight, weight * rewards], axis=1)
        first = entries == self._ends[rows]
        np.add.at(self._sums[:, :3], shown[first], columns[first, :3])
        np.add.at(self._sums[:, 3:], shown, columns)

    def _sum_again(self, row: int) -> None:
        """Compute the sums of a row's items again, after the row stopped counting."""
        begin, shown = self._ends[self._first], self._shown[self._ends[row] : self._ends[row + 1]]
        self._sums[shown], self._place[shown] = 0.0, 0
        entries = (self._place[self._shown[begin : self._ends[self._count]]] == 0).nonzero()[0] + begin
        self._place[shown] = -1
        self._sum_up(entries)

    def _predictions(
        self, vector: Vectors, shown: Sequence[str], action: str, roles: Sequence[int], person: int
    ) -> Floats:
        """Return the probability of a reward of 1 according to each estimate."""
        near = self._near(vector)
        here = near.expected
        chances = [np.array([near.mean, here])]
        judging: tuple[tuple[tuple[int, ...], int, Callable[[], _Judged]], ...] = (
            ((LEAD, SHOWN), len(shown), lambda: self._judge(near, shown)),
            ((DONE,), bool(action), lambda: self._judge(near, [action], actions=True)),
            ((PERSONAL,), bool(action), lambda: self._judge(near, [action], actions=True, person=person)),
            ((NAMED,), len(roles), lambda: self._judge_roles(near, roles)),
        )
        for credits, arms, judge in judging:
            if not arms:
                chances.append(np.full(len(credits) * len(MODELS), here))
                continue
            if credits == (PERSONAL,) and not (len(self._acted_for) > 1 and person in self._acted_for):
                chances.append(chances[-1])  # the same as those of the action
                continue
            shared = chances[-1]
            judged = judge()
            both = (judged.gain + judged.base).reshape(len(credits), len(MODELS), -1)
            gains = judged.gain.reshape(both.shape)
            for credit, gain, chance in zip(credits, gains, both, strict=True):
                # Of several arms the one that helps most is assumed to earn the reward.
                most = arms if credit in (DONE, PERSONAL, NAMED) or (credit == SHOWN and self._slates) else 1
                best = gain[:, :most].argmax(axis=1)[:, None]
                chances.append(np.take_along_axis(chance, best, axis=1)[:, 0])
            if credits == (PERSONAL,):
                personal = self._familiarity(person, near)
                chances[-1] = personal * chances[-1] + (1.0 - personal) * shared
        predictions: Floats = np.clip(np.concatenate(chances), SURE, 1.0 - SURE)
        return predictions

    def _familiarity(self, person: int, near: _Near) -> float:
        """Return the weight from 0 to 1 of a person's own rewards near the question; the rest is that of everybody's."""
        there = (self._person[near.rows] == person) & (self._action[near.rows] > 0)
        times = float(near.weight[PLAIN] @ there)
        return times / (times + FAMILIAR)

    def _number_of(self, vector: Vectors) -> int:
        """Return the number of a question; a new question gets the next one."""
        key = blake2b(in_eight_bits(vector).tobytes(), digest_size=16).digest() if vector.any() else b""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            if number == len(self._questions):
                self._questions = grown(self._questions, max(64, 2 * number), len(vector))
            self._questions[number] = vector
        return number

    def _number_of_holder(self, name: str) -> int:
        """Return the number of whoever has a share of the window and of the budget; a new one gets the next number."""
        number = self._holders.setdefault(name, len(self._holders))
        if number == len(self._by_holder):
            self._by_holder, self._losses = grown(self._by_holder, 2 * number), grown(self._losses, 2 * number)
        return number

    def _number_of_item(self, id: str) -> int:
        """Return the number of an item, or of an action that stood in for it; a new one gets the next number."""
        number = self._numbered.setdefault(id, len(self._numbered))
        if number >= len(self._sums):
            size = max(64, 2 * number)
            self._sums, self._place = grown(self._sums, size, 8), np.full(size, -1)
        return number

    def _make_room(self, rows: Sequence[int] = ()) -> list[int]:
        """Grow the columns and drop rows that were pushed out, and where they are many those that were replaced. Rows, questions,
        items and actions get new numbers; returned are the new numbers of `rows`."""
        gone, live = self._first, np.arange(self._first, self._count)
        if len(live) > 2 * self._size or (self._size >= self.newest and len(live) > self._size):
            live = live[self._counts[live]]
        size, number = max(64, 2 * len(live)), len(live)
        moved = np.full(self._count, -1)
        moved[live] = np.arange(number)
        begins, lengths = self._ends[live], self._ends[live + 1] - self._ends[live]
        ends = np.concatenate([[0], lengths.cumsum()])
        if gone or number < self._count:
            entries = np.arange(ends[-1]) + (begins - ends[:-1]).repeat(lengths)
            numbers, question = np.unique(self._question[live], return_inverse=True)
            self._names = []
            again = {int(number): index for index, number in enumerate(numbers)}
            self._numbers = {key: again[number] for key, number in self._numbers.items() if number in again}
            self._questions = self._questions[numbers]
            self._question[live] = question
            shown, lead = self._shown[entries], self._lead[live]
            self._numbered, used, items = _number_anew(self._numbered, np.concatenate([shown, lead]))
            self._pairs = {
                (again[of], int(items[first])): pair
                for (of, first), pair in self._pairs.items()
                if of in again and items[first] >= 0
            }
            self._sums, self._shown, self._lead[live] = self._sums[used], items[shown].astype(np.int32), items[lead]
            self._actions, _, actions = _number_anew(self._actions, self._action[live])
            self._action[live] = actions[self._action[live]]
            places = (
                (id, tuple(int(moved[row]) for row in listed if moved[row] >= 0)) for id, listed in self._places.items()
            )
            self._places = {id: listed for id, listed in places if listed}
            self.ledger.forget(self._since)
        columns = (
            *("question", "lead", "action", "person", "voice", "holder", "source", "at", "counts"),
            *("roles", "rewards", "weight", "credit", "lost"),
        )
        for name in columns:
            setattr(self, f"_{name}", grown(getattr(self, f"_{name}")[live], size))
        self._ends = grown(ends, size + 1)
        self._pull = np.pad(self._pull[:, :, live], ((0, 0), (0, 0), (0, size - number)))
        self._first, self._count = 0, number
        return [int(moved[row]) for row in rows]

    # Judging.

    def _rows_of(self, action: str, person: int | None = None) -> Rows:
        """Return the rows, of the newest, in which an action was taken, for this person or for anybody."""
        number = self._actions.get(action) or -1
        rows: Rows = (self._action[self._first : self._count] == number).nonzero()[0] + self._first
        return rows if person is None else rows[self._person[rows] == person]

    def _weigh(self, ways: int = 1 + NAMED) -> _Weights:
        """Return the weights of the estimates if only the first `ways` ways of giving credit are used."""
        if ways not in self._weights:
            taken = ways > DONE and self._action[: self._count].any()
            personal = taken and ways > PERSONAL and len(self._acted_for) > 1
            named = ways > NAMED and self._roles[: self._count].any()
            credits = np.array([self._ends[self._count] > 0, self._slates, taken, personal, named], dtype=np.float64)
            prior = np.concatenate([[OWN, HERE], np.kron(credits / max(1.0, credits.sum()), _PRIOR)])
            likely = prior > 0.0
            log = np.log(prior[likely]) + self._likelihood[likely]
            weights = np.zeros(len(prior))
            weights[likely] = np.exp(log - log.max())
            weights /= weights.sum()
            of_arms = weights[2:].reshape(-1, len(MODELS))
            counting = of_arms.sum(axis=1) > 1e-6
            sure = max(0.0, 1.0 - float(weights[:2].sum()))
            self._weights[ways] = _Weights(weights, of_arms * counting[:, None], counting.tolist(), sure)
        return self._weights[ways]

    def _near(self, vector: Vectors) -> _Near:
        """Return the rewarded choices near a question."""
        if self._nearest is None or self._nearest[0] is not vector:
            self._nearest = vector, self._look_near(vector)
        return self._nearest[1]

    def _look_near(self, vector: Vectors, *, blame: bool = False) -> _Near:
        """Find the rewarded choices near a question. blame: whether each step of an episode is blamed for a part of its failure,
        since one wrong step is enough."""
        first, questions, ways = self._first, self._question[self._first : self._count], len(SHARES)
        # `vecdot` uses one thread: to start a second one would cost more than it saves here.
        distance = np.vecdot(self._questions[: len(self._numbers)], vector.astype(np.float32, copy=False))
        distance -= np.float32(1.0)
        if first or self._count - first > self._size:
            nearest = float(distance[questions[self._counts[first : self._count]]].max())
        else:
            nearest = float(distance.max())
        # Rows that count less than FAR are left out.
        rows = (distance >= self.bandwidth * math.log(FAR) + min(0.0, nearest))[questions].nonzero()[0] + first
        credit, rewards, lead = self._credit[rows], self._rewards[rows], self._lead[rows]
        if blame:
            credit = rewards * credit + (1.0 - rewards) * np.minimum(credit, self._weight[rows])
        alike = np.empty((3, len(rows)), np.float32)  # by cosine; beside the nearest question; as the same
        alike[:] = distance[self._question[rows]]
        alike[1] -= nearest
        alike /= self._widths
        np.exp(alike, out=alike)
        alike[0] *= alike[0] >= FAR
        counts, relative, same = alike * credit
        fading = counts[::-1].cumsum()[::-1] - counts
        weight = np.empty((4 * ways, len(rows)))
        weight[PLAIN], weight[NEAREST] = counts, relative
        weight[FORGETTING] = counts * np.exp(fading * math.log(KEEP))
        # Rows with the same item first are grouped under the place of one of them.
        order = np.arange(len(rows))
        self._place[lead] = order
        pair = (self._place[lead] + len(rows) * _WAYS).ravel()
        self._place[lead] = -1
        together = np.bincount(pair, weight[:ways].ravel())[pair].reshape(ways, -1)
        np.divide(weight[:ways], np.maximum(together, 1.0), out=weight[ways : 2 * ways])
        np.multiply(weight[: 2 * ways], rewards, out=weight[2 * ways :])
        sums = weight.sum(axis=1)
        usual = (self._hoped + 0.5 * HOPE) / (self._tried + HOPE)
        mean = (self._sum + 1.0) / (self._number + 2.0)
        expected = (float(sums[2 * ways]) + 2.0 * mean) / (float(sums[PLAIN]) + 2.0)
        total, earned = sums[ways : 2 * ways, None], sums[3 * ways :, None]
        return _Near(rows, distance, weight, total, earned, usual, mean, expected, float(same.sum()))

    def proven(self, vector: Vectors) -> list[str]:
        """Return the ids of the items that rewards speak for at a question, the surest first."""
        near = self._near(vector)
        weight = np.exp(near.distance[self._question[near.rows]] / RETURNS) * self._credit[near.rows]
        rows, weight = near.rows[weight >= FAR], weight[weight >= FAR]
        begins, lengths = self._ends[rows], self._ends[rows + 1] - self._ends[rows]
        entries = (begins + lengths - lengths.cumsum()).repeat(lengths)
        shown = self._shown[entries + np.arange(len(entries))]
        times, earned = (
            np.bincount(shown, column.repeat(lengths)) for column in (weight, weight * self._rewards[rows])
        )
        speaking = (earned >= RIGHT).nonzero()[0]
        best = speaking[np.argsort(-earned[speaking] / (times[speaking] + 1.0), kind="stable")[:PROVEN]]
        if len(self._names) != len(self._numbered):
            self._names = list(self._numbered)
        return [self._names[number] for number in best.tolist()]

    def _judge(self, near: _Near, keys: Sequence[str], *, actions: bool = False, person: int | None = None) -> _Judged:
        """Return what the models say about items, by what stood first and by all that was shown, or about actions, taken for one
        person or for anybody."""
        n = len(keys)
        if not actions:
            numbers = np.array([self._numbered.get(key, 0) for key in keys])
            there = self._occurrences(near.rows, numbers)
            times, earned, seen = self._sums[numbers, :6].T.reshape(2, 3, n).swapaxes(0, 1)
            return self._estimate(
                near, there, seen, times=times[:, None, None, None], earned=earned[:, None, None, None]
            )
        listed = {key: self._rows_of(key, person) for key in keys}
        arm = np.arange(n).repeat([len(listed[key]) for key in keys])
        rows = np.concatenate([listed[key] for key in keys])
        row = near.rows.searchsorted(rows)
        close = near.rows[np.minimum(row, len(near.rows) - 1)] == rows
        there = np.zeros((len(near.rows), 1, n))
        there[row[close], 0, arm[close]] = 1.0
        if person is None:
            return self._estimate(near, there, np.zeros((1, n)), overall=self._regress(near, keys, arm, rows))
        credit = self._credit[rows]
        of_arm = (arm[:, None] == np.arange(n)).astype(np.float64)
        uses = credit @ of_arm
        return self._estimate(near, there, uses[None], times=uses, earned=(credit * self._rewards[rows]) @ of_arm)

    def _judge_roles(self, near: _Near, roles: Sequence[int]) -> _Judged:
        """Return what the models say about actions with these roles."""
        counted = slice(self._first, self._count)
        with_role = self._roles[counted, list(roles)].astype(np.float64)
        credit = self._credit[counted]
        times, earned = credit @ with_role, (credit * self._rewards[counted]) @ with_role
        there = with_role[near.rows - self._first][:, None]
        return self._estimate(near, there, times[None], times=times, earned=earned)

    def _estimate(
        self,
        near: _Near,
        there: Floats,
        seen: Floats,
        *,
        overall: Floats | None = None,
        times: Floats | None = None,
        earned: Floats | None = None,
    ) -> _Judged:
        """Return what the models say about arms.

        Args:
            near: The rewarded choices near the question.
            there: 1 where a row near the question has an arm, else 0, shape (rows, ways of giving credit, arms or more).
            seen: Number of rewards of each arm at all questions, shape (ways of giving credit, arms).
            overall: The gain of each arm over all its uses; if not given, it is computed from the next two.
            times, earned: Number of rewards of each arm over all its uses, and their sum.
        """
        ways, (credits, n) = len(SHARES), seen.shape
        sums = (near.weight @ there.reshape(len(there), -1)).reshape(4, ways, credits, -1)[..., :n]
        local_times, even_times, local, even = sums.swapaxes(1, 2)[:, :, None, None]
        base = (near.earned - even + 2.0 * near.usual) / (near.total - even_times + 2.0)
        if overall is None:
            assert times is not None
            assert earned is not None
            overall = (earned - times * base) / (times + _OVERALL)
        gain = overall + (local - local_times * (base + overall)) / (local_times + _LOCAL)
        return _Judged(gain, overall, base, local_times, local_times[:, 0, 0, PLAIN], local[:, 0, 0, PLAIN], seen)

    def _occurrences(self, rows: Rows, numbers: Rows) -> Floats:
        """Return 1 where an item stood first in a row, and where a row showed it, else 0. Shape (rows, 2, items + 1); the last
        column is for all other items."""
        begins = self._ends[rows]
        lengths = self._ends[rows + 1] - begins
        listed = (begins + lengths - lengths.cumsum()).repeat(lengths)
        listed += np.arange(len(listed))
        filled = lengths.nonzero()[0]
        self._place[numbers] = np.arange(len(numbers))
        there = np.zeros((len(rows), 2, len(numbers) + 1))
        there[filled, LEAD, self._place[self._shown[begins[filled]]]] = 1.0
        there[np.arange(len(rows)).repeat(lengths), SHOWN, self._place[self._shown[listed]]] = 1.0
        self._place[numbers] = -1
        return there

    def _regress(self, near: _Near, keys: Sequence[str], arm: Rows, rows: Rows) -> Floats:
        """Return the gain of each action by the ridge regressions, in a shape that broadcasts to (*_SHAPE, actions)."""
        for key in self._unfitted.intersection(keys):
            self._fit(key)
        of_rewards, of_ones = self._pull[:, :, rows]
        alike = (near.distance[self._question[rows]] + np.float32(1.0)) ** POWER
        alike /= max(float(alike.max(initial=0.0)), STRANGE)
        pull = alike * RIDGES[:, None] ** (self._count - rows)
        pull = pull * (of_rewards - near.usual * of_ones)
        ridges = [np.bincount(arm, by_row, len(keys)) for by_row in pull]
        estimates: Floats = np.stack([*ridges, np.zeros(len(keys))])[_RIDGE][:, None]
        return estimates

    def _fit(self, key: str) -> None:
        """Fit the ridge regressions of an action to its latest rewards, and to ones: the usual reward, which is subtracted,
        changes with the rewards of other actions, and a linear fit needs only the two."""
        self._unfitted.discard(key)
        rows = self._rows_of(key)
        self._pull[:, :, rows] = 0.0
        rows = rows[self._credit[rows] > 0.0][-LATEST:]
        vectors = self._questions[self._question[rows]].astype(np.float64)
        for ridge, keep in enumerate(RIDGES):
            alike = (vectors @ vectors.T) ** POWER * keep ** np.abs(rows[:, None] - rows)
            alike[np.diag_indices(len(rows))] += NOISE / self._credit[rows]
            goals = np.stack([self._rewards[rows], np.ones(len(rows))], axis=1)
            self._pull[:, ridge, rows] = np.linalg.solve(alike, goals).T

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Judgement:
        items = [pool.items[row] for row in candidates.rows.tolist()]
        return self.judge(query.vector, query.text, items, candidates.similarities)

    def judge(self, vector: Vectors, situation: str, items: Sequence[Item], scores: Floats | None = None) -> Judgement:
        """Estimate how much reward each item adds if it stands first.

        Args:
            vector: The question's vector.
            situation: The question's text, for items whose advice depends on it.
            items: The candidates.
            scores: Their scores in the search, if a search found them.

        Returns:
            `means` are the gains in reward, averaged over all estimates. `better` is the probability that an item is better than
                the one that would stand first, times the probability that the question comes back.
        """
        n = len(items)
        means, times, earned, seen = np.zeros((4, n))
        searched = means if scores is None else in_rewards_of(scores)
        if not len(self) or not n:
            return Judgement(
                means, means, searched=searched, faded=searched, times=times, earned=earned, seen=seen, near=means
            )
        advised, signs = _advised(items, situation) if len(self._actions) > 1 else ([], means)
        near, weights = self._near(vector), self._weigh(1 + DONE if any(advised) else DONE)
        expected = near.expected
        ids, of_items = [item.id for item in items], weights.counting[:DONE]
        judgements: list[tuple[Floats, Floats, _Judged]] = []  # weights of models, and what they say
        if any(of_items):
            judged = self._judge(near, ids)
            judgements.append((weights.of_arms[:DONE].ravel(), judged.gain, judged))
            seen = judged.seen[SHOWN if of_items[SHOWN] else LEAD]
            if of_items[LEAD]:
                times, earned = judged.times[LEAD], judged.earned[LEAD]
        if weights.counting[DONE]:
            judged = self._judge(near, advised, actions=True)
            judgements.append((weights.of_arms[DONE], signs * judged.gain, judged))
            more = judged.times[0] > times
            times, earned = np.where(more, judged.times[0], times), np.where(more, judged.earned[0], earned)
        without = np.full(n, weights.all[0] * near.mean + weights.all[1] * expected)
        for model, gain, judged in judgements:
            means += model @ gain.reshape(len(model), n)
            # What is expected without depends on these alone.
            by_way = model.reshape(len(judged.base), -1, len(SHARES)).sum(axis=1)
            without += by_way.ravel() @ judged.base.reshape(-1, n)
        mean = self._sum / max(self._number, 1e-9)
        # The variance of the rewards over that of rewards of 0 and 1 with the same mean.
        graded = (max(0.0, self._squares - self._number * mean * mean) + 0.5) / (
            self._number * mean * (1.0 - mean) + 0.5
        )
        learned, accounts = means.copy(), self.ledger.accounts(ids, self.span, since=self._since)
        for index, measured in accounts.items():
            if measured.clear and not _is_clear(learned[index], times[index]):
                # If rewards near the question are not clear, the effect that the experiment is sure of is used.
                means[index] = measured.effect / self.span
        sure = weights.sure
        faded = searched if scores is None else _fade(searched, times, sure, expected + means)
        better: Floats = np.zeros(n)
        returns = min(1.0, near.returns / 3.0)
        # `better` is at most the probability that rewards depend on items.
        if scores is not None and n > 1 and min(0.5, sure) * returns > UNLIKELY:
            lead = int((faded + means).argmax())
            # Nothing can be better than the first by more than the distance from its expected reward to 1.
            room = max(0.0, 1.0 - expected - float(means[lead]))
            # A question that was asked often will be asked as often again: if it mostly fails, the other items are worth some
            # trials even if rewards say nothing about items.
            failing = room > 0.5 and not self.all_same
            often = min(max(near.returns / OFTEN - 1.0, 0.0), 1.0) if failing else 0.0
            tried = float(times.sum() - times[lead]) / (TRIES * max(near.returns, OFTEN))
            untried = often * max(0.0, 1.0 - tried)
            wide = EXPLORE + (1.0 - EXPLORE) * room * room
            wide += (WIDE - wide) * untried
            first, most = slice(lead, lead + 1), max(room, 1e-9)
            ahead = faded - faded[lead]
            for model, gain, judged in judgements:
                chance = judged.gain + judged.base
                np.minimum(np.maximum(chance, 0.02, out=chance), 0.98, out=chance)
                variance = (chance - chance * chance) / (judged.near + _LOCAL + 1.0)
                doubt = np.minimum(np.sqrt((wide * wide * graded) * (variance + variance[..., first])), most)
                # Nor can an item lose more than the expected reward of the first.
                z = (gain - gain[..., first] + np.maximum(ahead, -chance[..., first])) / doubt
                # The logistic function of 1.702 z, which is the normal distribution's within 0.01.
                better += 0.5 * (model.sum() + model @ np.tanh(0.851 * z).reshape(len(model), n))
            if self.all_same:
                better /= (1.0 + times) ** 2
            better *= (sure + (1.0 - sure) * room * untried) / sure
            better[lead] = 0.0
            np.minimum(better, 0.5, out=better)
            better *= returns * min(1.0, 0.75 / max(float(better.sum()), 1e-9))
        return Judgement(
            means,
            np.zeros(n),
            better,
            expected,
            searched=searched,
            faded=faded,
            times=times,
            earned=earned,
            seen=seen,
            near=learned,
            without=without,
            accounts=accounts,
            sure=sure,
            bounds=self.bounds,
        )

    def advise(
        self,
        vector: Vectors,
        actions: Sequence[str],
        named: Mapping[str, Sequence[int]] | None = None,
        *,
        of_items: AdvicePieces = (),
        most: int = MANY,
        person: str = "",
    ) -> tuple[AdvicePieces, str]:
        """Choose the actions to advise at a question, from rewards of actions and from what items advise.

        Args:
            vector: The question's vector.
            actions: What can be done.
            named: The roles of each action that items of the episode name; None if they name none.
            of_items: What the shown items advise.
            most: The largest number of pieces of advice.
            person: Whom the question is for.

        Returns:
            The advice, as (action, 1 for it or -1 against it, similarity of the question that it comes from), and lines for a
                prompt that say what rewards say about these actions. Cited are the `VOTES` nearest successes of the best action
                (or of actions in its role, if roles predict better), then the nearest failure of each action that rewards speak
                against, the worst first, but for the best one that was tried. The failure of an episode of several steps speaks
                against no single action. Advice of items fills what is left, the most similar first, but for actions that
                rewards speak against.
        """
        nothing = (nearest_first(of_items, most), "")
        if len(self._actions) == 1 or not actions or not len(self):
            return nothing
        weights = self._weigh(1 + NAMED if named else 1 + PERSONAL).of_arms.copy()
        number = self._persons.get(person, -1)
        if number not in self._acted_for:  # of whom nothing is known, what holds for everybody is expected
            weights[DONE], weights[PERSONAL] = weights[DONE] + weights[PERSONAL], 0.0
        spoken = float(weights[DONE:].sum())
        if spoken < SPOKEN:
            return nothing
        near = with_blame = self._near(vector)
        judged = blamed = self._judge(near, actions, actions=True)
        if self._steps:
            with_blame = self._look_near(vector, blame=True)
            blamed = self._judge(with_blame, actions, actions=True)
        if named or self._steps:
            gains = weights[DONE] @ blamed.gain.reshape(len(MODELS), len(actions))
        else:  # each action was rewarded by itself: the ridge regressions alone choose better
            gains = weights[DONE].reshape(-1, len(SHARES)).sum(axis=0) @ judged.overall[_OF_RIDGES, 0]
        whom = None
        if weights[PERSONAL].any():
            for_person = self._judge(with_blame, actions, actions=True, person=number)
            personal = self._familiarity(number, near)
            everybody = gains / max(float(weights[DONE].sum()), 1e-12)
            gains = gains + personal * (weights[PERSONAL] @ for_person.gain.reshape(len(MODELS), len(actions)))
            gains += (1.0 - personal) * float(weights[PERSONAL].sum()) * everybody
            if weights[PERSONAL].sum() > weights[DONE].sum():
                whom, judged = number, for_person
        roles, by_role, telling = None, np.zeros(len(ROLES)), list[int]()
        if named:
            roles = self._judge_roles(near, list(ROLES))
            by_role = weights[NAMED] @ roles.gain.reshape(len(MODELS), len(ROLES))
            by_role *= np.abs(by_role) > TELLING * weights[NAMED].sum()
            telling = [max(named.get(action, (NONE,)), key=lambda role: by_role[role]) for action in actions]
            gains += by_role[telling]
            by_role *= float(weights[NAMED].sum() > max(HEARD, weights[DONE:NAMED].sum()))
        gains /= spoken
        best_first = np.argsort(-gains, kind="stable").tolist()
        # If each action was rewarded by itself, there is no warning of the best one that was tried, even if an untried one seems
        # better: else a few false failures of the right action would leave nothing to take.
        spared = next((index for index in best_first if actions[index] in self._actions), -1)
        in_role: AdvicePieces = ()
        pieces: list[tuple[str, float, float]] = []
        records = dict[str, str]()
        for index in (best_first[0], *reversed(best_first[1:])):
            against = index != best_first[0]
            if (-gains[index] if against else gains[index]) < ADVISED:
                continue
            if against and index == spared and not (named or self._steps):
                continue
            in_role_of = roles if roles and not against and by_role[telling[index]] > 0.0 else None
            judged_by, at = (in_role_of, telling[index]) if in_role_of else (judged, index)
            if in_role_of:
                rows = self._roles[self._first : self._count, at].nonzero()[0] + self._first
            else:
                rows = self._rows_of(actions[index], whom)
            rows = rows[(self._credit[rows] > 0.0) & ((self._rewards[rows] < 0.5) == against)]
            if against:
                rows = rows[self._weight[rows] >= self._credit[rows]]
                if not len(rows):
                    continue
            cosines = self._questions[self._question[rows]] @ vector.astype(np.float32)
            if in_role_of is None:
                cosines = cosines[cosines > 0.0]
            nearest = np.sort(cosines)[::-1][: 1 if against else VOTES]
            cited = [(actions[index], -1.0 if against else 1.0, float(cosine)) for cosine in nearest]
            if in_role_of:
                in_role = tuple(cited)
            else:
                pieces += cited
            record = Worth(0.0, 0.0, float(judged_by.times[0, at]), float(judged_by.earned[0, at]), 1.0).sentence
            record = record or f"{'wrong' if against else 'right'} where something like this was asked"
            role = "" if in_role_of is None else f"named by {ROLES[at]} of this episode; such an action was "
            records[actions[index]] = f"- {as_line(actions[index])}: {role}{record}"
        # What items advise is left out where rewards speak against it: many records from outside would outweigh them for ever.
        failing = {actions[index] for index in best_first if gains[index] <= -ADVISED}
        told = [piece for piece in of_items if piece[1] < 0.0 or piece[0] not in failing]
        chosen = (*in_role, *nearest_first((*pieces[:most], *told), most))[:most]
        advised = dict.fromkeys(action for action, _, _ in chosen)
        return chosen, "\n".join(records[action] for action in advised if action in records)

    def at_stake(self, expected: float, *, shown: bool) -> float:
        """Return the reward that is assumed to be lost when another item takes the place of the search's first candidate.

        If rewards do not depend on items, low rewards say nothing against this candidate, so some reward is assumed to be at
        stake even if all rewards are 0.

        Args:
            expected: The reward that was expected of the candidate, from 0 to 1 or beyond.
            shown: Whether the candidate is still shown, further down.

        Returns:
            A reward from 0 to 1, which is at least `BLIND`, or twice the mean reward if that is less, times the probability that
                rewards do not depend on items; half of that if the candidate is still shown. While all rewards are equal, it is
                at least the probability that they are equal whatever is shown.
        """
        mean = (self._sum + 2.0) / (self._number + 4.0)
        blind = min(BLIND, 2.0 * mean) * float(self._weigh().all[:2].sum())
        if self.all_same:
            blind = SAME / (SAME + (1.0 - SAME) * math.exp(-self._surprise) * 0.5 ** len(self._numbers))
        return min(1.0, max(expected, 0.5 * blind if shown else blind))

    @property
    def may_move(self) -> bool:
        """Return whether departures from the search's own order have cost less than their limit."""
        bound, slack = (SAME_BOUND, SAME_SLACK) if self.all_same else (BOUND, SLACK)
        limit = bound + slack * self._number
        return self._lost_of(limit) <= limit

    def _lost_of(self, limit: float) -> float:
        """Return how much of the limit is used up. Where several people give rewards, what one of them lost or won counts up to
        `USED_BY_ONE` of it, or up to twice an equal share if that is less, so that nobody uses it up for others."""
        several = int(np.count_nonzero(self._by_holder))
        if several < 2:
            return self.lost
        most = min(USED_BY_ONE, 2.0 / several) * limit
        return float(np.clip(self._losses, -most, most).sum())

    @property
    def all_same(self) -> bool:
        """Return whether all rewards so far are equal, so that they cannot tell items apart."""
        return self._number * self._squares - self._sum * self._sum <= 1e-9 * self._number * self._number

    # The ledger.

    @property
    def span(self) -> float:
        return self.bounds[1] - self.bounds[0]

    @property
    def units(self) -> int:
        """Return the number of rewarded episodes and single choices."""
        return round(self._number)

    @property
    def met(self) -> list[str]:
        """Return the ids of the items that were shown with a reward or were under test."""
        names, shown = list(self._numbered), self._shown[: self._ends[self._count]]
        return list(dict.fromkeys([*self.ledger.items, *(names[number] for number in shown.tolist())]))

    def accounts(self, items: Iterable[str]) -> list[Account]:
        """Return the accounts of items, with the success rates that a plain counter would give them."""
        usual = self.in_rewards(self._sum / self._number) if self._number > 0.0 else math.nan
        result = []
        for id in items:
            number = self._numbered.get(id, 0)
            seen, earned = self._sums[number, 6:].tolist() if number else (0.0, 0.0)
            success = self.in_rewards(earned / seen) if seen else math.nan
            measured = self.ledger.account(id, self.span, since=self._since)
            measured = measured or account(id, *(_NOTHING,) * 4, self.span)
            result.append(replace(measured, success=success, usual=usual, seen=seen))
        return result

    @property
    def remembered(self) -> list[int]:
        """Return the running numbers of the choices that are remembered, in order."""
        numbers: list[int] = self._at[self._first : self._count].tolist()
        return numbers

    @property
    def _since(self) -> int:
        """Return the running number of the oldest choice that counts."""
        return int(self._at[self._first]) if self._size else self._total

    def _scaled(self, reward: float) -> float:
        """Map a reward to the scale 0 to 1; beyond the bounds it counts as the bound."""
        low, high = self.bounds
        return (min(max(reward, low), high) - low) / (high - low)

    def in_rewards(self, scaled: float) -> float:
        """Map a reward from the scale 0 to 1 to the scale on which it was given."""
        return self.bounds[0] + scaled * self.span


def nearest_first(pieces: AdvicePieces, most: int) -> AdvicePieces:
    """Return the `most` pieces of advice that are most like the question."""
    return tuple(sorted(pieces, key=lambda piece: -piece[2])[:most])


def _number_anew(numbers: dict[str, int], used: Rows) -> tuple[dict[str, int], Rows, Rows]:
    """Number the used names, and "", without gaps.

    Returns:
        The numbers by name; the old number of each new one; the new number of each old one, or -1 if it is not used.
    """
    old, names = np.union1d(used, 0), list(numbers)
    new = np.full(len(names), -1)
    new[old] = np.arange(len(old))
    return {names[number]: index for index, number in enumerate(old.tolist())}, old, new


def in_rewards_of(scores: Floats) -> Floats:
    """Return the relative scores: 0 for the best score of the search, negative for others."""
    listed = scores.tolist() or [0.0]
    best, worst = max(listed), min(listed)
    rewards: Floats = SEARCH * (scores - best) / (max(best, -worst) or 1.0)
    return rewards


def _fade(searched: Floats, times: Floats, sure: float, chances: Floats) -> Floats:
    """Return the relative scores, closer to 0 the more rewards near the question there are.

    A score shrinks with the number of rewards of its item. All scores shrink with the failures of the search's first item,
    because items that are nearly as similar are not expected to do much better.

    Args:
        searched: The relative scores, shape (items,).
        times: Number of rewards of each item near the question.
        sure: Probability that rewards depend on items.
        chances: Expected reward of each item.
    """
    tried = sure * sure * times / (times + FADE)
    first = int(searched.argmax())
    faded: Floats = searched * (1.0 - tried) * (1.0 - tried[first] * (1.0 - min(max(float(chances[first]), 0.0), 1.0)))
    return faded


def _advised(items: Sequence[Item], situation: str) -> tuple[list[str], Floats]:
    """Return the action that each item advises or warns of ("" for none), and its sign: 1, -0.4 or 0. A warning counts less, as
    it does not say which action is right."""
    keys, sign = [], np.zeros(len(items))
    for index, item in enumerate(items):
        pairs = advice(item, situation) if "do" in item.metadata else ()
        keys.append(pairs[0][0] if pairs else "")
        sign[index] = (1.0 if pairs[0][1] > 0 else -0.4) if pairs else 0.0
    return keys, sign


@dataclass(frozen=True, slots=True)
class Ranked:
    """Orders candidates by their relative score plus their gain. withhold, least, budget, together: see `WITHHOLD`, `LEAST`,
    `BUDGET` and `TOGETHER`."""

    record: RewardRecord
    withhold: float = WITHHOLD
    least: float = LEAST
    budget: float = BUDGET
    together: int = TOGETHER

    def __post_init__(self) -> None:
        need("the selection", count={"together": self.together}, rate={"withhold": self.withhold})
        need("the selection", positive={"least": self.least, "budget": self.budget})

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Independent:
        assert isinstance(values, Judgement)
        return self.rank(values)

    def rank(self, values: Judgement, most: int = MANY, drawn: int = MANY) -> Independent:
        """Return the order of the candidates, with the tests and trials that are drawn by chance.

        Args:
            values: What rewards say about the candidates.
            most: Number of items that may be shown.
            drawn: Number of further items to list for tests, as some may have been drawn earlier in the episode.
        """
        gains, searched = values.means, values.searched
        moving = self.record.may_move
        order = tuple(np.argsort(-(values.faded + gains if moving else searched), kind="stable").tolist())
        challengers: tuple[tuple[int, float], ...] = ()
        if moving and values.better is not None:
            better = values.better.tolist()
            challengers = tuple((index, p) for index, p in enumerate(better) if p > UNLIKELY and index != order[0])
        # Items with the fewest tests come first. An item that helps here is only withheld if the budget is larger than usual.
        little, accounts = HELPS * self.budget / BUDGET, values.accounts
        tested = ((gains < little) & (values.seen >= self.least)).nonzero()[0].tolist()
        if accounts:
            tested.sort(key=lambda index: accounts[index].rows if index in accounts else 0)
        up = list[tuple[int, float]]()
        for index in tested:
            if index in order[:most] and len(up) < self.together + drawn:
                measured = accounts.get(index)
                if measured is None or not measured.over:
                    cost = EXPECTED if measured is None else measured.withholding_costs
                    up.append((index, rate(self.withhold, cost, self.budget)))
        return Independent(order, most, tuple(up), self.together, challengers=challengers)


def explained(
    hits: Sequence[Hit], values: Judgement, choice: Independent, slate: Slate, record: RewardRecord
) -> list[Hit]:
    """Return the hits of a slate. Each says whether what rewards taught put it before or behind its place in the search, also if
    that was learned of another. Hits that clear rewards have moved, or for which an explanation was asked, say what was learned
    about them, or why they come first."""
    shown, times, trials = [], values.times.tolist(), dict(choice.challengers)
    for index in slate:
        hit, position, reason = hits[index], choice.order.index(index), ""
        moved = "up" if position < index else "down" if position > index else ""
        if index == slate[0] and index in trials:
            reason = f"tried here by chance, with probability {trials[index]:.2f}"
        elif index == slate[0] and index and times[index] < 0.5 <= times[0]:
            reason = "more is expected of it here than of what the search puts first"
        clear = moved and _is_clear(float(values.near[index]), times[index])
        worth = None
        if clear or reason or (values.seen[index] and (times[index] >= 0.5 or hit.why is not UNEXPLAINED)):
            worth = values.worth(index, record.accounts([hit.id])[0] if index in values.accounts else None)
        if moved or reason or worth is not None:
            hit = replace(hit, why=replace(hit.why, moved=moved, worth=worth, reason=reason))
        shown.append(hit)
    return shown


def _is_clear(gain: float, times: float) -> bool:
    """Return whether a gain that was learned from so many rewards is clear of chance."""
    return bool(times >= 3.0 and abs(gain) * math.sqrt(times) > CLEAR)


def situation(goal: str, observation: str) -> str:
    """Return what is asked, or the task if nothing is."""
    return observation or goal


def default(
    *,
    withhold: float = WITHHOLD,
    least: float = LEAST,
    budget: float = BUDGET,
    together: int = TOGETHER,
    bandwidth: float = BANDWIDTH,
    newest: int = NEWEST,
    quorum: int = QUORUM,
    without: str = "",
) -> Policy:
    """Make the default policy.

    Args:
        withhold: Probability with which an item under test is left out, for the ledger; 0 tests nothing.
        least: How often an item must have been shown with a reward before it is tested.
        budget: Expected cost of a test per episode, as a share of the range of rewards.
        together: Items under test in one search.
        bandwidth: How similar questions must be to share evidence, see `BANDWIDTH`.
        newest: How many rewarded choices are remembered.
        quorum: How many more people must agree than disagree on a shared item before it counts for others, see `QUORUM`; with 0
            it never does.
        without: "roles" leaves out what notes of the same episode say about an action.

    Raises:
        InvalidPolicy: There is no such part to leave out.
    """
    if without not in ("", *PARTS):
        raise InvalidPolicy(f"there is no part {without!r} to leave out.", f"Parts: {', '.join(PARTS)}.")
    record = RewardRecord(bandwidth, newest, roles=not without, quorum=quorum)
    return Policy(NAME, situation, None, record, Ranked(record, withhold, least, budget, together), lines)
