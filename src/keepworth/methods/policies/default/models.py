"""The estimates that the default policy averages, and how rewards are credited."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.base.arrays import Floats, Vectors

    Rows = npt.NDArray[np.int64]

OWN, HERE = 0.35, 0.15
"""Prior weights of the two estimates without arms: the same reward everywhere; a reward that depends on the question."""
PLAIN, FORGETTING, NEAREST = range(3)
"""How a reward counts near a question: by its cosine; by its cosine and age; by its cosine less that of the nearest question."""
SHARES = (0.5, 0.25, 0.25)
"""How these three share the rest of the prior weight."""
RIDGES = np.array([1.0, 0.99])
"""Two kernel ridge regressions of an action's rewards on the question: by what factor each new reward lowers the earlier ones."""
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
