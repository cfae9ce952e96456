"""Difficulty of tasks, from how well they were done before shaping: those always won or never won are put aside for a while.

Sampling the middle is the idea of many curricula (for example "Prioritized Level Replay", arXiv 2010.03934); what is kept here
is the simplest form that can be read in a log: a running mean, two bounds, and a second chance after some steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keepworth.episodes.errors import KeepworthError


class BadBand(KeepworthError, ValueError):
    """A band that lets every task in, or none."""


@dataclass(frozen=True, slots=True)
class Band:
    """Tasks whose mean score is at `low` or below, or at `high` or above, are put aside for `retry` steps after they were
    last sampled; then they get another chance, because the policy has changed since. memory: weight of what was known
    before, against the newest group."""

    low: float = 0.0
    high: float = 1.0
    retry: int = 10
    memory: float = 0.5

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise BadBand(
                f"No task can lie between low = {self.low:g} and high = {self.high:g}.", "Set low below high."
            )
        if self.retry < 1:
            raise BadBand(f"retry = {self.retry} puts no task aside.", "Set it to 1 or more, or use no band.")
        if not 0 <= self.memory < 1:
            raise BadBand(f"memory = {self.memory:g} is not a share below 1.", "Set it between 0 and 1.")


class Difficulty:
    """What is known of each task. It is a fold over outcomes, so the rows of a run's log bring it back."""

    def __init__(self, band: Band) -> None:
        self.band = band
        self._mean: dict[str, float] = {}
        self._last: dict[str, int] = {}

    def restore(self, outcomes: Iterable[Mapping[str, Any]]) -> None:
        """Rows as the run's curriculum.jsonl holds them: {"step", "task", "score"}."""
        for row in outcomes:
            if row.get("what") == "outcome":
                self.note(str(row["task"]), float(row["score"]), int(row["step"]))

    def note(self, task: str, score: float, step: int) -> None:
        """A group of `task` scored so much on average (`Episode.metric`), at the run's step `step`."""
        before = self._mean.get(task)
        self._mean[task] = score if before is None else self.band.memory * before + (1 - self.band.memory) * score
        self._last[task] = step

    def aside(self, task: str, step: int) -> str:
        """Why the task is not to be sampled at the run's step `step`; "" where it is."""
        mean = self._mean.get(task)
        if mean is None or step - self._last[task] > self.band.retry:
            return ""
        if mean <= self.band.low:
            return f"too hard: mean score {mean:.2f} is not above {self.band.low:g}"
        if mean >= self.band.high:
            return f"too easy: mean score {mean:.2f} is not below {self.band.high:g}"
        return ""

    def oldest(self, tasks: Sequence[str]) -> str:
        """The task that was sampled longest ago: what to take where none is left in the band."""
        return min(tasks, key=lambda task: self._last.get(task, -1))
