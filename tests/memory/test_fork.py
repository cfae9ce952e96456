"""A memory that is open when the process forks stays the parent's: the child is told at once, and disturbs nothing."""

from __future__ import annotations

import gc
import os
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from keepworth.memory import errors
from keepworth.memory.memory import Memory
from keepworth.memory.store.maintenance import check
from tests.memory import on_postgres
from tests.memory.helpers import WordEncoder, rows, texts

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]


def forked(work: Callable[[], Any], seconds: float = 60.0) -> int:
    """The exit code of a child that does `work`. One that hangs is ended."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -9


def _refused(m: Memory, path: Path) -> None:
    begun = time.monotonic()
    verbs: list[Any] = [lambda: m.add("x"), lambda: m.search("x"), lambda: len(m), lambda: m.ledger()]
    if not on_postgres.wanted():  # where locks are the file's, which the parent has open
        verbs.append(lambda: Memory(path, encoder=None))
    for verb in verbs:
        with pytest.raises(errors.Forked, match=r"was open when the process forked.*'spawn'"):
            verb()
    m.close()
    assert time.monotonic() - begun < 5.0


@pytest.mark.parametrize("encoder", [None, WordEncoder()], ids=["words", "vectors"])
def test_forked_child_is_refused_and_the_parent_loses_no_writes(encoder: WordEncoder | None, path: Path):
    with Memory(path, encoder=encoder) as m:
        m.add("a cat")
        m.search("asked before")  # waits to be written when the process forks
        assert forked(lambda: _refused(m, path)) == 0
        with m.store.database.reading():
            assert forked(lambda: _refused(m, path)) == 0
        codes: list[int] = []
        m.store.database.write(lambda _: codes.append(forked(lambda: _refused(m, path))))
        assert codes == [0]
        held, let_go = threading.Event(), threading.Event()

        def hold() -> None:
            """What a thread of the parent holds, the child has nobody to let go of."""
            with m.learning._lock, m.store.embedder._recent._lock if m.store.embedder else m.learning._lock:
                held.set()
                let_go.wait(250)

        with ThreadPoolExecutor(1) as pool:
            pool.submit(hold)
            assert held.wait(60)
            code = forked(lambda: _refused(m, path))
            let_go.set()
        assert code == 0
        m.add("a dog")
        m.search("asked afterwards")
        m.flush()
        assert rows(m, "SELECT query FROM decisions ORDER BY n") == [("asked before",), ("asked afterwards",)]
        assert texts(m) == ["a cat", "a dog"]
        assert check(m.store) == []


def test_fork_with_busy_threads_blocks_neither_process(path: Path):
    with Memory(path, encoder=WordEncoder()) as m:
        stop = threading.Event()

        def work(number: int) -> int:
            count = 0
            while not stop.is_set():
                m.add(f"thread {number} line {count}")
                count += 1
                m.search(f"line {count}")
            return count

        with ThreadPoolExecutor(3) as pool:
            working = [pool.submit(work, number) for number in range(3)]
            codes = [forked(lambda: _refused(m, path), 5.0) for _ in range(40)]
            stop.set()
        assert codes == [0] * 40
        assert len(m) == sum(each.result() for each in working)  # or the problem of a thread
        assert check(m.store) == []


def test_forked_child_opens_a_memory_closed_by_the_parent(path: Path):
    with Memory(path, encoder=None) as m:
        m.add("by the parent")

    def child() -> None:
        with Memory(path, encoder=None) as own:
            own.add(f"child {len(own)}")

    assert forked(child) == 0
    Memory(path, encoder=None)  # not closed, and gone all the same
    gc.collect()
    assert forked(child) == 0
    with Memory(path, encoder=None) as m:
        assert texts(m) == ["by the parent", "child 1", "child 2"]


@pytest.mark.skipif(on_postgres.wanted(), reason="locks are the file's")
def test_forked_child_cannot_use_a_read_only_handle(path: Path):
    Memory(path, encoder=None).close()
    with Memory(path, encoder=None, read_only=True) as m:
        assert forked(lambda: _refused(m, path)) == 0
