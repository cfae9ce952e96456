"""LangGraph's store: keys, filters, ends, odd values, and several processes at once. Most of it needs no LangGraph."""

from __future__ import annotations

import asyncio
import json
import math
import multiprocessing
import os
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.memory.adapters.langgraph import AGENT, Put, _Entries, _ServedEntries, _value
from keepworth.memory.errors import InvalidFilter, InvalidText, MemoryProblem, UnknownItem
from keepworth.memory.item import Item, later, now
from keepworth.memory.memory import Memory
from keepworth.memory.store.checks import check

from .stub_encoder import WordEncoder

SPACE = ("mem", "ana")
Either = _Entries | _ServedEntries


def texts_at(value: Any, path: str) -> list[str]:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return [] if value is None else [str(value)]


def entries(path: Path | str = ":memory:", **options: Any) -> _Entries:
    return _Entries(Memory(path, encoder=WordEncoder(64), **options), texts_at)


def both() -> list[Either]:
    return [entries(), _ServedEntries(Memory(":memory:", encoder=WordEncoder(64)), texts_at)]


def keys(
    store: Either, query: str | None = None, *, prefix: tuple[str, ...] = (), limit: int = 10, **more: Any
) -> list[str]:
    found = store.search(prefix, query, more.pop("filter", {}), limit, more.pop("offset", 0))
    return [item.metadata["key"] for item, _ in found]


def fill(store: Either, values: Mapping[str, Mapping[str, Any]], **how: Any) -> None:
    store.put([Put(SPACE, key, value, **how) for key, value in values.items()])


