"""A memory in Postgres: what a file does not have. That both do the same, the whole suite shows (`make test-postgres`)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from keepworth import Memory
from keepworth.memory.errors import Busy, InvalidText, MemoryProblem, NewerFile, NotAMemoryFile, ReadOnly, StorageFailed
from keepworth.memory.item import Scope
from keepworth.memory.place import place_of
from keepworth.memory.store.maintenance import backup, check, compact
from keepworth.memory.store.store import Store
from keepworth.memory.store.transfer import exported, imported
from tests.memory.helpers import WordEncoder, finds, texts

pytestmark = pytest.mark.slow


@pytest.fixture
def address(postgres: str) -> Iterator[str]:
    """Of a memory of this test alone."""
    import psycopg

    schema = f"t_{uuid.uuid4().hex}"
    yield f"{postgres}&schema={schema}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.fixture
def role(postgres: str) -> Iterator[str]:
    """The name of a role that the test makes."""
    name = f"r_{uuid.uuid4().hex}"
    yield name
    run(postgres, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def run(postgres: str, *statements: str) -> list[tuple[Any, ...]]:
    """Carries out statements from outside, and gives the rows of the last one."""
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def schema_of(address: str) -> str:
    return address.rpartition("schema=")[2]


def as_role(address: str, role: str) -> str:
    return address.replace("://postgres:@", f"://{role}:@")


def in_steps(memory: Memory) -> str:
    """Some of everything, with times of its own; what the memory exports."""
    first = memory.add("Ana lives in Lisbon", user_id="ana")
    memory.add("Bob likes tea", user_id="bob", metadata={"topic": "drinks"})
    memory.add_many([f"fact number {n} of many" for n in range(70)], user_id="ana")
    before = memory.snapshot()
    memory.update(first.id, "Ana lives in Porto")
    with memory.episode("a question", user_id="ana") as episode:
        episode.search("where does Ana live")
        episode.add("Ana moved in May")
    episode.reward(1.0)
    memory.rollback(since=before)
    memory.delete(memory.add("to be deleted", user_id="bob").id)
    return "\n".join(exported(memory.store))


def of_docs(language: str) -> str:
    """What docs/memory.md says in a language, and runs here."""
    page = (Path(__file__).parents[2] / "docs" / "memory.md").read_text(encoding="utf-8")
    mark = "<!-- runs in: tests/memory/test_postgres.py -->"
    (code,) = re.findall(rf"^{mark}\n```{language}\n(.*?)^```", page, re.S | re.M)
    return code


def test_documented_code_opens_a_postgres_memory(address: str) -> None:
    code, replaced = re.subn(r'"postgresql://[^"]*"', repr(address), of_docs("python"))
    assert replaced == 1
    made: dict[str, Any] = {}
    exec(code, made)
    made["m"].add("Ana likes tofu")
    made["m"].close()
    with Memory(address) as memory:
        assert texts(memory) == ["Ana likes tofu"]


def test_documented_row_policies_limit_a_role_to_one_person(address: str, postgres: str, role: str) -> None:
    with Memory(address, encoder=None) as memory:
        memory.add("Ann likes tofu", user_id="ann")
        memory.add("Bob likes tea", user_id="bob")
    schema = schema_of(address)
    run(postgres, of_docs("sql").replace("keepworth", schema).replace("ann_reports", role))
    assert run(as_role(postgres, role), f"SELECT text FROM {schema}.items") == [("Ann likes tofu",)]
    assert run(as_role(postgres, role), f'SELECT "user" FROM {schema}.scopes') == [("ann",)]


WRITER = """
import sys
from keepworth import Memory
memory = Memory(sys.argv[1], encoder=None, policy=None, log="off", durability=sys.argv[3])
n = 0
while True:
    item = memory.add(f"{sys.argv[2]} wrote {n}", user_id=sys.argv[2])
    print(n, item.id, flush=True)
    n += 1
