"""Writers that share a transaction, and readers beside them."""

from __future__ import annotations

import ast
import gc
import os
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from keepworth.memory.errors import Busy, MemoryProblem
from keepworth.memory.item import EVERYWHERE
from keepworth.memory.memory import Memory
from keepworth.memory.operations import Draft
from keepworth.memory.store.connection import select
from keepworth.memory.store.database import Database
from keepworth.memory.store.maintenance import check
from keepworth.records import Operation, OperationKind
from tests.memory.helpers import rows


def test_writers_that_wait_together_share_one_commit(path):
    base, commits = Database(path, durability="power"), []
    commit = base._commit
    base._commit = lambda batch: (commits.append(1), commit(batch))
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

    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(base.write, slow)
        assert inside.wait(10)
        others = [pool.submit(base.write, insert(number)) for number in range(8)]
        while len(base._queued) < 8:
            pass
        go.set()
    first.result()
    assert len(commits) == 2, "one for the slow writer, one for all that waited meanwhile"
    assert isinstance(others.pop(3).exception(), ValueError), "one that fails fails alone"
    assert [other.result() for other in others] == [0, 1, 2, 4, 5, 6, 7]
    with base.reading() as connection:
        kept = {name for (name,) in connection.execute("SELECT name FROM facts_of_file")}
    assert kept == {"store", "slow", *(f"n{number}" for number in (0, 1, 2, 4, 5, 6, 7))}
    base.close()
    with pytest.raises(MemoryProblem, match="was closed"):
        base.write(insert(9))


def test_together_joins_the_writes_of_a_thread_in_one_transaction(path):
    base, begun = Database(path), []
    begin = base._begun
    base._begun = lambda: (begun.append(1), begin())[1]

    def put(name):
        return lambda connection: connection.execute("INSERT INTO facts_of_file VALUES(?, '1')", (name,))

    def seen():
        with base.reading() as connection:
            return sorted(name for (name,) in select(connection, "SELECT name FROM facts_of_file WHERE value = '1'"))

    with ThreadPoolExecutor(1) as pool:
        with base.together():
            assert not begun, "nothing is begun before the first write"
            base.write(put("a"))
            with pytest.raises(apsw.ConstraintError):
                base.write(put("a"))
            other = pool.submit(base.write, put("other"))
            base.write(put("b"))
            with pytest.raises(MemoryProblem):
                base.write(lambda connection: base.write(put("inner")))
            assert not other.done()
            assert seen() == []
        other.result(10)
    assert seen() == ["a", "b", "other"]
    assert len(begun) == 2

    def fails() -> None:
        with base.together():
            base.write(put("before"))
            raise ValueError("later")

    with pytest.raises(ValueError, match="later"):
        fails()
    assert "before" in seen(), "what was written before an error stays, as where each write is one transaction"
    with base.together():
        pass
    assert len(begun) == 3
    base.close()


def test_interrupted_waiting_write_is_dropped_and_others_proceed(path, monkeypatch):
    base = Database(path)
    inside, go = threading.Event(), threading.Event()

    def impatient(_: float) -> None:
        raise KeyboardInterrupt

    with ThreadPoolExecutor(3) as pool:
        slow = pool.submit(base.write, lambda _: (inside.set(), go.wait(10)))
        assert inside.wait(10)
        with monkeypatch.context() as patch:
            patch.setattr(base._turn, "wait", impatient)
            with pytest.raises(KeyboardInterrupt):
                base.write(naming("given up"))
        others = [pool.submit(base.write, naming(str(n))) for n in (2, 3)]
        go.set()
        for each in (slow, *others):
            each.result(10)
    listed = base.write(lambda connection: select(connection, "SELECT name FROM facts_of_file ORDER BY 1"))
    assert listed == [("store",), ("test 2",), ("test 3",)]
    base.close()


def test_write_waits_for_a_lock_and_then_raises_busy(tmp_path):
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


def test_duplicates_in_a_batch_are_found_on_file_and_in_the_batch_itself(path):
    with Memory(path, encoder=None) as m:
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


def test_closed_memory_is_a_single_file(path: Path):
    for _ in range(2):
        Memory(path, encoder=None).close()
        assert [file.name for file in path.parent.iterdir()] == ["a.mem"]


def named(memory: Memory) -> list[str]:
    listed = "SELECT name FROM facts_of_file WHERE name GLOB 'test *' ORDER BY 1"
    return [name for (name,) in rows(memory, listed)]


def naming(name: str):
    return lambda connection: connection.execute("INSERT INTO facts_of_file VALUES(?, '')", (f"test {name}",))


def test_reader_in_memory_may_write_while_writers_wait(m: Memory):
    base, inside = m.store.database, threading.Event()
    with ThreadPoolExecutor(4) as pool:
        for n in range(4):
            pool.submit(lambda n=n: (inside.wait(10), base.write(naming(str(n)))))
        with base.reading():
            inside.set()
            time.sleep(0.05)  # they stand in front of the lock
            base.write(naming("mine"))
    assert named(m) == ["test 0", "test 1", "test 2", "test 3", "test mine"]
    with pytest.raises(MemoryProblem, match="a write inside a write"):
        base.write(lambda connection: base.write(naming("inner")))


NO_DESCRIPTORS = """
import resource, sys
from keepworth import Memory
from keepworth.base.errors import KeepworthError
memory = Memory(sys.argv[1], encoder="hashing:64", writer=None)
memory.add_many([f"note {n}" for n in range(50)])
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(open("/dev/null"))
except OSError:
    pass
calls = {
    "search": lambda: memory.search("notes about anything"),
    "open": lambda: Memory(sys.argv[1], encoder="hashing:64"),
    "make": lambda: Memory(sys.argv[1] + "2", encoder="hashing:64"),
    "episode": lambda: memory.episode("a task").id,
}
told = {}
for name, call in calls.items():
    try:
        call()
        told[name] = "done"
    except KeepworthError as error:
        told[name] = type(error).__name__
    except BaseException as error:
        told[name] = f"foreign {type(error).__name__}"
for file in held:
    file.close()
memory.add("afterwards")
assert memory.search("afterwards", top_k=1)[0].text == "afterwards"
print(told)
"""


def test_missing_file_descriptors_raise_typed_errors_and_recover(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", NO_DESCRIPTORS, str(tmp_path / "a.mem")], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    told = ast.literal_eval(run.stdout)
    assert set(told.values()) <= {"TooManyFiles", "done"}, told
    assert told["open"] == told["make"] == "TooManyFiles"


def test_memories_that_are_dropped_are_closed_with_a_warning(tmp_path: Path) -> None:
    def files() -> int:
        return len(os.listdir("/proc/self/fd"))

    def answer_requests() -> None:
        for number in range(60):
            memory = Memory(tmp_path / "a.mem", encoder="hashing:64", writer=None)
            memory.add(f"note {number}")
        del memory
        assert files() - before < 100, "they do not wait for the garbage collector for ever"
        gc.collect()

    gc.collect()
    before = files()
    with pytest.warns(ResourceWarning, match="dropped without close"):
        answer_requests()
    assert files() <= before + 2
    with Memory(tmp_path / "a.mem", encoder="hashing:64") as memory:
        assert len(memory) == 60
