"""How much of something new may be mixed into something old, so that the result is not worse: a lower bound and a share.

A policy of a memory replaces another by them (`keepworth.memory.choose.promotion`), and so does a policy of actions in a world
with a floor under each episode (`keepworth.methods.studies.step_mix`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from keepworth.base.arrays import Floats

RATES = 0.8 / 2.0 ** np.arange(7)
"""The rates of the exponential bounds of which the best counts; the smallest is the best one for about 80,000 values."""


def lower_sum(total: Floats | float, squares: Floats | float, chance: float) -> Floats:
    """Returns a bound below the sum of the expected values of some numbers, by the numbers themselves.

    The expected value of each is the one given all numbers before it, so that they may depend on one another, drift and be chosen
    by what was seen so far. The bound is too high at any time, however often one looks, with a probability of at most `chance`.
    With one rate it is equation 4.11 of Fan, Grama and Liu, "Exponential inequalities for martingales with applications", 2015,
    with a centre as in theorem 4 of Howard, Ramdas, McAuliffe and Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence
    sequences", 2021 (arXiv 1810.08240); each of the `RATES` has an equal share of the chance. A bound from above is
    `-lower_sum(-total, squares, chance)`, where the numbers are far enough below the centre's other side.

    Args:
        total: The sum of the numbers, or several sums.
        squares: The sum of the squares of number minus centre. A centre may depend on all numbers before, and no number may lie
            more than 1 below it.
        chance: The probability of being wrong, between 0 and 1.
    """
    penalty = -np.log1p(-RATES) - RATES
    spread = np.multiply.outer(np.asarray(squares, dtype=np.float64), penalty) + np.log(len(RATES) / chance)
    bounds: Floats = np.asarray(total, dtype=np.float64) - (spread / RATES).min(axis=-1)
    return bounds


def safe_share(old: Floats | float, new: Floats | float, floor: Floats | float) -> Floats:
    """Returns the largest share of the new in a mixture of two whose value stays at the floor or above.

    Args:
        old: A lower bound of the value of the old, or several.
        new: A lower bound of the value of the new.
        floor: The value that the mixture must have. Where both are below it, the share is 0.
    """
    gap = np.asarray(old, dtype=np.float64) - new
    share = (np.asarray(old, dtype=np.float64) - floor) / np.where(gap > 0.0, gap, 1.0)
    mixed: Floats = np.where(np.asarray(new) >= floor, 1.0, np.where(gap > 0.0, np.clip(share, 0.0, 1.0), 0.0))
    return mixed
