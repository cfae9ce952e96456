"""ToolCaller: one action a line, every result appended, over as many turns as the environment gives.

The prompt of a turn is the ids of the turn before, what was drawn, and the encoded result: nothing is ever rendered
again, so that a whole episode is one sequence whose drawn tokens can be trained on as they were drawn. Templates that
re-write earlier turns break that.
"""

from __future__ import annotations

import hashlib

from keepworth.agents.agent import Action, Caller, first_line
from keepworth.episodes.interaction import Observation, ToolDescription
from keepworth.episodes.model import FinishReason, Tokens
from keepworth.episodes.prompt_text import as_line

TURN = ">"
RESULT = "="


class ToolCaller:
    """head: worked examples in the same form. max_tokens: of one action."""

    def __init__(self, head: str = "", *, role: str = "policy", max_tokens: int = 24) -> None:
        self.head, self.role, self.max_tokens = head, role, max_tokens
        self.prompt_id = f"tool_caller/v1-{hashlib.sha256(head.encode()).hexdigest()[:8]}"
        self._ids: Tokens = ()
        self._ended = True

    @property
    def begun(self) -> bool:
        return bool(self._ids)

    def state(self) -> str:
        """The content hash of what the agent remembers beside what it has read."""
        return ""

    async def act(self, observation: Observation, model: Caller) -> Action:
        if self._ids:
            line_end = "" if self._ended else "\n"
            self._ids += model.encode_continuation(f"{line_end}{RESULT} {as_line(observation.text)}\n{TURN}")
        else:
            self._ids = model.encode(self.head + opening(observation.question or observation.text, observation.tools))
        sample = await model.call(
            self._ids,
            role=self.role,
            prompt_id=self.prompt_id,
            max_tokens=self.max_tokens,
            stop_ids=model.stop_ids_for("\n"),
            memory=self.state(),
        )
        self._ids += sample.ids
        text = model.decode(sample.ids)
        self._ended = text.endswith("\n")  # it may also have ended with the end of the text, or been cut
        return Action(first_line(text), cut=sample.finish is FinishReason.LENGTH)


def opening(question: str, tools: tuple[ToolDescription, ...] = ()) -> str:
    """How an episode begins: the tools, one a line, and the question. Ends where the first action begins."""
    lines = [f"{each.name}: {each.argument} - {each.does}" for each in tools]
    return "\n".join((*lines, f"Question: {as_line(question)}", TURN))
