"""An agent that does what a function chooses, with a memory that learns.

    memory = Memory("experience.mem", policy="mixture")
    with memory.episode(task.input) as episode:
        agent = FunctionActor(choose, episode)  # choose(observation, shown) -> one of observation.actions

Each step is stored before the next, so a process that dies in between leaves a pending episode. The driver of the episode
(`keepworth.worlds.driver`) passes rewards to memory: an agent never sees its reward."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from keepworth.base.errors import KeepworthError
from keepworth.memory.choose.pool import Advice
from keepworth.memory.episode import LiveEpisode
from keepworth.memory.event_loop import expecting_event_loop
from keepworth.memory.item import ItemKind
from keepworth.memory.search.search import Hits
from keepworth.records.episode import Observation, Shown
from keepworth.worlds.agent import Action, Caller

Choose = Callable[[Observation, Hits], "str | Awaitable[str]"]
"""Maps (observation, memory's hits) to an action. It may be asynchronous, for example to ask an endpoint."""


class FunctionActor:
    """An agent that does what `choose` returns. A single possible action is taken without calling it; `decisions` counts its
    calls.

    Args:
        memory: The episode that it remembers in; None for an agent without memory.
        top_k: The most items that memory may show in a step.
        observes: Whether it stores what observations name.
        worded: Words the choice. Memory then stores these words instead of the action, and does not get the list of actions.
    """

    def __init__(
        self,
        choose: Choose,
        memory: LiveEpisode | None = None,
        *,
        top_k: int = 10,
        observes: bool = False,
        worded: Callable[[str, Observation], str] | None = None,
    ) -> None:
        self._choose, self._memory, self._top_k = choose, memory, top_k
        self._observes, self._worded = observes, worded
        self.decisions = 0

    async def act(self, observation: Observation, model: Caller) -> Action:
        memory = self._memory
        if memory is not None and self._observes and observation.named:
            text = observation.text
            memory.observe(Advice(text, text, do=observation.named, kind=ItemKind.EPISODE))
        if len(observation.actions) == 1:
            return Action(observation.actions[0])
        hits = Hits(())
        if memory is not None:
            actions = () if self._worded is not None else observation.actions
            with expecting_event_loop():
                hits = memory.search(observation.text, actions=actions, top_k=self._top_k)
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
