"""Agents in environments, played ahead of the learner: what `rollouts.driver.play` does in turns, for a `Pipeline`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from keepworth.episodes.episode import Episode
from keepworth.episodes.model import Model, Sample, SamplingParams, Tokens
from keepworth.episodes.task import Task
from keepworth.learning.collect.attempt import Attempt
from keepworth.learning.collect.growing_memory import GrowingMemory
from keepworth.memory.overlay.bank import Bank
from keepworth.rollouts.driver import Limits, Play, play_one

_ROOTS = 64
"""Groups whose memory is kept for members that begin later; a group begun again after a kill takes it anew."""


@dataclass(slots=True)
class PlayedAhead:
    """The `Episodes` of a pipeline: tasks in an order that the ticket decides, played as `how` says.

    An environment that fails makes an episode of which the pipeline begins another; see `rollouts.driver` for what ends
    an episode. A stage's horizon counts turns, in the place of those of `limits`. measure: called with the number of updates
    made. memory: that groups start from, where it grows while the model is trained, in place of one that `how` makes for
    each task.
    """

    model: Model
    tasks: Callable[[int], Task]
    how: Play
    measure: Callable[[int], None]
    temperature: float = 1.0
    limits: Limits = field(default_factory=Limits)
    memory: GrowingMemory | None = None
    _roots: dict[int, Bank | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.memory is not None and self.how.memory is not None:
            raise ValueError(
                "PlayedAhead was given a memory that grows and a way to make one for each task: leave one out"
            )

    def task(self, ticket: int) -> Task:
        return self.tasks(ticket)

    async def rollout(self, task: Task, attempt: Attempt) -> Episode:
        return await play_one(
            self.model,
            _Sampling(attempt, self.temperature),
            task,
            self.how,
            self._root(task, attempt.ticket),
            identity=attempt.id,
            seed=attempt.seed,
            temperature=self.temperature,
            limits=replace(self.limits, max_turns=attempt.horizon(self.limits.max_turns)),
        )

    def evaluate(self, step: int) -> None:
        self.measure(step)

    def _root(self, task: Task, ticket: int) -> Bank | None:
        """The memory that the group starts from, the same for every member."""
        if self.memory is not None:
            return self.memory.root(ticket)
        if self.how.memory is None:
            return None
        if ticket not in self._roots:
            self._roots[ticket] = self.how.memory(task)
            while len(self._roots) > _ROOTS:
                self._roots.pop(next(iter(self._roots)))
        return self._roots[ticket]


@dataclass(slots=True)
class _Sampling:
    """The driver's calls, answered through the attempt: on its tape, under whatever weights are in service."""

    attempt: Attempt
    temperature: float
    seconds: float = 0.0

    def enter(self) -> None: ...

    def leave(self) -> None: ...

    async def sample(self, episode: int, prompt: Tokens, max_tokens: int, stop_ids: frozenset[int]) -> Sample:
        params = SamplingParams(
            max_tokens, temperature=self.temperature, seed=self.attempt.seed, stop_ids=frozenset(stop_ids)
        )
        return await self.attempt.sample(prompt, params)
