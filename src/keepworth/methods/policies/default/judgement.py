"""The order of candidates: what rewards say about each, and what a hit says of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.memory.choose.ledger import ALPHA, EXPECTED, Account, rate
from keepworth.memory.choose.pool import Pool, advice
from keepworth.memory.choose.propensity import Independent
from keepworth.memory.choose.slots import Candidates, Query, Use, Values, need
from keepworth.memory.choose.wordings import item_of
from keepworth.memory.item import Item
from keepworth.memory.search.search import UNEXPLAINED, Hit, Worth
from keepworth.methods.policies.default.constants import (
    BUDGET,
    FADE,
    FAILING,
    FOREIGN,
    PRIOR,
)
from keepworth.methods.policies.default.models import ALONE, DONE, LEAD, NEGLIGIBLE, OWN, SHOWN, WAYS
from keepworth.methods.policies.default.subsets import FIRM, LEAST_LIKELY, UNLIKELY, Need, find_need
from keepworth.methods.policies.default.trials import Opinion, TrialChances

if TYPE_CHECKING:
    from keepworth.base.arrays import Floats, Vectors
    from keepworth.memory.search.how_many import SetSize

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
    bounds: tuple[float, float] = (0.0, 1.0)  # the range in which rewards vary

    def worth(self, index: int, overall: Account | None) -> Worth:
        """Return what rewards say about a candidate. overall: the ledger's account of it, if there is one."""
        if self.without is None:
            return UNKNOWN
        low, span, other = self.bounds[0], self.bounds[1] - self.bounds[0], float(self.without[index])
        with_it, without = (low + span * min(max(p, 0.0), 1.0) for p in (other + float(self.means[index]), other))
        times, earned, seen = (float(column[index]) for column in (self.times, self.earned, self.seen))
        return Worth(with_it, without, times, earned, self.sure, seen, self.is_clear(index), overall)

    def is_clear(self, index: int) -> bool:
        """Return whether what was learned of a candidate near the question is clear of chance."""
        return _is_clear(float(self.near[index]), float(self.times[index]))


