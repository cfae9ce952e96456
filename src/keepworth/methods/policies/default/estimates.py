"""What rewards say about items, actions and roles of actions at a question: 12 estimates for each way of giving credit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keepworth.methods.policies.default.constants import KEEP, PRIOR, SURE
from keepworth.methods.policies.default.models import (
    _LOCAL,
    _OVERALL,
    _WEIGHTS,
    ALONE,
    CREDITS,
    DONE,
    FORGETTING,
    LEAD,
    MODELS,
    NAMED,
    NEGLIGIBLE,
    OWN,
    PERSONAL,
    PLAIN,
    SHOWN,
    WAYS,
    _Judged,
    _Near,
    _Weights,
)
from keepworth.methods.policies.default.roles import RoleClaims, judge_roles
from keepworth.methods.policies.default.saved import SavedChoices
from keepworth.methods.policies.default.subsets import MOST, SetRewards

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.base.arrays import Floats, Vectors

    Rows = npt.NDArray[np.int64]


class Estimates(SavedChoices):
    """What the remembered choices say about an arm at a question."""

    def _near(self, vector: Vectors, by: str | None = None) -> _Near:
        """Return the rewarded choices near a question. by: the person who asks, if it makes a difference."""
        if self._nearest is None or self._nearest[0] is not vector:
            self._nearest = vector, self._look_near(vector, by or "")
        elif by is not None and self._nearest[1].voice != self._doubted(by):
            self._nearest = vector, self._look_near(vector, by)
        return self._nearest[1]

    def _look_near(self, vector: Vectors, by: str = "", *, blame: bool = False) -> _Near:
        """Find the rewarded choices near a question.

        Args:
            vector: The question's vector.
            by: The person who asks.
            blame: Whether each step of an episode is blamed for a part of its failure, since one wrong step is enough.
        """
        # `vecdot` uses one thread: to start a second one would cost more than it saves here.
        distance = np.vecdot(self._questions[: len(self._numbers)], vector.astype(np.float32, copy=False))
        distance -= np.float32(1.0)
        rows = (distance >= self.bandwidth * math.log(NEGLIGIBLE))[self._question[: self._count]].nonzero()[0]
        credit, rewards, lead = self._credit[rows], self._within_reach(self._rewards[rows]), self._lead[rows]
        if blame:
            credit = rewards * credit + (1.0 - rewards) * np.minimum(credit, self._weight[rows])
        alike, voice = distance[self._question[rows]], self._doubted(by)
        nearness = np.exp(alike / np.float32(self.bandwidth))
        counts = nearness * credit * self._believed(rows, voice)
        fading = counts[::-1].cumsum()[::-1] - counts
        weight = np.empty((4 * WAYS, len(rows)))
        weight[PLAIN], weight[FORGETTING] = counts, counts * np.exp(fading * math.log(KEEP))
        # Rows with the same item first are grouped under the place of one of them.
        self._place[lead] = np.arange(len(rows))
        group = self._place[lead]
        self._place[lead] = -1
        for way in (PLAIN, FORGETTING):
            together = np.bincount(group, weight[way])[group]
            weight[WAYS + way] = weight[way] / np.maximum(together, 1.0)
        np.multiply(weight[: 2 * WAYS], rewards, out=weight[2 * WAYS :])
        first = float(self._within_reach(np.array(self._hoped / max(self._tried, 1e-9))))
        usual = (first * self._tried + 0.5 * PRIOR) / (self._tried + PRIOR)
        mean = (self._sum + 1.0) / (self._number + 2.0)
        expected = (float(weight[2 * WAYS].sum()) + 2.0 * mean) / (float(counts.sum()) + 2.0)
        returns = float(nearness**2 @ credit)
        return _Near(rows, distance, weight, usual, mean, expected, returns, voice)

    def proven(self, vector: Vectors) -> list[str]:
        """Return the ids of the items that rewards speak for at a question, the surest first: as many as sets are compared of."""
        near = self._near(vector)
        weight = np.exp(2.0 * near.distance[self._question[near.rows]] / self.bandwidth) * self._credit[near.rows]
        weight *= self._believed(near.rows, near.voice)
        rows, weight = near.rows[weight >= NEGLIGIBLE], weight[weight >= NEGLIGIBLE]
        begins, lengths = self._ends[rows], self._ends[rows + 1] - self._ends[rows]
        entries = (begins + lengths - lengths.cumsum()).repeat(lengths)
        shown = self._shown[entries + np.arange(len(entries))]
        times, earned = (
            np.bincount(shown, column.repeat(lengths))
            for column in (weight, weight * self._within_reach(self._rewards[rows]))
        )
        speaking = (earned >= 0.5).nonzero()[0]
        best = speaking[np.argsort(-earned[speaking] / (times[speaking] + 1.0), kind="stable")[:MOST]]
        if len(self._names) != len(self._numbered):
            self._names = list(self._numbered)
        return [self._names[number] for number in best.tolist()]

    def sets_near(self, vector: Vectors, ids: Sequence[str]) -> tuple[list[int], SetRewards]:
        """Return which of the candidates rewards near a question are about: at most `MOST`, those first that were shown there,
        by their places; and these rewards. Rewards with other items are left out, as these may have earned them."""
        near = self._near(vector)
        lengths = self._ends[near.rows + 1] - self._ends[near.rows]
        entries = (self._ends[near.rows] + lengths - lengths.cumsum()).repeat(lengths) + np.arange(lengths.sum())
        shown, row = self._shown[entries], np.arange(len(near.rows)).repeat(lengths)
        counts = near.weight[PLAIN]
        times = np.bincount(shown, counts[row], len(self._numbered))
        numbers = [self._numbered.get(id, 0) for id in ids]
        places = sorted(range(len(ids)), key=lambda place: not (numbers[place] and times[numbers[place]] >= NEGLIGIBLE))
        places = sorted(places[:MOST])
        bits = np.zeros(len(self._numbered), dtype=np.int64)
        bits[[numbers[place] for place in places]] = 1 << np.arange(len(places))
        bits[0] = 0  # stands for those that were never shown
        subsets = np.bincount(row, bits[shown], len(near.rows)).astype(np.int64)
        alone = np.bincount(row, bits[shown] == 0, len(near.rows)) == 0
        place_of = np.full(len(self._numbered), -1)
        place_of[[numbers[place] for place in places]] = np.arange(len(places))
        place_of[0] = -1
        rows = near.rows[alone]
        return places, SetRewards(subsets[alone], place_of[self._lead[rows]], counts[alone], self._rewards[rows])

    # Judging arms.

    def _judge_items(self, near: _Near, ids: Sequence[str], person: int = -1) -> _Judged:
        """Return what the models say about items, by the ways of giving credit up to `OWN`. person: the number of the person for
        whom memory is asked; of nobody, everybody's rewards say the same as the person's own."""
        numbers = np.array([self._numbered.get(id, 0) for id in ids])
        shown, listed = self._shown[: self._ends[self._count]], np.zeros(len(self._place), dtype=bool)
        listed[numbers] = True
        entries = listed.take(shown, mode="clip").nonzero()[0]  # which is faster than to check each number
        self._place[numbers] = np.arange(len(ids))
        arm = self._place[shown[entries]]
        self._place[numbers] = -1
        rows = self._ends[: self._count + 1].searchsorted(entries, "right") - 1
        lead = entries == self._ends[rows]
        uses = (rows[lead], arm[lead]), (rows, arm)
        if len(self._persons) < 2 or person < 0:
            return self._judge(near, len(ids), *uses).mixed({LEAD: 1.0}).mixed({LEAD: 1.0})
        personal = lead & (self._person[rows] == person)
        share = self._familiarity(person, near, acted=False)
        return self._judge(near, len(ids), *uses, (rows[personal], arm[personal])).mixed(
            {ALONE: share, LEAD: 1.0 - share}
        )

    def _judge_actions(self, near: _Near, actions: Sequence[str], person: int | None = None) -> _Judged:
        """Return what the models say about actions, taken for one person or for anybody."""
        by_action = [self._rows_of(action, person) for action in actions]
        arm = np.arange(len(actions)).repeat([len(rows) for rows in by_action])
        return self._judge(near, len(actions), (np.concatenate(by_action), arm), wide=person is None)

    def _judge_roles(self, near: _Near) -> RoleClaims:
        """Return what rewards say about the roles of actions. Questions are weighted as for the mean of an action."""
        rows = np.flatnonzero(self._roles[: self._count].any(axis=1))
        counts = self._credit[rows] * self._believed(rows, near.voice) * self._alike(near, rows)
        return judge_roles(self._roles[rows], counts, self._within_reach(self._rewards[rows]))

    def _alike(self, near: _Near, rows: Rows) -> Floats:
        """Return how alike a question is to that of each row, squared: a mean over all questions goes by it."""
        alike: Floats = (near.distance[self._question[rows]] + 1.0).clip(0.0) ** 2
        return alike

    def _judge(self, near: _Near, arms: int, *uses: tuple[Rows, Rows], wide: bool = False) -> _Judged:
        """Return what the models say about arms.

        Args:
            near: The rewarded choices near the question.
            arms: Number of arms.
            uses: For each way of giving credit, the rows that credit an arm, and which one each of them credits.
            wide: Whether the mean over all questions is weighted by the squared cosine.
        """
        place = np.full(self._count, -1)
        place[near.rows] = np.arange(len(near.rows))
        there, sums = np.zeros((len(near.rows), len(uses), arms)), np.zeros((3, len(uses), arms))
        for credit, (rows, arm) in enumerate(uses):
            close = place[rows] >= 0
            there[place[rows[close]], credit, arm[close]] = 1.0
            counted = self._credit[rows] * self._believed(rows, near.voice)
            if wide:
                counted = counted * self._alike(near, rows)
            for index, column in enumerate(
                (counted, counted * self._within_reach(self._rewards[rows]), self._weight[rows] > 0.0)
            ):
                sums[index, credit] = np.bincount(arm, column, arms)
        times, earned, seen = sums
        nearby = (near.weight @ there.reshape(len(there), len(uses) * arms)).reshape(4, WAYS, len(uses), arms)
        local_times, even_times, local, even = nearby.swapaxes(1, 2)[:, :, None, None]
        _, total, _, of_all = near.weight.reshape(4, WAYS, -1).sum(axis=-1)[:, :, None]
        base = (of_all - even + 2.0 * near.usual) / (total - even_times + 2.0)
        spread = (slice(None), None, None, None)
        overall = (earned[spread] - times[spread] * base) / (times[spread] + _OVERALL)
        gain = overall + (local - local_times * (base + overall)) / (local_times + _LOCAL)
        return _Judged(gain, base, local_times, local_times[:, 0, 0, PLAIN], local[:, 0, 0, PLAIN], seen)

    # Whose rewards count.

    def _doubted(self, by: str) -> int:
        """Return the number of a person who gave rewards that are not wholly believed; -1 for others."""
        number = self._trust.numbers.get(by, 0)
        return number if self._trust.beliefs[number] < 1.0 else -1

    def _believed(self, rows: Rows, voice: int) -> Floats:
        """Return how far the reward of each row is believed at present. voice: whose rewards are believed in any case, as people
        know best what is right for them."""
        beliefs = self._trust.beliefs
        if beliefs.min() == 1.0:
            return beliefs[:1]
        if voice >= 0:
            beliefs = beliefs.copy()
            beliefs[voice] = 1.0
        # How far a signal is believed is part of its weight.
        believed: Floats = np.where(self._claims[rows] == 1.0, beliefs[self._voice[rows]], 1.0)
        return believed

    def _expected_by_others(self, near: _Near, first: str, by: str) -> float:
        """Return the reward that others than `by` lead to expect of what stands first. Each person counts as one reward at most,
        times how far that person is believed, however many there are. The program's own rewards count each, and a usual one is
        added."""
        rows, usual = near.rows, self._usual()
        there = (self._lead[rows] == self._numbered.get(first, -1)) & (
            self._voice[rows] != self._trust.numbers.get(by, -1)
        )
        voices, weight = self._voice[rows[there]], near.weight[PLAIN, there]
        rewards = self._within_reach(self._rewards[rows[there]])
        beliefs = self._trust.beliefs
        times, earned = (np.bincount(voices, column, len(beliefs)) for column in (weight, weight * rewards))
        share = np.minimum(1.0, beliefs / np.maximum(times, 1e-9))
        share[0] = 1.0
        expected = (float(share @ earned) + usual) / (float(share @ times) + 1.0)
        return min(max(expected, SURE), 1.0 - SURE)

    def _usual(self) -> float:
        """Return the mean of all rewards, within the bounds of predictions."""
        return min(max(self._sum / max(self._number, 1e-9), SURE), 1.0 - SURE)

    # Weighing the estimates.

    def _predictions(self, near: _Near, shown: Sequence[str], action: str, roles: Sequence[int], person: int) -> Floats:
        """Return the probability of a reward of 1 according to each estimate."""
        unknown = np.full(len(MODELS), near.expected)
        chances = dict.fromkeys(range(CREDITS), unknown)
        if shown:
            items = self._judge_items(near, shown, person)
            chances[LEAD] = items.best_chance(LEAD, 1)
            chances[SHOWN] = items.best_chance(SHOWN, len(shown) if self._slates else 1)
            chances[ALONE], chances[OWN] = items.best_chance(ALONE, 1), items.best_chance(OWN, 1)
        if action:
            chances[DONE] = chances[PERSONAL] = self._judge_actions(near, [action]).best_chance(0, 1)
            if len(self._acted_for) > 1 and person in self._acted_for:
                of_person = self._judge_actions(near, [action], person).best_chance(0, 1)
                share = self._familiarity(person, near)
                chances[PERSONAL] = share * of_person + (1.0 - share) * chances[DONE]
        if roles:
            chances[NAMED] = np.full(len(MODELS), self._judge_roles(near).predict(roles))
        predictions: Floats = np.concatenate([[near.mean, near.expected], *chances.values()])
        return predictions.clip(SURE, 1.0 - SURE)

    def _familiarity(self, person: int, near: _Near, *, acted: bool = True) -> float:
        """Return the weight from 0 to 1 of a person's own rewards near the question; the rest is that of everybody's. acted:
        whether only rewards of actions count."""
        there = self._person[near.rows] == person
        if acted:
            there &= self._action[near.rows] > 0
        times = float(near.weight[PLAIN] @ there)
        return times / (times + 1.0)

    def _weigh(self, ways: int = CREDITS) -> _Weights:
        """Return the weights of the estimates if only the first `ways` ways of giving credit are used: the prior of each times
        the likelihood of its predictions so far, normalised. `RewardRecord.learn` updates the likelihood with each reward."""
        if ways not in self._weights:
            taken = ways > DONE and len(self._acted_for) > 0
            personal = taken and ways > PERSONAL and len(self._acted_for) > 1
            named = ways > NAMED and self._roles[: self._count].any()
            items = self._ends[self._count] > 0
            several = 0.5 if items and len(self._persons) > 1 else 0.0
            credits = np.array([items, self._slates, several, several, taken, personal, named], dtype=np.float64)
            # Half of the prior weight is that of the two estimates without arms.
            prior = np.concatenate([[0.25, 0.25], np.kron(0.5 * credits / max(1.0, credits.sum()), _WEIGHTS)])
            likely = prior > 0.0
            log = np.log(prior[likely]) + self._likelihood[likely]
            weights = np.zeros(len(prior))
            weights[likely] = np.exp(log - log.max())
            weights /= weights.sum()
            of_arms = weights[2:].reshape(-1, len(MODELS))
            of_arms = of_arms * (of_arms.sum(axis=1, keepdims=True) > 1e-6)
            self._weights[ways] = _Weights(weights, of_arms, max(0.0, 1.0 - float(weights[:2].sum())))
        return self._weights[ways]
