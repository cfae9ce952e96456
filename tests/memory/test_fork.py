"""A memory that is open when the process forks works on both sides, and loses nothing; or the child is told at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keepworth.memory import errors
from keepworth.memory.memory import Memory
from keepworth.memory.store import store as store_module
from keepworth.memory.store.connection import select
from keepworth.memory.store.maintenance import check
from tests.memory import on_postgres
from tests.memory.stub_encoder import WordEncoder

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]


def forked(work: Callable[[], Any]) -> int:
    """The process id of a child that does `work` and ends as a daemon does, without any cleaning up."""
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def ended(child: int, seconds: float = 60.0) -> int:
    """Its exit code. A child that hangs is ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -9


def decisions(m: Memory) -> list[str]:
    with m.store.database.reading() as connection:
        return [query for (query,) in select(connection, "SELECT query FROM decisions ORDER BY query")]


def use(m: Memory, name: str, times: int = 10) -> None:
    hits = None
    for n in range(times):
        m.add(f"{name} writes line {n}")
        hits = m.search(f"{name} asks {n}")
    assert hits is not None
    assert m.reward(hits.decision, 1.0).applied


@pytest.mark.parametrize("encoder", [None, WordEncoder()], ids=["words", "vectors"])
def test_parent_and_children_go_on_and_nothing_is_lost(encoder: WordEncoder | None, tmp_path: Path):
    with Memory(tmp_path / "a.mem", encoder=encoder) as m:
        m.add("before")
        m.search("parent asks before")  # waits to be written when the process forks

        def child(name: str) -> None:
            use(m, name)
            m.close()

        children = [forked(lambda name=name: child(name)) for name in ("one", "two")]
        use(m, "parent")
        assert [ended(child) for child in children] == [0, 0]
        texts = [item.text for item in m.get_all()]
        asked = sorted([f"{name} asks {n}" for name in ("one", "two", "parent") for n in range(10)])
        m.store.database.write(lambda _: None)
        m._decisions.flush()
        assert decisions(m) == sorted([*asked, "parent asks before"])
        assert len(texts) == len(set(texts)) == 31
        assert check(m.store) == []


def test_a_child_of_a_child_and_one_that_another_handle_of_the_file_belongs_to(tmp_path: Path):
    one = Memory(tmp_path / "a.mem", encoder=None)
    other = Memory(tmp_path / "a.mem", encoder=None, user_id="ana")

    def grandchild() -> None:
        one.add("by the grandchild")
        other.add("of ana")
        one.close()

    def child() -> None:
        one.add("by the child")
        assert ended(forked(grandchild)) == 0
        other.add("of ana, by the child")
        one.close()

    assert ended(forked(child)) == 0
    assert len(other) == 2
    assert len(one) == 4
    assert check(one.store) == []


def test_threads_at_work_in_the_parent_neither_stop_the_child_nor_are_stopped(tmp_path: Path):
    with Memory(tmp_path / "a.mem", encoder=WordEncoder()) as m:
        m.add_many([f"filler {n}" for n in range(50)])
        stop = threading.Event()
        problems: list[BaseException] = []
        written: list[int] = []

        def work(number: int) -> None:
            count = 0
            try:
                while not stop.is_set():
                    m.add(f"thread {number} line {count}")
                    count += 1
                    m.search(f"filler {count}")
            except BaseException as problem:
                problems.append(problem)
            written.append(count)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        codes = []
        for n in range(8):
            time.sleep(0.02)
            codes.append(ended(forked(lambda n=n: (m.add(f"child {n}"), m.search("filler", mode="dense"), m.close()))))
        stop.set()
        for thread in threads:
            thread.join()
        assert problems == []
        assert codes == [0] * 8
        assert len(m) == 50 + 8 + sum(written)
        assert check(m.store) == []


