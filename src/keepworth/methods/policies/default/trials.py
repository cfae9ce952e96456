"""What is tried by chance: how likely another item is the better one, and what trials may cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keepworth.methods.policies.default.constants import (
    BOUND,
    BUDGET,
    EXPLORE,
    FAILING,
    NEARER,
    OFTEN,
    SAME,
)
from keepworth.methods.policies.default.estimates import Estimates
from keepworth.methods.policies.default.models import _LOCAL, NEGLIGIBLE, _Judged, _Near

if TYPE_CHECKING:
    from keepworth.base.arrays import Floats

Opinion = tuple["Floats", "Floats", _Judged]
"""Weights of models, the gains that they expect of candidates, and what they say about the arms behind these."""


class TrialChances(Estimates):
    """Says how likely each candidate is better than the first one, and when trials have cost too much."""

    def _trial_chances(
        self,
        near: _Near,
        opinions: Sequence[Opinion],
        faded: Floats,
        certain: Floats,
        means: Floats,
        times: Floats,
        earned: Floats,
    ) -> Floats:
        """Return the probability with which each candidate is put first in order to learn.

        Candidates are considered one after the other, the likeliest first. Each is tried with the probability that it is better
        than the one that would stand first, times the probability that the question comes back, which is taken
        for certain once it did twice; and with at most three quarters for all candidates together. Where the first one fails, it
        is the probability if rewards depend on items, as no reward that says so would ever come otherwise. All these trials go to
        the candidates in proportion to how likely each is the right one. Nothing else is tried before the first one was.

        Args:
            near: The rewarded choices near the question.
            opinions: What the models say.
            faded: The relative scores of the search.
            certain: The same if it were certain that rewards depend on items.
            means: The gains, averaged over all estimates.
            times: Number of rewards of each candidate near the question.
            earned: The sum of these rewards.
        """
        better: Floats = np.zeros(len(means))
        returns = min(1.0, near.returns / 2.0)
        if len(means) < 2 or min(0.5, self._weigh().sure) * returns <= NEGLIGIBLE:
            return better
        lead = int((faded + means).argmax())
        first = slice(lead, lead + 1)
        # Nothing can be better than the first by more than the distance from its expected reward to 1.
        room = max(0.0, 1.0 - near.expected - float(means[lead]))
        failing = min(max((room - FAILING[0]) / (FAILING[1] - FAILING[0]), 0.0), 1.0)
        wide = EXPLORE + (1.0 - EXPLORE) * failing
        doubted = faded + failing * (certain - faded)
        # If the question comes back as often as it did so far, half the squared room is what may be gained each time, as far as
        # rewards depend on items: the less a score of the search says against a trial.
        sure = self._weigh().sure
        doubted = doubted / (1.0 + 0.5 * sure * near.returns * room * room)
        ahead = doubted - doubted[lead]
        # A question that was asked often will be asked as often again: if it mostly fails, the other items are worth some trials
        # even if rewards say nothing about items; and so they are if all rewards are the lowest, within what `may_move` allows.
        often = near.returns / OFTEN - 1.0 if room > 0.5 and not self.all_same else 0.0
        tried = float(times.sum() - times[lead]) / (0.5 * max(near.returns, OFTEN))
        untried = 1.0 if self.all_lowest else min(max(often, 0.0), 1.0) * max(0.0, 1.0 - tried)
        for weights, gain, judged in opinions:
            chance = (judged.gain + judged.base).clip(0.02, 0.98)
            variance = chance * (1.0 - chance) / (judged.near + _LOCAL + 1.0)
            doubt = np.minimum(wide * np.sqrt(variance + variance[..., first]), max(room, 1e-9))
            # Nor can an item lose more than the expected reward of the first.
            z = (gain - gain[..., first] + np.maximum(ahead, -chance[..., first])) / doubt
            # The logistic function of 1.702 z, which is the normal distribution's within 0.01.
            better += 0.5 * (weights.sum() + weights @ np.tanh(0.851 * z).reshape(len(weights), -1))
        better *= (sure + (1.0 - sure) * room * untried) / sure
        if self.all_same:
            better /= (1.0 + times) ** 3
        better[lead] = 0.0
        order = np.argsort(-better, kind="stable")
        np.minimum(better, 0.5, out=better)
        # A candidate is considered if none before it is tried.
        better[order[1:]] *= np.cumprod(1.0 - better[order])[:-1]
        better = _aim(better, lead, faded, times, earned, 1.0 - room, sure)
        # As long as the first one itself was never rewarded near the question, to show it is the trial.
        better *= returns * min(1.0, float(times[lead])) * min(1.0, 0.75 / max(float(better.sum()), 1e-9))
        return better

    def at_stake(self, expected: float, *, shown: bool) -> float:
        """Return the reward that is assumed to be lost when another item takes the place of the search's first candidate.

        Equal rewards say nothing against this candidate, so some reward is assumed to be at stake even if all of them are 0.

        Args:
            expected: The reward that was expected of the candidate, from 0 to 1 or beyond.
            shown: Whether the candidate is still shown, further down.

        Returns:
            The expected reward, from 0 to 1. While all rewards are equal, it is at least the probability that they are equal
                whatever is shown, or half of that if the candidate is still shown.
        """
        least = SAME / (SAME + (1.0 - SAME) * 0.5 ** len(self._numbers)) if self.all_same else 0.0
        return min(1.0, max(expected, 0.5 * least if shown else least))

    @property
    def may_move(self) -> bool:
        """Return whether departures from the search's own order have cost less than their limit. Where several people give
        rewards, what one of them lost or won counts up to an equal share of it, so that nobody uses it up for others."""
        limit = BOUND + BUDGET * self._number
        if self.all_same:
            limit = (2.0 if self.all_lowest else 0.5) + 0.5 * BUDGET * self._number
        share = limit / max(1, int(np.count_nonzero(self._by_holder)))
        losses = self._losses if share == limit else self._losses.clip(-share, share)
        return float(losses.sum()) <= limit


def _aim(better: Floats, lead: int, faded: Floats, times: Floats, earned: Floats, usual: float, sure: float) -> Floats:
    """Return the chances of trials with the same sum at most, dealt out by how likely each candidate is the right one.

    By the search's scores an item that is `gap` ahead of another is `exp(gap * usual / NEARER)` times as likely to be the right
    one: the more a trial may lose, the more it goes to what the search puts ahead. Each reward multiplies that by the ratio of
    its probability with the right item and with any other, where the right one makes up half of what is missing to 1: a failure
    by one half, a success by `(1 + usual) / (2 usual)`. No candidate gets more than the likeliest one would, or twice that if
    rewards are sure to depend on items.

    Args:
        better: With which probability each candidate would be tried.
        lead: The index of the one that stands first.
        faded: The relative scores of the search.
        times: Number of rewards of each candidate near the question.
        earned: The sum of these rewards.
        usual: The reward that is expected if the first one stays.
        sure: The probability that rewards depend on items.
    """
    usual = min(max(usual, 0.02), 0.98)
    success = np.log((1.0 + usual) / (2.0 * usual))
    odds = faded * (usual / NEARER) + earned * success - (times - earned) * np.log(2.0)
    odds[lead] = -np.inf
    aimed = better * np.exp(odds - odds.max())
    total = float(aimed.sum())
    if total <= 0.0:
        return better
    dealt: Floats = np.minimum(aimed * (float(better.sum()) / total), (1.0 + sure) * better.max())
    return dealt
