"""Actions by meaning: which strings stand for the same action, for different ones, or for nobody knows which.

Two different strings from a list of possible actions are two actions, however similar they read ("refund 50", "refund 60").
Answers in free words are compared by the memory's encoder. Their cosine is judged against the mean cosine of two answers, since
all answers share words that carry no meaning here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from keepworth.base.arrays import Bools, Floats, Numbers, Vectors

APART = 0.5
"""Two answers mean different things if their cosine is below this share of the mean cosine of two answers."""


SURE = 0.5
"""Two answers of at least this sameness count as the same action."""


FINE = 2.0**40
"""Vectors are summed in units of 1 / FINE, which is less than the precision of their numbers."""


NONE = -1
"""Stands for no action. Smaller numbers stand for items that advise no action, each of which is the same as itself alone."""


class Actions:
    """Numbers actions by their text, and compares them. encode: text to a unit vector."""

    def __init__(self, encode: Callable[[str], Vectors]) -> None:
        self._encode = encode
        self._numbers: dict[str, int] = {}
        self._texts: list[str] = []
        self._listed = np.zeros(64, dtype=bool)
        self._vectors: Vectors | None = None
        self._total: Numbers = np.zeros(0, dtype=np.int64)
        self._encoded = 0

    def __len__(self) -> int:
        return len(self._texts)

    def number(self, action: str) -> int:
        existing = self._numbers.get(action)
        if existing is not None:
            return existing
        number = self._numbers[action] = len(self._texts)
        self._texts.append(action)
        if number == len(self._listed):
            self._listed = np.concatenate([self._listed, np.zeros(number, dtype=bool)])
        return number

    def offer(self, actions: Sequence[str]) -> None:
        """Note that these actions can be done and differ from one another. From now on their strings are compared exactly."""
        for action in actions:
            number = self.number(action)  # which may make room for it
            self._listed[number] = True

    def listed(self, numbers: Numbers) -> Bools:
        result: Bools = self._listed[numbers]
        return result

    def sameness(self, numbers: Numbers, others: Numbers) -> Floats:
        """(n, m): how surely each of `numbers` means the same as each of `others`, from 0 to 1; 1 for equal strings, and for two
        that were offered 1 or 0. `NONE` means the same as nothing."""
        if not (numbers.min(initial=0) >= 0 and others.min(initial=0) >= 0):
            values: Floats = ((numbers[:, None] == others) & (others < NONE)).astype(np.float64)
            some, others_some = np.flatnonzero(numbers >= 0), np.flatnonzero(others >= 0)
            values[np.ix_(some, others_some)] = self.sameness(numbers[some], others[others_some])
            return values
        same: Floats = (numbers[:, None] == others[None, :]).astype(np.float64)
        open_rows, open_columns = ~self._listed[numbers], ~self._listed[others]
        if not len(numbers) or not len(others) or not (open_rows.any() or open_columns.any()):
            return same
        near, usual = self._similarity(numbers, others)
        free = open_rows[:, None] | open_columns[None, :]
        graded = np.clip((near - usual) / max(1.0 - usual, 1e-6), 0.0, 1.0)
        result: Floats = np.where(free, np.maximum(same, graded), same)
        return result

    def apart(self, numbers: Numbers, others: Numbers) -> Bools:
        """Return which pairs are known to mean different actions, shape (n, m). Nothing is known about `NONE` and about
        items."""
        if not (numbers.min(initial=0) >= 0 and others.min(initial=0) >= 0):
            sure: Bools = np.zeros((len(numbers), len(others)), dtype=bool)
            some, others_some = np.flatnonzero(numbers >= 0), np.flatnonzero(others >= 0)
            sure[np.ix_(some, others_some)] = self.apart(numbers[some], others[others_some])
            return sure
        differ: Bools = numbers[:, None] != others[None, :]
        free = ~(self._listed[numbers][:, None] & self._listed[others][None, :])
        if not free.any():
            return differ
        near, usual = self._similarity(numbers, others)
        distinct: Bools = differ & (~free | (near < APART * usual))
        return distinct

    def _similarity(self, numbers: Numbers, others: Numbers) -> tuple[Floats, float]:
        """Return the cosines, shape (n, m), and the mean cosine of two different actions."""
        self._encode_all()
        assert self._vectors is not None
        n = len(self._texts)
        total = self._total / FINE
        usual = float((total @ total - n) / (n * (n - 1))) if n > 1 else 1.0
        near: Floats = (self._vectors[numbers] @ self._vectors[others].T).astype(np.float64)
        return near, min(max(usual, 0.0), 1.0)

    def _encode_all(self) -> None:
        fresh = [self._encode(text) for text in self._texts[self._encoded :]]
        if not fresh:
            return
        if self._vectors is None:
            self._vectors = np.zeros((0, len(fresh[0])), dtype=np.float32)
            self._total = np.zeros(len(fresh[0]), dtype=np.int64)
        if len(self._texts) > len(self._vectors):
            room = np.zeros((max(64, 2 * len(self._texts)) - len(self._vectors), len(fresh[0])), dtype=np.float32)
            self._vectors = np.concatenate([self._vectors, room])
        self._vectors[self._encoded : len(self._texts)] = fresh
        # Whole numbers, so that the sum is the same in whatever order actions come.
        self._total = self._total + np.rint(np.array(fresh, dtype=np.float64) * FINE).astype(np.int64).sum(axis=0)
        self._encoded = len(self._texts)
