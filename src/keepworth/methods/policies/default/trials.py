"""The order of the candidates, and what is tried or withheld by chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.memory.choose.ledger import EXPECTED, Account, rate
from keepworth.memory.choose.pool import Pool, advice
from keepworth.memory.choose.propensity import Independent, Slate
from keepworth.memory.choose.slots import MANY, Candidates, Query, Use, Values, need
from keepworth.memory.item import Item
from keepworth.memory.search.search import UNEXPLAINED, Hit, Worth
from keepworth.methods.policies.default.estimates import Estimates
from keepworth.methods.policies.default.models import _LOCAL, DONE, LEAD, SHARES, SHOWN, _Judged

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Vectors = npt.NDArray[np.float32]
    Rows = npt.NDArray[np.int64]

WITHHOLD = 0.01
"""Probability with which an item under test is withheld in an episode."""
TOGETHER = 1
"""Number of items that one search may test: those with the fewest tests so far."""
BUDGET = 0.01
"""Expected cost of a test for each episode, as a share of the range of rewards, above which `WITHHOLD` is lowered."""
LEAST = 10.0
"""Number of rewarded showings that an item needs before it is tested."""
SEARCH = 1.0
"""Weight of the relative score of the search, where rewards lie between 0 and 1."""
FADE = 2.0
"""Number of rewards near the question after which half of the relative score is gone, if rewards depend on items."""
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
SAME_BOUND, SAME_SLACK = 0.5, 0.005
"""`BOUND` and `SLACK` as long as all rewards were equal."""
UNLIKELY = 0.003
"""Arms that are better with a smaller probability than this are not tried."""
CLEAR = 1.25
"""A gain is clear of chance if it exceeds this over the root of the number of rewards: 2.5 standard deviations."""
HELPS = 0.05
"""An item whose gain near the question is larger is not withheld; a larger budget for tests raises this limit in proportion."""
UNKNOWN = Worth(0.0, 0.0, 0.0, 0.0, 0.0)
"""Stands for an item before the first reward."""


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


class CandidateJudge(Estimates):
    """Judges candidates: how much reward each adds if it stands first, and with which probability another one is tried."""

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Judgement:
        return self.judge(query.vector, query.text, candidates.listed(pool), candidates.similarities)

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

    def explain(self, hits: Sequence[Hit], use: Use) -> list[Hit]:
        """Return the hits that are shown, see the function of this name."""
        if not len(self) or not isinstance(use.values, Judgement) or not isinstance(use.choice, Independent):
            return [hits[index] for index in use.slate]
        return explain(hits, use.values, use.choice, use.slate, self)

    def details(self, use: Use) -> dict[str, Any]:
        """Return what is to be logged with a choice: what chance decided about single items, and the reward that was expected
        then; that of the search's first candidate if another one was put before it."""
        details, values, slate, choice = dict[str, Any](), use.values, use.slate, use.choice
        if not len(self):
            return details
        details["part"] = use.part
        if isinstance(choice, Independent) and (odds := choice.odds):
            ids = {index: use.candidates.items[index].id for index in odds}
            details["odds"] = {ids[index]: p for index, p in odds.items()}
            main = choice.order[: choice.k]
            if withheld := [ids[index] for index in odds if index in main and index not in slate]:
                details["withheld"] = withheld
            details["expected"] = round(self.in_rewards(values.expected), 6)
        if slate and slate[0] != 0 and use.part != "withheld":
            searched_first = values.expected + float(values.means[0])
            details["instead"] = round(self.at_stake(searched_first, shown=0 in slate), 6)
        return details

    def worth(self, query: Query, item: Item) -> Worth:
        """Return what showing an item adds at a question, according to rewards."""
        judgement = self.judge(query.vector, query.text, [item])
        return judgement.worth(0, self.accounts([item.id])[0] if judgement.accounts else None)

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

    record: CandidateJudge
    withhold: float = WITHHOLD
    least: float = LEAST
    budget: float = BUDGET
    together: int = TOGETHER

    def __post_init__(self) -> None:
        need("the selection", count={"together": self.together}, rate={"withhold": self.withhold})
        need("the selection", positive={"least": self.least, "budget": self.budget})

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Independent:
        assert isinstance(values, Judgement)
        return self.rank(values, query.most)

    def rank(self, values: Judgement, most: int = MANY) -> Independent:
        """Return the order of the candidates, of which `most` may be shown, with the tests and trials that chance decides."""
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
            if index in order[:most]:
                measured = accounts.get(index)
                if measured is None or not measured.over:
                    cost = EXPECTED if measured is None else measured.withholding_costs
                    up.append((index, rate(self.withhold, cost, self.budget)))
        return Independent(order, most, tuple(up), self.together, challengers=challengers)


def explain(
    hits: Sequence[Hit], values: Judgement, choice: Independent, slate: Slate, record: CandidateJudge
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