"""


def test_killed_postgres_writers_lose_no_acknowledged_write(address: str) -> None:
    """Four processes write to one memory; each is killed in the middle, and another takes its place."""
    Memory(address, encoder=None).close()
    said: dict[str, str] = {}
    for round_ in range(3):
        writers = {}
        for name in (f"w{round_}{n}" for n in range(4)):
            command = [sys.executable, "-c", WRITER, address, name, "process"]
            writers[name] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for writer in writers.values():
            writer.stdout.readline()
        time.sleep(0.3)
        for writer in writers.values():
            writer.send_signal(signal.SIGKILL)
        for name, writer in writers.items():
            rest = writer.stdout.read().splitlines()
            writer.wait()
            said.update((line.split()[1], f"{name} wrote {line.split()[0]}") for line in rest if len(line.split()) == 2)
    memory = Memory(address, encoder=None)
    assert said
    there = {item.id: item.text for item in memory.store.items(Scope())}
    lost = {id: text for id, text in said.items() if there.get(id) != text}
    assert lost == {}
    numbers = [entry.seq for entry in memory.store.entries()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert check(memory.store) == []
    memory.close()


CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "
"""Connections of others."""


def test_lost_connection_is_named_and_its_transaction_is_undone(address, postgres) -> None:
    def work(transaction: Any) -> None:
        transaction.write_event("PARAMETERS", Scope(), "{}", now="2026-01-01T00:00:00")
        transaction.finish()
        transaction.connection.execute("SELECT 1 AS to_be_cut")  # what was written went to the server with it
        run(postgres, f"{CUT} query LIKE '%to_be_cut%'")
        time.sleep(0.2)
        transaction.connection.execute("SELECT 1")

    with Memory(address, encoder=None, policy=None, log="off") as memory:
        memory.add("before")
        with pytest.raises(StorageFailed, match="nothing was written"):
            memory.store.change(Scope(), work)
        assert memory.store.head() == 1
        memory.add("after")
        assert [item.text for item in memory.store.items(Scope())] == ["before", "after"]


def test_connections_that_the_server_closed_meanwhile_are_made_again(address: str, postgres: str) -> None:
    with Memory(address, encoder=None, policy=None, log="off") as memory:
        memory.add("before")
        run(postgres, f"{CUT} datname = current_database()")
        time.sleep(0.2)
        assert finds(memory, "before") == ["before"]
        memory.add("after")
        assert memory.store.head() == 2


def test_missing_server_is_named(tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="Postgres is not installed: make test-postgres")
    with pytest.raises(StorageFailed, match="see that it runs"):
        Memory(f"postgresql://ann:secret@/db?host={tmp_path}", encoder=None)


def test_missing_database_and_user_are_named(postgres: str) -> None:
    address = postgres.replace(postgres.partition("?")[0].rpartition("/")[2] + "?", "no_such_database?")
    with pytest.raises(NotAMemoryFile, match="createdb"):
        Memory(address, encoder=None)
    with pytest.raises(NotAMemoryFile, match="user"):
        Memory(as_role(postgres, "nobody_of_this_name"), encoder=None)


def test_user_without_rights_is_named(address: str, postgres: str, role: str) -> None:
    schema, theirs = schema_of(address), as_role(address, role)
    run(postgres, f"CREATE ROLE {role} LOGIN")
    with pytest.raises(ReadOnly, match="GRANT CREATE ON DATABASE"):
        Memory(theirs, encoder=None)
    with Memory(address, encoder=None) as memory:
        memory.add("there is tea")
    tables = f"ALL TABLES IN SCHEMA {schema}"
    run(postgres, f"GRANT USAGE ON SCHEMA {schema} TO {role}", f"GRANT SELECT ON {tables} TO {role}")
    with Memory(theirs, encoder=None) as reader:
        assert reader.read_only
        assert finds(reader, "tea") == ["there is tea"]
        with pytest.raises(ReadOnly):
            reader.add("more")


def test_newer_format_and_foreign_tables_are_refused(address: str, postgres: str) -> None:
    schema = schema_of(address)
    run(postgres, f"CREATE SCHEMA {schema}", f"CREATE TABLE {schema}.items(n int)")
    with pytest.raises(NotAMemoryFile, match="another program"):
        Memory(address, encoder=None)
    run(postgres, f"DROP TABLE {schema}.items")
    Memory(address, encoder=None).close()
    run(postgres, f"UPDATE {schema}.facts_of_file SET value = '99' WHERE name = 'format'")
    with pytest.raises(NewerFile, match="upgrade"):
        Memory(address, encoder=None)


def test_concurrent_opening_makes_one_postgres_memory(address: str) -> None:
    with ThreadPoolExecutor(4) as pool, ExitStack() as stack:
        opened = list(pool.map(lambda _: stack.enter_context(Memory(address, encoder=None)), range(4)))
        opened[0].add("once")
        assert [len(memory) for memory in opened] == [1] * 4


def test_text_with_null_bytes_is_refused_on_postgres(address: str) -> None:
    with Memory(address, encoder=None) as memory:
        with pytest.raises(InvalidText, match="number 0"):
            memory.add("plain", source="a\0b")
        assert memory.store.head() == 0


def test_more_readers_than_connections_wait_their_turn(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepworth.memory.store.postgres.database.MOST", 1)
    store = Store(address)
    store.database._timeout = 0.2  # type: ignore[attr-defined]
    with store.database.reading(), ThreadPoolExecutor(1) as pool, pytest.raises(Busy):
        pool.submit(store.head).result()
    assert store.head() == 0
    store.close()


def test_blocked_postgres_writers_raise_busy(address: str) -> None:
    one, two = Store(address), Store(address)
    two.database._timeout = 0.2  # type: ignore[attr-defined]

    def work(transaction: Any) -> None:
        with pytest.raises(Busy):
            two.change(Scope(), lambda other: other.write_event("PARAMETERS", Scope(), "{}", now="2026-01-01T00:00:00"))

    one.change(Scope(), work)
    two.change(Scope(), lambda other: other.write_event("PARAMETERS", Scope(), "{}", now="2026-01-01T00:00:00"))
    assert one.head() == 1
    one.close()
    two.close()


NEEDLES = ("zxalpha", "zxmeta", "zxsource", "zxtask", "zxquery", "zxupdated", "zxuser")


def lived_in(address: str) -> None:
    """A memory with something of everything of one person, and other people's."""
    with Memory(address, encoder=WordEncoder(), seed=1) as memory:
        for n in range(60):
            memory.add(f"bob likes tea {n}", user_id="bob")
        first = memory.add("zxalpha lives here", user_id="zxuser", metadata={"zxmeta": 1}, source="zxsource")
        memory.update(first.id, "zxupdated lives there")
        with memory.episode("zxtask for her", user_id="zxuser") as episode:
            episode.search("zxquery of what")
            episode.reward(1.0)


