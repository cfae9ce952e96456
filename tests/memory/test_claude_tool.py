"""Anthropic's memory tool: the classes of the SDK, and its runner on top of them."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from keepworth import Memory
from keepworth.memory.adapters.claude_tool import async_claude_memory_tool, claude_memory_tool

from ..serving.scripted import scripted

anthropic = pytest.importorskip("anthropic", reason="anthropic is not installed: pip install anthropic")
tools = pytest.importorskip("anthropic.lib.tools")

STEPS: list[tuple[dict[str, Any], str]] = [
    ({"command": "create", "path": "/memories/a.md", "file_text": "one\ntwo\n"}, "File created successfully at"),
    ({"command": "view", "path": "/memories"}, "up to 2 levels deep in /memories"),
    ({"command": "view", "path": "/memories/a.md", "view_range": [2, 2]}, "     2\ttwo"),
    ({"command": "str_replace", "path": "/memories/a.md", "old_str": "two", "new_str": "three"}, "has been edited"),
    ({"command": "insert", "path": "/memories/a.md", "insert_line": 2, "insert_text": "four"}, "has been edited"),
    ({"command": "view", "path": "/memories/a.md"}, "     1\tone\n     2\tthree\n     3\tfour\n     4\t"),
    ({"command": "rename", "old_path": "/memories/a.md", "new_path": "/memories/b.md"}, "Successfully renamed"),
    ({"command": "delete", "path": "/memories/b.md"}, "Successfully deleted"),
]
MALFORMED: list[Any] = [
    {},
    {"command": "view"},
    {"command": "format", "path": "/memories"},
    {"command": ["view"]},
    {"command": "view", "path": "/etc/passwd"},
    {"command": "create", "path": "/memories/x", "file_text": None},
    "view",
    None,
]


def test_the_sdk_s_own_class_takes_every_command() -> None:
    with Memory(":memory:", encoder=None) as m:
        tool = claude_memory_tool(m, user_id="ana", cache_control={"type": "ephemeral"})
        assert isinstance(tool, tools.BetaAbstractMemoryTool)
        assert tool.to_dict() == {"type": "memory_20250818", "name": "memory", "cache_control": {"type": "ephemeral"}}
        for arguments, says in STEPS:
            assert says in tool.call(arguments)
        for arguments in MALFORMED:
            with pytest.raises(tools.ToolError, match=r"\w"):
                tool.call(arguments)
        tool.call(STEPS[0][0])
        assert [item.scope.user for item in m.get_all()] == ["ana"]
        assert "a.md" not in claude_memory_tool(m, user_id="bo").call({"command": "view", "path": "/memories"})
        assert tool.clear_all_memory() == "All memory cleared"
        assert m.get_all() == []


def test_the_awaited_class_does_the_same() -> None:
    async def story() -> None:
        with Memory(":memory:", encoder=None) as m:
            tool = async_claude_memory_tool(m)
            assert isinstance(tool, tools.BetaAsyncAbstractMemoryTool)
            for arguments, says in STEPS:
                assert says in await tool.call(arguments)
            for arguments in MALFORMED:
                with pytest.raises(tools.ToolError, match=r"\w"):
                    await tool.call(arguments)
            assert await tool.clear_all_memory() == "All memory cleared"

    asyncio.run(story())


def test_the_sdk_s_commands_are_taken_as_they_are_typed() -> None:
    from anthropic.types import beta

    with Memory(":memory:", encoder=None) as m:
        tool = claude_memory_tool(m)
        create = beta.BetaMemoryTool20250818CreateCommand(command="create", path="/memories/a", file_text="one")
        view = beta.BetaMemoryTool20250818ViewCommand(command="view", path="/memories/a")
        assert tool.create(create) == "File created successfully at: /memories/a"
        assert tool.view(view) == tool.execute(view) == tool.call(view.model_dump())
        with pytest.raises(tools.ToolError, match="already exists"):
            tool.execute(create)


def test_the_runner_tells_the_model_what_a_command_answered() -> None:
    commands = [arguments for arguments, _ in STEPS[:2]] + [{"command": "view", "path": "/memories/none"}]

    turns = itertools.count()

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        turn = next(turns)
        use = {"type": "tool_use", "id": f"t{turn}", "name": "memory", "input": commands[min(turn, 2)]}
        content = [use] if turn < len(commands) else [{"type": "text", "text": "done"}]
        reason = "tool_use" if turn < len(commands) else "end_turn"
        usage = {"input_tokens": 1, "output_tokens": 1}
        return {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": usage,
        }

    with scripted((200, answer)) as server, Memory(":memory:", encoder=None) as m:
        client = anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0)
        runner = client.beta.messages.tool_runner(
            model="m", max_tokens=100, messages=[{"role": "user", "content": "hi"}], tools=[claude_memory_tool(m)]
        )
        assert runner.until_done().content[0].text == "done"
        assert len(m) == 1
    told = [each["messages"][-1]["content"][0] for each in server.asked[1:]]
    assert [bool(each.get("is_error")) for each in told] == [False, False, True]
    assert "/memories/a.md" in str(told[1]["content"])
    assert "does not exist" in str(told[2]["content"])
