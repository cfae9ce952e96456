"""Memories that count what became of what they showed: rules of products and papers in a few lines, each over the nearest entries
by cosine, so that they differ in the rule alone. What is counted is what fitted into the budget and was read.

None of them needs a language model. Where the package of a rule can be run, `benchmarks.evaluation.rivals` has it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keepworth.evaluation.system import Answered, AskedQuestion, Listing, as_remembered
from keepworth.tasks.benchmark import place
from keepworth.tasks.entries import MemoryEntry

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.episodes.model import Encoder

    Floats = npt.NDArray[np.float32]

SUCCESS = 0.5
"""A reward from which a task counts as done, for a rule that counts successes."""


class Dense(Listing):
    """The nearest entries by cosine: a matrix and a product, no engine of ours."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def begin(self, seed: int) -> None:
        super().begin(seed)
        self._ids: list[str] = []
        self._matrix = np.zeros((0, self._encoder.identity.dimension), dtype=np.float32)

    def write(self, entries: Sequence[MemoryEntry]) -> None:
        super().write(entries)
        if entries:
            self._ids += [place(entry) for entry in entries]
            self._matrix = np.concatenate(
                [self._matrix, self._encoder.encode([as_remembered(entry) for entry in entries])]
            )

    def ask(self, question: AskedQuestion) -> Answered:
        near: Floats = self._matrix @ self._encoder.encode([question.text])[0]
        best = [int(row) for row in np.argsort(-near, kind="stable")]
        return self._shown([self._ids[row] for row in self.chosen(best, near, question.most)])

    def chosen(self, best: list[int], near: Floats, most: int) -> list[int]:
        """Rows to show, the first one first, of all rows by falling similarity."""
        return best[:most]

    def size(self) -> int | None:
        return int(self._matrix.nbytes)


class SuccessCounter(Dense):
    """ReMe's rule (arXiv 2512.10696, section 3): each entry counts its uses f and those that succeeded u, and is removed once
    f >= 5 and u / f <= 0.5."""

    least, share = 5, 0.5

    def begin(self, seed: int) -> None:
        super().begin(seed)
        self.uses: dict[str, int] = {}
        self.successes: dict[str, int] = {}
        self.removed: set[str] = set()

    def chosen(self, best: list[int], near: Floats, most: int) -> list[int]:
        return [row for row in best if self._ids[row] not in self.removed][:most]

    def learn(self, reward: float, shown: Sequence[str]) -> None:
        for id in shown:
            self.uses[id] = self.uses.get(id, 0) + 1
            self.successes[id] = self.successes.get(id, 0) + (reward >= SUCCESS)
            if self.uses[id] >= self.least and self.successes[id] <= self.share * self.uses[id]:
                self.removed.add(id)

    def holds(self, ids: Sequence[str]) -> frozenset[str] | None:
        held = super().holds(ids)
        assert held is not None
        return held - self.removed


class UtilityAverage(Dense):
    """A moving average of reward beside similarity, as MemRL ranks (arXiv 2601.03192: rate 0.3, both standardised over the
    candidates and averaged) and Cognee weighs by feedback (there with rate 0.1). The candidates are the nearest `most` entries;
    an entry that was not shown yet stands at the middle of the scale."""

    rate, share, start = 0.3, 0.5, 0.5

    def begin(self, seed: int) -> None:
        super().begin(seed)
        self.average: dict[str, float] = {}

    def chosen(self, best: list[int], near: Floats, most: int) -> list[int]:
        rows = best[:most]
        worth = np.array([self.average.get(self._ids[row], self.start) for row in rows])
        score = (1.0 - self.share) * _standardised(near[rows]) + self.share * _standardised(worth)
        return [rows[place] for place in np.argsort(-score, kind="stable")]

    def learn(self, reward: float, shown: Sequence[str]) -> None:
        for id in shown:
            before = self.average.get(id, self.start)
            self.average[id] = before + self.rate * (reward - before)


class LessonDropout(Dense):
    """Each of the nearest is left out at random in one of ten questions, and for good once the mean reward without it is higher
    than with it, five or more times each. So agents' owners test whether single lessons help; the rule is ours, after their
    reports (timetobuildbob.github.io, "Do your agent's lessons actually help?", 2026)."""

    rate, least, tested = 0.1, 5, 10

    def begin(self, seed: int) -> None:
        super().begin(seed)
        self.draws = random.Random(seed)
        self.left_out: list[str] = []
        self.rewards: dict[tuple[str, bool], list[float]] = {}

    def chosen(self, best: list[int], near: Floats, most: int) -> list[int]:
        rows = [row for row in best if not self.harmful(self._ids[row])][:most]
        self.left_out = [self._ids[row] for row in rows[: self.tested] if self.draws.random() < self.rate]
        return [row for row in rows if self._ids[row] not in self.left_out]

    def learn(self, reward: float, shown: Sequence[str]) -> None:
        for with_it, ids in ((True, shown), (False, self.left_out)):
            for id in ids:
                self.rewards.setdefault((id, with_it), []).append(reward)

    def harmful(self, id: str) -> bool:
        with_it, without = self.rewards.get((id, True), []), self.rewards.get((id, False), [])
        if min(len(with_it), len(without)) < self.least:
            return False
        return sum(without) / len(without) > sum(with_it) / len(with_it)


def _standardised(values: Floats | npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    deviation = float(np.std(values)) if len(values) else 0.0
    return np.asarray((values - np.mean(values)) / deviation if deviation > 0 else np.zeros(len(values)), np.float64)
