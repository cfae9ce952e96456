"""Completer: one line in, one line out, behind a constant head of worked examples."""

from __future__ import annotations

import hashlib

from keepworth.agents.agent import Action, Caller, first_line
from keepworth.episodes.interaction import Observation
from keepworth.episodes.model import FinishReason
from keepworth.episodes.prompt_text import as_line


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
        sample = await model.call(
            model.encode(self.render(as_line(observation.text))),
            role=self.role,
            prompt_id=self.prompt_id,
            max_tokens=self.max_tokens,
            stop_ids=model.stop_ids_for("\n"),
        )
        return Action(first_line(model.decode(sample.ids)), cut=sample.finish is FinishReason.LENGTH)
