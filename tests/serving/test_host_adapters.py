"""The slots that other packages have for a memory, filled by an embedded one and by one that is served, in their own hands."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keepworth import Client, Memory
from keepworth.adapters.langgraph import _Entries
from keepworth.serving.memory_server import MemoryServer
from tests.memory.helpers import at_once


@pytest.fixture(params=["embedded", "served"])
def memory(request: pytest.FixtureRequest, server: MemoryServer, tmp_path: Path) -> Iterator[Any]:
    if request.param == "embedded":
        with Memory(tmp_path / "a.mem", encoder="hashing") as memory:
            yield memory
    else:
        with Client(server.url, server.token) as client:
            yield client


def test_a_store_of_langgraph_keeps_and_finds_values(memory: Any) -> None:
    pytest.importorskip("langgraph.store.base")
    from keepworth.adapters.langgraph import as_langgraph_store

    store = as_langgraph_store(memory)
    store.put(("mem", "ana"), "food", {"text": "likes tofu", "stars": 4})
    store.put(("mem", "bo"), "food", {"text": "likes steak", "stars": 2})
    store.put(("mem", "ana"), "food", {"text": "likes tempeh", "stars": 5})
    with pytest.raises(NotImplementedError, match="TTL"):
        store.put(("mem", "ana"), "food", {"text": "likes tofu"}, ttl=5.0)
    found = store.get(("mem", "ana"), "food")
    assert found.value == {"text": "likes tempeh", "stars": 5}
    assert found.created_at < found.updated_at
    assert store.get(("mem", "ana"), "drink") is None
    assert [item.value["text"] for item in store.search(("mem", "ana"), query="likes")] == ["likes tempeh"]
    assert {item.key for item in store.search(("mem",))} == {"food"}
    assert len(store.search(("mem",), filter={"stars": {"$gt": 3}})) == 1
    assert len(store.search(("mem",), query="likes", filter={"stars": {"$gt": 3}})) == 1
    assert store.list_namespaces(prefix=("mem",)) == [("mem", "ana"), ("mem", "bo")]
    assert store.list_namespaces(max_depth=1) == [("mem",)]
    store.put(("docs",), "one", {"m": {"text": "about tofu"}, "c": [{"t": "x"}]}, index=["m.text", "c[*].t"])
    assert [item.key for item in memory.get_all(session_id='["docs"]')] == ["about tofu\nx"]
    assert [item.key for item in store.search(["docs"], query="about tofu")] == ["one"]
    store.delete(("mem", "bo"), "food")
    store.delete(("mem", "bo"), "food")
    assert store.get(("mem", "bo"), "food") is None
    assert asyncio.run(store.aget(("mem", "ana"), "food")).key == "food"
    store.delete(("mem", "ana"), "food")
    store.delete(("docs",), "one")


def test_concurrent_puts_of_a_key_leave_one_item(memory: Any) -> None:
    store, space = _Entries(memory, lambda value, path: []), ("counters",)
    done = at_once([lambda n=n: store.put(space, "k", {"n": n}) for n in range(24)])
    assert done == [None] * 24
    (item,) = memory.get_all(session_id='["counters"]')
    assert item.metadata["created"] <= item.written_at
    store.put(space, "k", {"n": 24})
    assert store.get(space, "k").metadata["value"] == {"n": 24}
    store.put(space, "k", None)
    assert store.get(space, "k") is None
