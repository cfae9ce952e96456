"""A `Session` of the OpenAI Agents SDK over a memory.

from agents import Agent, Runner
from keepworth import Memory
from keepworth.adapters.openai_agents import KeepworthSession

agent = Agent(name="Assistant", instructions="Reply very concisely.")
session = KeepworthSession(Memory("agent.mem"), user_id="ana")
result = Runner.run_sync(agent, "Where do I live?", session=session, run_config=session.run_config)

The session is one conversation of one person. Its history is held by a session of the SDK, and it hears what passes. Its
`run_config` puts what the memory shows into the user's newest message before each call of a model; the history never holds it.
Where you have a `RunConfig` already, give it `call_model_input_filter=session.recall`. Needs the package `openai-agents`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import uuid4

from keepworth.adapters.turns import RewardOf, Turns, load_host

PACKAGE, LEAST = "openai-agents", "0.24"
SessionABC, SQLiteSession, RunConfig, ModelInputData = load_host(
    PACKAGE,
    LEAST,
    ["agents.memory:SessionABC", "agents:SQLiteSession", "agents:RunConfig", "agents.run:ModelInputData"],
)
_ERROR = "An error occurred while running the tool"
"""What the SDK answers the model where a function that is a tool raises."""


class KeepworthSession(SessionABC):  # type: ignore[misc, valid-type]
    """A conversation for `Runner.run`.

    Args:
        memory: A `Memory`, an `AsyncMemory`, or a `Client` of a served one.
        reward: A function from a finished turn to its reward, or to None; `turn.host` is the list of the turn's items.
        user_id: The person whose conversation it is; "" for nobody.
        agent_id: The agent whose memory it is; "" for all.
        top_k: The most notes that a turn shows; "auto" for those that answer (`Memory.search`).
        history: The session that holds the history; None for one in this process, with a name of its own.
    """

    def __init__(
        self,
        memory: Any,
        reward: RewardOf | None = None,
        *,
        user_id: str = "",
        agent_id: str = "",
        top_k: int | str = 5,
        history: Any = None,
    ) -> None:
        self.turns = Turns(memory, PACKAGE, reward, user_id=user_id, agent_id=agent_id, top_k=top_k)
        self.history = SQLiteSession(uuid4().hex) if history is None else history
        self.session_id = self.history.session_id
        self.session_settings = getattr(self.history, "session_settings", None)
        self.run_config = RunConfig(call_model_input_filter=self.recall)
        self._items: list[Any] = []
        self._commands: dict[str, str] = {}

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the newest items of the history, or all."""
        items: list[Any] = await self.history.get_items(limit)
        return items

    async def add_items(self, items: list[Any]) -> None:
        """Add items to the history. An answer without calls of tools finishes the turn."""
        await self.history.add_items(items)
        await asyncio.to_thread(self._hear, items)

    async def pop_item(self) -> Any:
        """Take the newest item out of the history."""
        return await self.history.pop_item()

    async def clear_session(self) -> None:
        """Empty the history. What the memory learned stays there, until `Memory.erase`."""
        await self.history.clear_session()

    async def recall(self, data: Any) -> Any:
        """Put what the memory shows into the user's newest message, before a call of a model."""
        items = list(data.model_data.input)
        at = next((place for place in reversed(range(len(items))) if _speaker(items[place]) == "user"), None)
        if at is not None and (words := _text(items[at])):
            turn = await asyncio.to_thread(self.turns.go_on, words, conversation=self.session_id)
            if turn.text:
                content = items[at]["content"]
                block = {"type": "input_text", "text": turn.text}
                items[at] = {
                    **items[at],
                    "content": f"{turn.text}\n\n{content}" if isinstance(content, str) else [block, *content],
                }
        return ModelInputData(input=items, instructions=data.model_data.instructions)

    def _hear(self, items: list[Any]) -> None:
        """Take how tools ended, and what was answered, from new items of the history."""
        turn = self.turns.current(conversation=self.session_id)
        if turn is None:
            return
        self._items += items
        for command, failed, output in self._tool_ends(items):
            self.turns.use_tool(turn, failed=failed, command=command, output=output)
        answers = [_text(item) for item in items if _speaker(item) == "assistant"]
        if answers and not any(str(item.get("type", "")).endswith("_call") for item in items):
            self.turns.finish(turn, answers[-1], host=self._items)
            self._items, self._commands = [], {}

    def _tool_ends(self, items: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, bool, str]]:
        """Yield the command, whether it failed, and the output of each tool that says how it ended."""
        for item in items:
            id, output = str(item.get("call_id", "")), item.get("output")
            if item.get("type") == "shell_call":
                self._commands[id] = "\n".join(item.get("action", {}).get("commands", ()))
            elif item.get("type") == "shell_call_output" and isinstance(output, list):
                codes = [end.get("outcome", {}).get("exit_code") for end in output]
                printed = "\n".join(f"{end.get('stdout', '')}\n{end.get('stderr', '')}" for end in output)
                if codes and None not in codes:
                    yield self._commands.get(id, ""), any(codes), printed
            elif item.get("type") == "function_call_output" and str(output).startswith(_ERROR):
                yield "", True, str(output)


def _speaker(item: Mapping[str, Any]) -> str:
    """Return the role of an item that is a message; "" for other items."""
    return str(item.get("role", "")) if item.get("type", "message") == "message" else ""


def _text(item: Mapping[str, Any]) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    texts = [block.get("text") for block in content or () if isinstance(block, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str))
