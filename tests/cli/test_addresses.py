"""Where a command takes a memory's file it takes an address, too; where it cannot, it says so. No server is needed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import keepworth
from keepworth.memory.errors import MemoryProblem
from keepworth.memory.place import MemoryPlace, file_of, place_of
from keepworth.memory.store import opening
from keepworth.serving import open_memories
from keepworth.serving.memory_server import MemoryServer
from tests.cli.conftest import CommandLine
from tests.cli.test_command import commands

ADDRESS = "postgresql://ann:hunter2@db.example/agents?schema=team_a"
SAID = "postgresql://ann@db.example/agents?schema=team_a"


class Reached(MemoryProblem):
    """In the place of a server."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the store was told to open."""
    found: list[str] = []

    def opened(path: Any, **_: Any) -> Any:
        assert isinstance(path, str)
        found.append(path)
        raise Reached("here the server would be asked.")

    monkeypatch.setattr(opening, "opened", opened)
    return found


def test_an_address_reaches_the_store_as_it_was_given(
    asked: list[str], command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs = (["list"], ["search", "tofu"], ["add", "Ana likes tofu"], ["rollback", "e1"], ["token", "list"])
    said = [command.refused("memory", *words, "--file", ADDRESS) for words in verbs]
    monkeypatch.setenv("KEEPWORTH_MEMORY", ADDRESS)
    said += [command.refused("memory", "stats")]
    said += [command.refused("serve", "--memory", ADDRESS, "--port", "0", "--writer", "none")]
    assert asked == [ADDRESS] * 7
    assert all("here the server would be asked" in each and "hunter2" not in each for each in said)
    assert list(Path().iterdir()) == []


def test_every_command_with_a_memory_says_that_an_address_names_one() -> None:
    for words, command in commands():
        for param in command.params:
            if "--file" in param.opts:
                assert "postgresql://" in param.help, words


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["memory", "backup", "copy.mem", "--file", ADDRESS], "pg_dump"),
        (["memory", "backup", ADDRESS], "`import` take a memory"),
        (["memory", "export", ADDRESS], "`import` take a memory"),
        (["memory", "import", ADDRESS], "`import` take a memory"),
        (["train", "--tasks", "a.jsonl", "--memory", ADDRESS], "`import` take a memory"),
        (["train", "--source", ADDRESS], "`import` take a memory"),
    ],
)
def test_file_options_refuse_an_address(words: list[str], says: str, asked: list[str], command: CommandLine) -> None:
    said = command.refused(*words)
    assert SAID in said
    assert says in said
    assert "hunter2" not in said
    assert asked == []
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("given", [f"{kind}ann:hunter2@db/x" for kind in ("Postgresql://", "postgresql:/", "mysql://")])
def test_malformed_address_is_not_taken_for_a_file(given: str, command: CommandLine) -> None:
    said = command.refused("memory", "add", "x", "--file", given)
    assert "postgresql://user@host/database" in said
    assert "hunter2" not in said


def test_printed_place_hides_the_password() -> None:
    place = place_of(ADDRESS)
    assert str(place) == SAID
    assert "hunter2" not in f"{place!r} {place.base}"
    assert place.given == place.opens == ADDRESS
    with pytest.raises(MemoryProblem, match="is an address"):
        _ = place.file
    with pytest.raises(MemoryProblem, match=re.escape(SAID)):
        file_of(ADDRESS)


def test_place_of_a_file_opens_that_file(tmp_path: Path) -> None:
    assert place_of("./a.mem") == place_of(Path("a.mem")) == MemoryPlace("a.mem")
    place = place_of(tmp_path / "a.mem")
    assert place.opens == place.base == place.file == tmp_path / "a.mem"
    assert place.of_tenant("") is place
    assert place.of_tenant("acme").file.parent == tmp_path / "a.mem.tenants"


def test_files_beside_an_address_are_of_one_memory_alone() -> None:
    """Whoever has a token of one memory must not open another with it."""
    same = [ADDRESS, SAID, "postgres://bob@db.example/agents?schema=team_a&sslmode=require"]
    assert len({place_of(each).base for each in same}) == 1
    others = ["postgresql://ann@db.example/agents", SAID]
    places = ("ann@other.example/agents", "ann@db.example:5433/agents", "ann@db.example/agents2")
    others += [f"postgresql://{place}?schema=team_a" for place in places]
    others += [f"postgresql:///agents?host=/tmp/{socket}&schema=team_a" for socket in "ab"]
    assert len({place_of(other).base for other in others}) == len(others)
    assert all(len(place_of(other).base.parts) == 1 for other in [*others, "postgresql://ann@db/..%2F..%2Fetc"])


def test_each_tenant_has_a_schema_of_its_own() -> None:
    place = place_of(ADDRESS)
    tenants = [place.of_tenant(name) for name in ("", "acme", "Acme", "../x")]
    assert len({tenant.given for tenant in tenants}) == 4
    for tenant in tenants:
        assert tenant.given.startswith("postgresql://ann:hunter2@db.example/agents?schema=team_a")
        assert tenant == place_of(tenant.given)  # a name of a schema that can be
    long = [place_of(f"postgresql://db/agents?schema={'s' * 60}{n}").of_tenant("acme") for n in "ab"]
    assert len({str(place_of(each.given)) for each in long}) == 2


def test_a_server_shows_no_password(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    opened: list[Any] = []

    def memory(path: Any, **options: Any) -> Any:
        opened.append(path)
        return keepworth.Memory(tmp_path / f"{len(opened)}.mem", encoder=None, tenant=options["tenant"])

    monkeypatch.setattr(open_memories, "Memory", memory)
    server = MemoryServer(ADDRESS)
    try:
        assert opened == [ADDRESS]
        assert SAID in server.memories.paths()
        assert "hunter2" not in "".join(server.memories.paths())
        assert server.tokens.file is not None
        assert server.tokens.file.name.startswith("agents-team_a-")
    finally:
        server.close()
