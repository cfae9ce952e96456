"""Episode: everything one attempt at a task did. The only thing stored, viewed, replayed and trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from keepworth.episodes.decision import Decision
from keepworth.episodes.operation import Operation, ParseStatus
from keepworth.episodes.reward import RewardTerm, combined, metric
from keepworth.episodes.segment import Segment


class StopReason(str, Enum):
    COMPLETED = "completed"
    MAX_TURNS = "max_turns"
    MAX_TOKENS = "max_tokens"
    CONTEXT_OVERFLOW = "context_overflow"
    PARSE_ERROR = "parse_error"
    TOOL_STOP = "tool_stop"
    TIMEOUT = "timeout"
    ENVIRONMENT_ERROR = "environment_error"
    ABORTED = "aborted"


UNSOUND = frozenset({StopReason.ENVIRONMENT_ERROR, StopReason.TIMEOUT, StopReason.ABORTED})
"""How episodes end that say nothing about the policy."""


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """An operation an agent asked for, how its text parsed, and what the bank answered ("applied", "no-op: ...")."""

    operation: Operation
    status: ParseStatus
    outcome: str


@dataclass(frozen=True, slots=True)
class Shown:
    """An item as it was shown to the model, for people to read: id, retrieval score, text."""

    item: str
    score: float
    text: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """What an agent was told, and what it did, where it called no model that drew the action."""

    seen: str
    done: str


@dataclass(frozen=True, slots=True)
class Episode:
    """One attempt at a task. source: the data set of its task (`Task.source`), for statistics per kind of task.
    parent: of a re-roll, the id of the episode from whose middle it starts."""

    id: str
    task: str
    role: str
    question: str
    segments: tuple[Segment, ...]
    answer: str
    expected: tuple[str, ...]
    rewards: tuple[RewardTerm, ...]
    stop: StopReason
    memory_snapshot: str
    policy_version: int
    shown: tuple[Shown, ...] = ()
    decisions: tuple[Decision, ...] = ()
    operations: tuple[MemoryEvent, ...] = ()
    errors: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    parent: str = ""
    exchanges: tuple[Exchange, ...] = ()

    @property
    def reward(self) -> float:
        return combined(self.rewards)

    @property
    def metric(self) -> float:
        return metric(self.rewards)


@dataclass(frozen=True, slots=True)
class Group:
    """Episodes of one task that start from the same memory snapshot and share a baseline."""

    task: str
    memory_snapshot: str
    episodes: tuple[Episode, ...]

    def __post_init__(self) -> None:
        for episode in self.episodes:
            if episode.task != self.task or episode.memory_snapshot != self.memory_snapshot:
                raise ValueError(
                    f"group of task {self.task!r} at snapshot {self.memory_snapshot!r} was given episode "
                    f"{episode.id!r} of task {episode.task!r} at snapshot {episode.memory_snapshot!r}"
                )
