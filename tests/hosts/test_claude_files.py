"""Claude's commands on files do and say what they do with Anthropic's own tool for a folder, and leave items."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keepworth import Memory

pytest.importorskip("anthropic", reason="anthropic is not installed: make test-hosts")
COMMANDS: list[dict[str, Any]] = [
    {"command": "view", "path": "/memories/no.md"},
    {"command": "create", "path": "/memories/ana.md", "file_text": "Lives in Rome.\nEats no nuts.\nHas a dog.\n"},
    {"command": "create", "path": "/memories/ana.md", "file_text": "again"},
    {"command": "create", "path": "/memories/work/plan.md", "file_text": "Ship on Friday."},
    {"command": "view", "path": "/memories/ana.md"},
    {"command": "view", "path": "/memories/ana.md", "view_range": [2, 3]},
    {"command": "view", "path": "/memories/ana.md", "view_range": [2, -1]},
    {"command": "str_replace", "path": "/memories/ana.md", "old_str": "Rome", "new_str": "Oslo"},
    {"command": "str_replace", "path": "/memories/ana.md", "old_str": "Rome", "new_str": "Oslo"},
    {"command": "str_replace", "path": "/memories/ana.md", "old_str": "s ", "new_str": "z "},
    {"command": "str_replace", "path": "/memories/work", "old_str": "a", "new_str": "b"},
    {"command": "insert", "path": "/memories/ana.md", "insert_line": 1, "insert_text": "Sings.\n"},
    {"command": "insert", "path": "/memories/ana.md", "insert_line": 9, "insert_text": "Sings."},
    {"command": "view", "path": "/memories/ana.md"},
    {"command": "rename", "old_path": "/memories/work", "new_path": "/memories/old/work"},
    {"command": "rename", "old_path": "/memories/none", "new_path": "/memories/new"},
    {"command": "rename", "old_path": "/memories/ana.md", "new_path": "/memories/old/work"},
    {"command": "view", "path": "/memories/old/work/plan.md"},
    {"command": "delete", "path": "/memories/old"},
    {"command": "delete", "path": "/memories/old"},
    {"command": "delete", "path": "/memories"},
    {"command": "view", "path": "/elsewhere"},
    {"command": "view", "path": "/memories/../secret"},
    {"command": "view", "path": "/memories/ana.md"},
]


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(":memory:", encoder="hashing") as opened:
        yield opened


def outcome(tool: Any, command: dict[str, Any]) -> str:
    from anthropic.lib.tools import ToolError

    try:
        return str(tool.call(command))
    except ToolError as error:
        return f"error: {error.content}"


async def outcome_later(tool: Any, command: dict[str, Any]) -> str:
    from anthropic.lib.tools import ToolError

    try:
        return str(await tool.call(command))
    except ToolError as error:
        return f"error: {error.content}"


def test_commands_answer_as_the_original_memory_tool(memory: Memory, tmp_path: Path) -> None:
    from anthropic.lib.tools._beta_builtin_memory_tool import BetaLocalFilesystemMemoryTool

    from keepworth.adapters.claude import AsyncKeepworthMemoryTool, KeepworthMemoryTool

    folder, tool = BetaLocalFilesystemMemoryTool(str(tmp_path)), KeepworthMemoryTool(memory, user_id="ana")
    later = AsyncKeepworthMemoryTool(memory, user_id="bo")
    for command in COMMANDS:
        expected = outcome(folder, command)
        assert outcome(tool, command) == expected, command
        assert asyncio.run(outcome_later(later, command)) == expected, command
    listed = [(item.scope.user, item.text) for item in memory.get_all()]
    text = "Lives in Oslo.\nSings.\nEats no nuts.\nHas a dog.\n"
    assert listed == [("ana", text), ("bo", text)]


def test_a_folder_lists_two_levels_and_no_hidden_file(memory: Memory) -> None:
    from keepworth.adapters.claude import KeepworthMemoryTool

    tool = KeepworthMemoryTool(memory)
    for path in ("a.md", "b/c.md", "b/d/e.md", ".hidden"):
        outcome(tool, {"command": "create", "path": f"/memories/{path}", "file_text": "four"})
    listed = outcome(tool, {"command": "view", "path": "/memories"}).splitlines()[1:]
    assert [line.partition("\t")[2].removeprefix("/memories") for line in listed] == [
        "",
        "/a.md",
        "/b/",
        "/b/c.md",
        "/b/d/",
    ]
    assert outcome(KeepworthMemoryTool(memory, user_id="ana"), {"command": "view", "path": "/memories/a.md"}) == (
        "error: The path /memories/a.md does not exist. Please provide a valid path."
    )
    assert tool.clear_all_memory() == "All memory cleared"
    assert memory.get_all() == []


def test_a_file_that_was_read_in_a_turn_is_credited_with_its_outcome(memory: Memory) -> None:
    from keepworth.adapters import claude

    tool = claude.KeepworthMemoryTool(memory, user_id="ana")
    outcome(tool, {"command": "create", "path": "/memories/deploy.md", "file_text": "Deploy with: make ship"})
    turn = tool.turns.begin("hello")
    token = claude._TURN.set(turn)
    assert "make ship" in outcome(tool, {"command": "view", "path": "/memories/deploy.md"})
    claude._TURN.reset(token)
    tool.turns.finish(turn, "make ship")
    tool.turns.begin("Thanks, that is right!")
    record = memory.episode_record(turn.id)
    assert [shown.text for shown in record.shown] == ["Deploy with: make ship"]
    assert [reward.name for reward in record.rewards] == ["signal:thanks:ana"]


def test_refusals_and_outages_are_reported_to_claude(memory: Memory) -> None:
    from keepworth.adapters.claude import KeepworthMemoryTool

    tool = KeepworthMemoryTool(memory)
    assert "empty" in outcome(tool, {"command": "create", "path": "/memories/a.md", "file_text": ""})
    memory.close()
    assert outcome(tool, {"command": "view", "path": "/memories"}) == (
        "error: The memory cannot be reached at present. Go on without it."
    )
