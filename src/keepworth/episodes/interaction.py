"""Observation: what an environment tells an agent. Text, never token ids."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ToolDescription:
    """A tool as an agent is told of it: its name, what its argument is called, and what it does, in one sentence."""

    name: str
    argument: str
    does: str


@dataclass(frozen=True, slots=True)
class Observation:
    """text: what there is to see now (a question, a tool's result, the next section of a document).

    question: what is to be answered in the end, where `text` is not it. tools: what may be used, in the first
    observation only. answer_due: False where the agent is only to read. turns_left: None where it is not limited.
    actions: all that can be done now, where they can be listed. named: those that `text` tells of, where it is something to be
    kept for later. state: key of the environment's state, equal for equal states and without step counters or times, for
    objectives that compare turns taken from one state ("": not comparable)."""

    text: str
    question: str = ""
    tools: tuple[ToolDescription, ...] = ()
    answer_due: bool = True
    turns_left: int | None = None
    actions: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    state: str = ""
