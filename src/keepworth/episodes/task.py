"""Task: what an agent is asked, and the hidden key that says whether it answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Turn:
    """One utterance of a conversation. `evidence` is part of the hidden key: no agent may read it."""

    speaker: str
    text: str
    index: int
    evidence: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """A dated stretch of conversation. `date` is ISO 8601 (`2023-05-20T02:21`), minutes resolution."""

    id: str
    date: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Task:
    """Immutable and serialisable.

    key: stable across machines and versions (`longmemeval/<question id>`).
    source: the data set it came from, with its variant (`longmemeval-oracle+50`).
    input: what the agent is asked.
    answers: hidden; any one of them counts as right.
    verifier: name of the function in `keepworth.tasks` that scores an answer against `answers`.
    sessions: the haystack, in order of date.
    evidence: ids of the sessions that hold the answer (hidden).
    tags: labels for reporting (`type`, `split`, ...), never shown to an agent.
    """

    key: str
    source: str
    input: str
    answers: tuple[str, ...]
    verifier: str
    asked_at: str = ""
    sessions: tuple[Session, ...] = ()
    evidence: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
