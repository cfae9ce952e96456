"""A call that names nobody: an admin is told of everybody, others of what was noted without a person; and a policy that finds
items itself, which learned from everybody, shows nobody what another person said."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest

from keepworth import Client, Memory
from keepworth.serving.access import new_access
from keepworth.serving.memory_routes import BASE
from keepworth.serving.memory_server import MemoryServer
from tests.serving.callers import with_token

PROGRAM = ("read", "write", "reward")
ANAS, NOBODYS = "Ana keeps the gate key", "The gate is green"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryServer]:
    file, tools = tmp_path_factory.mktemp("nobody") / "agent.mem", find_spec("mcp") is not None
    with MemoryServer(file, encoder="hashing", mcp=tools) as server:
        one = Client(server.url, server.token)
        one.add(ANAS, user_id="ana")
        one.add(NOBODYS)
        with one.episode("open the gate", user_id="ana") as live:
            live.search()
            live.act("opened it")
        yield server


def token(server: MemoryServer, *roles: str, **bounds: str) -> str:
    return server.tokens.add(new_access(roles=roles or PROGRAM, **bounds))


def test_program_without_a_person_sees_unowned_items_only(server: MemoryServer) -> None:
    client = Client(server.url, token(server))
    assert [hit.text for hit in client.search("gate")] == [NOBODYS]
    assert [item.text for item in client.get_all()] == [NOBODYS]
    assert client.episodes() == client.pending() == []
    with client.episode("find the gate") as live:
        assert [hit.text for hit in live.search()] == [NOBODYS]
        live.act("went")
    assert client.episodes() == client.pending() == [live.id]
    live.reward(1.0)
    assert [account.item for account in client.ledger().accounts] == ["m2"]


def test_token_of_a_person_that_asks_for_unowned_items_finds_its_own(server: MemoryServer) -> None:
    headers = {"Authorization": f"Bearer {token(server, user_id='ana')}"}
    answer = httpx.post(f"{server.url}{BASE}/search", headers=headers, json={"query": "gate", "nobody": True})
    assert [hit["item"]["text"] for hit in answer.json()["hits"]] == [ANAS]


def test_program_that_names_a_person_sees_their_items(server: MemoryServer) -> None:
    client = Client(server.url, token(server))
    assert [hit.text for hit in client.search("gate", user_id="ana")] == [ANAS]
    assert [item.text for item in client.get_all(user_id="ana")] == [ANAS]
    assert len(client.episodes(user_id="ana")) == 1
    with client.episode("find the gate", user_id="ana") as live:
        assert [hit.text for hit in live.search()] == [ANAS]
    assert client.get("m1").text == ANAS, "an id says itself what is meant"


def test_server_token_sees_all_items(server: MemoryServer) -> None:
    """The quick start of one user: one server, one token of its life."""
    for given in (server.token, token(server, "read", "admin")):
        client = Client(server.url, given)
        assert {hit.text for hit in client.search("gate")} == {ANAS, NOBODYS}
        assert {item.text for item in client.get_all()} == {ANAS, NOBODYS}


def test_tools_without_a_person_show_unowned_items_only(server: MemoryServer) -> None:
    pytest.importorskip("mcp")
    import anyio

    from tests.serving.test_mcp_tools import call, connected

    async def ids(client: Any, tool: str = "search_memories", **arguments: Any) -> list[str]:
        return [note["id"] for note in (await call(client, tool, **arguments))["notes"]]

    async def used(program: str) -> None:
        async with connected(server, program) as client:
            assert await ids(client, query="gate") == await ids(client, "list_memories") == ["m2"]
            episode = (await call(client, "start_episode", task="gate"))["episode"]
            assert await ids(client, query="gate", episode=episode) == ["m2"]
        async with connected(server, program, **{"X-Keepworth-User": "ana"}) as client:
            assert await ids(client, query="gate") == ["m1"]
        async with connected(server, server.token) as client:
            assert len(await ids(client, query="gate")) == 2

    anyio.run(used, token(server))


def test_own_retriever_hides_items_of_other_persons(tmp_path: Path) -> None:
    with MemoryServer(tmp_path / "a.mem", encoder="hashing", policy="mixture", seed=0) as server:
        ana, bo = (Client(server.url, token(server, user_id=name)) for name in ("ana", "bo"))
        ana.add("Ana's secret recipe is plum cake")
        program = Client(server.url, token(server))
        for client in (bo, program):
            assert list(client.search("cake")) == []
            with client.episode("bake a cake") as live:
                found = live.search("cake")
                assert (list(found), found.text, found.advice) == ([], "", ())
        assert [hit.text for hit in ana.search("cake")] == ["Ana's secret recipe is plum cake"]
        bare = with_token(server, token(server, user_id="bo"), BASE)
        assert "plum" not in bare.post("/search", json={"query": "cake"}).text


def test_own_retriever_sees_shared_scopes() -> None:
    memory = Memory(encoder="hashing", policy="mixture", seed=0)
    memory.add("We bake plum cake", user_id="team")
    memory.add("Bo bakes apple cake", user_id="bo")
    ann = memory.within(user_id="ann", shared={"team": False})
    assert [hit.text for hit in ann.search("cake")] == ["We bake plum cake"]
