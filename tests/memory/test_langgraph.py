"""LangGraph's store: keys, filters and ends. Most of it needs no LangGraph."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from keepworth.adapters.langgraph import _Entries, as_langgraph_store
from keepworth.memory.errors import MemoryProblem
from keepworth.memory.memory import Memory
from tests.memory.helpers import WordEncoder, at_once

SPACE = ("mem", "ana")


def texts_at(value: Any, path: str) -> list[str]:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return [] if value is None else [str(value)]


def entries(path: Path | str = ":memory:", **options: Any) -> _Entries:
    return _Entries(Memory(path, encoder=WordEncoder(64), **options), texts_at)


def keys(store: _Entries, query: str | None = None, *, limit: int = 10, **more: Any) -> list[str]:
    found = store.search((), query, more.get("filter", {}), limit, more.get("offset", 0))
    return [item.metadata["key"] for item, _ in found]


def fill(store: _Entries, values: Mapping[str, Mapping[str, Any]], **how: Any) -> None:
    for key, value in values.items():
        store.put(SPACE, key, value, **how)


def test_index_paths_select_the_searched_fields():
    store = entries()
    fill(store, {"one": {"a": "red apple", "b": "green car", "c": "grey mouse"}}, index=["a", "b"])
    fill(store, {"two": {"a": "red apple with a long tail of words", "b": "grey mouse"}}, index=["a"])
    fill(store, {"three": {"a": "green car"}}, index=False)
    found = store.search(SPACE, "green car", {}, 10, 0)
    assert [item.metadata["key"] for item, _ in found] == ["one", "two", "three"]
    assert found[2][1] is None, "what is not indexed comes last, without a score"
    by_default = _Entries(Memory(":memory:", encoder=WordEncoder(64)), texts_at, ["b"])
    fill(by_default, {"one": {"a": "red", "b": "green"}, "two": {"a": "green", "b": "red"}})
    assert keys(by_default, "green", limit=1) == ["one"]


def test_scores_fall_and_pages_follow_each_other():
    store = entries()
    words = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"]
    fill(store, {f"k{n}": {"text": " ".join(words[n % 5 : n % 5 + 1 + n % 4])} for n in range(24)})
    fill(store, {f"u{n}": {"text": "ant"} for n in range(3)}, index=False)
    whole = store.search((), "ant bee", {}, 40, 0)
    scores = [score for _, score in whole if score is not None]
    assert len(whole) == 27
    assert scores == sorted(scores, reverse=True)
    for query in ("ant bee", None):
        pages = [keys(store, query, limit=5, offset=start) for start in range(0, 30, 5)]
        assert [key for page in pages for key in page] == keys(store, query, limit=40)
    assert keys(store, "ant", limit=0) == []
    assert keys(store, offset=100) == []


def test_without_an_encoder_words_are_searched(m: Memory):
    store = _Entries(m, texts_at)
    fill(store, {"one": {"text": "a red apple"}, "two": {"text": "a green car"}})
    assert keys(store, "red apple", limit=1) == ["one"]


FILTERS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "equal": ({"colour": "red"}, ["one"]),
    "whole": ({"stars": 4}, ["one"]),
    "above": ({"stars": {"$gt": 2}}, ["two", "one"]),
    "between": ({"stars": {"$gte": 2, "$lt": 4}}, ["two"]),
    "not": ({"colour": {"$ne": "red"}}, ["three", "two"]),
    "text": ({"day": {"$lte": "2026-02-01"}}, ["one"]),
    "dotted": ({"user.access-level": "public"}, ["one"]),
    "dotted, as it stands": ({"a.b": 1}, ["two"]),
    "nested": ({"m": {"a": 1}}, ["one"]),
    "nested operators": ({"m": {"a": {"$lte": 1}, "b": 2}}, ["one"]),
    "list": ({"tags": ["x", "y"]}, ["two"]),
    "several": ({"stars": {"$gt": 1}, "colour": "blue"}, ["two"]),
    "another type": ({"colour": {"$gt": 3}}, []),
}


@pytest.mark.parametrize("name", FILTERS)
def test_langgraph_filters_have_their_meaning(name: str):
    asked, expected = FILTERS[name]
    store, user = entries(), {"access-level": "public"}
    one = {"colour": "red", "stars": 4, "day": "2026-01-01", "user": user, "m": {"a": 1, "b": 2}}
    two = {"colour": "blue", "stars": 3.5, "day": "2026-03-01", "tags": ["x", "y"], "a.b": 1, "m": {"a": 2}}
    fill(store, {"one": one, "two": two, "three": {"day": "2026-04-01"}})
    assert keys(store, filter=asked) == expected
    assert sorted(keys(store, "red", filter=asked)) == sorted(expected)


def test_a_key_keeps_the_time_at_which_it_was_first_put():
    times = [f"2026-01-01T00:0{minute}:00" for minute in range(3)]
    store = entries(clock=lambda: times[0])
    for number in range(3):
        fill(store, {"k": {"a": number}})
        times[:] = times[1:] or times
    found = store.get(SPACE, "k")
    assert (found.metadata["created"], found.written_at) == ("2026-01-01T00:00:00", "2026-01-01T00:02:00")


def test_batch_reads_before_it_puts_and_refuses_invalid_operations():
    base = pytest.importorskip("langgraph.store.base")
    store = as_langgraph_store(Memory(":memory:", encoder=WordEncoder(32)))
    store.put(SPACE, "food", {"text": "likes tofu"})
    with pytest.raises(ValueError, match="operation"):
        store.batch([object()])
    condition = base.MatchCondition("middle", ("mem",))
    with pytest.raises(ValueError, match="prefix"):
        store.batch([base.ListNamespacesOp((condition,), None, 10, 0)])
    ops = [base.PutOp(("a",), "k", {"n": 1}), base.GetOp(("a",), "k"), base.PutOp(("a",), "k", {"n": 2})]
    assert store.batch(ops) == [None, None, None], "all is read before anything is put"
    assert store.get(("a",), "k").value == {"n": 2}


def test_missing_langgraph_package_is_named(monkeypatch: Any):
    monkeypatch.setitem(sys.modules, "langgraph.store.base", None)
    with pytest.raises(MemoryProblem, match="pip install langgraph-checkpoint"):
        as_langgraph_store(Memory(":memory:", encoder=None))


# What is under a prefix and meets a filter is found, however many nearer items there are elsewhere.


@pytest.fixture
def crowded(tmp_path: Path) -> _Entries:
    memory = Memory(tmp_path / "a.mem", encoder=WordEncoder(32))
    metadata = [
        {"namespace": ["x", "team"], "key": f"k{n}", "value": {"text": "deploy plan", "kind": "log"}, "indexed": True}
        for n in range(1100)
    ]
    scope = {"agent_id": "langgraph", "session_id": '["x", "team"]'}
    memory.add_many(["deploy plan"] * 1100, repeat=True, key="deploy plan", metadata=metadata, **scope)
    store = _Entries(memory, texts_at)
    store.put(("team",), "mine", {"text": "lunch at noon", "kind": "note"})
    store.put(("x", "team"), "note", {"text": "lunch at one", "kind": "note"})
    return store


def test_namespace_prefix_is_applied_before_ranking(crowded: _Entries) -> None:
    found = crowded.search(("team",), "deploy plan", {}, 10, 0)
    assert [item.metadata["key"] for item, _ in found] == ["mine"]
    assert [item.metadata["key"] for item, _ in crowded.search(("team",), None, {}, 10, 0)] == ["mine"]
    assert len(crowded.search(("x",), None, {}, 2000, 0)) == 1101


def test_filter_is_applied_before_ranking(crowded: _Entries) -> None:
    found = crowded.search((), "deploy plan", {"kind": "note"}, 10, 0)
    assert sorted(item.metadata["key"] for item, _ in found) == ["mine", "note"]
    found = crowded.search(("x", "team"), "deploy plan", {"kind": {"$ne": "log"}}, 10, 0)
    assert [item.metadata["key"] for item, _ in found] == ["note"]


def test_a_namespace_is_compared_from_its_beginning():
    store = entries()
    for number, space in enumerate([("a", "b"), ("b", "a"), ("a",), ("ab",), ("a", "b", "c"), ("0", "1")]):
        store.put(space, "k", {"text": f"red {number}"})
    for prefix, expected in PREFIXES.items():
        found = store.search(prefix, "red", {}, 10, 0)
        assert {item.metadata["value"]["text"][-1] for item, _ in found} == expected


PREFIXES: dict[tuple[str, ...], set[str]] = {
    (): set("012345"),
    ("a",): set("024"),
    ("a", "b"): set("04"),
    ("b",): {"1"},
    ("0",): {"5"},
    ("1",): set(),
}


def test_concurrent_puts_of_a_key_leave_one_item():
    store = entries()
    done = at_once([lambda n=n: store.put(SPACE, "k", {"text": f"value {n}"}) for n in range(24)])
    assert done == [None] * 24
    assert len(store._memory.get_all()) == 1
    gone = at_once([lambda: store.put(SPACE, "k", None)] * 8)
    assert gone == [None] * 8, "as in LangGraph's own stores, to delete what is not there is no error"
    assert store.get(SPACE, "k") is None


def test_last_put_of_an_event_loop_wins():
    pytest.importorskip("langgraph.store.base")
    store = as_langgraph_store(Memory(":memory:", encoder=WordEncoder(32)))

    async def put() -> Any:
        await asyncio.gather(*(store.aput(SPACE, "k", {"n": n}) for n in range(40)))
        return await store.aget(SPACE, "k")

    assert asyncio.run(put()).value == {"n": 39}


def test_several_items_that_an_older_version_left_under_one_key_become_one(m: Memory) -> None:
    store = _Entries(m, texts_at)
    metadata = {"namespace": list(SPACE), "key": "k", "value": {"n": 0}, "indexed": True}
    scope = {"agent_id": "langgraph", "session_id": '["mem", "ana"]'}
    for number in range(3):
        m.add(f'{{"n": {number}}}', repeat=True, metadata=metadata, **scope)
    store.put(SPACE, "k", {"n": 7})
    assert [item.metadata["value"] for item in m.get_all()] == [{"n": 7}]
