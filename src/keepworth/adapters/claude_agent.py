"""The hooks of the Claude Agent SDK over a memory, and a server of two tools for it.

from claude_agent_sdk import ClaudeAgentOptions, query
from keepworth import Memory
from keepworth.adapters.claude_agent import KeepworthHooks

keepworth = KeepworthHooks(Memory("agent.mem"), user_id="ana")
options = ClaudeAgentOptions(hooks=keepworth.hooks, mcp_servers={"keepworth": keepworth.server})
async for message in query(prompt="Where do I live?", options=options):
    print(message)

What the memory shows stands behind the user's prompt. A prompt is a turn, and a session is a conversation (`resume=` goes on with
it). The server is for what Claude looks up or remembers by itself: leave it out, or allow its tools with
`allowed_tools=["mcp__keepworth"]`. Needs the package `claude-agent-sdk`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from keepworth.adapters.turns import CONVERSATIONS, HostTurn, RewardOf, Turns, load_host, prompt_text
from keepworth.base.recent import Recent

PACKAGE, LEAST = "claude-agent-sdk", "0.2.150"
_NAMES = ("HookMatcher", "create_sdk_mcp_server", "tool")
HookMatcher, create_sdk_mcp_server, tool = load_host(PACKAGE, LEAST, [f"claude_agent_sdk:{name}" for name in _NAMES])

SEARCH = "Search what is remembered of the user and of earlier work. Search again with other words if it does not help."
ADD = "Remember one statement for later conversations, such as a preference, a decision or a fact. State it whole."
Events = dict[str, list[Any]]


class KeepworthHooks:
    """The hooks for the sessions of one person.

    Args:
        memory: A `Memory`, an `AsyncMemory`, or a `Client` of a served one.
        reward: A function from a finished turn to its reward, or to None; `turn.host` is what the hook `Stop` was given.
        user_id: The person whom Claude serves; "" for nobody.
        agent_id: The agent whose memory it is; "" for all.
        top_k: The most notes that a turn shows; "auto" for those that answer (`Memory.search`).
    """

    def __init__(
        self,
        memory: Any,
        reward: RewardOf | None = None,
        *,
        user_id: str = "",
        agent_id: str = "",
        top_k: int | str = 5,
    ) -> None:
        self.turns = Turns(memory, PACKAGE, reward, user_id=user_id, agent_id=agent_id, top_k=top_k)
        self._running = Recent[str, HostTurn](CONVERSATIONS)

    @property
    def hooks(self) -> Events:
        """The hooks for `ClaudeAgentOptions(hooks=...)`."""
        return self.add_to({})

    def add_to(self, hooks: Mapping[str, list[Any]]) -> Events:
        """Return the hooks together with others, for options that have some already."""
        events = {
            "UserPromptSubmit": self._begin,
            "PostToolUse": self._use_tool,
            "PostToolUseFailure": self._use_tool,
            "Stop": self._finish,
        }
        ours = {name: [*hooks.get(name, ()), HookMatcher(hooks=[hook])] for name, hook in events.items()}
        return {**hooks, **ours}

    @property
    def server(self) -> Any:
        """The server for `ClaudeAgentOptions(mcp_servers={"keepworth": ...})`, with the tools to search and to remember."""

        async def search(arguments: dict[str, Any]) -> dict[str, Any]:
            return _content(
                await asyncio.to_thread(self._search, arguments["query"]) or "Nothing is remembered of that."
            )

        async def add(arguments: dict[str, Any]) -> dict[str, Any]:
            try:
                await asyncio.to_thread(self.turns.add, arguments["text"])
            except Exception as error:
                return {**_content(f"It was not remembered: {error}"), "is_error": True}
            return _content("It is remembered.")

        tools = [tool("search_memory", SEARCH, {"query": str})(search), tool("add_memory", ADD, {"text": str})(add)]
        return create_sdk_mcp_server("keepworth", tools=tools)

    async def _begin(self, event: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Take the prompt for the outcome of the turn before, and show what the memory knows."""
        session = event["session_id"]
        turn = await asyncio.to_thread(self.turns.begin, event["prompt"], conversation=session)
        self._running[session] = turn
        output = {"hookEventName": "UserPromptSubmit", "additionalContext": turn.text}
        return {"hookSpecificOutput": output} if turn.text else {}

    async def _use_tool(self, event: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Take the end of a tool for an outcome, unless the user stopped it or it is the memory's own."""
        turn = self._running.get(event["session_id"])
        if turn is not None and not event.get("is_interrupt") and not event["tool_name"].startswith("mcp__keepworth__"):
            failed, command = event["hook_event_name"] == "PostToolUseFailure", event["tool_input"].get("command")
            output = event.get("error", "") if failed else _printed(event.get("tool_response"))
            command = command if isinstance(command, str) else ""
            await asyncio.to_thread(self.turns.use_tool, turn, failed=failed, command=command, output=output)
        return {}

    async def _finish(self, event: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Record what Claude answered, and keep what the user said."""
        turn = self._running.pop(event["session_id"], None)
        if turn is not None:
            await asyncio.to_thread(self.turns.finish, turn, event.get("last_assistant_message", ""), host=event)
        return {}

    def _search(self, query: str) -> str:
        """Search in the turn that runs. Where several run, the protocol does not say whose search it is, and it is nobody's."""
        running = list(self._running.values())
        if len(running) == 1:
            return prompt_text(self.turns.search(running[0], query))
        return self.turns.begin(query, conversation=None, heard=False).text


def _printed(response: Any) -> str:
    """Return what a tool printed: Claude Code's shell answers with a dictionary."""
    if isinstance(response, Mapping):
        return "\n".join(str(response[key]) for key in ("stdout", "stderr") if response.get(key))
    return response if isinstance(response, str) else ""


def _content(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}
