"""What hits are as text for a prompt: within a budget, from every search."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from keepworth import Client, Memory
from keepworth.memory.errors import InvalidFilter
from keepworth.memory.headline import TOKENS
from keepworth.memory.search.passages import tokens_of
from keepworth.serving.access import ROLES, new_access
from keepworth.serving.memory_server import MemoryServer
from tests.serving.callers import served

FACT = "The staging port is 8443."
LONG = f"{'All went well in the room of the team. ' * 3000}{FACT}{' It rained all day in the town.' * 3000}"
QUERY = "which port does staging use?"

server = served(encoder="hashing")


@pytest.mark.parametrize("encoder", ["hashing", None])
@pytest.mark.parametrize("policy", ["default", None])
def test_the_text_of_hits_has_the_passage_that_fits(encoder: str | None, policy: str | None) -> None:
    memory = Memory(encoder=encoder, policy=policy)
    long, short = memory.add(LONG), memory.add("Staging is in Oslo.")
    keyed = memory.add(LONG.replace("8443", "9999"), key="which port does staging use on Sunday")
    for hits in (memory.search(QUERY), memory.episode(QUERY).search()):
        assert {hit.id for hit in hits} == {long.id, short.id, keyed.id}
        assert FACT in hits.text
        assert FACT.replace("8443", "9999") in hits.text
        assert "- Staging is in Oslo." in hits.text.splitlines()
        assert tokens_of(hits.text) <= TOKENS
        assert set(hits.block.cut) == {long.id, keyed.id}
        assert next(hit for hit in hits if hit.id == long.id).text == LONG, "an item stays whole"
        small = hits.within(90)
        assert tokens_of(small.text) <= 90
        assert {*small.whole, *small.cut, *small.missing} == {hit.id for hit in hits}
        assert small.missing
    assert tokens_of(memory.search(QUERY, tokens=100).text) <= 100
    with pytest.raises(InvalidFilter, match="tokens must be a whole number from 1"):
        memory.search(QUERY, tokens=0)


def test_hits_of_an_own_retriever_are_shown_as_passages() -> None:
    memory = Memory(encoder="hashing", policy="memrl")
    memory.add(LONG, key=QUERY)
    hits = memory.search(QUERY)
    assert FACT in hits.text
    assert tokens_of(hits.text) <= TOKENS


def test_lexical_hit_names_the_matching_passage() -> None:
    memory = Memory(encoder=None)
    memory.add(LONG)
    (hit,) = memory.search(QUERY)
    assert FACT in hit.passage
    assert len(hit.passage) < 400
    assert FACT in str(memory.search(QUERY))


def test_served_text_has_a_budget_that_the_client_chooses(server: MemoryServer) -> None:
    token = server.tokens.add(new_access(tenant="text for a prompt", roles=ROLES))
    with Client(server.url, token) as client:
        client.add(LONG)
        for number in range(9):
            client.add(f"{number}: {LONG[:3000]}")
        hits = client.search(QUERY, tokens=200)
        assert FACT in hits.text
        assert tokens_of(hits.text) <= 200
        assert hits.block.missing
        assert hits[0].text == LONG
        assert tokens_of(hits.text) < tokens_of(hits.within(900).text) <= 900
        assert FACT in client.episode(QUERY).search().text


def test_the_command_line_shows_passages_of_long_notes(tmp_path: Path) -> None:
    with Memory(tmp_path / "a.mem", encoder="hashing") as memory:
        memory.add(LONG)
    command = [sys.executable, "-m", "keepworth", "memory", "search", QUERY, "--file", str(tmp_path / "a.mem")]
    for more in ([], ["--mode", "lexical"]):
        done = subprocess.run([*command, *more], capture_output=True, text=True, check=True)
        assert FACT in done.stdout
        assert len(done.stdout) < 1000
