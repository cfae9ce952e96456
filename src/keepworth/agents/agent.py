"""Agent: turns observations into actions by calling a model. One object per episode; it may remember.

What every call saw and drew is recorded by the model it is handed (`Caller`), not by the agent: an agent cannot forget
to say what it did.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from keepworth.episodes.episode import MemoryEvent, Observation, Shown
from keepworth.episodes.model import FinishReason, Reads, Sample, Tokens
from keepworth.episodes.text import as_line


@dataclass(frozen=True, slots=True)
class Action:
    """text: for the environment. cut: the model had not ended it when its tokens ran out, and what is there stands.

    shown: memories it saw; operations: changes it made to its memory."""

    text: str
    cut: bool = False
    shown: tuple[Shown, ...] = ()
    operations: tuple[MemoryEvent, ...] = ()


class Caller(Reads, Protocol):
    """The model as one episode's agent sees it. Calls of many episodes are sampled together; each is recorded."""

    async def call(
        self,
        prompt: Tokens,
        *,
        role: str,
        prompt_id: str,
        max_tokens: int,
        stop_ids: frozenset[int],
        stop: Sequence[str] = (),
        memory: str = "",
    ) -> Sample:
        """One sample, one segment. stop: texts, the first of which ends the sample with the token that completes it. memory:
        content hash of what the agent remembers before the call.

        Raises ContextOverflow where the prompt and `max_tokens` exceed the window; whoever runs the episode ends it."""
        ...

    def remembers(self, memory: str) -> None:
        """The content hash of the memory after the last call, where the call changed it."""
        ...


class Agent(Protocol):
    """Begins afresh with the first observation of its only episode."""

    async def act(self, observation: Observation, model: Caller) -> Action: ...


def first_line(text: str) -> str:
    """The first line that says anything, stripped; empty where none does."""
    lines = text.strip().splitlines()
    return lines[0].strip() if lines else ""


async def one_line(
    model: Caller, prompt: Tokens, *, role: str, prompt_id: str, max_tokens: int, memory: str = ""
) -> tuple[Action, Sample]:
    """What the model says behind a prompt up to the end of the line, as an action, and the sample it was read from."""
    stop = model.stop_ids_for("\n")
    sample = await model.call(
        prompt, role=role, prompt_id=prompt_id, max_tokens=max_tokens, stop_ids=stop, memory=memory
    )
    return Action(first_line(model.decode(sample.ids)), cut=sample.finish is FinishReason.LENGTH), sample


# Completer: one line in, one line out, behind a constant head of worked examples.


class Completer:
    """Continues `head + before + observation + after` up to the end of the line.

    head: worked examples, the same in every prompt, so that an engine computes them once. max_tokens: of one answer."""

    def __init__(self, head: str, before: str = "", after: str = "", *, role: str = "policy", max_tokens: int) -> None:
        self.head, self.before, self.after = head, before, after
        self.role, self.max_tokens = role, max_tokens
        wording = "\x1f".join((head, before, after))
        self.prompt_id = f"completer/v1-{hashlib.sha256(wording.encode()).hexdigest()[:8]}"

    def render(self, text: str) -> str:
        return f"{self.head}{self.before}{text}{self.after}"

    async def act(self, observation: Observation, model: Caller) -> Action:
        prompt = model.encode(self.render(as_line(observation.text)))
        action, _ = await one_line(model, prompt, role=self.role, prompt_id=self.prompt_id, max_tokens=self.max_tokens)
        return action