def left(postgres: str) -> set[str]:
    """Which needles are in the files of the database."""
    run(postgres, "CHECKPOINT")
    of_it = "SELECT current_setting('data_directory'), oid::text FROM pg_database WHERE datname = current_database()"
    ((place, number),) = run(postgres, of_it)
    files = [path.read_bytes().lower() for path in (Path(place) / "base" / number).iterdir()]
    return {needle for needle in NEEDLES if any(needle.encode() in file for file in files)}


def test_a_person_is_erased_from_every_file_of_the_database(address: str, postgres: str) -> None:
    lived_in(address)
    run(postgres, "ANALYZE")  # samples of values, too
    assert left(postgres) == set(NEEDLES)
    with Memory(address, encoder=WordEncoder()) as memory:
        assert memory.erase(user_id="zxuser").log_emptied
        assert left(postgres) == set()
        assert len(memory.get_all()) == 60
        assert memory.search("tea", user_id="bob")
        assert check(memory.store) == []


def test_erasure_waits_for_open_transactions(address: str, postgres: str) -> None:
    import psycopg

    lived_in(address)
    with Memory(address, encoder=WordEncoder()) as memory:
        with psycopg.connect(postgres) as reader:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT count(*) FROM pg_class")
            assert not memory.erase(user_id="zxuser").log_emptied
            assert left(postgres)
        compact(memory.store)
    assert left(postgres) == set()


