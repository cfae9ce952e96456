"""The estimates that the default policy averages, and how rewards are credited."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from keepworth.methods.policies.default.constants import FADING, PRIOR

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.base.arrays import Floats, Vectors

    Rows = npt.NDArray[np.int64]

LEAD, SHOWN, ALONE, OWN, DONE, PERSONAL, NAMED = range(7)
"""What gets the credit: the item that stood first; all that were shown; the item that stood first for the same person; that item,
and the one that stood first for anybody as far as this person gave few rewards here; the action that was taken; that action where
it was taken for the same person; the roles of that action."""
CREDITS = NAMED + 1
"""Number of ways of giving credit."""
PLAIN, FORGETTING = range(2)
"""How a reward counts near a question: by its cosine; by its cosine and age."""
WAYS = FORGETTING + 1
NEGLIGIBLE = 0.003
"""The least weight that is computed with, to save time: rewards that count less near a question are left out, and so are trials
with a smaller probability."""
_NEVER = 1e9
MODELS = tuple(product((_NEVER, PRIOR), (PRIOR / 64.0, PRIOR / 16.0, PRIOR / 4.0), (PLAIN, FORGETTING)))
"""(prior count of the arm's mean reward over all uses; prior count of its mean near the question; how rewards count there)"""
_WEIGHTS = np.array([(1.0 - FADING, FADING)[way] for _, _, way in MODELS]) * WAYS / len(MODELS)
"""The prior weight of each, within its way of giving credit."""
_SHAPE = (2, 3, WAYS)
_OVERALL, _LOCAL = (np.array([model[part] for model in MODELS]).reshape(*_SHAPE, 1) for part in (0, 1))


@dataclass(slots=True)
class _Near:
    """The rewarded choices near a question.

    `weight` has four blocks of one row for each of the `WAYS`: how much each of `rows` counts; the same, with the rows of one
    leading item capped at 1 together, since failures of one item say little about others; then both blocks times the reward."""

    rows: Rows  # of the choices that count for something, in order
    distance: Vectors  # the cosine of each remembered question with this one, less 1
    weight: Floats  # shape (4 * ways, rows)
    usual: float  # mean reward of pairs of a question and the item that stood first there
    mean: float  # of all rewards
    expected: float  # reward at this question, whatever is shown
    returns: float  # how often the question came before: rewards near it, by half the bandwidth
    voice: int  # the number of the person who asks, as one who rewards; -1 for a person who is believed anyway


@dataclass(slots=True)
class _Judged:
    """What the models say about some arms."""

    gain: Floats  # expected reward with the arm less `base`, shape (ways of credit, *_SHAPE, arms)
    base: Floats  # expected reward at the question without the arm
    near: Floats  # number of rewards of the arm near the question, with forgetting
    times: Floats  # the same without forgetting, shape (ways of credit, arms)
    earned: Floats  # the sum of these rewards
    seen: Floats  # number of rewards of the arm at all questions

    def mixed(self, shares: Mapping[int, float]) -> _Judged:
        """Return the same with one more way of giving credit, the mean of some by their shares."""
        columns = (self.gain, self.base, self.near, self.times, self.earned, self.seen)
        means = (sum(share * column[way] for way, share in shares.items()) for column in columns)
        return _Judged(*(np.concatenate([column, mean[None]]) for column, mean in zip(columns, means, strict=True)))

    def by_model(self, credit: int = 0) -> Floats:
        """Return the gains by one way of giving credit, shape (models, arms)."""
        gains: Floats = self.gain[credit].reshape(len(MODELS), -1)
        return gains

    def best_chance(self, credit: int, arms: int) -> Floats:
        """Return for each model the reward that it expects if several arms may have earned it: that of the one, of the first
        `arms`, which helps most."""
        gains = self.by_model(credit)[:, :arms]
        chances = (self.gain + self.base)[credit].reshape(len(MODELS), -1)
        best: Floats = np.take_along_axis(chances, gains.argmax(axis=1)[:, None], axis=1)[:, 0]
        return best


@dataclass(slots=True)
class _Weights:
    """The weights of the estimates: first the two without arms, then the models of each way of giving credit."""

    all: Floats  # they sum to 1
    of_arms: Floats  # those of the models, shape (ways of credit, models); 0 for ways of credit with next to no weight
    sure: float  # probability that rewards depend on items
