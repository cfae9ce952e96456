"""Other libraries' interfaces, and what must not get through them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.agents.manager import Manager
from keepworth.memory.adapters.file_tool import FileTool, _content
from keepworth.memory.adapters.mem0 import Memory as Mem0
from keepworth.memory.adapters.session import MemorySession
from keepworth.memory.errors import InvalidFilter, InvalidScope
from keepworth.memory.memory import Memory
from keepworth.memory.policy.default import default

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


UNUSABLE: dict[str, tuple[dict[str, Any], str]] = {
    "rerank": ({"rerank": True}, "option rerank=True has no effect"),
    "reference_date": ({"reference_date": "2026-01-01"}, "option reference_date='2026-01-01' has no effect"),
    "misspelt": ({"user": "ana"}, "option user='ana' has no effect"),
    "operator": ({"filters": {"topic": {"near": ["food"]}}}, r"filters\['topic'\]: there is no operator 'near'"),
    "our operator": ({"filters": {"topic": {"$in": ["food"]}}}, r"there is no operator '\$in': use eq, ne"),
    "our joint": ({"filters": {"$or": [{"topic": "food"}]}}, r"filters\['\$or'\]"),
    "nothing asked": ({"filters": {"topic": {}}}, r"filters\['topic'\] asks nothing"),
    "no list": ({"filters": {"topic": {"in": "food"}}}, r"filters\['topic'\]\['\$in'\] takes a list"),
    "no list to join": ({"filters": {"OR": {"topic": "food"}}}, r"filters\['OR'\] takes a list"),
    "an empty list to join": ({"filters": {"NOT": []}}, r"filters\['NOT'\] takes a list"),
    "two at once": ({"filters": {"AND": [{"run_id": "a"}, {"run_id": "b"}]}}, "run_id is said twice"),
    "no dictionary": ({"filters": ["topic"]}, "filters must be a dictionary"),
}


def test_what_a_search_cannot_do_names_what_does_it():
    m = Mem0(memory())
    m.add("likes tofu", user_id="ana", infer=False)
    with pytest.raises(InvalidFilter, match=r"\.memory\.search\(query, user_id=\.\.\., reranker=FUNCTION\)"):
        m.search("tofu", user_id="ana", rerank=True)
    assert m.memory.search("tofu", user_id="ana", reranker=lambda query, texts: [7.0] * len(texts))[0].score == 7.0
    with pytest.raises(InvalidFilter, match=r"filters=\{'created_at'.*search\(query, user_id=\.\.\., as_of="):
        m.search("tofu", user_id="ana", reference_date="2026-01-31")
    assert m.memory.search("tofu", user_id="ana", as_of="2126-01-31")[0].text == "likes tofu"
    for times, count in (({"gte": "2026-01-01", "lt": "2126-01-01"}, 1), ({"lt": "2026-01-01"}, 0)):
        assert len(m.search("tofu", filters={"user_id": "ana", "created_at": times})["results"]) == count


@pytest.mark.parametrize("name", UNUSABLE)
def test_what_mem0_would_do_and_this_adapter_does_not_is_refused_by_name(name: str):
    given, message = UNUSABLE[name]
    m = Mem0(memory())
    m.add("likes tofu", user_id="ana", metadata={"topic": "food"}, infer=False)
    wanted = {"user_id": "ana", **given}
    if "filters" in given and "user_id" in given["filters"]:
        del wanted["user_id"]
    with pytest.raises(InvalidFilter, match=message):
        m.search("tofu", **wanted)
    with pytest.raises(InvalidFilter, match=message):
        m.get_all(**wanted)
    assert len(m.search("tofu", user_id="ana", rerank=False, show_expired=False)["results"]) == 1
    assert len(m.get_all(user_id="ana", show_expired=False)["results"]) == 1


ANA = {"user_id": "ana"}
FILTERS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "equal": ({"topic": "food"}, {"tofu", "soup"}),
    "eq": ({"topic": {"eq": "food"}}, {"tofu", "soup"}),
    "ne": ({"topic": {"ne": "food"}}, {"chess"}),
    "in": ({"topic": {"in": ["game", "music"]}}, {"chess"}),
    "nin": ({"topic": {"nin": ["game", "music"]}}, {"tofu", "soup"}),
    "range": ({"stars": {"gte": 2, "lt": 5}}, {"tofu"}),
    "gt": ({"stars": {"gt": 3}}, {"soup"}),
    "lte": ({"stars": {"lte": 3}}, {"tofu", "chess"}),
    "contains": ({"note": {"contains": "Oslo"}}, {"soup"}),
    "icontains": ({"note": {"icontains": "oslo"}}, {"tofu", "soup"}),
    "contains of a list": ({"tags": {"contains": "old"}}, {"chess"}),
    "any value": ({"topic": "*"}, {"tofu", "soup", "chess"}),
    "a list": ({"topic": ["game", "music"]}, {"chess"}),
    "not of another": ({"NOT": [{"user_id": "bo"}, {"topic": "game"}]}, {"tofu", "soup", "plain"}),
    "who said it": ({"role": "user", "topic": "game"}, {"chess"}),
    "what it says": ({"data": {"icontains": "O"}}, {"tofu", "soup"}),
    "written since": ({"created_at": {"gte": "2020-01-01"}, "topic": "food"}, {"tofu", "soup"}),
    "written before": ({"OR": [{"updated_at": {"lt": "2020-01-01"}}, {"topic": "game"}]}, {"chess"}),
    "AND": ({"AND": [{"topic": "food"}, {"stars": {"gte": 4}}]}, {"soup"}),
    "OR": ({"OR": [{"topic": "game"}, {"stars": {"gte": 4}}]}, {"soup", "chess"}),
    "NOT": ({"NOT": [{"topic": "game"}, {"stars": 5}]}, {"tofu", "plain"}),
    "nested": (
        {
            "AND": [{"OR": [{"topic": "food"}, {"topic": "game"}]}, {"NOT": [{"tags": {"contains": "old"}}]}],
            "stars": "*",
        },
        {"tofu", "soup"},
    ),
    "nobody has it": ({"topic": "war"}, set()),
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_of_mem0_do_what_mem0_says(name: str):
    filters, expected = FILTERS[name]
    m = Mem0(memory())
    for text, metadata in {
        "tofu": {"topic": "food", "stars": 3, "note": "an oslo dish"},
        "soup": {"topic": "food", "stars": 5, "note": "Oslo"},
        "chess": {"topic": "game", "stars": 1, "tags": ["old"]},
        "plain": None,
    }.items():
        m.add(text, user_id="ana", metadata=metadata, infer=False)
    m.add("another's", user_id="bo", metadata={"topic": "food", "stars": 3}, infer=False)
    for whole in ({**ANA, **filters}, {"AND": [ANA, filters]}):
        for found in (
            m.search("tofu soup chess plain", filters=whole),
            m.search("tofu", filters=whole, threshold=-1.0),
            m.get_all(filters=whole),
        ):
            assert {each["memory"] for each in found["results"]} == expected


def test_what_has_expired_is_listed_where_mem0_asks_for_it():
    m = Mem0(memory(clock=lambda: "2026-02-01T00:00:00"))
    m.add("an offer", user_id="ana", metadata={"a": 1}, expiration_date="2026-02-02", infer=False)
    (gone,) = m.add("gone", user_id="ana", infer=False)["results"]
    m.delete(gone["id"])
    m.memory._clock = m.memory.store.clock = lambda: "2026-03-01T00:00:00"
    assert m.get_all(user_id="ana")["results"] == []
    for filters in (None, {"a": 1}):
        found = m.get_all(user_id="ana", filters=filters, show_expired=True)["results"]
        assert [each["memory"] for each in found] == ["an offer"]
        shown = m.search("an offer", user_id="ana", filters=filters, show_expired=True)["results"]
        assert [each["memory"] for each in shown] == ["an offer"]
    assert m.search("an offer", user_id="ana")["results"] == []


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


LISTED = "Here're the files and directories up to 2 levels deep in"
BUT = "excluding hidden items and node_modules"


def test_the_six_commands():
    tool = FileTool(memory())
    assert tool({"command": "view", "path": "/memories"}) == f"{LISTED} /memories, {BUT}:\n0B\t/memories"
    assert "created" in tool({"command": "create", "path": "/memories/a/notes.md", "file_text": "one\ntwo\n"})
    assert "already exists" in tool({"command": "create", "path": "/memories/a/notes.md", "file_text": "x"})
    assert "2\ttwo" in tool({"command": "view", "path": "/memories/a/notes.md"})
    assert "1\tone" not in tool({"command": "view", "path": "/memories/a/notes.md", "view_range": [2, 3]})
    assert "edited" in tool(
        {"command": "str_replace", "path": "/memories/a/notes.md", "old_str": "two", "new_str": "2"}
    )
    assert "in lines: 1, 2. Please ensure it is unique" in tool(
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


COMMANDS = ["view", "create", "str_replace", "insert", "delete", "rename"]
NAMES = ["path", "file_text", "old_str", "new_str", "insert_line", "insert_text", "old_path", "new_path", "view_range"]
TEXTS = st.text(st.characters(codec=None), max_size=8)
PATHS = st.sampled_from(
    ["/memories", "/memories/a", "/memories/a/b", "/memories/b", "/memories/100%", "/memories/../x"]
)
LINES = st.integers() | st.sampled_from([0, 1, -1, 10**100])
ANY_JSON = st.recursive(
    st.none() | st.booleans() | LINES | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
VALUES = ANY_JSON | PATHS | st.lists(LINES, min_size=2, max_size=2) | st.just("one")
ARGUMENTS = st.fixed_dictionaries({"command": st.sampled_from(COMMANDS)}, optional=dict.fromkeys([*NAMES, "x"], VALUES))


@settings(max_examples=50, deadline=None)
@given(st.lists(ARGUMENTS | ANY_JSON | st.dictionaries(st.sampled_from(["command", *NAMES]), VALUES), max_size=4))
def test_any_json_as_arguments_gets_an_answer_that_can_be_sent_on(calls):
    tool = FileTool(memory())
    for path in ("/memories/a/b", "/memories/b"):
        tool({"command": "create", "path": path, "file_text": "one\ntwo"})
    for arguments in calls:
        answer = tool(arguments)
        assert isinstance(answer, str)
        answer.encode()


COMPLAINTS = [
    ({"command": "view", "path": "/memories/a", "view_range": [1]}, "view_range must be [first line, last line]"),
    ({"command": "view", "path": "/memories/a", "view_range": []}, "view_range must be [first line, last line]"),
    ({"command": "view", "path": "/memories/a", "view_range": [3, 5]}, "view_range [3, 5] does not fit the 2 lines"),
    ({"command": "create", "path": "/memories/b", "file_text": None}, "file_text must be text, got None"),
    ({"command": "create", "path": "/memories/b", "file_text": ["x"]}, "file_text must be text, got ['x']"),
    ({"command": "create", "path": "/memories/b", "file_text": "\x1b[0m"}, "file_text: the file's text has control"),
    (
        {"command": "create", "path": "/memories/b"},
        "create takes path, file_text: missing a required argument: 'file_te",
    ),
    ({"command": "create", "path": "/memories/b", "text": "x"}, "missing a required argument: 'file_text'"),
    ({"command": "view", "path": "/memories/a", "lines": 3}, "got an unexpected keyword argument 'lines'"),
    ({"command": "insert", "path": "/memories/a", "insert_line": 0, "insert_text": None}, "insert_text must be text"),
    ({"command": "insert", "path": "/memories/a", "insert_line": 9, "insert_text": "x"}, "within the range [0, 2]."),
    (
        {"command": "insert", "path": "/memories/a", "insert_line": "0", "insert_text": "x"},
        "insert_line must be a whole",
    ),
    ({"command": ["view"]}, "there is no command ['view']: use one of view"),
    ({"command": "view", "path": "/memories/a\x00"}, "is not a path under /memories"),
    ({"command": "view", "path": "/memories/a", "view_range": [1, 10**5000]}, "view_range must be"),
    ({"command": [10**5000]}, "there is no command list"),
    ("view", "must be an object with a command, got str"),
]


@pytest.mark.parametrize(("arguments", "said"), COMPLAINTS)
def test_an_error_names_the_argument_and_the_fix(arguments, said):
    tool = FileTool(memory())
    tool({"command": "create", "path": "/memories/a", "file_text": "one\ntwo"})
    answer = tool(arguments)
    assert answer.startswith("Error: ")
    assert said in answer


def test_folders_are_listed_two_levels_deep_with_sizes():
    tool = FileTool(memory())
    for path, size in (("a/x/y/deep.md", 1500), ("a/one.md", 36), ("b%20.md", 3), (".hidden", 9), ("a/.git/x", 9)):
        tool({"command": "create", "path": f"/memories/{path}", "file_text": "é" + "x" * (size - 2)})
    assert tool({"command": "view", "path": "/memories"}).split("\n") == [
        f"{LISTED} /memories, {BUT}:",
        "1.5K\t/memories",
        "1.5K\t/memories/a/",
        "36B\t/memories/a/one.md",
        "1.5K\t/memories/a/x/",
        "3B\t/memories/b%20.md",
    ]
    assert tool({"command": "view", "path": "/memories/a/x"}).endswith(
        "/memories/a/x/y/\n1.5K\t/memories/a/x/y/deep.md"
    )
    assert tool({"command": "view", "path": "/memories/.hidden"}).endswith("xxxxxxx")


def test_a_change_is_shown_with_the_lines_around_it():
    tool = FileTool(memory())
    tool({"command": "create", "path": "/memories/a", "file_text": "\n".join(f"line {n}" for n in range(1, 10))})
    change = {"command": "str_replace", "path": "/memories/a", "old_str": "line 5", "new_str": "five\nand a half"}
    said = "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
    shown = "     3\tline 3\n     4\tline 4\n     5\tfive\n     6\tand a half\n     7\tline 6\n     8\tline 7"
    assert tool(change) == said + shown
    assert tool({"command": "view", "path": "/memories/a", "view_range": [9, 500]}).endswith(
        "9\tline 8\n    10\tline 9"
    )


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
    ended = content if content.endswith("\n") or not content else f"{content}\n"
    assert _content(tool._files()["/memories/a"]) == f"first\n{ended}"


def test_what_others_write_under_the_agent_of_the_files_breaks_nothing():
    m = memory()
    for path in (5, "elsewhere", "/memories"):
        m.add(f"a stray {path}", agent_id="files", metadata={"path": path})
    tool = FileTool(m)
    tool({"command": "create", "path": "/memories/a", "file_text": "one"})
    assert tool({"command": "view", "path": "/memories"}).endswith(":\n3B\t/memories\n3B\t/memories/a")


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


def test_adapters_search_beside_a_policy_that_ranks_items_itself():
    """Their callers have no rewards to give, so nothing is tried out on them, and a person's memory is searched alone."""
    from keepworth.memory.adapters.langgraph import Put, _Entries

    learning = memory(policy="memrl")
    m = Mem0(learning)
    m.add("likes tofu", user_id="ana", infer=False)
    assert [each["memory"] for each in m.search("tofu", filters={"user_id": "ana"})["results"]] == ["likes tofu"]
    entries = _Entries(learning, lambda value, path: [str(value[path])])
    entries.put([Put(("mem", "ana"), "food", {"text": "likes tempeh"}, index=["text"])])
    assert [item.key for item, _ in entries.search(("mem", "ana"), "tempeh", {}, 1, 0)] == ["likes tempeh"]
    withholding = memory(policy=partial(default, withhold=1.0, least=1.0))
    m = Mem0(withholding)
    m.add("likes tofu", user_id="ana", infer=False)
    for _ in range(3):
        withholding.reward(withholding.search("tofu", user_id="ana").decision, 1.0)
    assert all(m.search("tofu", user_id="ana")["results"] for _ in range(5))
