"""Items of the kind core are shown always, first, by every search of their scope."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepworth import Client, Memory
from keepworth.memory.search.passages import tokens_of
from keepworth.serving.access import ROLES, new_access
from keepworth.serving.memory_server import MemoryServer
from tests.memory.helpers import command
from tests.serving.callers import served

CORE = "Answer in Norwegian."
server = served(encoder="hashing")


@pytest.mark.parametrize("policy", ["default", "memrl", "rememberer", None])
def test_core_items_come_first_in_every_text_of_their_scope(policy: str | None) -> None:
    memory = Memory(encoder="hashing", policy=policy)
    memory.add("The port is 8443.", user_id="ana")
    core = memory.add(CORE, kind="core", user_id="ana")
    for hits in (
        memory.search("port", user_id="ana", top_k=1),
        memory.search("nothing of the kind", user_id="ana"),
        memory.episode("port", user_id="ana").search(),
    ):
        assert hits.text.splitlines()[0] == f"- {CORE}"
        assert hits.text.count(CORE) == 1
        assert [item.id for item in hits.core] == [core.id]
        assert core.id in hits.block.whole
        assert hits.within(12).text == f"- {CORE}"
    for hits in (
        memory.search("port", user_id="bob"),
        memory.search("port", user_id="ana", kinds=["fact"]),
        memory.search("port", user_id="ana", nobody=True),
        memory.search("port", user_id="ana", as_of="2020-01-01"),
    ):
        assert hits.core == ()
        assert CORE not in hits.text


def test_core_items_follow_changes_of_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.mem"
    with Memory(path, encoder=None) as memory, Memory(path, encoder=None) as other:
        assert memory.search("x").core == ()
        one = other.add(CORE, kind="core")
        assert memory.search("x").text == f"- {CORE}"
        memory.update(one.id, "Answer in Danish.")
        assert other.search("x").text == "- Answer in Danish."
        two = memory.supersede(one.id, "Answer in Finnish.")
        assert other.search("x").text == "- Answer in Finnish."
        assert two.kind.value == "core"
        with memory.episode("y") as episode:
            episode.remember("Be brief.", kind="core")
        assert len(other.search("x").core) == 2
        memory.rollback(episode.id)
        assert [item.id for item in other.search("x").core] == [two.id]
        memory.forget(two.id, purge_history=True)
        assert other.search("x").text == ""
        memory.add("For an hour.", kind="core", ttl=1e-6)
        assert other.search("x").core == ()


def test_long_core_items_share_the_budget() -> None:
    memory = Memory(encoder=None)
    for number in range(5):
        memory.add(f"Rule {number}: be kind to everybody who asks. " * 40, kind="core")
    hits = memory.search("kind", tokens=300)
    assert tokens_of(hits.text) <= 300
    assert {*hits.block.cut, *hits.block.missing} == {item.id for item in hits.core}


def test_server_and_command_line_show_core_items(server: MemoryServer, tmp_path: Path) -> None:
    token = server.tokens.add(new_access(tenant="core", roles=ROLES))
    with Client(server.url, token) as client:
        client.add("The port is 8443.")
        core = client.add(CORE, kind="core")
        hits = client.search("port", top_k=1)
        assert hits.text == f"- {CORE}\n- The port is 8443."
        assert hits.core == (core,)
    with Memory(tmp_path / "a.mem", encoder=None) as memory:
        memory.add(CORE, kind="core")
    assert CORE in command("search", "port", "--file", str(tmp_path / "a.mem")).output
