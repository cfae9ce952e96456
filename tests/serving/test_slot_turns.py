"""The turns of an agent whose memory is served: the rule of the memory slots, over a `Client`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from keepworth import AsyncClient, Client
from keepworth.adapters.turns import HostTurn, Turns
from keepworth.serving.access import ROLES, new_access

if TYPE_CHECKING:
    from keepworth.serving.memory_server import MemoryServer


def take_turn(agent: Turns, message: str, answer: str) -> HostTurn:
    turn = agent.begin(message)
    agent.finish(turn, answer)
    return turn


@pytest.mark.parametrize("bound", [True, False], ids=["a token of one person", "a token of a program"])
def test_a_served_memory_learns_from_turns(server: MemoryServer, tenant: str, bound: bool) -> None:
    person = {"user_id": "ana"} if bound else {}
    token = server.tokens.add(new_access(tenant=tenant, roles=ROLES, **person))
    client = Client(server.url, token)
    agent = Turns(client, "host", lambda turn: 1.0 if turn.answer == "In Oslo." else None, user_id="ana")
    take_turn(agent, "I live in Oslo.", "Noted.")
    asked = take_turn(agent, "Where do I live?", "In Oslo.")
    assert "- I live in Oslo." in asked.text
    take_turn(agent, "No, that is wrong.", "Sorry.")
    rewards = client.episode_record(asked.id).rewards
    assert sorted(reward.value for reward in rewards) == [0.0, 1.0]
    assert [reward.name for reward in rewards if reward.value == 0.0] == ["signal:correction:ana"]
    if not bound:
        assert Turns(client, "host", user_id="bo").begin("Where do I live?").text == ""
        assert Turns(AsyncClient(server.url, token), "host").begin("Where do I live?").text == ""


def test_agent_without_a_person_sees_unowned_items_only(
    server: MemoryServer, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "keepworth.adapters"):
        for roles in (ROLES, frozenset({"read", "write"})):
            client = Client(server.url, server.tokens.add(new_access(tenant=tenant, roles=roles)))
            client.add("Ana works in Oslo.", user_id="ana")
            client.add("The office is in Oslo.")
            text = Turns(client, "host").begin("What is in Oslo?").text
            assert "The office is in Oslo." in text
            assert "Ana" not in text
    assert caplog.text == ""


def test_statements_wait_while_the_server_is_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from keepworth.serving.memory_server import MemoryServer

    with MemoryServer(tmp_path / "agent.mem", encoder="hashing") as server:
        client = Client(server.url, server.token, timeout=5.0)
        agent = Turns(client, "host", user_id="ana")
    with caplog.at_level(logging.WARNING, "keepworth.adapters"):
        assert take_turn(agent, "I live in Oslo.", "Noted.").text == ""
    assert "what was said waits for the memory" in caplog.text
    with MemoryServer(tmp_path / "agent.mem", encoder="hashing") as server:
        agent.memory = Client(server.url, server.token)
        take_turn(agent, "Good morning!", "Good morning.")
        assert [item.text for item in agent.memory.get_all(user_id="ana")] == ["I live in Oslo."]
