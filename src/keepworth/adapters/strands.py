"""Strands Agents' `MemoryStore` over a memory, in a `MemoryManager` that knows where a turn begins and ends.

from strands import Agent
from keepworth import Memory
from keepworth.adapters.strands import KeepworthManager

memory = Memory("agent.mem")
agent = Agent(memory_manager=KeepworthManager(memory, user_id="ana"))
agent("I live in Oslo.")

The manager puts what the memory shows into the user's message, and gives the model the framework's tool to search for more. A
store alone is not told what the user says and what is answered; the manager's hooks are. Needs the package `strands-agents`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

from keepworth.adapters.turns import HostTurn, Turns, load_host
from keepworth.memory.headline import MARK
from keepworth.memory.search.how_many import WIDEST
from keepworth.memory.search.search import Hits

PACKAGE, LEAST = "strands-agents", "1.60"
_HOOKS = ("AfterInvocationEvent", "AfterToolCallEvent", "BeforeInvocationEvent")
MemoryManager, MemoryStore, MemoryEntry, AfterInvocation, AfterToolCall, BeforeInvocation = load_host(
    PACKAGE,
    LEAST,
    [
        "strands.memory.memory_manager:MemoryManager",
        "strands.memory.types:MemoryStore",
        "strands.memory.types:MemoryEntry",
        *(f"strands.hooks.events:{name}" for name in _HOOKS),
    ],
)
_TURN: ContextVar[HostTurn | None] = ContextVar("keepworth_strands_turn", default=None)
"""The turn of the agent that runs in this context, as a store is not told which agent searches."""


class KeepworthStore(MemoryStore):  # type: ignore[misc, valid-type]  # the package is optional
    """The store of a `KeepworthManager`: a search of a turn belongs to the turn's episode.

    Args:
        turns: The turns of the agents that use the store.
        name: The name of the store, for the framework's tools.
    """

    description, writable, extraction = "What the agent remembers of its user and its work", True, False

    def __init__(self, turns: Turns, name: str) -> None:
        self.turns, self.name, self.max_search_results = turns, name, turns.top_k

    async def search(self, query: str, options: Any = None) -> list[Any]:
        """Return the notes that fit a query, with the id of each and of the decision that showed it."""
        turn = _TURN.get()
        if turn is None or not turn.open:
            turn = await asyncio.to_thread(self.turns.begin, query, conversation=None, heard=False)
            hits = turn.shown
        elif query.strip() == turn.message.strip():
            hits = turn.shown
        else:
            top_k = (options or {}).get("max_search_results") or self.max_search_results
            hits = await asyncio.to_thread(self.turns.search, turn, query, top_k=top_k)
        return _entries(hits)

    async def add(self, content: str, metadata: dict[str, Any] | None = None) -> str:
        """Remember a text, where the model or the program asks for it, and return the id of its item."""
        item = await asyncio.to_thread(self.turns.add, content, metadata=metadata or {})
        return str(item.id)


class KeepworthManager(MemoryManager):  # type: ignore[misc, valid-type]  # the package is optional
    """A manager for the agents of one person: a turn is an invocation of an agent, and each agent is a conversation.

    Args:
        memory: A `Memory`, an `AsyncMemory`, or a `Client` of a served one.
        reward: A function from a finished turn to its reward, or to None; `turn.host` is the `AfterInvocationEvent`.
        user_id: The person whom the agents serve; "" for nobody.
        agent_id: The agent whose memory it is; "" for all.
        top_k: The most notes that a turn shows; "auto" for those that answer (`Memory.search`).
        stores: Other stores, which are searched beside the memory.
        options: What else Strands' own manager takes, such as `add_tool_config=True`.
    """

    def __init__(
        self,
        memory: Any,
        reward: Callable[[HostTurn], float | None] | None = None,
        *,
        user_id: str = "",
        agent_id: str = "",
        top_k: int | str = 5,
        stores: Sequence[Any] = (),
        **options: Any,
    ) -> None:
        self.turns = Turns(memory, "strands", reward, user_id=user_id, agent_id=agent_id, top_k=top_k)
        injection = {"format": _prompt, "max_entries": 2 * (WIDEST if isinstance(top_k, str) else top_k)}
        super().__init__([KeepworthStore(self.turns, "keepworth"), *stores], **{"injection": injection, **options})

    async def init_agent(self, agent: Any) -> None:
        """Add the hooks to an agent that say where its turns begin and end."""
        await super().init_agent(agent)
        conversation = str(uuid4())

        async def begin(event: Any) -> None:
            _TURN.set(
                await asyncio.to_thread(self.turns.begin, _words(event.messages, "user"), conversation=conversation)
            )

        async def use_tool(event: Any) -> None:
            turn = _TURN.get()
            if turn is not None and event.cancel_message is None:
                failed = event.exception is not None or event.result.get("status") == "error"
                output = _text(event.result.get("content", ()))
                await asyncio.to_thread(self.turns.use_tool, turn, failed=failed, output=output)

        async def finish(event: Any) -> None:
            turn = _TURN.get()
            if turn is not None:
                answer = "" if event.result is None else _words([event.result.message], "assistant")
                await asyncio.to_thread(self.turns.finish, turn, answer, host=event)

        agent.add_hook(begin, BeforeInvocation)
        agent.add_hook(use_tool, AfterToolCall)
        agent.add_hook(finish, AfterInvocation)


def _entries(hits: Hits) -> list[Any]:
    """Return one entry for each line of a block."""
    block = hits.block
    named = [(line, {"id": id, "decision": hits.decision}) for id, line in block.lines.items()]
    lines = [*named, *([(block.last, {"decision": hits.decision})] if block.last else [])]
    return [MemoryEntry(content=line, metadata=metadata) for line, metadata in lines]


def _prompt(context: Any) -> str:
    """Render entries as every block of recalled notes is."""
    return "\n".join([MARK, *(entry.content for entry in context.entries)])


def _words(messages: Any, role: str) -> str:
    return "\n".join(_text(message["content"]) for message in messages or () if message["role"] == role).strip()


def _text(content: Any) -> str:
    return "\n".join(block["text"] for block in content if "text" in block)
