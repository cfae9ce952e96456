"""LangGraph's store: keys, filters, ends, odd values, and several processes at once. Most of it needs no LangGraph."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.memory.adapters.langgraph import AGENT, Put, _Entries, _value
from keepworth.memory.errors import InvalidFilter, MemoryProblem, UnknownItem
from keepworth.memory.item import Item, later, now
from keepworth.memory.memory import Memory

from .stub_encoder import WordEncoder

SPACE = ("mem", "ana")


def texts_at(value: Any, path: str) -> list[str]:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return [] if value is None else [str(value)]


def entries(path: Path | str = ":memory:", **options: Any) -> _Entries:
    return _Entries(Memory(path, encoder=WordEncoder(64), **options), texts_at)


def keys(
    store: _Entries, query: str | None = None, *, prefix: tuple[str, ...] = (), limit: int = 10, **more: Any
) -> list[str]:
    found = store.search(prefix, query, more.pop("filter", {}), limit, more.pop("offset", 0))
    return [item.metadata["key"] for item, _ in found]


def fill(store: _Entries, values: Mapping[str, Mapping[str, Any]], **how: Any) -> None:
    store.put([Put(SPACE, key, value, **how) for key, value in values.items()])


def test_values_that_no_text_can_hold_come_back_as_they_were():
    store = entries()
    values: dict[str, dict[str, Any]] = {
        "controls": {"text": "a\x00b\x1b[0m\x85", "\x01": "x"},
        "half": {"text": "\ud83d", "\udc00": 1},
        "large": {"text": "x" * 1_200_000},
        "numbers": {"a": math.inf, "b": -math.inf},
        "deep": {"a": json.loads("[" * 60 + "]" * 60)},
        "empty": {},
        "blank": {"text": " \n"},
        "nothing": {"a": None},
    }
    fill(store, values)
    for key, value in values.items():
        found = store.get(SPACE, key)
        assert found is not None
        assert _value(found) == value
    fill(store, {"large": {"text": "x" * 1_200_000 + "y"}})
    assert _value(store.get(SPACE, "large"))["text"].endswith("xy")
    assert keys(store, filter={"text": "a\x00b\x1b[0m\x85"}) == ["controls"]
    assert keys(store, "a\x00b \ud83d", limit=1)
    store.put([Put(("label\n" * 30, "x" * 600), "k\x00", {"a": 1})])
    assert store.get(("label\n" * 30, "x" * 600), "k\x00") is not None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec=None)), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.dictionaries(st.text(st.characters(codec=None)), JSON, max_size=3), min_size=1, max_size=3))
def test_any_value_is_what_was_put_last(values: list[dict[str, Any]]):
    store = entries()
    for value in values:
        fill(store, {"k": value})
        (found,) = (item for item, _ in store.search((), None, {}, 10, 0))
        assert _value(found) == value
        assert found.metadata["key"] == "k"


def test_paths_say_what_searches_read():
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


def test_without_an_encoder_words_are_searched():
    store = _Entries(Memory(":memory:", encoder=None), texts_at)
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
    "tuple": ({"tags": ("x", "y")}, ["two"]),
    "missing": ({"colour": None}, ["three"]),
    "there": ({"colour": {"$ne": None}}, ["two", "one"]),
    "below everything": ({"stars": {"$lt": math.inf}}, ["two", "one"]),
    "above nothing": ({"stars": {"$gt": -math.inf}}, ["two", "one"]),
    "no number": ({"stars": {"$eq": math.nan}}, []),
    "above no number": ({"stars": {"$gt": math.nan}}, []),
    "large": ({"stars": {"$lt": 10**100}}, ["two", "one"]),
    "several": ({"stars": {"$gt": 1}, "colour": "blue"}, ["two"]),
    "another type": ({"colour": {"$gt": 3}}, []),
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_mean_what_langgraph_means(name: str):
    asked, expected = FILTERS[name]
    for store in (entries(),):
        fill(
            store,
            {
                "one": {
                    "colour": "red",
                    "stars": 4,
                    "day": "2026-01-01",
                    "user": {"access-level": "public"},
                    "m": {"a": 1, "b": 2},
                }
            },
        )
        fill(
            store,
            {"two": {"colour": "blue", "stars": 3.5, "day": "2026-03-01", "tags": ["x", "y"], "a.b": 1, "m": {"a": 2}}},
        )
        fill(store, {"three": {"day": "2026-04-01"}})
        assert keys(store, filter=asked) == expected
        assert sorted(keys(store, "red", filter=asked)) == sorted(expected)


@pytest.mark.parametrize("asked", [{"a": {"$like": 1}}, {"x') = 'y": 1}, {"a": {"$gt": [1]}}, {7: 1}], ids=repr)
def test_filters_that_do_not_exist_are_value_errors(asked: Any):
    store = entries()
    fill(store, {"one": {"a": 1}})
    for query in (None, "one"):
        with pytest.raises(InvalidFilter) as caught:
            store.search((), query, asked, 10, 0)
        assert isinstance(caught.value, ValueError)


class Ticking:
    """A clock that is told what time it is."""

    def __init__(self) -> None:
        self.time = now()

    def __call__(self) -> str:
        return self.time

    def goes(self, minutes: float) -> None:
        self.time = later(self.time, 60.0 * minutes)


def test_what_is_read_lives_on_where_it_was_put_for_a_while(monkeypatch: Any):
    clock = Ticking()
    monkeypatch.setattr("keepworth.memory.adapters.langgraph.now", clock)
    store = entries(clock=clock)
    fill(store, {"short": {"a": 1}, "other": {"a": 1}}, ttl=10.0)
    fill(store, {"ever": {"a": 1}})
    clock.goes(6)
    head = store._memory.store.head()
    assert store.get(SPACE, "short") is not None
    assert store.get(SPACE, "ever", refresh=True) is not None
    assert store._memory.store.head() == head, "reading writes nothing unless it prolongs"
    assert store.get(SPACE, "short", refresh=True) is not None
    assert store.get(SPACE, "short", refresh=True) is not None
    assert store._memory.store.head() == head + 1
    clock.goes(6)
    assert sorted(keys(store)) == sorted(keys(store, "1", limit=3)) == ["ever", "short"]
    store.search((), None, {}, 10, 0, refresh=True)
    clock.goes(9)
    assert sorted(keys(store)) == ["ever", "short"]
    fill(store, {"short": {"a": 1}}, ttl=100.0)
    clock.goes(50)
    assert store.get(SPACE, "short") is not None
    store.put([Put(("alone",), "k", {"a": 1}, ttl=1.0)])
    assert store.namespaces((), None, 10, 0) == [("alone",), SPACE]
    clock.goes(2)
    assert store.namespaces((), None, 10, 0) == [SPACE]


def test_a_key_keeps_the_time_at_which_it_was_first_put():
    clock = Ticking()
    store = entries(clock=clock)
    for number in range(3):
        fill(store, {"k": {"a": number}})
        clock.goes(1)
    found = store.get(SPACE, "k")
    assert found is not None
    assert later(found.metadata["created"], 120.0) == found.written_at


def test_what_others_write_under_the_agent_is_no_entry():
    store = entries()
    for stray in ({}, {"namespace": "a", "key": "k"}, {"namespace": [1], "key": "k"}, {"namespace": ["a"], "key": 3}):
        store._memory.add(f"stray {stray}", agent_id=AGENT, metadata=stray)
    fill(store, {"k": {"a": 1}})
    assert keys(store) == keys(store, "stray") == ["k"]


def test_a_put_through_a_server_is_tried_again_where_the_item_went_away_meanwhile(monkeypatch: Any):
    store = _Entries(Memory(":memory:", encoder=None), texts_at)
    fill(store, {"k": {"a": 1}})
    supersede = store._memory.supersede
    failing = [UnknownItem("m1 is closed"), UnknownItem("m1 is closed")]

    def late(id: str, *args: Any, **more: Any) -> Item:
        if failing:
            raise failing.pop()
        return supersede(id, *args, **more)

    monkeypatch.setattr(store._memory, "supersede", late)
    fill(store, {"k": {"a": 2}})
    assert _value(store.get(SPACE, "k")) == {"a": 2}
    failing += [UnknownItem("m1 is closed")] * 9
    with pytest.raises(UnknownItem):
        fill(store, {"k": {"a": 3}})


def test_first_puts_through_a_server_at_once_leave_one_item():
    """Both look before either writes; the writes, and what follows them, come in any order."""
    memory = Memory(":memory:", encoder=WordEncoder(64))
    meeting = threading.Barrier(4)

    class Slow(_Entries):
        def get(self, namespace: tuple[str, ...], key: str, *, refresh: bool = False) -> Item | None:
            found = super().get(namespace, key, refresh=refresh)
            meeting.wait(30)
            return found

    stores = [Slow(memory, texts_at) for _ in range(4)]
    writers = [
        threading.Thread(target=fill, args=(store, {"k": {"by": number}})) for number, store in enumerate(stores)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
    (item,) = memory.get_all(agent_id=AGENT)
    assert int(item.id[1:]) >= 4, "the one that was written last"
    reader = _Entries(memory, texts_at)
    assert _value(reader.get(SPACE, "k")) == _value(item)


def test_langgraph_store():
    base = pytest.importorskip("langgraph.store.base")
    from keepworth.memory.adapters.langgraph import as_langgraph_store

    m = Memory(":memory:", encoder=WordEncoder(32))
    store = as_langgraph_store(m, ttl={"default_ttl": 60.0})
    store.put(("mem", "ana"), "food", {"text": "likes tofu", "stars": 4})
    store.put(("mem", "bo"), "food", {"text": "likes steak", "stars": 2})
    store.put(("mem", "ana"), "food", {"text": "likes tempeh", "stars": 5})
    found = store.get(("mem", "ana"), "food")
    assert found.value == {"text": "likes tempeh", "stars": 5}
    assert found.created_at < found.updated_at
    assert all(item.expires_at for item in m.get_all())
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
    with pytest.raises(ValueError, match="operation"):
        store.batch([object()])
    condition = base.MatchCondition("middle", ("mem",))
    with pytest.raises(ValueError, match="prefix"):
        store.batch([base.ListNamespacesOp((condition,), None, 10, 0)])
    ops = [base.PutOp(("a",), "k", {"n": 1}), base.GetOp(("a",), "k"), base.PutOp(("a",), "k", {"n": 2})]
    assert store.batch(ops) == [None, None, None], "all is read before anything is put"
    assert store.get(("a",), "k").value == {"n": 2}


def test_the_package_that_it_needs_is_named(monkeypatch: Any):
    from keepworth.memory.adapters.langgraph import as_langgraph_store

    monkeypatch.setitem(sys.modules, "langgraph.store.base", None)
    with pytest.raises(MemoryProblem, match="pip install langgraph-checkpoint"):
        as_langgraph_store(Memory(":memory:", encoder=None))
