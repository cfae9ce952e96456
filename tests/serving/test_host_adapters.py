"""The slots that other packages have for a memory, filled by an embedded one and by one that is served, in their own hands."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from keepworth import Client, Memory
from keepworth.memory.adapters.session import MemorySession
from keepworth.serving.memory_server import MemoryServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryServer]:
    with MemoryServer(tmp_path_factory.mktemp("served") / "agent.mem", encoder="hashing") as server:
        yield server


@pytest.fixture(params=["embedded", "served"])
def memory(request: pytest.FixtureRequest, server: MemoryServer, tmp_path: Path) -> Iterator[Any]:
    if request.param == "embedded":
        with Memory(tmp_path / "a.mem", encoder="hashing") as memory:
            yield memory
    else:
        with Client(server.url, server.token) as client:
            yield client


def test_a_conversation_comes_back_as_it_was_given(memory: Any) -> None:
    async def story() -> None:
        one, other = (MemorySession(name, memory, user_id="ana") for name in ("one", "other"))
        items: list[Any] = [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "hello"}]},
            {"role": "user", "content": "hello"},
            {"type": "function_call", "name": "f", "arguments": "{}"},
        ]
        await one.add_items(items)
        await other.add_items(items[:1])
        assert await one.get_items() == items
        assert await one.get_items(2) == items[-2:]
        assert await one.pop_item() == items[-1]
        await one.clear_session()
        assert await one.get_items() == []
        assert await other.get_items() == items[:1]

    asyncio.run(story())


def test_a_session_tells_what_others_of_the_same_user_said(memory: Any) -> None:
    @dataclass
    class Input:
        input: list[Any]
        instructions: str | None = None

    async def story() -> None:
        earlier, now = (MemorySession(name, memory, user_id="cy") for name in ("earlier", "now"))
        await earlier.add_items([{"role": "user", "content": "my soup needs tofu"}])
        await MemorySession("his", memory, user_id="bo").add_items([{"role": "user", "content": "tofu for me"}])
        await now.add_items([{"role": "user", "content": "tofu soup please"}])
        told = await now.recalling()(SimpleNamespace(model_data=Input(await now.get_items())))
        assert told.instructions == "What is remembered of this user from before:\n- my soup needs tofu"

    asyncio.run(story())


def test_an_agent_of_openai_s_sdk_goes_on_where_its_session_was(memory: Any) -> None:
    """The SDK's own runner, with a model that answers how many items it was given."""
    agents = pytest.importorskip("agents")
    from agents.items import ModelResponse
    from agents.models.interface import Model
    from agents.usage import Usage
    from openai.types.responses import ResponseOutputMessage, ResponseOutputText

    class Counting(Model):  # type: ignore[misc]
        async def get_response(self, *_: Any, input: Any, **__: Any) -> Any:
            part = ResponseOutputText(type="output_text", text=str(len(input)), annotations=[])
            said = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[part])
            return ModelResponse(output=[said], usage=Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    async def story() -> None:
        agent = agents.Agent(name="counting", model=Counting())
        off = agents.RunConfig(tracing_disabled=True)
        for expected in ("1", "3", "5"):
            session = MemorySession("conversation", memory, user_id="bob")
            done = await agents.Runner.run(agent, "hello", session=session, run_config=off)
            assert done.final_output == expected

    asyncio.run(story())


def test_a_store_of_langgraph_keeps_and_finds_values(memory: Any) -> None:
    pytest.importorskip("langgraph.store.base")
    from keepworth.memory.adapters.langgraph import as_langgraph_store

    store = as_langgraph_store(memory)
    store.put(("mem", "ana"), "food", {"text": "likes tofu", "stars": 4})
    store.put(("mem", "bo"), "food", {"text": "likes steak", "stars": 2})
    store.put(("mem", "ana"), "food", {"text": "likes tempeh", "stars": 5})
    store.put(("mem", "ana"), "food", {"text": "likes tempeh", "stars": 5}, ttl=5)
    assert store.get(("mem", "ana"), "food").value == {"text": "likes tempeh", "stars": 5}
    assert store.get(("mem", "ana"), "drink") is None
    assert [item.value["text"] for item in store.search(("mem", "ana"), query="likes")] == ["likes tempeh"]
    assert {item.key for item in store.search(("mem",))} == {"food"}
    assert len(store.search(("mem",), filter={"stars": {"$gt": 3}})) == 1
    assert len(store.search(("mem",), query="likes", filter={"stars": {"$gt": 3}})) == 1
    assert store.list_namespaces(prefix=("mem",)) == [("mem", "ana"), ("mem", "bo")]
    assert store.list_namespaces(max_depth=1) == [("mem",)]
    store.put(("docs",), "one", {"m": {"text": "about tofu"}, "c": [{"t": "x"}]}, index=["m.text", "c[*].t"])
    assert [item.key for item in memory.get_all(session_id='["docs"]')] == ["about tofu\nx"]
    store.delete(("mem", "bo"), "food")
    store.delete(("mem", "bo"), "food")
    assert store.get(("mem", "bo"), "food") is None
    assert asyncio.run(store.aget(("mem", "ana"), "food")).key == "food"
    store.delete(("mem", "ana"), "food")
    store.delete(("docs",), "one")


def test_a_graph_s_node_reads_what_another_run_put_into_its_store(memory: Any) -> None:
    graphs = pytest.importorskip("langgraph.graph")
    from langgraph.store.base import BaseStore

    from keepworth.memory.adapters.langgraph import as_langgraph_store

    def node(state: dict[str, Any], *, store: BaseStore) -> dict[str, Any]:
        before = store.get(("counts",), "runs")
        runs = 1 + (0 if before is None else before.value["runs"])
        store.put(("counts",), "runs", {"runs": runs})
        return {"runs": runs}

    node.__annotations__["store"] = BaseStore  # langgraph reads it as a type
    for expected in (1, 2, 3):
        graph = graphs.StateGraph(dict)
        graph.add_node("node", node)
        graph.add_edge(graphs.START, "node")
        assert graph.compile(store=as_langgraph_store(memory)).invoke({})["runs"] == expected
