"""Question: one observation, one answer, one reward."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable

from keepworth.environments.environment import Step, in_thread
from keepworth.episodes.episode import Observation, RewardTerm, StopReason, Task
from keepworth.tasks.own import messages_of
from keepworth.tasks.verifiers import verifier, verify

Score = Callable[[Task, str], float | tuple[RewardTerm, ...] | Awaitable[float | tuple[RewardTerm, ...]]]
"""(task, answer) to a reward, or to several named ones; it may be asynchronous."""


class Question:
    """Asks a task's input and scores the answer with the verifier that the task names.

    score: another rule in its place, run in a thread because it may hang; name: what its reward is called, where it is one."""

    def __init__(self, score: Score | None = None, name: str = "score") -> None:
        self._score, self._name = score, name
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
            found = await in_thread(self._score, self._task, answer)
            found = await found if isawaitable(found) else found
            terms = found if isinstance(found, tuple) else (RewardTerm(self._name, found),)
        stop = StopReason.COMPLETED if answer else StopReason.PARSE_ERROR
        return Step(rewards=terms, stop=stop, answer=answer)

    async def close(self) -> None:
        self._task = None


# Document: a text handed over section by section, then a question about it.
#
# After the task of "MemAgent: Reshaping Long-Context LLM with Multi-Conv RL-based Memory Agent" (arXiv 2507.02259): what is
# read may be longer than any window. The question is known from the start; the reward comes from the answer alone.


Sections = Callable[[Task], Sequence[str]]
"""The text of a task, in the pieces in which it is read."""


LOGGED = ("token_f1", "exact_match")


class Document:
    """`sections` of the task one after the other, whatever the agent does with them; then the question.

    reward: the verifier that counts; those of `LOGGED` are written down beside it."""

    def __init__(self, sections: Sections, reward: str = "token_f1") -> None:
        self._sections, self._reward = sections, reward
        self._task: Task | None = None
        self._left: list[str] = []
        self._answering = False

    async def reset(self, task: Task, seed: int) -> Observation:
        self._task, self._left = task, list(self._sections(task))
        return self._next()

    async def step(self, action: str) -> Step:
        assert self._task is not None
        if not self._answering:
            return Step(self._next())
        answer = action.strip()
        rewards = tuple(
            RewardTerm(name, verifier(name)(answer, self._task.answers), weight=float(name == self._reward))
            for name in dict.fromkeys((self._reward, *LOGGED))
        )
        return Step(rewards=rewards, stop=StopReason.COMPLETED if answer else StopReason.PARSE_ERROR, answer=answer)

    async def close(self) -> None:
        self._task, self._left = None, []

    def _next(self) -> Observation:
        assert self._task is not None
        self._answering = not self._left
        if self._answering:
            return Observation("", question=self._task.input, turns_left=0)
        section = self._left.pop(0)
        return Observation(section, question=self._task.input, answer_due=False, turns_left=len(self._left) + 1)
