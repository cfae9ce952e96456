"""How long answers are expected to be, by task: what `order = "longest_first"` goes by."""

from __future__ import annotations

from collections.abc import Mapping


class ExpectedLengths:
    """Running means: of each task's answers, and of all of them for tasks that were not seen yet."""

    def __init__(self) -> None:
        self._by_task: dict[str, float] = {}
        self._overall = 0.0

    def of(self, task: str) -> float:
        return self._by_task.get(task, self._overall)

    def learn(self, task: str, length: float) -> None:
        self._overall += 0.05 * (length - self._overall)
        before = self._by_task.get(task, length)
        self._by_task[task] = before + 0.5 * (length - before)

    def state(self) -> dict[str, float]:
        return {"": self._overall, **self._by_task}

    def load(self, state: Mapping[str, float]) -> None:
        self._by_task = dict(state)
        self._overall = self._by_task.pop("")
