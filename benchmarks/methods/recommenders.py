"""Recommenders that MR.Rec has to beat: what is popular, item-kNN and ALS, from the ratings that were there before a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from keepworth.episodes.arrays import Floats
from keepworth.methods.studies._ratings import Rating

Scorer = Callable[[Sequence[Rating]], Floats]
"""From the history of a user to scores of all items."""
GRID: Mapping[str, list[tuple[Any, ...]]] = {
    "most popular": [()],
    "item-kNN": list(product((20, 100, 1000), (0.0, 20.0))),
    "ALS": list(product((16, 64), (1.0, 10.0, 50.0), (1.0, 4.0))),
}
"""Their settings, to be tuned."""


class Recommenders:
    """histories: what each user had rated. A rating counts as interest, whatever it says."""

    def __init__(self, histories: Iterable[Sequence[Rating]], items: Iterable[str]) -> None:
        self.column = {item: number for number, item in enumerate(items)}
        self.matrix = np.stack([self.row(history) for history in histories])

    def row(self, history: Sequence[Rating]) -> Floats:
        row = np.zeros(len(self.column))
        row[[self.column[rating.item] for rating in history]] = 1.0
        return row

    def make(self, name: str, settings: Sequence[Any]) -> Scorer:
        made = {"most popular": self.popularity, "item-kNN": self.neighbours, "ALS": self.factors}[name]
        return made(*settings)

    def popularity(self) -> Scorer:
        return lambda history: self.matrix.sum(axis=0)

    def neighbours(self, k: int, shrink: float) -> Scorer:
        """The cosine of two items, shrunk; of each item the `k` nearest count."""
        both = self.matrix.T @ self.matrix
        sizes = np.sqrt(np.diag(both))
        alike = both / (np.outer(sizes, sizes) + shrink + 1e-9)
        np.fill_diagonal(alike, 0.0)
        least = np.sort(alike, axis=1)[:, -min(k, len(alike))]
        alike[alike < least[:, None]] = 0.0
        return lambda history: np.asarray(alike @ self.row(history))

    def factors(self, size: int, ridge: float, alpha: float, passes: int = 8) -> Scorer:
        """ALS for implicit feedback (Hu, Koren and Volinsky, 2008): what was rated weighs 1 + alpha, the rest 1."""
        items = 0.1 * np.random.default_rng(0).normal(size=(len(self.column), size))
        for _ in range(passes):
            items = self._solve(self.matrix.T, self._solve(self.matrix, items, ridge, alpha), ridge, alpha)
        return lambda history: np.asarray(items @ self._solve(self.row(history)[None], items, ridge, alpha)[0])

    @staticmethod
    def _solve(rows: Floats, fixed: Floats, ridge: float, alpha: float) -> Floats:
        square = fixed.T @ fixed + ridge * np.eye(fixed.shape[1])
        solved = np.zeros((len(rows), fixed.shape[1]))
        for number, row in enumerate(rows):
            seen = fixed[row > 0.0]
            solved[number] = np.linalg.solve(square + alpha * seen.T @ seen, (1.0 + alpha) * seen.sum(axis=0))
        return solved
