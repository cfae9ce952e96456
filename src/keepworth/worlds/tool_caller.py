"""ToolCaller: one action a line, every result appended, over as many turns as the environment gives.

The prompt of a turn consists of the ids of the turn before, the drawn ids, and the encoded result. Nothing is rendered again, so
a whole episode is one sequence whose drawn tokens can be trained on as they were drawn. Templates that rewrite earlier turns
would break that."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from keepworth.base.text import as_line
from keepworth.memory.overlay import Bank
from keepworth.memory.search.passages import block
from keepworth.records.episode import (
    MemoryEvent,
    Observation,
    Operation,
    OperationKind,
    ParseStatus,
    Shown,
    ToolDescription,
)
from keepworth.records.model import Tokens
from keepworth.worlds.agent import Action, Caller, one_line

TURN = ">"
RESULT = "="


class ToolCaller:
    """An agent that writes one action a line. `head` holds worked examples in the same form; `max_tokens` limits one action."""

    def __init__(self, head: str = "", *, role: str = "policy", max_tokens: int = 24) -> None:
        self.head, self.role, self.max_tokens = head, role, max_tokens
        self.prompt_id = f"tool_caller/v1-{hashlib.sha256(head.encode()).hexdigest()[:8]}"
        self._ids: Tokens = ()
        self._ended = True

    def state(self) -> str:
        """Returns the content hash of the agent's memory, besides what it has read."""
        return ""

    async def act(self, observation: Observation, model: Caller) -> Action:
        if self._ids:
            line_end = "" if self._ended else "\n"
            self._ids += model.encode_continuation(f"{line_end}{RESULT} {as_line(observation.text)}\n{TURN}")
        else:
            self._ids = model.encode(self.head + opening(observation.question or observation.text, observation.tools))
        action, sample = await one_line(
            model, self._ids, role=self.role, prompt_id=self.prompt_id, max_tokens=self.max_tokens, memory=self.state()
        )
        self._ids += sample.ids
        self._ended = model.decode(sample.ids).endswith("\n")  # it may also have ended with the text's end, or been cut
        return action


def opening(question: str, tools: tuple[ToolDescription, ...] = ()) -> str:
    """Returns the beginning of an episode: the tools, one a line, and the question, up to where the first action begins."""
    lines = [f"{tool.name}: {tool.argument} - {tool.does}" for tool in tools]
    return "\n".join((*lines, f"Question: {as_line(question)}", TURN))


# MemoryToolCaller: memory as tools. The model itself decides when to search its memory, and what to write into it.
#
# An action line `recall: ...` shows what the memory holds, `remember: ...` adds to it; every other line goes to the
# environment. Memory's answers are read like any tool's result, so that all of it, searches and writes, is one sequence
# of drawn tokens which the reward of the answer reaches. The memory is the fork that the driver hands to this episode.


RECALL = ToolDescription("recall", "query", "What memory holds about it.")
REMEMBER = ToolDescription("remember", "fact", "Writes it into memory.")
NOTHING = "(nothing)"


class MemoryToolCaller(ToolCaller):
    """An agent whose model calls memory as tools.

    Args:
        bank: The memory of this episode.
        calls: The most calls of memory between two actions; a line after that goes to the environment unchanged.
        k: Items that a search shows.
        mode: The mode of the search, as in `Bank.search`.
    """

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
    ) -> None:
        super().__init__(head, role=role, max_tokens=max_tokens)
        self.bank, self.calls, self.k, self.mode = bank, calls, k, mode

    async def act(self, observation: Observation, model: Caller) -> Action:
        shown: list[Shown] = []
        operations: list[MemoryEvent] = []
        current = observation
        if not self._ids:
            current = replace(observation, tools=(RECALL, REMEMBER, *observation.tools))
        for used in range(self.calls + 1):
            action = await super().act(current, model)
            name, colon, argument = action.text.partition(":")
            is_tool = colon and name.strip().lower() in (RECALL.name, REMEMBER.name)
            if action.cut or not is_tool or used == self.calls:
                break
            if name.strip().lower() == RECALL.name:
                current = Observation(self._recall(argument.strip(), shown))
            else:
                current = Observation(self._remember(argument.strip(), operations))
                model.remembers(self.state())
        return replace(action, shown=tuple(shown), operations=tuple(operations))

    def state(self) -> str:
        return self.bank.content_hash()

    def _recall(self, query: str, shown: list[Shown]) -> str:
        hits = self.bank.search(query, self.k, mode=self.mode) if query and len(self.bank) else []
        lines = {id: as_line(line.removeprefix("- "), "|") for id, line in block(hits, query).lines.items()}
        shown += [Shown(hit.item.id, hit.score, lines[hit.item.id]) for hit in hits if hit.item.id in lines]
        return " | ".join(lines.values()) or NOTHING

    def _remember(self, fact: str, operations: list[MemoryEvent]) -> str:
        operation = Operation(OperationKind.ADD, (), fact)
        outcome = self.bank.apply(operation)
        status = ParseStatus.OK if outcome.applied else ParseStatus.INVALID
        operations.append(MemoryEvent(operation, status, "applied" if outcome.applied else f"no-op: {outcome.reason}"))
        return "written" if outcome.applied else f"not written: {outcome.reason}"