def test_handles_that_put_the_same_keys_keep_one_item_each(tmp_path: Path):
    """Handles of their own see what others wrote only when they look, and another may write right after."""
    one, two = entries(tmp_path / "a.mem"), entries(tmp_path / "a.mem")
    failures: list[BaseException] = []

    def puts(into: _Entries, name: str) -> None:
        try:
            for number in range(40):
                into.put([Put(SPACE, f"k{number % 3}", {"text": f"{name} {number}"}, index=["text"])])
                assert into.get(SPACE, f"k{number % 3}") is not None
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=puts, args=pair) for pair in ((one, "one"), (two, "two"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for each in (one, two):
        assert sorted(keys(each)) == sorted(keys(each, "one two")) == ["k0", "k1", "k2"]
    one.put([Put(SPACE, "k0", None)])
    assert two.get(SPACE, "k0") is None
    assert two.get(SPACE, "k1") == one.get(SPACE, "k1") is not None
    two._memory.forget(two.get(SPACE, "k1").id, purge_history=True)
    assert one.get(SPACE, "k1") is None
    assert one.namespaces((), None, 10, 0) == [SPACE]
    one.put([Put(SPACE, "k1", {"text": "again"}, index=["text"])])
    assert keys(two, "again", prefix=SPACE, limit=1) == ["k1"]


def puts_and_reads(path: Path, name: int, times: int, failed: Any) -> None:
    try:
        store = entries(path)
        for number in range(times):
            key = f"k{number % 5}"
            if number % 7 == 6 and name == 1:
                store.put([Put(SPACE, key, None)])
            else:
                store.put(
                    [Put(SPACE, key, {"text": f"{name} {number}"}), Put(("mem",), key, {"by": name}, index=False)]
                )
            assert store.get(("mem",), key) is not None
            store.search(("mem",), None, {}, 10, 0)
    except BaseException as error:
        failed.put(repr(error))
        raise


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize(("processes", "times"), [(2, 40), pytest.param(4, 400, marks=pytest.mark.slow)])
def test_processes_that_put_the_same_keys_never_fail_and_leave_no_duplicates(
    tmp_path: Path, processes: int, times: int
):
    context = multiprocessing.get_context("fork")
    failed = context.SimpleQueue()
    file = tmp_path / "a.mem"
    started = [
        context.Process(target=puts_and_reads, args=(file, name, times, failed), daemon=True)
        for name in range(processes)
    ]
    for each in started:
        each.start()
    for each in started:
        each.join(240)
    assert failed.empty()
    assert [each.exitcode for each in started] == [0] * processes
    with Memory(file, encoder=WordEncoder(64)) as memory:
        listed = memory.get_all(limit=10_000, agent_id=AGENT)
        found = Counter((tuple(item.metadata["namespace"]), item.metadata["key"]) for item in listed)
        assert set(found.values()) == {1}
        assert 5 <= len(found) <= 10
        assert check(memory.store) == []


def test_a_handle_follows_what_others_write_without_reading_everything_again(tmp_path: Path, monkeypatch: Any):
    one, two = entries(tmp_path / "a.mem"), entries(tmp_path / "a.mem")
    fill(one, {f"k{number}": {"text": f"number {number}"} for number in range(300)})
    assert two.get(SPACE, "k7") is not None
    store = two._memory.store
    read: list[int] = []
    fetch = store.fetch
    monkeypatch.setattr(store, "fetch", lambda scope, ids: read.append(len(ids)) or fetch(scope, ids))
    monkeypatch.setattr(store, "items", None)
    fill(one, {"k7": {"text": "seven"}})
    assert _value(two.get(SPACE, "k7")) == {"text": "seven"}
    assert keys(two, limit=3) == ["k7", "k299", "k298"]
    assert sum(read) < 20


def test_puts_of_one_batch_are_one_transaction():
    store = entries()
    head = store._memory.store.head()
    with pytest.raises(InvalidText, match="'bad'"):
        store.put([Put(SPACE, "good", {"a": 1}), Put(SPACE, "bad", {"a": {1, 2}})])
    with pytest.raises(ValueError, match="dictionary"):
        store.put([Put(SPACE, "good", {"a": 1}), Put(SPACE, "bad", ["a"])])  # type: ignore[arg-type]
    assert store._memory.store.head() == head
    assert keys(store) == []
    store._memory.store.max_items = 3
    with pytest.raises(MemoryProblem, match="may hold 3"):
        fill(store, {f"k{number}": {"a": number} for number in range(4)})
    assert keys(store) == []
    store._memory.store.max_items = None
    fill(store, {"good": {"a": 1}, "also": {"a": 1}})
    assert sorted(keys(store)) == ["also", "good"]


@pytest.mark.parametrize("store", both(), ids=("here", "served"))
def test_values_that_no_text_can_hold_come_back_as_they_were(store: Either):
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


def test_paths_say_what_searches_read_and_the_best_of_several_texts_counts():
    store = entries()
    fill(store, {"one": {"a": "red apple", "b": "green car", "c": "grey mouse"}}, index=["a", "b"])
    fill(store, {"two": {"a": "red apple with a long tail of words", "b": "grey mouse"}}, index=["a"])
    fill(store, {"three": {"a": "green car"}}, index=False)
    fill(store, {"four": {"a": "green car"}}, index=["nowhere"])
    found = store.search(SPACE, "green car", {}, 10, 0)
    assert [item.metadata["key"] for item, _ in found] == ["one", "two", "four", "three"]
    scores = [score for _, score in found]
    assert scores[0] == pytest.approx(1.0, abs=1e-5)
    assert scores[2:] == [None, None], "what is not indexed comes last, without a score"
    assert keys(store, "green car", limit=2) == ["one", "two"]
    best = {key: store.search(SPACE, "grey mouse", {}, 10, 0)[place][1] for place, key in enumerate(("one", "two"))}
    assert max(score for score in best.values() if score is not None) < 0.9
    fill(store, {"three": {"a": "green car"}})
    assert sorted(keys(store, "green car", limit=2)) == ["one", "three"]
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
    for store in both():
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


def test_what_is_read_lives_on_where_it_was_put_for_a_while():
    clock = Ticking()
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
    store = _ServedEntries(Memory(":memory:", encoder=None), texts_at)
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

    class Slow(_ServedEntries):
        def get(self, namespace: tuple[str, ...], key: str, *, refresh: bool = False) -> Item | None:
            found = super().get(namespace, key, refresh=refresh)
            meeting.wait(30)
            return found

    stores = [Slow(memory, texts_at) for _ in range(4)]
    writers = [
        threading.Thread(target=fill, args=(store, {"k": {"by": number}})) for number, store in enumerate(stores)
    ]
    for each in writers:
        each.start()
    for each in writers:
        each.join(30)
    (item,) = memory.get_all(agent_id=AGENT)
    assert int(item.id[1:]) >= 4, "the one that was written last"
    reader = _ServedEntries(memory, texts_at)
    assert _value(reader.get(SPACE, "k")) == _value(item)


def test_of_two_items_of_one_key_the_later_is_read_everywhere():
    memory = Memory(":memory:", encoder=WordEncoder(64))
    for number in range(2):  # as where a process is killed between its write and its look
        told = {"namespace": list(SPACE), "key": "k", "value": {"n": number}}
        memory.add(f"tea {number}", agent_id=AGENT, session_id=json.dumps(SPACE), metadata=told)
    store = _ServedEntries(memory, texts_at)
    assert _value(store.get(SPACE, "k")) == {"n": 1}
    for query in (None, "tea"):
        assert [_value(item) for item, _ in store.search((), query, {}, 10, 0)] == [{"n": 1}]
        assert store.search((), query, {"n": 0}, 10, 0) == []


def test_a_filtered_list_reads_what_it_gives(monkeypatch: Any):
    store = entries()
    fill(store, {f"k{n}": {"topic": f"t{n % 50}"} for n in range(200)})
    keys(store)
    read: list[str] = []
    fetch = store._memory.store.fetch
    monkeypatch.setattr(store._memory.store, "fetch", lambda scope, ids: (read.extend(ids), fetch(scope, ids))[1])
    assert keys(store, filter={"topic": "t7"}, limit=3) == ["k157", "k107", "k57"]
    assert len(read) == 3
    assert keys(store, filter={"topic": "t99"}) == []
    assert len(read) == 3


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