class CandidateJudge(TrialChances):
    """Judges candidates: how much reward each adds if it stands first, and with which probability another one is tried."""

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Judgement:
        items, names = candidates.listed(pool), candidates.names(pool)
        return self.judge(query.vector, query.text, items, candidates.similarities, query.by, names)

    def judge(
        self,
        vector: Vectors,
        situation: str,
        items: Sequence[Item],
        scores: Floats | None = None,
        by: str = "",
        names: Sequence[str] = (),
    ) -> Judgement:
        """Estimate how much reward each item adds if it stands first.

        Args:
            vector: The question's vector.
            situation: The question's text, for items whose advice depends on it.
            items: The candidates.
            scores: Their scores in the search, if a search found them.
            by: The person for whom memory is asked; "" for nobody.
            names: By which names the record knows what the items say; () for their ids.

        Returns:
            `means` are the gains in reward, averaged over all estimates; for `better` see `_trial_chances`.
        """
        n = len(items)
        means, times, earned, seen = np.zeros((4, n))
        searched = means if scores is None else _relative(scores)
        if not len(self) or not n:
            return Judgement(
                means, means, searched=searched, faded=searched, times=times, earned=earned, seen=seen, near=means
            )
        actions, signs = _advised(items, situation) if len(self._actions) > 1 else ([], means)
        near, weights = self._near(vector, by), self._weigh(1 + DONE if any(actions) else DONE)
        ids, of_arms, opinions = names or [item.id for item in items], weights.of_arms, list[Opinion]()
        if of_arms[:DONE].any():
            judged = self._judge_items(near, ids, self._persons.get(by, -1))
            opinions.append((of_arms[:DONE].ravel(), judged.gain, judged))
            seen = judged.seen[SHOWN if of_arms[SHOWN].any() else LEAD]
            if of_arms[LEAD].any():
                whose = ALONE if of_arms[ALONE : OWN + 1].sum() > of_arms[LEAD].sum() else LEAD
                times, earned = judged.times[whose], judged.earned[whose]
        if of_arms[DONE].any():
            judged = self._judge_actions(near, actions)
            opinions.append((of_arms[DONE], signs * judged.gain, judged))
            more = judged.times[0] > times
            times, earned = np.where(more, judged.times[0], times), np.where(more, judged.earned[0], earned)
        without = np.full(n, weights.all[0] * near.mean + weights.all[1] * near.expected)
        for model, gain, judged in opinions:
            means += model @ gain.reshape(len(model), n)
            # What is expected without depends on these alone.
            by_way = model.reshape(len(judged.base), -1, WAYS).sum(axis=1)
            without += by_way.ravel() @ judged.base.reshape(-1, n)
        # What an item earned elsewhere does not make it an answer to something else.
        means[(times < 0.5) & (searched < -FOREIGN) & (means > 0.0)] = 0.0
        low, high = map(self.in_rewards, self.reach)
        learned, accounts = means.copy(), self.ledger.accounts([item_of(id) for id in ids], self.span)
        for index, measured in accounts.items():
            if measured.clear and ids[index] == measured.item and not _is_clear(learned[index], times[index]):
                # If rewards near the question are not clear, the effect that the experiment is sure of is used. It is of all
                # that the item ever said, so that it does not count for what was written into it later.
                means[index] = measured.effect / (high - low)
        faded, better = searched, None
        if scores is not None:
            expected = near.expected + means
            faded = _fade(searched, times, weights.sure, expected)
            # These scores hold if it is certain that rewards depend on items.
            certain = _fade(searched, times, 1.0, expected)
            better = self._trial_chances(near, opinions, faded, certain, means, times, earned)
        return Judgement(
            means,
            np.zeros(n),
            better,
            near.expected,
            searched=searched,
            faded=faded,
            times=times,
            earned=earned,
            seen=seen,
            near=learned,
            without=without,
            accounts=accounts,
            sure=weights.sure,
            bounds=(low, high),
        )

    def explain(self, hits: Sequence[Hit], use: Use) -> list[Hit]:
        """Return the hits that are shown. Each says whether what rewards taught put it before or behind its place in the search,
        also if that was learned of another. Hits that clear rewards have moved, or for which an explanation was asked, say what
        was learned about them, or why they come first."""
        values, choice, slate = use.values, use.choice, use.slate
        if not len(self) or not isinstance(values, Judgement) or not isinstance(choice, Independent):
            return [hits[index] for index in slate]
        explained, times, trials = [], values.times.tolist(), dict(choice.challengers)
        for index in slate:
            hit, position, reason = hits[index], choice.order.index(index), ""
            moved = "up" if position < index else "down" if position > index else ""
            if index == slate[0] and index in trials:
                reason = f"tried here by chance, with probability {trials[index]:.2f}"
            elif index == slate[0] and index and times[index] < 0.5 <= times[0]:
                reason = "more is expected of it here than of what the search puts first"
            worth, wanted = None, values.seen[index] and (times[index] >= 0.5 or hit.why is not UNEXPLAINED)
            if reason or wanted or (moved and values.is_clear(index)):
                worth = values.worth(index, self.accounts([hit.id])[0] if index in values.accounts else None)
            if moved or worth is not None:
                hit = replace(hit, why=replace(hit.why, moved=moved, worth=worth, reason=reason))
            explained.append(hit)
        return explained

    def details(self, use: Use) -> dict[str, Any]:
        """Return what is to be logged with a choice: what chance decided about single items, and the reward that was expected
        then; that of the search's first candidate if another one was put before it."""
        details, values, slate, choice = dict[str, Any](), use.values, use.slate, use.choice
        if not len(self):
            return details
        details["part"] = use.part
        if isinstance(choice, Independent) and (odds := choice.odds_of(use.part)):
            ids = {index: use.candidates.items[index].id for index in odds}
            details["odds"] = {ids[index]: p for index, p in odds.items()}
            if choice.together > 1 and choice.fills:
                details["joint"] = True
            main = choice.order[: choice.k]
            if withheld := [ids[index] for index in odds if index in main and index not in slate]:
                details["withheld"] = withheld
            low, high = map(self.in_rewards, self.reach)
            details["expected"] = round(low + values.expected * (high - low), 6)
        if slate and slate[0] != 0 and use.part != "withheld":
            searched_first = values.expected + float(values.means[0])
            details["instead"] = round(self.at_stake(searched_first, shown=0 in slate), 6)
        return details

    def need(self, vector: Vectors, size: SetSize, ids: Sequence[str], order: Sequence[int]) -> Need | None:
        """Return what a question needs of the candidates; None if there are too few rewards near it.

        Args:
            vector: The question's vector.
            size: What its words say.
            ids: The names of the candidates.
            order: The order in which they are shown, by their places.
        """
        places, rewards = self.sets_near(vector, ids)
        if not places or float(rewards.counts.sum()) < FIRM:
            return None
        rest = min(size.answers, default=1.0) * UNLIKELY
        likely = [size.answers[place] if place < len(size.answers) else rest for place in places]
        likely = [max(chance, LEAST_LIKELY) for chance in likely]
        ordered = [places.index(place) for place in order if place in places]
        need = find_need(rewards, ordered, likely, size.none)
        tests = tuple((places[note], out) for note, out in need.tests)
        return replace(need, notes=tuple(places[note] for note in need.notes), tests=tests)

    def worth(self, query: Query, item: Item) -> Worth:
        """Return what showing an item adds at a question, according to rewards."""
        judgement = self.judge(query.vector, query.text, [item], by=query.by)
        return judgement.worth(0, self.accounts([item_of(item.id)])[0] if judgement.accounts else None)


def _relative(scores: Floats) -> Floats:
    """Return the relative scores: 0 for the best score of the search, negative for others."""
    listed = scores.tolist() or [0.0]
    best, worst = max(listed), min(listed)
    relative: Floats = (scores - best) / (max(best, -worst) or 1.0)
    return relative


