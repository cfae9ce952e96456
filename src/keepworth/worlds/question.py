"""Question: one observation, one answer, one reward."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from keepworth.records.episode import Episode, Observation, RewardTerm, StopReason, Task
from keepworth.worlds.environment import Step, call_function
from keepworth.worlds.own import messages_of
from keepworth.worlds.verifiers import verify

Score = Callable[..., float | tuple[RewardTerm, ...] | Awaitable[float | tuple[RewardTerm, ...]]]
"""Maps (task, answer) to a reward, or to several named ones. It may be asynchronous. That of a `JudgedQuestion` also gets the
episode."""


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
        answer = action.strip()
        return await self._scored(answer, answer)

    async def _scored(self, answer: str, *judged: Any) -> Step:
        assert self._task is not None
        if self._score is None:
            terms: tuple[RewardTerm, ...] = (RewardTerm(self._task.verifier, verify(self._task, answer)),)
        else:
            score = await call_function(self._score, self._task, *judged)
            terms = score if isinstance(score, tuple) else (RewardTerm("score", score),)
        stop = StopReason.COMPLETED if answer else StopReason.PARSE_ERROR
        return Step(rewards=terms, stop=stop, answer=answer)

    async def close(self) -> None:
        self._task = None


class JudgedQuestion(Question):
    """A question whose score also gets the episode, and an answer that may be no text."""

    async def judge(self, returned: Any, episode: Episode) -> Step:
        returned = returned.strip() if isinstance(returned, str) else returned
        return await self._scored(episode.answer, returned, episode)
