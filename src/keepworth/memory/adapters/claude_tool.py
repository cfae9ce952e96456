"""Anthropic's memory tool over a memory, for the SDK's tool runner.

tool = claude_memory_tool(memory, user_id="ana")
client.beta.messages.run_tools(model=..., messages=[...], tools=[tool], max_tokens=1000).until_done()
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import Any

from keepworth.memory.adapters.file_tool import FileTool, FileToolError
from keepworth.memory.errors import MemoryProblem
from keepworth.memory.memory import Memory

COMMANDS = ("view", "create", "str_replace", "insert", "delete", "rename")


def claude_memory_tool(memory: Memory, *, user_id: str = "", cache_control: Any = None) -> Any:
    """A `BetaAbstractMemoryTool` of the SDK whose files live in `memory`. What a command cannot do is a `ToolError`, which the
    runner tells the model. cache_control: as of the SDK. Raises MemoryProblem without the package `anthropic`."""
    tools, file_tool = _tools(), FileTool(memory, user_id=user_id)

    def run(_: Any, arguments: object) -> str:
        try:
            return file_tool.carried_out(_plain(arguments))
        except FileToolError as error:
            raise tools.ToolError(str(error)) from error

    verbs: dict[str, Callable[..., Any]] = {**dict.fromkeys((*COMMANDS, "execute", "call"), run)}
    verbs["clear_all_memory"] = lambda _: file_tool.clear()
    return type("ClaudeMemoryTool", (tools.BetaAbstractMemoryTool,), verbs)(cache_control=cache_control)


def async_claude_memory_tool(memory: Memory, *, user_id: str = "", cache_control: Any = None) -> Any:
    """The same for `AsyncAnthropic`: a `BetaAsyncAbstractMemoryTool`, whose commands run in threads."""
    tools, same = _tools(), claude_memory_tool(memory, user_id=user_id)

    async def run(_: Any, arguments: object) -> str:
        answer: str = await asyncio.to_thread(same.call, arguments)
        return answer

    async def clear(_: Any) -> str:
        answer: str = await asyncio.to_thread(same.clear_all_memory)
        return answer

    verbs: dict[str, Callable[..., Any]] = {
        **dict.fromkeys((*COMMANDS, "execute", "call"), run),
        "clear_all_memory": clear,
    }
    return type("AsyncClaudeMemoryTool", (tools.BetaAsyncAbstractMemoryTool,), verbs)(cache_control=cache_control)


def _tools() -> Any:
    try:
        return import_module("anthropic.lib.tools")
    except ImportError as error:
        raise MemoryProblem("Anthropic's memory tool needs their SDK: pip install anthropic") from error


def _plain(arguments: object) -> object:
    """A command of the SDK as what the model sent; what a model sent stays as it is."""
    dumped = getattr(arguments, "model_dump", None)
    return dumped(exclude_none=True) if callable(dumped) else arguments