def _fade(searched: Floats, times: Floats, sure: float, chances: Floats) -> Floats:
    """Return the relative scores, closer to 0 the more rewards near the question there are.

    A score shrinks with the number of rewards of its item. All scores shrink with the failures of the best item, so that others
    are shown in its place; while the best one does well, the others keep the search's order behind it.

    Args:
        searched: The relative scores, shape (items,).
        times: Number of rewards of each item near the question.
        sure: Probability that rewards depend on items.
        chances: Expected reward of each item.
    """
    tried = sure * sure * times / (times + FADE)
    shrunk: Floats = searched * (1.0 - tried)
    best = int((shrunk + chances).argmax())
    faded: Floats = shrunk * (1.0 - tried[best] * (1.0 - min(max(float(chances[best]), 0.0), 1.0)))
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


def _is_clear(gain: float, times: float) -> bool:
    """Return whether a gain that was learned from so many rewards is clear of chance: above 2.5 standard deviations of their
    mean, where that of one reward is at most 1/2."""
    return bool(times >= 3.0 and abs(gain) > 2.5 * 0.5 / math.sqrt(times))


def _left_out(share: float, account: Account | None) -> float:
    """Return the probability with which an item is left out that is tested together with others: twice the share that somebody
    wants, so that all of them are known the sooner; and next to never, or nearly always, once the ledger is sure that it helps or
    that it harms."""
    if account is None or not account.chance >= 1.0 - ALPHA:
        return min(2.0 * share, 0.5)
    return ALPHA if account.effect > 0.0 else 1.0 - ALPHA


@dataclass(frozen=True, slots=True)
class Ranked:
    """Orders candidates by their relative score plus their gain. withhold, budget: see `BUDGET`; least: see `PRIOR`."""

    record: CandidateJudge
    withhold: float = BUDGET
    least: float = PRIOR
    budget: float = BUDGET

    def __post_init__(self) -> None:
        need("the selection", rate={"withhold": self.withhold})
        need("the selection", positive={"least": self.least, "budget": self.budget})

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Independent:
        assert isinstance(values, Judgement)
        items = candidates.listed(pool)
        shares = {index: item.tested for index, item in enumerate(items) if item.tested}
        if query.size is None:
            return self.rank(values, query.most, shares)
        ranked = self.rank(values, query.size.number, shares)
        need = None if shares else self.record.need(query.vector, query.size, candidates.names(pool), ranked.order)
        if need is None:
            return ranked if query.size.number else ranked.certain()
        # What is needed, in the order of what is expected of it; nothing takes the place of what is left out.
        order = sorted(ranked.order, key=lambda index: index not in need.notes)
        challengers = ranked.challengers if need.notes and 1.0 - need.expected > FAILING[1] else ()
        return Independent(
            tuple(order), len(need.notes), need.tests, len(need.tests), challengers=challengers, fills=False
        )

    def rank(self, values: Judgement, most: int, shares: Mapping[int, float]) -> Independent:
        """Return the order of the candidates, with the tests and trials that chance decides.

        Args:
            values: What rewards say about the candidates.
            most: How many of them may be shown.
            shares: By candidate, the probability with which somebody wants it to be left out, who then waits for no trials.
                Several are tested together: see `_left_out`.
        """
        gains, accounts, moving = values.means, values.accounts, self.record.may_move
        order = tuple(np.argsort(-(values.faded + gains if moving else values.searched), kind="stable").tolist())
        challengers: tuple[tuple[int, float], ...] = ()
        if moving and values.better is not None:
            likely = enumerate(values.better.tolist())
            challengers = tuple((index, p) for index, p in likely if p > NEGLIGIBLE and index != order[0])
        wanted = [index for index in order[:most] if index in shares]
        if len(wanted) > 1:
            up = [(index, _left_out(shares[index], accounts.get(index))) for index in wanted]
            return Independent(order, most, tuple(up), together=len(up))
        # Items with the fewest tests come first. An item that helps here is only withheld if the budget is larger than that.
        # While all rewards are the same a test beside trials measures nothing that these do not.
        tested = ((gains < 5.0 * self.budget) & (values.seen >= self.least)).nonzero()[0].tolist()
        if challengers and self.record.all_same:
            tested = []
        tested.sort(key=lambda index: accounts[index].rows if index in accounts else 0)
        up = []
        for index in tested:
            measured = accounts.get(index)
            if index in order[:most] and index not in shares and (measured is None or not measured.over):
                cost = EXPECTED if measured is None else measured.withholding_costs
                up.append((index, rate(self.withhold, cost, self.budget)))
        wanted = [index for index in wanted if not (index in accounts and accounts[index].over)]
        up = [*((index, shares[index]) for index in wanted), *up]
        return Independent(order, most, tuple(up), challengers=() if wanted else challengers)
