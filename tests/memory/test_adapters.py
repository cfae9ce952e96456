"""Other libraries' interfaces, and what must not get through them."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.memory.adapters.file_tool import FileTool
from recollect.memory.adapters.mem0 import Memory as Mem0
from recollect.memory.adapters.session import MemorySession
from recollect.memory.errors import InvalidScope
from recollect.memory.memory import Memory

from .stub_encoder import WordEncoder


def memory(**options: object) -> Memory:
    return Memory(":memory:", encoder=WordEncoder(32), **options)


def test_mem0_calls_and_results():
    m = Mem0(memory())
    added = m.add([{"role": "user", "content": "likes tofu"}], user_id="ana", metadata={"topic": "food"}, infer=False)
    (result,) = added["results"]
    assert result["event"] == "ADD"
    assert m.add("likes tofu", user_id="ana", metadata={"topic": "food"}, infer=False)["results"][0]["event"] in (
        "ADD",
        "NONE",
    )
    assert m.add("likes tofu", user_id="ana", infer=False)["results"][0]["event"] == "NONE"
    found = m.search("tofu", filters={"user_id": "ana", "topic": "food"})["results"]
    assert found[0]["memory"] == "likes tofu"
    assert found[0]["user_id"] == "ana"
    assert m.search("tofu", user_id="bo")["results"] == []
    m.update(result["id"], "likes tempeh")
    assert m.get(result["id"])["memory"] == "likes tempeh"
    assert [line["event"] for line in m.history(result["id"])] == ["ADD", "UPDATE"]
    m.delete(result["id"])
    assert m.get(result["id"]) is None
    assert m.history(result["id"])[-1]["event"] == "DELETE"
    with pytest.raises(InvalidScope):
        m.search("tofu")
    with pytest.raises(InvalidScope):
        m.delete_all()
    assert m.get_all(user_id="ana")["results"] == []


def test_the_six_commands():
    tool = FileTool(memory())
    assert tool({"command": "view", "path": "/memories"}) == "Here're the files in /memories:"
    assert "created" in tool({"command": "create", "path": "/memories/a/notes.md", "file_text": "one\ntwo\n"})
    assert "already exists" in tool({"command": "create", "path": "/memories/a/notes.md", "file_text": "x"})
    assert "2\ttwo" in tool({"command": "view", "path": "/memories/a/notes.md"})
    assert "1\tone" not in tool({"command": "view", "path": "/memories/a/notes.md", "view_range": [2, 3]})
    assert "edited" in tool(
        {"command": "str_replace", "path": "/memories/a/notes.md", "old_str": "two", "new_str": "2"}
    )
    assert "must be unique" in tool(
        {"command": "str_replace", "path": "/memories/a/notes.md", "old_str": "\n", "new_str": ""}
    )
    assert "edited" in tool(
        {"command": "insert", "path": "/memories/a/notes.md", "insert_line": 0, "insert_text": "zero\n"}
    )
    assert "     1\tzero\n     2\tone\n     3\t2" in tool({"command": "view", "path": "/memories/a/notes.md"})
    assert "renamed" in tool({"command": "rename", "old_path": "/memories/a", "new_path": "/memories/b"})
    assert "/memories/b/notes.md" in tool({"command": "view", "path": "/memories"})
    assert "created" in tool({"command": "create", "path": "/memories/empty", "file_text": ""})
    assert "Successfully deleted" in tool({"command": "delete", "path": "/memories/b"})
    assert "does not exist" in tool({"command": "view", "path": "/memories/b/notes.md"})
    assert "Error" in tool({"command": "delete", "path": "/memories"})
    assert "Error" in tool({"command": "format", "path": "/memories"})
    assert "Error" in tool({"command": "view"})


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/memories/../etc/passwd",
        "memories/x",
        "/memories/%2e%2e/x",
        "..\\x",
        "/memoriesx",
        "/memories/a/../../b",
        "",
        7,
    ],
)
def test_no_path_leads_outside(path):
    tool = FileTool(memory())
    for command in ("view", "create", "delete"):
        extra = {"file_text": "x"} if command == "create" else {}
        assert tool({"command": command, "path": path, **extra}).startswith("Error")


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["command", "path", "file_text", "old_path", "new_path", "x"]), st.text(max_size=20)
    )
)
def test_any_arguments_get_an_answer(arguments):
    assert isinstance(FileTool(memory())(arguments), str)


def test_sessions_give_back_what_was_given():
    async def story() -> None:
        m = memory()
        one, two = MemorySession("one", m), MemorySession("two", m)
        items = [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "hello"}]},
            {"role": "user", "content": "hello"},
            {"type": "function_call", "name": "f", "arguments": "{}"},
        ]
        await one.add_items(items)
        await two.add_items(items[:1])
        assert await one.get_items() == items
        assert await one.get_items(2) == items[-2:]
        assert await one.pop_item() == items[-1]
        assert await one.get_items() == items[:-1]
        await one.clear_session()
        assert await one.get_items() == []
        assert await one.pop_item() is None
        assert await two.get_items() == items[:1]

    asyncio.run(story())


def test_langgraph_store():
    pytest.importorskip("langgraph.store.base")
    from recollect.memory.adapters.langgraph import as_langgraph_store

    store = as_langgraph_store(memory())
    store.put(("mem", "ana"), "food", {"text": "likes tofu", "stars": 4})
    store.put(("mem", "bo"), "food", {"text": "likes steak", "stars": 2})
    store.put(("mem", "ana"), "food", {"text": "likes tempeh", "stars": 5})
    assert store.get(("mem", "ana"), "food").value == {"text": "likes tempeh", "stars": 5}
    assert store.get(("mem", "ana"), "drink") is None
    assert [item.value["text"] for item in store.search(("mem", "ana"), query="likes")] == ["likes tempeh"]
    assert {item.key for item in store.search(("mem",))} == {"food"}
    assert len(store.search(("mem",), filter={"stars": {"$gt": 3}})) == 1
    assert store.list_namespaces(prefix=("mem",)) == [("mem", "ana"), ("mem", "bo")]
    assert store.list_namespaces(max_depth=1) == [("mem",)]
    store.delete(("mem", "bo"), "food")
    assert store.get(("mem", "bo"), "food") is None
    assert asyncio.run(store.aget(("mem", "ana"), "food")).key == "food"
