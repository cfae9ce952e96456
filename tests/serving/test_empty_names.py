"""An empty name is nobody's: whichever door it comes through, it is refused, and never stands for everybody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from keepworth import AsyncMemory, Client, Memory
from keepworth.adapters import mem0
from keepworth.memory.errors import InvalidScope
from keepworth.memory.item import Scope
from keepworth.records.episode import Episode
from keepworth.serving.access import ROLES, new_access
from keepworth.serving.memory_server import MemoryServer
from tests.memory.helpers import command
from tests.serving.gate import Gate, user

NOTE = "Ana is allergic to peanuts"
PARTS = ["user_id", "agent_id", "session_id"]
CALLS: dict[str, Any] = {
    "add": lambda memory, **whose: memory.add("a note", **whose),
    "add messages": lambda memory, **whose: memory.add([{"role": "user", "content": "a note"}], **whose),
    "infer": lambda memory, **whose: memory.add("I like tea.", infer=True, **whose),
    "add_many": lambda memory, **whose: memory.add_many(["a note"], **whose),
    "put": lambda memory, **whose: memory.put("a note", name={"key": "diet"}, **whose),
    "search": lambda memory, **whose: memory.search("peanuts", **whose),
    "get_all": lambda memory, **whose: memory.get_all(**whose),
    "episode": lambda memory, **whose: memory.episode("plan dinner", **whose),
    "episodes": lambda memory, **whose: memory.episodes(**whose),
    "delete_all": lambda memory, **whose: memory.delete_all(**whose),
    "erase": lambda memory, **whose: memory.erase(**whose),
}
INSIDE: dict[str, Any] = {
    "within": lambda memory, **whose: memory.within(**whose),
    "bank": lambda memory, **whose: memory.bank(**whose),
    "episode's search": lambda memory, **whose: memory.episode("peanuts").search(**whose),
    "episode's note": lambda memory, **whose: memory.episode("peanuts").remember("a note", **whose),
    "opening": lambda memory, **whose: Memory(encoder=None, **whose),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("call", CALLS | INSIDE)
def test_memory_refuses_empty_names(call: str, part: str) -> None:
    memory = Memory(encoder=None)
    memory.add(NOTE, user_id="ana")
    fix = f"is empty: pass a name, .* or leave {part} out, which means all"
    with pytest.raises(InvalidScope, match=fix):
        (CALLS | INSIDE)[call](memory, **{part: ""})
    assert [item.text for item in memory.get_all()] == [NOTE]


def test_empty_tenant_and_shared_names_are_refused() -> None:
    with pytest.raises(InvalidScope, match="leave tenant out"):
        Memory(encoder=None, tenant="")
    with pytest.raises(InvalidScope, match="empty"):
        Memory(encoder=None).within(user_id="ana", shared={"": True})
    for part in ("tenant", "user_id", "agent_id"):
        with pytest.raises(InvalidScope, match="empty"):
            new_access(**{part: ""})


def test_omitted_bounds_mean_all() -> None:
    memory = Memory(encoder=None)
    memory.add(NOTE, user_id="ana")
    assert [hit.text for hit in memory.search("peanuts")] == [NOTE]
    assert memory.within(agent_id="cook").scope == Scope(agent="cook")
    with memory.episode("what may Ana eat?") as episode:
        episode.remember("She eats rice")
    assert isinstance(episode.record(), Episode)
    assert memory.get_all()[-1].scope == Scope()


def test_an_asynchronous_memory_takes_no_empty_name() -> None:
    async def search() -> None:
        async with AsyncMemory(":memory:", encoder=None) as memory:
            await memory.search("peanuts", user_id="")

    with pytest.raises(InvalidScope, match="leave user_id out"):
        anyio.run(search)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("call", CALLS)
def test_a_served_memory_takes_no_empty_name(call: str, part: str, server: MemoryServer, tenant: str) -> None:
    token = server.tokens.add(new_access(tenant=tenant, roles=ROLES))
    with Client(server.url, token) as client:
        client.add(NOTE, user_id="ana")
        with pytest.raises(InvalidScope, match=f"leave {part} out"):
            CALLS[call](client, **{part: ""})
        assert [item.text for item in client.get_all()] == [NOTE]


def test_routes_without_a_method_take_no_empty_name(server: MemoryServer, tenant: str) -> None:
    token = server.tokens.add(new_access(tenant=tenant, roles=ROLES))
    with Client(server.url, token) as client:
        client.add(NOTE, user_id="ana")
        for path in ("export", "episode_summaries", "items"):
            answer = client._http.get(f"/v1/memory/{path}", params={"user_id": ""})
            assert (answer.status_code, answer.json()["field"]) == (422, "user_id"), answer.text
            assert "leave user_id out" in answer.json()["fix"]
        described = client._http.get("/openapi.json").json()["components"]["schemas"]["Search"]["properties"]
        assert all(described[part]["minLength"] == 1 and "default" not in described[part] for part in PARTS)


def test_a_gateway_takes_no_empty_name(gate: Gate) -> None:
    body = {"model": "scripted", "messages": [user("Hello!")]}
    for header in ("X-Keepworth-User", "X-Keepworth-Agent", "X-Keepworth-Session"):
        for name in ("", "UTF-8''"):
            answer = gate.http.post("/v1/chat/completions", json=body, headers={header: name})
            assert answer.status_code == 400
            assert f"{header} is empty" in answer.text


@pytest.mark.parametrize("part", ["user_id", "agent_id", "run_id"])
def test_mem0s_methods_take_no_empty_name(part: str) -> None:
    memory = mem0.Memory(Memory(encoder=None))
    other = {"agent_id": "cook"} if part != "agent_id" else {"run_id": "r"}
    memory.add(NOTE, user_id="ana", infer=False, **other)
    whose = {**other, part: ""}
    for call in (
        lambda: memory.add("a note", **whose),
        lambda: memory.search("peanuts", **whose),
        lambda: memory.search("peanuts", filters=whose),
        lambda: memory.get_all(**whose),
        lambda: memory.delete_all(**whose),
    ):
        with pytest.raises(InvalidScope, match=f"{part} is empty"):
            call()
    assert len(memory.memory) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("search", "peanuts", "--user", ""),
        ("add", "a note", "--agent", ""),
        ("list", "--session", ""),
        ("token", "add", "--user", ""),
        ("token", "add", "--tenant", ""),
        ("erase", "--user", "ana", "--agent", "", "--yes"),
    ],
)
def test_commands_take_no_empty_name(words: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "m.mem"
    with Memory(file, encoder=None) as memory:
        memory.add(NOTE, user_id="ana")
    done = command(*words, "--file", file)
    assert done.exit_code == 2
    assert "it is empty: give a name" in done.output
    with Memory(file, encoder=None) as memory:
        assert len(memory) == 1


def test_hooks_take_no_empty_name() -> None:
    event = json.dumps({"hook_event_name": "SessionStart", "session_id": "s"})
    for options, variables in ((["--user", ""], {}), (["--agent", " "], {}), ([], {"KEEPWORTH_USER": ""})):
        done = subprocess.run(
            [sys.executable, "-m", "keepworth", "hook", *options],
            input=event,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (1 if options else 0, "")
        assert "is empty: " in done.stderr
