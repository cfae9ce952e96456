"""Memory as tools, called by the SDK's own client: over standard input and output, and over HTTP."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp")

import httpx2
from mcp import Client as McpClient
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from keepworth import Memory
from keepworth.serving.access import ROLES, new_access
from keepworth.serving.memory_server import MemoryServer
from tests.serving.callers import served

TOOLS = {
    *("search_memories", "add_memory", "get_memory", "list_memories", "update_memory", "supersede_memory"),
    *("delete_memory", "memory_history", "start_episode", "report_outcome", "rollback_episode"),
}
LOOK = {"search_memories", "get_memory", "list_memories", "memory_history"}
NO_INTEGER = 'top_k should be a whole number, or "auto"'
NO_STRING = "should be a valid string"
CHANGE = {"update_memory", "supersede_memory", "delete_memory", "rollback_episode"}


@asynccontextmanager
async def connected(server: MemoryServer, token: str, **headers: str) -> AsyncIterator[Any]:
    headers = {"Authorization": f"Bearer {token}", **headers}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=300, trust_env=False) as http,
        McpClient(streamable_http_client(f"{server.url}/mcp", http_client=http)) as client,
    ):
        yield client


async def call(client: Any, tool: str, **arguments: Any) -> Any:
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    return answer.structured_content


async def mistake(client: Any, tool: str, **arguments: Any) -> str:
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error
    return str(answer.content[0].text)


async def used(client: Any) -> None:
    """A whole use of every tool, in an empty memory."""
    listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(listed) == TOOLS
    for tool in listed.values():
        assert tool.description
        assert tool.output_schema
        assert tool.input_schema["additionalProperties"] is False
        assert not {"context", "user_id", "tenant", "agent_id"} & set(tool.input_schema["properties"])
        does = tool.annotations
        assert (does.open_world_hint, does.read_only_hint) == (False, tool.name in LOOK)
        assert does.destructive_hint is (tool.name in CHANGE)
    note = await call(client, "add_memory", text="Ana lives in Oslo", event_time="2025-01-01")
    assert (note["text"], note["kind"], note["when"]) == ("Ana lives in Oslo", "fact", "2025-01-01T00:00:00Z")
    episode = (await call(client, "start_episode", task="where to send Ana's letter"))["episode"]
    found = await call(client, "search_memories", query="where does Ana live", episode=episode)
    assert [note["id"] for note in found["notes"]] == [note["id"]]
    assert (await call(client, "report_outcome", target=episode, value=1.0))["changed"] == 1
    again = await call(client, "search_memories", query="where does Ana live")
    assert (await call(client, "report_outcome", target=again["decision"], value=0.0))["changed"] == 1
    new = await call(client, "supersede_memory", id=note["id"], text="Ana lives in Rome")
    await call(client, "update_memory", id=new["id"], text="Ana lives in Rome, Italy")
    assert (await call(client, "get_memory", id=new["id"]))["text"] == "Ana lives in Rome, Italy"
    changes = (await call(client, "memory_history", id=new["id"]))["changes"]
    assert changes[0].endswith(": Ana lives in Rome")
    page = await call(client, "list_memories", limit=1)
    assert [note["id"] for note in page["notes"]] == [new["id"]]
    other = (await call(client, "start_episode", task="another"))["episode"]
    await call(client, "add_memory", text="written by mistake", episode=other)
    assert (await call(client, "rollback_episode", episode=other))["changed"] == 1
    await call(client, "delete_memory", id=new["id"])
    assert (await call(client, "list_memories"))["notes"] == []
    for tool, arguments, says in (
        ("get_memory", {"id": "m999"}, "no item 'm999'"),
        ("add_memory", {"text": ""}, "empty"),
        ("add_memory", {"text": "x", "event_time": "yesterday"}, "is not a time"),
        ("report_outcome", {"target": "e1", "value": 1.0}, "no episode or decision"),
        ("search_memories", {}, "query is missing in search_memories. Send query."),
        ("search_memories", {"query": "x", "top_k": "many"}, f'{NO_INTEGER}, got "many". Change top_k'),
        ("list_memories", {"limit": 0}, "limit should be greater than or equal to 1, got 0."),
        ("add_memory", {"text": ["x"]}, f'text {NO_STRING}, got ["x"]. Change text.'),
        (
            "list_memories",
            {"limits": 5},
            "There is no argument 'limits' in list_memories. Did you mean 'limit'? Known: after, limit, tokens.",
        ),
        (
            "list_memories",
            {"user_id": "bob"},
            "There is no argument 'user_id' in list_memories. Leave it out: whose memory it is, the token says",
        ),
    ):
        text = await mistake(client, tool, **arguments)
        assert says in text
        assert "pydantic" not in text
        assert "Error executing" not in text
        assert ".mem" not in text


server = served(encoder="hashing", mcp=True)


def test_every_tool_works_over_http_in_the_scope_of_its_token(server: MemoryServer) -> None:
    async def session() -> None:
        async with connected(server, server.tokens.add(new_access(tenant="fresh", roles=ROLES))) as client:
            await used(client)
        ana = server.tokens.add(new_access(user_id="ana", roles=("read", "write")))
        bob = {"X-Keepworth-User": "bob"}
        async with connected(server, ana) as hers, connected(server, server.token, **bob) as his:
            note = await call(hers, "add_memory", text="Ana likes tea")
            assert (await call(his, "list_memories"))["notes"] == []
            assert "no item" in await mistake(his, "get_memory", id=note["id"])
            await call(his, "add_memory", text="Bob likes milk")
            assert [note["text"] for note in (await call(hers, "list_memories"))["notes"]] == ["Ana likes tea"]
            assert "role reward" in await mistake(hers, "report_outcome", target="e1", value=1.0)
        async with connected(server, ana, **bob) as widened:
            assert "already 'ana'" in await mistake(widened, "list_memories")
        async with httpx2.AsyncClient(trust_env=False) as http:
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            assert (await http.post(f"{server.url}/mcp", json=body)).status_code == 401
            page = {"Authorization": f"Bearer {server.token}", "Origin": "https://evil.example"}
            assert (await http.post(f"{server.url}/mcp", json=body, headers=page)).status_code == 403

    anyio.run(session)


def test_history_tool_hides_quarantined_text(server: MemoryServer) -> None:
    async def session() -> None:
        async with connected(server, server.token) as client:
            note = await call(client, "add_memory", text="my card is new")
            await call(client, "update_memory", id=note["id"], text="my card is 4111 1111 1111 1111")
            changes = (await call(client, "memory_history", id=note["id"]))["changes"]
            assert len(changes) >= 2
            assert all(change.endswith("(held in quarantine)") for change in changes)

    anyio.run(session)


def test_tool_hides_internal_errors(server: MemoryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the text of somebody else")

    monkeypatch.setattr(Memory, "search", breaks)

    async def session() -> None:
        async with connected(server, server.token) as client:
            assert "somebody" not in await mistake(client, "search_memories", query="x")

    anyio.run(session)


@pytest.mark.slow
def test_every_tool_works_over_standard_input_and_output(tmp_path: Path) -> None:
    words = ["-m", "keepworth", "serve", "--memory", str(tmp_path / "agent.mem"), "--encoder", "hashing", "--stdio"]
    words += ["--user", "ana"]
    environment = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    program = StdioServerParameters(command=sys.executable, args=words, env=environment)

    async def session() -> None:
        async with McpClient(program) as client:
            await used(client)

    anyio.run(session)
    with Memory(tmp_path / "agent.mem", encoder="hashing") as memory:
        assert {item.scope.user for item in memory.get_all(all_states=True)} == {"ana"}


LONG = f"{'All went well in the room of the team. ' * 3000}The staging port is 8443.{' It rained all day.' * 4000}"


def test_tool_answers_keep_their_budget_and_can_be_continued(server: MemoryServer) -> None:
    async def size(client: Any, tool: str, **arguments: Any) -> tuple[Any, int]:
        answer = await client.call_tool(tool, arguments)
        assert not answer.is_error, answer.content
        told = answer.structured_content
        return told, max(len(answer.content[0].text), len(str(told)))

    async def session() -> None:
        token = server.tokens.add(new_access(tenant="long notes", roles=ROLES))
        async with connected(server, token) as client:
            short = await call(client, "add_memory", text="Staging is\nat rest.")
            assert short["whole"] is True
            long, length = await size(client, "add_memory", text=LONG)
            assert long["whole"] is False
            assert length < 5_000
            found, length = await size(client, "search_memories", query="which port does staging use?")
            assert length < 5_500
            texts = {note["id"]: note for note in found["notes"]}
            assert "The staging port is 8443." in texts[long["id"]]["text"]
            assert texts[long["id"]]["whole"] is False
            assert (texts[short["id"]]["text"], texts[short["id"]]["whole"]) == ("Staging is\nat rest.", True)
            for number in range(8):
                await call(client, "add_memory", text=f"{number} {LONG[:2000]}")
            found, length = await size(client, "search_memories", query="the team", top_k=10, tokens=150)
            assert length < 2_500
            assert found["missing"]
            assert len(found["notes"]) + len(found["missing"]) == 10
            text, start = "", 0
            while True:
                part, length = await size(client, "get_memory", id=long["id"], start=start, tokens=20_000)
                assert length < 61_000
                text, start = text + part["text"], part["next"]
                if not start:
                    break
            assert text == LONG
            ids, after = [], ""
            while True:
                page, length = await size(client, "list_memories", after=after, tokens=300)
                assert length < 2_500
                ids += [note["id"] for note in page["notes"]]
                if not (after := page["next"]):
                    break
            assert len(ids) == len(set(ids)) == 10
            for number in range(5):
                await call(client, "update_memory", id=long["id"], text=f"{number} {LONG}")
            changes, after = [], 0
            while True:
                told, length = await size(client, "memory_history", id=long["id"], after=after, tokens=300)
                assert length < 2_000
                changes += told["changes"]
                if not (after := told["next"]):
                    break
            assert len(changes) == 6

    anyio.run(session)


def test_add_tool_takes_every_option_of_add(server: MemoryServer) -> None:
    async def session() -> None:
        token = server.tokens.add(new_access(tenant="all that can be said", roles=ROLES))
        async with connected(server, token) as client:
            note = await call(
                client, "add_memory", text="Run make deploy", kind="skill", ttl=3600, metadata={"topic": "deploy"}
            )
            assert note["kind"] == "skill"
            assert "ttl must be a positive number" in await mistake(client, "add_memory", text="x", ttl=-1)
            assert "kind 'feeling' does not exist" in await mistake(client, "add_memory", text="x", kind="feeling")
            item = server.memories.of(new_access(tenant="all that can be said", roles=ROLES)).memory.get(note["id"])
            assert (item.metadata, bool(item.expires_at)) == ({"topic": "deploy"}, True)

    anyio.run(session)
