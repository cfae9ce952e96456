"""Writers that share a transaction, and readers beside them."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import apsw
import pytest

from keepworth.episodes import Operation, OperationKind
from keepworth.memory.errors import Busy, MemoryProblem
from keepworth.memory.item import EVERYWHERE
from keepworth.memory.memory import Memory
from keepworth.memory.operations import Draft
from keepworth.memory.store.connection import select
from keepworth.memory.store.database import Database
from keepworth.memory.store.maintenance import check


def test_writers_that_wait_together_share_one_commit(tmp_path):
    base = Database(tmp_path / "a.mem", durability="power")
    commits = []
    end = base._end
    base._end = lambda connection: (commits.append(1), end(connection))
    inside, go = threading.Event(), threading.Event()

    def slow(connection):
        inside.set()
        assert go.wait(10)
        connection.execute("INSERT INTO facts_of_file VALUES('slow', '1')")

    def insert(number):
        def work(connection):
            connection.execute("INSERT INTO facts_of_file VALUES(?, '1')", (f"n{number}",))
            if number == 3:
                raise ValueError("this one is bad")
            return number

        return work

    results: dict[int, object] = {}

    def call(number):
        try:
            results[number] = base.write(insert(number))
        except ValueError as problem:
            results[number] = problem

    first = threading.Thread(target=base.write, args=(slow,))
    first.start()
    assert inside.wait(10)
    others = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for other in others:
        other.start()
    while len(base._queued) < 8:
        pass
    go.set()
    for thread in (first, *others):
        thread.join()
    assert len(commits) == 2, "one for the slow writer, one for all that waited meanwhile"
    assert {number for number, result in results.items() if result == number} == {0, 1, 2, 4, 5, 6, 7}
    assert isinstance(results[3], ValueError), "one that fails fails alone"
    with base.reading() as connection:
        kept = {name for (name,) in connection.execute("SELECT name FROM facts_of_file")}
    assert kept == {"store", "slow", *(f"n{number}" for number in (0, 1, 2, 4, 5, 6, 7))}
    base.close()
    with pytest.raises(MemoryProblem, match="was closed"):
        base.write(insert(9))


def test_one_that_gives_up_waiting_is_not_carried_out_and_does_not_hold_up_the_rest(tmp_path, monkeypatch):
    base = Database(tmp_path / "a.mem")
    inside, go = threading.Event(), threading.Event()

    def impatient() -> None:
        raise KeyboardInterrupt

    slow = threading.Thread(target=base.write, args=(lambda _: (inside.set(), go.wait(10)),))
    slow.start()
    assert inside.wait(10)
    with monkeypatch.context() as patch:
        patch.setattr(base._turn, "wait", impatient)
        with pytest.raises(KeyboardInterrupt):
            base.write(naming("given up"))
    others = [threading.Thread(target=base.write, args=(naming(str(n)),)) for n in (2, 3)]
    for other in others:
        other.start()
    go.set()
    for thread in (slow, *others):
        thread.join(10)
        assert not thread.is_alive()
    assert base.write(lambda connection: select(connection, "SELECT name FROM facts_of_file ORDER BY 1")) == [
        ("store",),
        ("test 2",),
        ("test 3",),
    ]
    base.close()


def test_a_lock_of_another_is_waited_for_and_then_given_up(tmp_path):
    path = tmp_path / "a.mem"
    Memory(path, encoder=None).close()
    other = apsw.Connection(str(path))
    base, patient = Database(path, timeout=0.3), Database(path, timeout=30.0)
    other.execute("BEGIN IMMEDIATE")
    start = time.monotonic()
    with pytest.raises(Busy, match=r"locked by another process for 0\.3 s"):
        base.write(lambda connection: None)
    assert 0.3 <= time.monotonic() - start < 5.0
    released = []

    def release() -> None:
        time.sleep(0.4)
        released.append(time.monotonic())
        other.execute("ROLLBACK")

    thread = threading.Thread(target=release)
    thread.start()
    state = random.getstate()
    patient.write(lambda connection: released.append(time.monotonic()))
    thread.join()
    assert released[0] <= released[1]
    assert random.getstate() == state, "waiting draws from nobody else's random numbers"
    for each in (base, patient):
        each.close()
    other.close()


def test_duplicates_in_a_batch_are_found_on_file_and_in_the_batch_itself(tmp_path):
    with Memory(tmp_path / "a.mem", encoder=None) as m:
        old = [m.add(f"line {number}") for number in range(5)]
        found = m.add_many([f"line {number % 20}" for number in range(40)])
        assert [item.id for item in found[:5]] == [item.id for item in old]
        assert [item.id for item in found[20:]] == [item.id for item in found[:20]]
        assert len(m) == 20
        # Bad texts among the acts of a batch change nothing, and none is looked up that cannot be.
        bad = ["\ud800", "", 7, "line 3", "line 20"]
        acts = [(Operation(OperationKind.ADD, text=text), Draft(scope=EVERYWHERE)) for text in bad * 4]
        outcomes = [outcome for outcome, _ in m.store.perform(EVERYWHERE, acts)]
        assert [outcome.applied for outcome in outcomes] == [False] * 4 + [True] + [False] * 15
        assert outcomes[3].item == old[3].id
        assert check(m.store) == []


def test_a_memory_that_is_closed_is_one_file_also_where_nothing_was_written(tmp_path: Path):
    for _ in range(2):
        Memory(tmp_path / "a.mem", encoder=None).close()
        assert [path.name for path in tmp_path.iterdir()] == ["a.mem"]


def named(memory: Memory) -> list[str]:
    with memory.store.database.reading() as connection:
        return [
            name for (name,) in connection.execute("SELECT name FROM facts_of_file WHERE name GLOB 'test *' ORDER BY 1")
        ]


def naming(name: str):
    return lambda connection: connection.execute("INSERT INTO facts_of_file VALUES(?, '')", (f"test {name}",))


def test_who_reads_what_lies_in_memory_may_write_while_others_wait_to():
    with Memory(":memory:", encoder=None) as m:
        base, inside = m.store.database, threading.Event()
        others = [threading.Thread(target=lambda n=n: (inside.wait(10), base.write(naming(str(n))))) for n in range(4)]
        for other in others:
            other.start()
        with base.reading():
            inside.set()
            time.sleep(0.05)  # they stand in front of the lock
            base.write(naming("mine"))
        for other in others:
            other.join(10)
        assert named(m) == ["test 0", "test 1", "test 2", "test 3", "test mine"]
        with pytest.raises(MemoryProblem, match="a write inside a write"):
            base.write(lambda connection: base.write(naming("inner")))
