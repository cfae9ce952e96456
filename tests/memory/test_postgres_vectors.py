"""`index="hnsw"`: vectors in a table of pgvector, beside exact search of the same memory."""

from __future__ import annotations

import random
import re
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from keepworth import Memory
from keepworth.memory.errors import InvalidFilter, MemoryProblem, MissingExtension, ReadOnly
from keepworth.memory.store.maintenance import check, drop_index, lay_in, reembed
from keepworth.memory.store.postgres import hnsw
from tests.memory.stub_encoder import WordEncoder
from tests.memory.test_postgres import run, schema_of

pytestmark = pytest.mark.slow

WORDS = [f"word{number}" for number in range(200)]


@pytest.fixture
def address(postgres: str) -> Iterator[str]:
    """Of a memory of this test alone."""
    schema = f"v_{uuid.uuid4().hex}"
    yield f"{postgres}&schema={schema}"
    run(postgres, f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph over few rows, which finds nearly all that an exact search does."""
    monkeypatch.setattr(hnsw, "SMALLEST", 60)
    monkeypatch.setattr(hnsw, "LATE", 5)
    monkeypatch.setattr(hnsw, "EFFORT", 1000)


def memory_at(address: str, index: str = "exact", **options: Any) -> Memory:
    return Memory(address, encoder=WordEncoder(), policy=None, log="off", index=index, **options)


def text_of(draw: random.Random, words: int = 8) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(words))


def same(exact: Memory, other: Memory, question: str, **options: Any) -> bool:
    """Whether both find the same, as nearly as float32 tells."""
    one, two = (memory.search(question, mode="dense", **options) for memory in (exact, other))
    assert other.store._dense is None  # it loads no matrix
    cosines = [np.array([hit.dense for hit in hits], float) for hits in (one, two)]
    return len(one) == len(two) and np.allclose(*cosines, atol=1e-5)


def laid(address: str, postgres: str, what: str = "nearest") -> int:
    return int(run(postgres, f"SELECT count(DISTINCT n) FROM {schema_of(address)}.vectors_1_{what}")[0][0])


def test_it_finds_what_an_exact_search_finds_whatever_happens(address: str, postgres: str, small: None) -> None:
    draw = random.Random(7)
    exact = memory_at(address)
    exact.add_many([text_of(draw) for _ in range(150)], user_id="ana", metadata={"topic": "a"})
    exact.add_many([text_of(draw) for _ in range(150)], user_id="bob", metadata={"topic": "b"})
    exact.add_many([". ".join(text_of(draw, 12) for _ in range(20)) for _ in range(12)], user_id="ana")
    near = memory_at(address, "hnsw")
    snapshots: list[str] = []
    ids: list[str] = []
    graphs = rare = 0
    for _ in range(120):
        writer = draw.choice((exact, near))
        match draw.randrange(8):
            case 0 | 1:
                ids.append(writer.add(text_of(draw), user_id=draw.choice(("ana", "bob"))).id)
            case 2 if ids:
                writer.update(draw.choice(ids), text_of(draw))
            case 3 if ids:
                writer.delete(ids.pop())
            case 4:
                snapshots.append(writer.snapshot())
            case 5 if snapshots:
                writer.rollback(since=snapshots.pop())
                ids = [id for id in ids if exact.store.fetch(exact.scope, [id])[id] is not None]
                ids = [id for id in ids if exact.get(id).current]
            case 6 if ids:
                writer.forget(ids.pop(), purge_history=True)
                snapshots.clear()
            case 7:
                writer.add_many([text_of(draw) for _ in range(8)], user_id="ana", metadata={"topic": "a"})
        options: list[dict[str, Any]] = [{}, {"user_id": "ana"}, {"where": {"topic": "a"}}, {"top_k": 40}]
        options.append({"user_id": "bob", "where": {"topic": "b"}})
        for each in options:
            assert same(exact, near, text_of(draw), **each), each
        if snapshots:
            bank, other = (memory.store.base(memory.scope, snapshots[0]) for memory in (exact, near))
            query = WordEncoder().encode([text_of(draw)])
            found = [each.by_meaning(query, 10, frozenset())[0] for each in (bank, other)]
            assert np.allclose(*[[score for _, score in line] for line in found], atol=1e-5)
        rare += laid(address, postgres, "waiting") > 0
        graphs += 1
    assert graphs > rare > 0  # both what waits and what is laid in was looked at
    assert check(near.store) == []
    exact.close(), near.close()


def test_many_rows_are_asked_of_the_graph_and_few_are_all_compared(
    address: str, postgres: str, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(1)
    asked: list[str] = []
    memory = memory_at(address, "hnsw")
    memory.add_many([text_of(draw) for _ in range(200)], user_id="many")
    memory.add_many([text_of(draw) for _ in range(20)], user_id="few")
    kept = hnsw._rows
    monkeypatch.setattr(hnsw, "_rows", lambda connection, text: asked.append(text) or kept(connection, text))
    for user, by_graph in (("many", True), ("few", False)):
        asked.clear()
        memory.search(text_of(draw), mode="dense", user_id=user)
        assert any("<=>" in text for text in asked) is by_graph
    plan = run(
        f"{postgres}&options=-csearch_path%3D{schema_of(address)}%20-cenable_seqscan%3Doff%20-cenable_sort%3Doff",
        f"EXPLAIN {re.sub('AND scope = ANY[^)]*[)]', '', next(t for t in _graph_text(memory, draw, asked)))}",
    )
    assert "vectors_1_nearest_graph" in str(plan)
    memory.close()


def _graph_text(memory: Memory, draw: random.Random, asked: list[str]) -> list[str]:
    asked.clear()
    memory.search(text_of(draw), mode="dense")
    return [text.rpartition(";")[2] for text in asked if "<=>" in text]


def test_what_another_program_wrote_waits_and_is_found(address: str, postgres: str, small: None) -> None:
    near = memory_at(address, "hnsw")
    near.add("the first")
    near.search("the first")
    plain = memory_at(address)
    plain.add_many([f"number{n} of the plain program" for n in range(4)])
    assert laid(address, postgres, "waiting") == 5  # not more than LATE
    assert near.search("number2 of the plain program")[0].item.text == "number2 of the plain program"
    plain.add_many([f"again number{n}" for n in range(4)])
    assert near.search("again number3")[0].item.text == "again number3"  # what waits is compared, and counted
    assert near.search("again number3")[0].item.text == "again number3"
    assert laid(address, postgres, "waiting") == 0
    assert laid(address, postgres) == 9
    plain.close(), near.close()


def test_laying_in_goes_on_where_it_stopped_and_can_be_taken_back(
    address: str, postgres: str, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hnsw, "TOGETHER", 30)
    draw = random.Random(2)
    plain = memory_at(address)
    plain.add_many([text_of(draw) for _ in range(100)])
    steps = lay_in(plain.store)
    assert [next(steps), next(steps)] == [(0, 100), (30, 100)]
    steps.close()
    assert (laid(address, postgres), laid(address, postgres, "waiting")) == (30, 70)
    assert [done for done, _ in lay_in(plain.store)][-1] == 70
    assert laid(address, postgres) == 100
    reader = memory_at(address, "hnsw", read_only=True)
    plain.add("what is read by one who may not write")
    assert same(plain, reader, "what is read by one who may not write")
    assert check(plain.store) == []
    run(postgres, f"DELETE FROM {schema_of(address)}.vectors_1_nearest WHERE n = 7")
    assert any("1 items" in problem for problem in check(plain.store))
    assert drop_index(plain.store)
    assert not drop_index(plain.store)
    with pytest.raises(MissingExtension, match="dropped meanwhile"):
        reader.search("anything")
    plain.add("goes on without it")
    with pytest.raises(ReadOnly, match="no index='hnsw' yet"):
        memory_at(address, "hnsw", read_only=True)
    assert check(plain.store) == []
    plain.close(), reader.close()


def test_new_vectors_take_the_index_of_the_old_ones_with_them(address: str, postgres: str, small: None) -> None:
    memory = memory_at(address, "hnsw")
    memory.add_many([f"number{n} here" for n in range(80)])
    memory.search("number3 here")
    list(reembed(memory.store, WordEncoder(32, "other")))
    tables = run(postgres, f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema_of(address)}'")
    assert {t for (t,) in tables if t.startswith("vectors_")} == {
        "vectors_2",
        "vectors_2_nearest",
        "vectors_2_waiting",
    }
    assert memory.search("number3 here", mode="dense")[0].item.text == "number3 here"
    assert check(memory.store) == []
    memory.close()


def test_processes_and_threads_write_and_search_at_once(address: str, small: None) -> None:
    memories = [memory_at(address, index) for index in ("hnsw", "exact", "hnsw")]
    failed: list[BaseException] = []

    def work(number: int) -> None:
        draw = random.Random(number)
        try:
            for step in range(25):
                text = f"mine{number}x{step} {text_of(draw, 4)}"
                memories[number % 3].add_many([text, *[text_of(draw) for _ in range(3)]])
                hit = memories[(number + 1) % 3].search(text, mode="dense", top_k=1)[0]
                assert hit.item.text == text  # what was acknowledged is found, whoever asks
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert check(memories[0].store) == []
    for memory in memories:
        memory.close()


def test_who_may_not_own_the_tables_may_write(address: str, postgres: str, small: None) -> None:
    owner = memory_at(address, "hnsw")
    owner.add("by the owner")
    role, schema = f"r_{uuid.uuid4().hex[:8]}", schema_of(address)
    run(
        postgres,
        f"CREATE ROLE {role} LOGIN",
        f"GRANT USAGE ON SCHEMA {schema} TO {role}",
        *[
            f"GRANT ALL ON {schema}.{table} TO {role}"
            for (table,) in run(postgres, f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")
            if not table.endswith(("_nearest", "_waiting"))
        ],
    )
    try:
        other = memory_at(address.replace("postgres:@", f"{role}:@"))
        item = other.add("by another")
        other.close()
        assert owner.search("by another", mode="dense")[0].id == item.id
        assert drop_index(owner.store)
        owner.close()
        memory_at(address, "hnsw").close()  # made again, with the rights to the vectors
        reader = memory_at(address.replace("postgres:@", f"{role}:@"), "hnsw", read_only=True)
        assert reader.search("by another", mode="dense")[0].id == item.id
        reader.close()
    finally:
        run(postgres, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.fixture
def bare(postgres: str) -> Iterator[str]:
    """A database without the extension, and a user who may not add it."""
    name = f"bare_{uuid.uuid4().hex[:8]}"
    run(postgres, f"CREATE ROLE {name} LOGIN", f"CREATE DATABASE {name} OWNER {name}")
    yield re.sub(r"/\w+\?", f"/{name}?", postgres)
    run(postgres, f"DROP DATABASE {name} WITH (FORCE)", f"DROP ROLE {name}")


def test_a_database_without_the_extension(bare: str) -> None:
    name = re.search(r"/(\w+)\?", bare)[1]  # type: ignore[index]
    with pytest.raises(MissingExtension, match=r"may not add it.*CREATE EXTENSION vector"):
        memory_at(bare.replace("postgres:@", f"{name}:@"), "hnsw")
    memory_at(bare.replace("postgres:@", f"{name}:@")).close()
    memory_at(bare, "hnsw").close()  # an administrator's makes it
    memory_at(bare.replace("postgres:@", f"{name}:@"), "exact").close()
    run(bare, "UPDATE pg_extension SET extversion = '0.4.4' WHERE extname = 'vector'")
    with pytest.raises(MissingExtension, match=r"0\.5 or later.*has 0\.4\.4.*ALTER EXTENSION"):
        memory_at(bare, "hnsw")
    run(bare, "DROP EXTENSION vector CASCADE")
    with pytest.raises(MissingExtension, match="does not have it"):
        memory_at(bare, "hnsw", read_only=True)


def test_what_it_is_not_for(address: str, tmp_path: Any) -> None:
    with pytest.raises(InvalidFilter, match="for a memory on a Postgres server"):
        Memory(tmp_path / "a.mem", encoder=WordEncoder(), index="hnsw")
    assert not (tmp_path / "a.mem").exists()
    with pytest.raises(InvalidFilter, match="hnsw on a server"):
        Memory(address, encoder=WordEncoder(), index="ivf")
    with pytest.raises(InvalidFilter, match="at most 2,000 numbers"):
        Memory(address, encoder=WordEncoder(2048), index="hnsw")
    with (
        Memory(tmp_path / "a.mem", encoder=WordEncoder()) as memory,
        pytest.raises(MemoryProblem, match="is a file"),
    ):
        list(lay_in(memory.store))
