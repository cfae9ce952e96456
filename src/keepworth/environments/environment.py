"""Environment: what a task looks like from outside an agent. Gives observations and rewards, never sees a token.

Methods are asynchronous, so that one program waits for many at once. They may raise and they may hang: whoever runs
them (`keepworth.rollouts.driver`) turns both into values. A method that blocks belongs in `Blocking`
(`keepworth.environments.blocking`), because nothing can interrupt it otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from keepworth.episodes.episode import StopReason
from keepworth.episodes.interaction import Observation
from keepworth.episodes.reward import RewardTerm
from keepworth.episodes.task import Task


@dataclass(frozen=True, slots=True)
class Step:
    """What an action led to.

    observation: what the agent sees next; nobody reads it once `stop` is set. rewards: of this action, added to those
    before. stop: why the episode ends, or None where it goes on. answer: what was taken as the answer, for the record.
    errors: what went wrong without ending the episode, such as a tool that failed."""

    observation: Observation = Observation("")  # noqa: RUF009  (frozen)
    rewards: tuple[RewardTerm, ...] = ()
    stop: StopReason | None = None
    answer: str = ""
    errors: tuple[str, ...] = ()


class Environment(Protocol):
    """One episode at a time; `reset` may be called again after `close`."""

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin `task`. seed: of whatever is drawn; the same for the same attempt, whatever ran before."""
        ...

    async def step(self, action: str) -> Step: ...

    async def close(self) -> None:
        """Give back what the episode held. Called once after every episode, also after one that failed."""
        ...
