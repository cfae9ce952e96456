"""What each of several items adds that chance leaves out in the same episodes: one regression for all of them.

Where chance decides about several items at once, each by a draw of its own, the reward of an episode says something of all of
them, and what the others did can be taken out of it:

    reward = usual + SUM over items: effect * (a - 1/2) + noise,    a: 1 where the item was shown, 0 where it was withheld

The effects are learned from a - p alone, which is independent of everything else that happened, p being the probability that was
drawn with; p - 1/2 times the present estimate is taken out of the reward beforehand. So questions that some items fit and others
do not, and changes over time, cannot bias an effect. Rewards count by the inverse of the variance that they have at the expected
level.

Most items change nothing: an effect is 0 but with the probability `MATTERS`, and then normal with the deviation `TYPICAL`. The
posterior is approximated by a product of such mixtures, one for each item ("Scalable variational inference for Bayesian variable
selection in regression", Carbonetto and Stephens 2012, section 3): draws are independent, so that items hardly correlate.

The interval of an effect is that of a mixture martingale with the same normal (Robbins, "Statistical methods related to the law
of the iterated logarithm", 1970): it may be looked at after every reward, as the others of the ledger.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from keepworth.base.arrays import Floats

MATTERS, TYPICAL = 0.2, 0.15
"""Prior probability that an item changes the reward, and the deviation of its effect then, as a share of the range of rewards."""
LEAST_VARIANCE = 0.05
"""The least variance of a reward, as a share of the range squared."""
USUAL_ROWS = 1.0
"""Number of imagined rewards of one half in the usual reward."""
ROUNDS, SWEEPS, CLOSE = 20, 20, 1e-3
"""How often the weights of the rewards, and the items between them, are gone through at most; and which change ends that."""


@dataclass(frozen=True, slots=True)
class JointEffects:
    """What is known of items that were tested together, each column of shape (items,).

    Attributes:
        effect: Mean reward with the item less that without, if it matters.
        deviation: How far this may be off.
        chance: The probability that it matters.
    """

    effect: Floats
    deviation: Floats
    chance: Floats

    def half_widths(self, span: float, alpha: float) -> Floats:
        """Return half the widths of the intervals that hold at all times at once.

        Args:
            span: The range of rewards.
            alpha: The probability that an interval misses at any time.
        """
        ratio = (TYPICAL * span / self.deviation) ** 2
        widths: Floats = self.deviation * np.sqrt(2.0 * math.log(1.0 / alpha) + np.log(np.maximum(ratio, 1.0)))
        return widths


def fit(a: Floats, p: Floats, y: Floats, span: float) -> JointEffects:
    """Return what each of several items adds.

    Args:
        a: For each episode and item 1 where it was shown, 0 where it was withheld, and p where chance did not decide.
        p: The probability with which it was shown; one half where chance did not decide.
        y: The rewards, from which what the question explains may be taken.
        span: The range of rewards.
    """
    items = a.shape[1]
    drawn, shift, y = a - p, p - 0.5, y / span
    effect, chance, usual = np.zeros(items), np.full(items, MATTERS), float(y.mean())
    variance = np.full(items, TYPICAL**2)
    prior = math.log(MATTERS / (1.0 - MATTERS))
    for _ in range(ROUNDS):
        before, expected = chance * effect, shift @ (chance * effect)
        level = (usual + expected + drawn @ before).clip(0.0, 1.0)
        weights = 1.0 / np.maximum(level * (1.0 - level), LEAST_VARIANCE)
        square = drawn.T @ (weights[:, None] * drawn)
        usual = (weights @ (y - expected - drawn @ before) + 2.0 * USUAL_ROWS) / (weights.sum() + 4.0 * USUAL_ROWS)
        product = drawn.T @ (weights * (y - expected - usual))
        variance = 1.0 / (square.diagonal() + TYPICAL**-2)
        for _ in range(SWEEPS):
            swept = chance * effect
            for item in range(items):
                mean = chance * effect
                others = square[item] @ mean - square[item, item] * mean[item]
                effect[item] = variance[item] * (product[item] - others)
                log = prior + 0.5 * math.log(variance[item] / TYPICAL**2) + 0.5 * effect[item] ** 2 / variance[item]
                chance[item] = 1.0 / (1.0 + math.exp(-min(log, 500.0)))
            if np.abs(chance * effect - swept).max(initial=0.0) < CLOSE:
                break
        if np.abs(chance * effect - before).max(initial=0.0) < CLOSE:
            break
    return JointEffects(effect * span, np.sqrt(variance) * span, chance)
