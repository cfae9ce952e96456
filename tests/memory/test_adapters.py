"""Other libraries' interfaces, and what must not get through them."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.agents.manager import Manager
from keepworth.memory.adapters.file_tool import FileTool, _content
from keepworth.memory.adapters.mem0 import Memory as Mem0
from keepworth.memory.adapters.session import MemorySession
from keepworth.memory.errors import InvalidFilter, InvalidScope
from keepworth.memory.memory import Memory
from keepworth.memory.policy.effect import effect

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


UNUSABLE = {
    "rerank": {"rerank": True},
    "explain": {"explain": True},
    "expired": {"show_expired": True},
    "misspelt": {"user": "ana"},
    "operator": {"filters": {"topic": {"in": ["food"]}}},
    "any": {"filters": {"topic": "*"}},
    "or": {"filters": {"OR": [{"topic": "food"}]}},
    "anybody": {"user_id": "*"},
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_what_mem0_would_do_and_this_adapter_does_not_is_refused_by_name(name: str):
    m = Mem0(memory())
    m.add("likes tofu", user_id="ana", metadata={"topic": "food"}, infer=False)
    wanted = {"user_id": "ana", **UNUSABLE[name]}
    with pytest.raises(InvalidFilter):
        m.search("tofu", **wanted)
    with pytest.raises(InvalidFilter):
        m.get_all(**wanted)
    assert len(m.search("tofu", user_id="ana", rerank=False)["results"]) == 1
    assert len(m.get_all(user_id="ana", show_expired=False)["results"]) == 1


def test_a_threshold_of_mem0_is_a_cosine_and_an_update_merges_metadata():
    m = Mem0(memory())
    (one,) = m.add("likes tofu", user_id="ana", metadata={"topic": "food"}, infer=False)["results"]
    m.add("plays chess", user_id="ana", infer=False)
    found = m.search("likes tofu", user_id="ana", threshold=0.3)["results"]
    assert [(record["memory"], round(record["score"], 3)) for record in found] == [("likes tofu", 1.0)]
    m.update(one["id"], "likes tempeh", metadata={"sure": True})
    assert m.get(one["id"])["metadata"] == {"topic": "food", "sure": True}


def test_events_of_mem0_say_what_a_writer_did():
    lines = iter(["ADD", "UPDATE 0", "UPDATE 0", "NOOP", "UPDATE 0", "DELETE 0"])
    m = Mem0(memory(writer=Manager(lambda states: [next(lines)])))
    tell = partial(m.add, user_id="ana", metadata={"topic": "home"})

    def events(said: str | list[dict[str, str]]) -> list[tuple[str, str]]:
        return [(each["event"], each["memory"]) for each in tell(said)["results"]]

    both = [{"role": "user", "content": "Ana lives in Bergen."}, {"role": "user", "content": "Ana moved to Oslo."}]
    assert events(both) == [("ADD", "Ana moved to Oslo.")]
    (result,) = m.get_all(user_id="ana")["results"]
    assert (result["memory"], result["metadata"]) == ("Ana moved to Oslo.", {"topic": "home"})
    assert events("Ana moved to Oslo in May.") == [("UPDATE", "Ana moved to Oslo in May.")]
    assert events("Ana moved.") == []
    assert events("Ana lives in Rome.") == [("UPDATE", "Ana lives in Rome.")]
    assert events("Forget it.") == [("DELETE", "Ana lives in Rome.")]
    assert m.get_all(user_id="ana") == {"results": []}


def test_system_messages_are_no_memories_of_a_user():
    m = Mem0(memory())
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "likes tofu"}]
    assert [each["memory"] for each in m.add(messages, user_id="ana", infer=False)["results"]] == ["likes tofu"]
    assert m.add(messages[:1], user_id="ana", infer=False) == {"results": []}


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


MALFORMED = [
    ["view"],
    None,
    {"command": ["view"]},
    {"command": {}},
    {"command": "view", "path": "/memories/a", "view_range": [1]},
    {"command": "view", "path": "/memories/a", "view_range": "all"},
    {"command": "view", "path": 7},
    {"command": "create", "path": "/memories/b", "file_text": 5},
    {"command": "create", "path": "/memories/b", "file_text": None},
    {"command": "insert", "path": "/memories/a", "insert_line": 0, "insert_text": None},
    {"command": "insert", "path": "/memories/a", "insert_line": True, "insert_text": "x"},
    {"command": "str_replace", "path": "/memories/a", "old_str": ["one"]},
    {"command": "delete"},
    {"command": "view", "path": "/memories", 7: "x"},
]


@pytest.mark.parametrize("arguments", MALFORMED, ids=repr)
def test_malformed_arguments_of_a_model_are_answered_with_what_is_wrong(arguments):
    tool = FileTool(memory())
    tool({"command": "create", "path": "/memories/a", "file_text": "one"})
    assert tool(arguments).startswith("Error: ")
    assert tool({"command": "view", "path": "/memories/a"}).endswith("\tone")


@pytest.mark.parametrize("content", ["", " \n", "(empty file)\none", "(empty file)\n", "(empty file)"])
def test_a_file_is_what_was_written_however_empty(content: str):
    tool = FileTool(memory())
    tool({"command": "create", "path": "/memories/a", "file_text": content})
    assert tool._files()["/memories/a"].text
    assert tool({"command": "insert", "path": "/memories/a", "insert_line": 0, "insert_text": "first"}).endswith(
        "edited."
    )
    assert _content(tool._files()["/memories/a"]) == f"first\n{content}"


def test_what_others_write_under_the_agent_of_the_files_breaks_nothing():
    m = memory()
    for path in (5, "elsewhere", "/memories"):
        m.add(f"a stray {path}", agent_id="files", metadata={"path": path})
    tool = FileTool(m)
    tool({"command": "create", "path": "/memories/a", "file_text": "one"})
    assert tool({"command": "view", "path": "/memories"}) == "Here're the files in /memories:\n/memories/a"


def test_two_files_may_come_to_say_the_same_and_no_file_is_a_folder():
    tool = FileTool(memory())
    for name, mark in (("a", " "), ("b", "x")):
        tool({"command": "create", "path": f"/memories/{name}", "file_text": f"[{mark}] buy tofu"})
    ticked = {"command": "str_replace", "path": "/memories/a", "old_str": "[ ]", "new_str": "[x]"}
    assert "edited" in tool(ticked)
    for arguments in (
        {"command": "create", "path": "/memories/a/child", "file_text": "x"},
        {"command": "rename", "old_path": "/memories/b", "new_path": "/memories/b/c"},
        {"command": "rename", "old_path": "/memories/b", "new_path": "/memories/a/b"},
    ):
        assert tool(arguments).startswith("Error: ")
    tool({"command": "create", "path": "/memories/d/e", "file_text": "x"})
    assert tool({"command": "create", "path": "/memories/d", "file_text": "x"}) == "Error: /memories/d is a folder"


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


def test_processes_that_put_the_same_keys_of_a_langgraph_store_keep_one_item_each(tmp_path: Path):
    """Handles of their own see what others wrote only when they look, and another may write right after."""
    from keepworth.memory.adapters.langgraph import _Entries

    def entries() -> _Entries:
        return _Entries(Memory(tmp_path / "a.mem", encoder=WordEncoder(8)), lambda value, path: [str(value[path])])

    one, two, space = entries(), entries(), ("mem", "ana")
    failures: list[BaseException] = []

    def puts(into: _Entries, name: str) -> None:
        try:
            for number in range(40):
                into.put(space, f"k{number % 3}", {"text": f"{name} {number}"}, None, ["text"])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=puts, args=pair) for pair in ((one, "one"), (two, "two"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for each in (one, two):
        assert len(each.search(space, None, {}, 10, 0)) == 3
        assert len(each.search(space, "one two", {}, 10, 0)) == 3
    one.put(space, "k0", None, None, None)
    assert two.get(space, "k0") is None
    assert two.get(space, "k1") == one.get(space, "k1") is not None
    two._memory.forget(two.get(space, "k1").id, purge_history=True)
    assert one.get(space, "k1") is None
    assert one.namespaces((), None, 10, 0) == [space]
    one.put(space, "k1", {"text": "again"}, None, ["text"])
    assert [item.key for item, _ in two.search(space, "again", {}, 1, 0)] == ["again"]


def test_langgraph_store():
    pytest.importorskip("langgraph.store.base")
    from keepworth.memory.adapters.langgraph import as_langgraph_store

    m = memory()
    store = as_langgraph_store(m)
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
    store.put(("docs",), "one", {"m": {"text": "about tofu"}, "c": [{"t": "x"}]}, index=["m.text", "c[*].t"])
    assert [item.key for item in m.get_all(session_id='["docs"]')] == ["about tofu\nx"]
    assert [item.key for item in store.search(["docs"], query="about tofu")] == ["one"]
    store.delete(("mem", "bo"), "food")
    assert store.get(("mem", "bo"), "food") is None
    assert asyncio.run(store.aget(("mem", "ana"), "food")).key == "food"


def test_adapters_search_beside_a_policy_that_ranks_items_itself():
    """Their callers have no rewards to give, so nothing is tried out on them, and a person's memory is searched alone."""
    from keepworth.memory.adapters.langgraph import _Entries

    learning = memory(policy="memrl")
    m = Mem0(learning)
    m.add("likes tofu", user_id="ana", infer=False)
    assert [each["memory"] for each in m.search("tofu", filters={"user_id": "ana"})["results"]] == ["likes tofu"]
    entries = _Entries(learning, lambda value, path: [str(value[path])])
    entries.put(("mem", "ana"), "food", {"text": "likes tempeh"}, None, ["text"])
    assert [item.key for item, _ in entries.search(("mem", "ana"), "tempeh", {}, 1, 0)] == ["likes tempeh"]
    withholding = memory(policy=partial(effect, withhold=1.0, least=1.0))
    m = Mem0(withholding)
    m.add("likes tofu", user_id="ana", infer=False)
    for _ in range(3):
        withholding.reward(withholding.search("tofu", user_id="ana").decision, 1.0)
    assert all(m.search("tofu", user_id="ana")["results"] for _ in range(5))
