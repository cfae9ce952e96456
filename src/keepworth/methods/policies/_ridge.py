"""Kernel ridge regression that is updated with one outcome at a time."""

from __future__ import annotations

import numpy as np

from keepworth.base.arrays import Floats

LEAST = 0.02
"""Estimates are kept at least this far from 0 and 1, so that one surprise does not silence an estimator."""


class Ridge:
    """Kernel ridge regression on the newest outcomes.

    Args:
        keep: What one task leaves of the weight of earlier outcomes.
        words: Share of common words in the similarity of situations; the rest is cosine.
        prior: The estimate without outcomes.
    """

    def __init__(self, keep: float, words: float, prior: float) -> None:
        self.keep, self.words, self.prior = keep, words, prior
        self.count = 0
        self.inverse: Floats = np.zeros((0, 0))
        self.pull: Floats = np.zeros(0)

    def kernel(self, like: Floats, common: Floats, age: Floats) -> Floats:
        """Returns the kernel of all outcomes with one situation, shape (outcomes, 1), without the sameness of actions."""
        mixed = (1.0 - self.words) * like + self.words * common
        kernel: Floats = (mixed * self.keep**age)[:, None]
        return kernel

    def estimate(self, covariance: Floats) -> Floats:
        """Returns estimates from the covariance of the newest `count` outcomes with the questions, shape (count, questions)."""
        return bounded(self.prior + self.pull @ covariance)

    def add(self, covariance: Floats, variance: float, noise: float, outcome: float) -> None:
        """Adds an outcome. `covariance` is that with the earlier ones, shape (count,)."""
        n = self.count
        if n == len(self.inverse):
            larger = np.zeros((max(64, 2 * n),) * 2)
            larger[:n, :n] = self.inverse
            self.inverse = larger
        moved = self.inverse[:n, :n] @ covariance
        # At least the noise, since the sameness of actions need not be a valid covariance.
        left = max(variance + noise - float(covariance @ moved), noise)
        surprise = (outcome - self.prior - float(self.pull @ covariance)) / left
        self.inverse[:n, :n] += np.outer(moved, moved / left)
        self.inverse[n, :n] = self.inverse[:n, n] = -moved / left
        self.inverse[n, n] = 1.0 / left
        self.count = n + 1
        self.pull = np.append(self.pull - surprise * moved, surprise)

    def forget(self) -> None:
        self.count, self.inverse, self.pull = 0, np.zeros((0, 0)), np.zeros(0)


def bounded(chance: Floats) -> Floats:
    return np.asarray(np.minimum(np.maximum(chance, LEAST), 1.0 - LEAST))