def _refused(m: Memory, path: Path) -> None:
    begun = time.monotonic()
    verbs: list[Any] = [lambda: m.add("x"), lambda: m.search("x"), lambda: len(m)]
    if not on_postgres.wanted():  # where locks are the file's, which the parent has open
        verbs.append(lambda: Memory(path, encoder=None))
    for verb in verbs:
        with pytest.raises(errors.Forked, match=r"was in use when the process forked.*'spawn'"):
            verb()
    m.close()
    assert time.monotonic() - begun < 5.0


def test_a_child_of_a_thread_that_is_in_the_middle_of_a_call_is_told_at_once(tmp_path: Path):
    path = tmp_path / "a.mem"
    with Memory(path, encoder=None) as m:
        m.add("a cat")
        with m.store.database.reading():
            assert ended(forked(lambda: _refused(m, path))) == 0
        codes: list[int] = []
        m.store.database.write(lambda _: codes.append(ended(forked(lambda: _refused(m, path)))))
        m.search("a cat", where=lambda item: codes.append(ended(forked(lambda: _refused(m, path)))) or True)
        assert codes == [0] * len(codes)
        assert len(codes) >= 2
        assert ended(forked(lambda: use(m, "child"))) == 0  # and outside of it the child can go on
        use(m, "parent")
        assert check(m.store) == []


def test_a_thread_that_does_not_come_out_costs_the_child_and_nobody_else(tmp_path: Path, monkeypatch):
    from keepworth.memory.store import forking

    monkeypatch.setattr(forking, "PATIENCE", 0.2)
    path = tmp_path / "a.mem"
    with Memory(path, encoder=None) as m:
        m.add("a cat")
        inside, leave = threading.Event(), threading.Event()

        def read() -> None:
            with m.store.database.reading():
                inside.set()
                leave.wait(60)

        thread = threading.Thread(target=read)
        thread.start()
        inside.wait(60)
        assert ended(forked(lambda: _refused(m, path))) == 0
        m.add("a dog")
        leave.set()
        thread.join()
        assert ended(forked(lambda: use(m, "child"))) == 0
        assert check(m.store) == []


def test_a_process_that_forks_without_python_knowing_is_told_at_once(tmp_path: Path, monkeypatch):
    path = tmp_path / "a.mem"
    m = Memory(path, encoder=None)
    m.add("a cat")

    def child() -> None:
        m.store.database._process = os.getppid()  # as it stands where no hook was called
        _refused(m, path)

    assert ended(forked(child)) == 0
    m.close()


def test_a_memory_without_a_file_is_copied(tmp_path: Path):
    with Memory(":memory:", encoder=None) as m:
        m.add("a cat")

        def child() -> None:
            use(m, "child")
            assert len(m) == 11

        assert ended(forked(child)) == 0
        assert len(m) == 1


def test_a_relative_path_means_the_file_it_meant(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Memory("a.mem", encoder=None) as m:
        m.add("a cat")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert ended(forked(lambda: use(m, "child", 2))) == 0
        assert len(m) == 3
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_is_remembered_of_scopes_is_bounded(monkeypatch):

    monkeypatch.setattr(store_module, "SCOPES", 8)
    with Memory(":memory:", encoder=WordEncoder()) as m:
        for n in range(40):
            m.add("a cat", user_id=f"u{n}")
        for n in range(40):
            assert [hit.item.scope.user for hit in m.search("cat", user_id=f"u{n}")] == [f"u{n}"]
        assert len(m.store._inside) <= 8
        assert len(m.store._scope_names) <= 8


def test_what_other_libraries_hold_over_a_fork_is_taken_after_memories_are_left():
    """Threads inside a memory hand texts to a pool, whose library holds a lock from before a fork until after it."""
    script = (
        "import os\n"
        "held = []\n"
        "import keepworth.memory.store.forking as forking\n"
        "import concurrent.futures.thread as pool\n"
        "class Thing:\n"
        "    def before_fork(self): held.append(pool._global_shutdown_lock.locked())\n"
        "    def after_fork(self, *, child): pass\n"
        "thing = Thing()\n"
        "forking.register_database(thing)\n"
        "child = os.fork()\n"
        "if not child: os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "assert held == [False], held\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
