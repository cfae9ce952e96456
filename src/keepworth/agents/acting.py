"""Agents that act with a memory which learns: one does what a function chooses, the other what a language model says.

    memory = Memory("experience.mem", policy="mixture")
    with memory.episode(task.input) as episode:
        agent = FunctionActor(choose, episode)  # choose(observation, shown) -> one of observation.actions

Each step is on file before the next, so a process that dies in between leaves an episode that is pending. What comes of an action
is told by whoever runs the episode (`keepworth.rollouts.driver`): an agent never sees its reward.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence

from keepworth.agents.agent import Action, Caller, one_line
from keepworth.episodes.episode import Observation, Shown
from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.text import as_line
from keepworth.memory.episode import AnyEpisode
from keepworth.memory.item import ItemKind
from keepworth.memory.policy.pool import Advice
from keepworth.memory.search.search import Hits

Choose = Callable[[Observation, Hits], "str | Awaitable[str]"]
"""(what is seen, what memory shows) -> the action. It may be asynchronous, as one that asks an endpoint is."""


class FunctionActor:
    """memory: the episode that it remembers in; None for an agent without memory. Where only one action is possible it is taken
    unasked. decisions: how many others were chosen.

    observes: it keeps what observations name. worded: how it words its choice; memory is told that in place of the action, and
    does not know which actions there are."""

    def __init__(
        self,
        choose: Choose,
        memory: AnyEpisode | None = None,
        *,
        observes: bool = False,
        worded: Callable[[str, Observation], str] | None = None,
    ) -> None:
        self._choose, self._memory = choose, memory
        self._observes, self._worded = observes, worded
        self.decisions = 0

    async def act(self, observation: Observation, model: Caller) -> Action:
        memory = self._memory
        if memory is not None and self._observes and observation.named:
            seen = observation.text
            memory.observe(Advice(seen, seen, do=observation.named, kind=ItemKind.EPISODE))
        if len(observation.actions) == 1:
            return Action(observation.actions[0])
        hits = self._search(observation, () if self._worded is not None else observation.actions)
        chosen = self._choose(observation, hits)
        action = chosen if isinstance(chosen, str) else await chosen
        if observation.actions and action not in observation.actions:
            raise KeepworthError(
                f"the agent chose {action!r:.200}, which is not possible here.",
                f"Choose one of {list(observation.actions)}.",
            )
        if memory is not None:
            memory.act(action if self._worded is None else self._worded(action, observation))
        self.decisions += 1
        return Action(action, shown=tuple(Shown(hit.id, hit.score, hit.text) for hit in hits))

    def _search(self, observation: Observation, actions: Sequence[str]) -> Hits:
        return Hits(()) if self._memory is None else self._memory.search(observation.text, actions=actions)


# ModelActor: a language model that acts in a world of text, one line an action, with what its memory shows in its prompt.


REMEMBERED = "Earlier:\n{memory}\n\n"
ASKED = "Task: {situation}\nPossible: {actions}\nAction:"


class ModelActor:
    """memory: the episode that it remembers in; None for an agent without memory. Where only one action is possible it is taken
    unasked. head: what every prompt begins with, so that an engine computes it once. max_tokens: of one action.

    What it says is taken for the action that it names: as it stands, or as the only one that begins with it. Else it is what the
    environment is given, to refuse."""

    def __init__(
        self, memory: AnyEpisode | None = None, *, head: str = "", role: str = "actor", max_tokens: int = 16
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
        prompt = model.encode(self.render(observation, text))
        said, _ = await one_line(model, prompt, role=self.role, prompt_id=self.prompt_id, max_tokens=self.max_tokens)
        action = named(said.text, observation.actions)
        if self._memory is not None and action:
            self._memory.act(action)
        return Action(action, cut=said.cut, shown=shown)


def named(text: str, actions: tuple[str, ...]) -> str:
    """The action that `text` is, or the only one that begins with it; else `text` itself."""
    folded = text.strip().rstrip(".;").casefold()
    same = [action for action in actions if as_line(action, ";").casefold() == folded]
    begun = [action for action in actions if folded and as_line(action, ";").casefold().startswith(folded)]
    return (same or begun)[0] if same or len(begun) == 1 else text
