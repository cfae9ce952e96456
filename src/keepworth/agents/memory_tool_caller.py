"""MemoryToolCaller: memory as tools. The model itself decides when to search its memory, and what to write into it.

An action line `recall: ...` shows what the memory holds, `remember: ...` adds to it; every other line goes to the
environment. What memory answered is read like any tool's result, so that all of it, searches and writes, is one sequence
of drawn tokens which the reward of the answer reaches. The memory is the fork that the driver hands to this episode.
"""

from __future__ import annotations

from dataclasses import replace

from keepworth.agents.agent import Action, Caller
from keepworth.agents.tool_caller import ToolCaller
from keepworth.episodes.episode import MemoryEvent, Shown
from keepworth.episodes.interaction import Observation, ToolDescription
from keepworth.episodes.operation import Operation, OperationKind, ParseStatus
from keepworth.episodes.prompt_text import as_line
from keepworth.memory.item import UNKNOWN, Provenance
from keepworth.memory.overlay import Bank

RECALL = ToolDescription("recall", "query", "What memory holds about it.")
REMEMBER = ToolDescription("remember", "fact", "Writes it into memory.")
NOTHING = "(nothing)"


class MemoryToolCaller(ToolCaller):
    """bank: of this episode. calls: of memory between two actions; a line past them goes to the environment as it is.

    k: items that a search shows. provenance: of what is written; mode: of the search, as in `Bank.search`."""

    def __init__(
        self,
        bank: Bank,
        head: str = "",
        *,
        role: str = "policy",
        max_tokens: int = 24,
        calls: int = 4,
        k: int = 3,
        mode: str = "hybrid",
        provenance: Provenance = UNKNOWN,
    ) -> None:
        super().__init__(head, role=role, max_tokens=max_tokens)
        self.bank, self.calls, self.k, self.mode, self.provenance = bank, calls, k, mode, provenance

    async def act(self, observation: Observation, model: Caller) -> Action:
        shown: list[Shown] = []
        operations: list[MemoryEvent] = []
        seen = observation
        if not self.begun:
            seen = replace(observation, tools=(RECALL, REMEMBER, *observation.tools))
        for used in range(self.calls + 1):
            action = await super().act(seen, model)
            name, colon, argument = action.text.partition(":")
            known = colon and name.strip().lower() in (RECALL.name, REMEMBER.name)
            if action.cut or not known or used == self.calls:
                break
            if name.strip().lower() == RECALL.name:
                seen = Observation(self._recalled(argument.strip(), shown))
            else:
                seen = Observation(self._remembered(argument.strip(), operations))
                model.remembers(self.state())
        return replace(action, shown=tuple(shown), operations=tuple(operations))

    def state(self) -> str:
        return self.bank.content_hash()

    def _recalled(self, query: str, shown: list[Shown]) -> str:
        hits = self.bank.search(query, self.k, mode=self.mode) if query and len(self.bank) else []
        shown += [Shown(hit.item.id, hit.score, hit.item.text) for hit in hits]
        return " | ".join(as_line(hit.item.text, "|") for hit in hits) or NOTHING

    def _remembered(self, fact: str, operations: list[MemoryEvent]) -> str:
        operation = Operation(OperationKind.ADD, (), fact)
        outcome = self.bank.apply(operation, provenance=self.provenance)
        status = ParseStatus.OK if outcome.applied else ParseStatus.INVALID
        operations.append(MemoryEvent(operation, status, "applied" if outcome.applied else f"no-op: {outcome.reason}"))
        return "written" if outcome.applied else f"not written: {outcome.reason}"
