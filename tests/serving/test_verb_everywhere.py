"""A verb is written once, as a function in the table: its route, description, command and tool follow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from typer.testing import CliRunner

from keepworth import Memory
from keepworth.cli.command import App
from keepworth.cli.memory import group
from keepworth.memory.item import Item
from keepworth.serving.access import Access
from keepworth.serving.calls import ServedCall
from keepworth.serving.memory_routes import BASE, describe_routes, memory_table
from keepworth.serving.open_memories import OpenMemories
from keepworth.serving.verb import READ, Help, command, tool, verb
from keepworth.serving.verbs import Bounds, ItemId, VerbCaller


@verb("GET /items/{id}/louder", "read", Bounds)
@command("louder id --times", READ, bounds=True)
@tool("louder_memory id times", "Read a note aloud.")
def louder(
    caller: VerbCaller, id: ItemId, times: Annotated[int, Help("How often.", "-x N")] = 1, **bounds: Any
) -> list[Item]:
    """Show an item in capitals.

    It can be shown several times.

    $ keepworth memory louder m17 --times 2
    """
    item = caller.memory.get(id)
    object.__setattr__(item, "text", item.text.upper() + bounds.get("user_id", ""))
    return [item] * times


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Memory(tmp_path / "a.mem", encoder=None) as memory:
        memory.add("Ana likes tofu", user_id="ana")
    return tmp_path / "a.mem"


def test_a_verb_of_the_table_is_a_route_with_a_description(path: Path) -> None:
    memories = OpenMemories(path, {"encoder": None})
    answer = memory_table(memories, (louder,))["GET", f"{BASE}/items/{{id}}/louder"]
    call = ServedCall({}, {"times": "2"}, {"id": "m1"}, Access("test"))
    assert [item["text"] for item in answer(call)] == ["ANA LIKES TOFU"] * 2
    memories.close()
    (described,) = describe_routes((louder,))["paths"].values()
    assert described["get"]["summary"] == "Show an item in capitals."
    assert {each["name"]: each["schema"].get("description") for each in described["get"]["parameters"]}[
        "times"
    ] == "How often."


def test_a_verb_of_the_table_is_a_command(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "app", app := App())
    assert louder.shell is not None
    app.command("other")(print)  # one command alone has no name
    group.add_verb(louder, louder.shell)
    ran = CliRunner().invoke(app, ["louder", "m1", "-x", "2", "--user", "bo", "--json", "--file", str(path)])
    assert [json.loads(line)["text"] for line in ran.stdout.splitlines()] == ["ANA LIKES TOFUbo"] * 2
    assert CliRunner().invoke(app, ["louder", "m1", "--file", str(path)]).stdout.split() == [
        "m1",
        "ANA",
        "LIKES",
        "TOFU",
    ]
    help = CliRunner().invoke(app, ["louder", "--help"]).stdout
    assert all(
        text in help for text in ("An item's id, such as m17.", "-x, --times N", "How often.", "It can be shown")
    )
    assert help.endswith("Examples:\n  keepworth memory louder m17 --times 2\n")


def test_a_verb_of_the_table_is_a_tool(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mcp")
    from keepworth.serving import mcp_tools

    monkeypatch.setattr(mcp_tools, "TOOLS", {})
    assert louder.tool is not None
    mcp_tools.add_tool(louder, louder.tool)
    made, described = mcp_tools.TOOLS["louder_memory"]
    assert described.description == "Read a note aloud."
    assert described.input_schema["required"] == ["id"]
    assert described.input_schema["properties"]["times"]["description"] == "How often."
    memories = OpenMemories(path, {"encoder": None})
    open = memories.of(Access("test"))
    answer = made.function(mcp_tools.ToolHost(open.memory, Access("test"), open, {}), id="m1")
    assert [note.text for note in answer.notes] == ["ANA LIKES TOFU"]
    memories.close()
