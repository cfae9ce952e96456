"""What a rollout is given: everything in it that takes time goes through its context.

A rollout is a coroutine that makes one episode of a task. The same one is measured (`keepworth.rollouts.batching.together`) and
trained on (`keepworth.learning.collect.pipeline.Pipeline`): each hands in a context of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from keepworth.episodes.episode import Episode
from keepworth.episodes.model import Sample, SamplingParams, Tokens
from keepworth.episodes.task import Task


class RolloutContext(Protocol):
    """id: the episode's. group: index of its group. seed: for whatever else draws, such as an environment."""

    @property
    def id(self) -> str: ...

    @property
    def group(self) -> int: ...

    @property
    def seed(self) -> int: ...

    async def sample(self, prompt: Tokens, params: SamplingParams) -> Sample:
        """One sample; `params.seed` is not looked at: draws are seeded by whose call it is."""
        ...

    async def call(
        self, function: Callable[..., Any], *arguments: Any, seconds: float | None = None, name: str = ""
    ) -> Any:
        """What a judge, a tool or another slow function says; it may be asynchronous. seconds: how long it may take."""
        ...

    async def with_group(
        self, name: str, function: Callable[[Sequence[Any]], Sequence[Any]], item: Any, seconds: float | None = None
    ) -> Any:
        """The result for `item` of a function that takes the items of several members of the group at once."""
        ...

    async def shared(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a function that is called once for all members of the group; it may be asynchronous."""
        ...

    def horizon(self, otherwise: int) -> int:
        """How far the episode may go, where the stage of the training says so; else `otherwise`."""
        ...


Rollout = Callable[[Task, RolloutContext], Awaitable[Episode]]
"""Makes one episode of a task, called `context.id`."""
