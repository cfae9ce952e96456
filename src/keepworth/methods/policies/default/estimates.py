"""What rewards say about items, actions and roles of actions at a question: 18 estimates for each way of giving credit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keepworth.methods.policies.default.choices import RETURNS, Choices
from keepworth.methods.policies.default.models import (
    _LOCAL,
    _OVERALL,
    _PRIOR,
    _RIDGE,
    _WAYS,
    DONE,
    FORGETTING,
    HERE,
    LEAD,
    MODELS,
    NAMED,
    NEAREST,
    OWN,
    PERSONAL,
    PLAIN,
    RIDGES,
    SHARES,
    SHOWN,
    _Judged,
    _Near,
    _Weights,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Vectors = npt.NDArray[np.float32]
    Rows = npt.NDArray[np.int64]

FAR = 1e-3
"""Rewards that would count less than this are ignored."""
KEEP = 0.85
"""Factor by which each new reward near a question lowers the earlier ones there, in the estimates that forget."""
SURE = 0.08
"""Predicted probabilities lie between this and 1 less this, so that one surprise cannot rule an estimate out."""
HOPE = 6.0
"""Number of imagined rewards of one half in the usual reward of an item that stands first: what always failed then gives way to
what was never tried."""
NOISE = 0.3
"""Variance of a reward around the ridge regression, whose prior variance at a question is 1."""
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


class Estimates(Choices):
    """What the remembered choices say about an arm at a question."""

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
