"""Agent: turns observations into actions by calling a model. One object per episode; it may remember.

The model that it is given (`Caller`) records what every call saw and drew, so the record does not depend on the agent."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from keepworth.base.errors import KeepworthError
from keepworth.base.text import as_line
from keepworth.records.episode import Decision, MemoryEvent, Observation, Shown, StopReason
from keepworth.records.model import FinishReason, Reads, Sample, Tokens


@dataclass(frozen=True, slots=True)
class Action:
    """An agent's action.

    Attributes:
        text: The action, for the environment.
        cut: Whether the tokens ran out before the model ended it; the environment gets it as it is.
        shown: Memories that the agent saw.
        operations: Changes that it made to its memory.
        errors: Failures that did not end its work, for the record.
        returned: What it returned, where that is no text.
        decisions: What its memory chose to show, for the record.
        signals: Outcomes that its tools told, for the record.
    """

    text: str
    cut: bool = False
    shown: tuple[Shown, ...] = ()
    operations: tuple[MemoryEvent, ...] = ()
    errors: tuple[str, ...] = ()
    returned: Any = None
    decisions: tuple[Decision, ...] = ()
    signals: tuple[str, ...] = ()


class AgentStopped(KeepworthError):
    """An agent came to no action. `stop` is how its episode ends, `errors` are failures before that, and `decisions` are what its
    memory chose to show."""

    def __init__(
        self,
        message: str,
        fix: str = "",
        *,
        stop: StopReason,
        errors: tuple[str, ...] = (),
        decisions: tuple[Decision, ...] = (),
    ) -> None:
        super().__init__(message, fix)
        self.stop, self.errors, self.decisions = stop, errors, decisions


class Caller(Reads, Protocol):
    """The model as one episode's agent sees it. Calls of many episodes are sampled together, and each is recorded. `seed` is for
    other random draws of the episode."""

    seed: int

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
        grammar: str = "",
    ) -> Sample:
        """Draws one sample, which is recorded as one segment. Raises ContextOverflow where the prompt and `max_tokens` exceed the
        window; the driver then ends the episode. Raises KeepworthError where the model cannot draw under the grammar.

        Args:
            prompt: The ids that the model continues.
            role: The name of the role that calls, which training tells apart.
            prompt_id: The name and the version of the wording of the prompt.
            max_tokens: The most ids of the sample.
            stop_ids: The sample ends with the first of these ids.
            stop: Texts; the first that occurs ends the sample with the token that completes it.
            memory: The content hash of the agent's memory before the call, "" for none.
            grammar: What the sample may say, in the form of Lark that llguidance reads; "" leaves it free.
        """
        ...

    def remembers(self, memory: str) -> None:
        """Records the content hash of the memory after the last call, where the call changed it."""
        ...


class Agent(Protocol):
    """Acts in one episode. Its first observation begins it."""

    async def act(self, observation: Observation, model: Caller) -> Action: ...


def first_line(text: str) -> str:
    """Returns the first line that is not blank, stripped; "" where there is none."""
    lines = text.strip().splitlines()
    return lines[0].strip() if lines else ""


async def one_line(
    model: Caller, prompt: Tokens, *, role: str, prompt_id: str, max_tokens: int, memory: str = ""
) -> tuple[Action, Sample]:
    """Draws text after a prompt up to the end of the line. Returns it as an action, with its sample.

    Args:
        model: The caller that the driver hands to the agent.
        prompt: The ids that the model continues.
        role: The name of the role that calls.
        prompt_id: The name and the version of the wording of the prompt.
        max_tokens: The most ids of the line. An action that reaches them is marked as `cut`.
        memory: The content hash of the agent's memory before the call, "" for none.
    """
    stop = model.stop_ids_for("\n")
    sample = await model.call(
        prompt, role=role, prompt_id=prompt_id, max_tokens=max_tokens, stop_ids=stop, memory=memory
    )
    return Action(first_line(model.decode(sample.ids)), cut=sample.finish is FinishReason.LENGTH), sample


# Completer: one line in, one line out, behind a constant head of worked examples.


class Completer:
    """Continues `head + before + observation + after` up to the end of the line. `head` holds worked examples, the same in every
    prompt, so that an engine computes them once. `max_tokens` limits one answer."""

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