def test_erasure_by_a_non_owner_reports_that_files_keep_the_rows(address, postgres, role) -> None:
    lived_in(address)
    schema = schema_of(address)
    run(postgres, f"CREATE ROLE {role} LOGIN", f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {role}")
    run(postgres, f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}")
    with Memory(as_role(address, role), encoder=WordEncoder()) as memory:
        assert not memory.erase(user_id="zxuser").log_emptied
        assert memory.get_all(user_id="zxuser") == []
    Memory(address, encoder=WordEncoder()).close()  # the owner's opening finishes it
    assert left(postgres) == set()


def test_export_round_trips_between_file_and_server(address: str, tmp_path: Path) -> None:
    with Memory(tmp_path / "a.mem", encoder=None) as file:
        said = in_steps(file)
    with Memory(address, encoder=None) as server, Memory(tmp_path / "b.mem", encoder=None) as back:
        imported(server.store, said.splitlines())
        assert check(server.store) == []
        lines = list(exported(server.store))
        imported(back.store, lines)
        assert list(exported(back.store)) == said.splitlines() == lines


def test_postgres_maintenance_compacts_and_checks(address: str, tmp_path: Path) -> None:
    with Memory(address, encoder=WordEncoder()) as memory:
        for n in range(80):
            memory.add(f"fact {n}")
        assert compact(memory.store)[1] > 0
        assert check(memory.store) == []
        with pytest.raises(MemoryProblem, match="pg_dump"):
            backup(memory.store, tmp_path / "copy.mem")
    assert not (tmp_path / "copy.mem").exists()


def test_commands_accept_a_postgres_address(address: str, postgres: str, tmp_path: Path, monkeypatch, capsys) -> None:
    from keepworth.cli.main import main

    monkeypatch.chdir(tmp_path)

    def call(*words: str, code: int = 0) -> str:
        assert main(["memory", *words, "--file", address]) == code, capsys.readouterr()
        said = capsys.readouterr()
        return said.out + said.err

    for words in (["list"], ["search", "x"], ["stats"], ["token", "list"], ["erase", "--user", "ana", "--yes"]):
        assert "There is no memory at postgresql://" in call(*words, code=2)
    schemas = f"SELECT count(*) FROM pg_namespace WHERE nspname = '{schema_of(address)}'"
    assert run(postgres, schemas) == [(0,)]  # a mistyped name makes nothing
    assert "m1  Ana likes tofu" in call("add", "Ana likes tofu", "--user", "ana", "--encoder", "none")
    before = call("snapshot").strip()
    call("update", "m1", "Ana likes smoked tofu", "--encoder", "none")
    assert "--file" in call("rollback", "--since", before)
    assert "m1" in call("search", "tofu", "--encoder", "none")
    assert "postgresql://" in call("stats")
    assert "MB now" in call("compact")
    call("export", "all.jsonl")
    assert "pg_dump" in call("backup", "copy.mem", code=2)
    Path("cy.md").write_text("* Cy likes tea\n", "utf-8")
    assert "1 items" in call("import", "cy.md", "--from", "markdown", "--user", "cy", "--encoder", "none")
    assert "Erased" in call("erase", "--user", "ana", "--yes")
    assert "Sound." in call("check")
    assert main(["memory", "list", "--file", f"{address}&no_such=1"]) == 2
    assert "no_such" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.jsonl", "cy.md"]


def test_server_serves_a_postgres_address(address: str, postgres: str, tmp_path: Path) -> None:
    """Its own process: verbs over HTTP, a token at rest, the audit log, and a schema for each tenant."""
    import httpx

    command = [sys.executable, "-m", "keepworth"]
    secret = "a-password-that-nobody-asks-for"
    given = address.replace("postgres:@", f"postgres:{secret}@")
    assert secret in given
    options = ["--memory", given, "--port", "0", "--encoder", "none", "--writer", "rules"]
    inside = {"cwd": tmp_path, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "KEEPWORTH_API_KEY": "start", "COLUMNS": "400"}
    process = subprocess.Popen([*command, "serve", *options], env=environment, **inside)
    printed = ""
    try:
        for line in process.stdout:
            printed += line
            if line.startswith("http://127.0.0.1:"):
                break
        base = f"{line.split()[0]}/v1/memory"

        def ask(method: str, path: str, token: str = "start", **more: Any) -> Any:
            headers = {"Authorization": f"Bearer {token}"}
            answer = httpx.request(method, base + path, headers=headers, timeout=60, **more)
            assert answer.status_code < 300, answer.text
            return answer.json()

        ask("POST", "/items", json={"content": "Ana likes tofu", "user_id": "ana"})
        assert "tofu" in str(ask("POST", "/search", json={"query": "tofu", "user_id": "ana"}))
        rights = ["--tenant", "acme", "--role", "read", "--role", "write"]
        made = subprocess.run([*command, "memory", "token", "add", *rights, "--file", given], check=True, **inside)
        theirs = made.stdout.split()[0]
        assert "start the server in this folder" in made.stderr
        ask("POST", "/items", token=theirs, json={"content": "a secret of acme", "user_id": "zoe"})
        assert "acme" in str(ask("GET", "/items?user_id=zoe", token=theirs))
        assert "acme" not in str(ask("GET", "/items?user_id=zoe"))
    finally:
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
        theirs_at = schema_of(place_of(address).of_tenant("acme").given)
        tenants = [name for (name,) in run(postgres, "SELECT nspname FROM pg_namespace") if name == theirs_at]
        run(postgres, "SELECT 1", *(f'DROP SCHEMA "{tenant}" CASCADE' for tenant in tenants))
    assert process.returncode == 130
    assert len(tenants) == 1
    assert secret not in printed + rest + errors + made.stdout + made.stderr
    assert secret not in "".join(path.read_text("utf-8") for path in tmp_path.iterdir())
    assert {path.name.split(".", 1)[1] for path in tmp_path.iterdir()} >= {"tokens.json"}
