"""Kernel regression that grows by one outcome at a time."""

from __future__ import annotations

import numpy as np

from keepworth.episodes.arrays import Floats

LEAST = 0.02
"""No estimator is surer than this, so that one surprise does not silence it."""


class Ridge:
    """Kernel regression on the newest outcomes. prior: the estimate where nothing is known."""

    def __init__(self, keep: float, words: float, prior: float) -> None:
        self.keep, self.words, self.prior = keep, words, prior
        self.count = 0
        self.inverse: Floats = np.zeros((0, 0))
        self.pull: Floats = np.zeros(0)

    def kernel(self, like: Floats, common: Floats, age: Floats) -> Floats:
        """Shape (outcomes, 1), of all outcomes with one situation; it is multiplied with how same their actions are."""
        mixed = (1.0 - self.words) * like + self.words * common
        kernel: Floats = (mixed * self.keep**age)[:, None]
        return kernel

    def estimate(self, covariance: Floats) -> Floats:
        """covariance: of what is asked with the newest `count` outcomes, shape (count, asked)."""
        return bounded(self.prior + self.pull @ covariance)

    def add(self, covariance: Floats, variance: float, noise: float, outcome: float) -> None:
        """One more outcome. covariance: with the others, shape (count,)."""
        n = self.count
        if n == len(self.inverse):
            larger = np.zeros((max(64, 2 * n),) * 2)
            larger[:n, :n] = self.inverse
            self.inverse = larger
        moved = self.inverse[:n, :n] @ covariance
        # At least the noise, also where how alike actions are is no true covariance.
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
