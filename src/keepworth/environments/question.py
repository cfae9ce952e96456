"""Question: one observation, one answer, one reward."""

from __future__ import annotations

from collections.abc import Callable

from keepworth.environments.blocking import in_thread
from keepworth.environments.environment import Step
from keepworth.episodes.episode import StopReason
from keepworth.episodes.interaction import Observation
from keepworth.episodes.reward import RewardTerm
from keepworth.episodes.task import Task
from keepworth.tasks.verifiers import verify

Score = Callable[[Task, str], float]
"""(task, answer) to a reward."""


class Question:
    """Asks a task's input and scores the answer with the verifier that the task names.

    score: another rule in its place, run in a thread because it may hang; name: what its reward is called."""

    def __init__(self, score: Score | None = None, name: str = "score") -> None:
        self._score, self._name = score, name
        self._task: Task | None = None

    async def reset(self, task: Task, seed: int) -> Observation:
        self._task = task
        return Observation(task.input)

    async def step(self, action: str) -> Step:
        assert self._task is not None
        answer = action.strip()
        if self._score is None:
            term = RewardTerm(self._task.verifier, verify(self._task, answer))
        else:
            term = RewardTerm(self._name, await in_thread(self._score, self._task, answer))
        stop = StopReason.COMPLETED if answer else StopReason.PARSE_ERROR
        return Step(rewards=(term,), stop=stop, answer=answer)

    async def close(self) -> None:
        self._task = None
