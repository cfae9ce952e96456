"""Question: one observation, one answer, one reward."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from keepworth.records.episode import Observation, RewardTerm, StopReason, Task
from keepworth.worlds.environment import Step, call_function
from keepworth.worlds.own import messages_of
from keepworth.worlds.verifiers import verify

Score = Callable[[Task, str], float | tuple[RewardTerm, ...] | Awaitable[float | tuple[RewardTerm, ...]]]
"""Maps (task, answer) to a reward, or to several named ones. It may be asynchronous."""


class Question:
    """Asks a task's input and scores the answer with the verifier that the task names. `score` replaces the verifier, and runs in
    a thread because it may hang; a number that it returns is the reward "score"."""

    def __init__(self, score: Score | None = None) -> None:
        self._score = score
        self._task: Task | None = None

    async def reset(self, task: Task, seed: int) -> Observation:
        self._task = task
        return Observation(task.input, messages=messages_of(task))

    async def step(self, action: str) -> Step:
        assert self._task is not None
        answer = action.strip()
        if self._score is None:
            terms: tuple[RewardTerm, ...] = (RewardTerm(self._task.verifier, verify(self._task, answer)),)
        else:
            score = await call_function(self._score, self._task, answer)
            terms = score if isinstance(score, tuple) else (RewardTerm("score", score),)
        stop = StopReason.COMPLETED if answer else StopReason.PARSE_ERROR
        return Step(rewards=terms, stop=stop, answer=answer)

    async def close(self) -> None:
        self._task = None
