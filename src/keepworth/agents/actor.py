"""Actor: a language model that acts in a world of text, one line an action, with what its memory shows in its prompt."""

from __future__ import annotations

import hashlib

from keepworth.agents.agent import Action, Caller, first_line
from keepworth.episodes.episode import Shown
from keepworth.episodes.interaction import Observation
from keepworth.episodes.model import FinishReason
from keepworth.episodes.prompt_text import as_line
from keepworth.memory.episode import LiveEpisode

REMEMBERED = "Earlier:\n{memory}\n\n"
ASKED = "Task: {situation}\nPossible: {actions}\nAction:"


class Actor:
    """memory: the episode that it remembers in; None for an agent without memory. Where only one action is possible it is taken
    unasked. head: what every prompt begins with, so that an engine computes it once. max_tokens: of one action.

    What it says is taken for the action that it names: as it stands, or as the only one that begins with it. Else it is what the
    environment is given, to refuse."""

    def __init__(
        self, memory: LiveEpisode | None = None, *, head: str = "", role: str = "actor", max_tokens: int = 16
    ) -> None:
        self._memory = memory
        self.head, self.role, self.max_tokens = head, role, max_tokens
        wording = "\x1f".join((head, REMEMBERED, ASKED))
        self.prompt_id = f"actor/v1-{hashlib.sha256(wording.encode()).hexdigest()[:8]}"

    def render(self, observation: Observation, memory: str) -> str:
        """The prompt, up to where the action begins. memory: what is shown of it, "" for nothing."""
        remembered = REMEMBERED.format(memory=memory) if memory else ""
        situation = ": ".join(as_line(part) for part in (observation.question, observation.text) if part.strip())
        possible = "; ".join(as_line(action, ";") for action in observation.actions)
        return self.head + remembered + ASKED.format(situation=situation, actions=possible)

    async def act(self, observation: Observation, model: Caller, extra: str = "") -> Action:
        """extra: what is shown besides what memory shows."""
        if len(observation.actions) == 1:
            return Action(observation.actions[0])
        text, shown = extra, tuple[Shown, ...]()
        if self._memory is not None:
            hits = self._memory.search(observation.text, actions=observation.actions)
            text, shown = (
                "\n".join(filter(None, (extra, hits.text))),
                tuple(Shown(hit.id, hit.score, hit.text) for hit in hits),
            )
        sample = await model.call(
            model.encode(self.render(observation, text)),
            role=self.role,
            prompt_id=self.prompt_id,
            max_tokens=self.max_tokens,
            stop_ids=model.stop_ids_for("\n"),
        )
        action = named(first_line(model.decode(sample.ids)), observation.actions)
        if self._memory is not None and action:
            self._memory.act(action)
        return Action(action, cut=sample.finish is FinishReason.LENGTH, shown=shown)


def named(text: str, actions: tuple[str, ...]) -> str:
    """The action that `text` is, or the only one that begins with it; else `text` itself."""
    folded = text.strip().rstrip(".;").casefold()
    same = [action for action in actions if as_line(action, ";").casefold() == folded]
    begun = [action for action in actions if folded and as_line(action, ";").casefold().startswith(folded)]
    return (same or begun)[0] if same or len(begun) == 1 else text
