"""The files in which it is kept what was learned: whose they are, that erasing reaches them, and that nobody waits for them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import apsw
import pytest

from keepworth.memory.durable_file import part_of
from keepworth.memory.memory import Memory
from keepworth.memory.policy import learned_state, learning
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.store import learned_file, purge
from keepworth.memory.store.maintenance import check, compact
from tests.memory.policy.test_learned_state import everything, learned, opened, replayed


@pytest.fixture(autouse=True)
def _kept_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "KEPT_FROM", 1)


def told(path: Path) -> None:
    """A memory in which something of kim is learned about a safe."""
    with opened(path, "advantage", user_id="kim") as memory:
        memory.add("the code of the zanzibar safe")
        for number in range(6):
            with memory.episode("open the zanzibar safe") as episode:
                episode.search("zanzibar")
                episode.act("turn the zanzibar wheel")
                episode.reward(float(number % 2), by="zanzibar")


def plain(path: Path) -> Memory:
    return Memory(path, policy=None, encoder=HashedWords(64))


def erased(path: Path) -> purge.Erased:
    with plain(path) as memory:
        return memory.erase(user_id="kim")


def holding(folder: Path, word: bytes = b"zanzibar") -> list[str]:
    return sorted(each.name for each in folder.iterdir() if each.is_file() and word in each.read_bytes())


@pytest.mark.parametrize("name", ["m.mem.learned-2025", "m.mem.learned-20250101", ".m.mem.learned-2025"])
def test_another_memory_or_file_of_such_a_name_stays(name: str, tmp_path: Path) -> None:
    path, other, notes = tmp_path / "m.mem", tmp_path / name, tmp_path / "m.mem.learned-notes"
    told(path)
    notes.write_text("mine")
    with plain(other) as memory:
        memory.add("something precious")
        erased(path)
        with plain(path) as mine:
            compact(mine.store)
            assert check(mine.store) == []
        memory.add("something else")
    with plain(other) as memory:
        assert len(memory) == 2
    assert notes.read_text() == "mine"
    assert holding(tmp_path) == []


def test_a_folder_of_such_a_name_is_none_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "m.mem"
    told(path)
    for name in ("m.mem.learned-0badcafe", "m.mem.vectors"):
        (tmp_path / name).mkdir()
    assert erased(path).log_emptied
    with plain(path) as memory:
        assert any("m.mem.learned-0badcafe: it is not a file" in problem for problem in check(memory.store))


def test_what_cannot_be_removed_is_said_and_removed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.mem"
    told(path)
    unlink = Path.unlink
    kept = ".learned"

    def refused(self: Path, missing_ok: bool = False) -> None:
        if kept in self.name and not self.name.startswith("."):
            raise PermissionError(1, "Operation not permitted")
        unlink(self, missing_ok=missing_ok)

    with monkeypatch.context() as sticky:
        sticky.setattr(Path, "unlink", refused)
        assert not erased(path).log_emptied
        with plain(path) as memory:
            assert any("holds what was erased" in problem for problem in check(memory.store))
            memory.add("what comes later")
            compact(memory.store)
    assert any(kept in name for name in os.listdir(tmp_path))
    with plain(path) as memory:
        assert check(memory.store) == []
        assert len(memory) == 1
    assert not any(kept in name for name in os.listdir(tmp_path))
    assert holding(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_in_a_folder_where_each_removes_only_their_own_files_others_can_erase(mode: int, tmp_path: Path) -> None:
    shared = Path("/tmp") / f"keepworth-{os.getpid()}-{tmp_path.name}"
    shared.mkdir()
    shared.chmod(0o1777)
    path = shared / "m.mem"
    try:
        told(path)
        for each in shared.iterdir():
            each.chmod(mode)
        path.chmod(0o666)
        child = os.fork()
        if not child:
            status = 1
            try:
                os.setgid(65534)
                os.setuid(65534)
                emptied = erased(path).log_emptied
                with plain(path) as memory:
                    said = [problem for problem in check(memory.store) if "m.mem.learned-" in problem]
                status = 0 if not emptied and said else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with plain(path):
            pass
        assert holding(shared) == []
    finally:
        for each in shared.iterdir():
            each.unlink()
        shared.rmdir()


def test_no_damaged_byte_of_the_head_keeps_the_memory_from_its_work(tmp_path: Path) -> None:
    path = tmp_path / "m.mem"
    (beside,) = learned(path)
    there = beside.read_bytes()
    start = there.index(b"\n", len(learned_file.MAGIC)) + 1
    for offset, bit in [(start + 7, 0x80), (start + 6, 0x10), (start + 4, 0x10), (start + 3, 0x40)]:
        damaged = bytearray(there)
        damaged[offset] ^= bit
        beside.write_bytes(damaged)
        with opened(path, "advantage") as memory:
            with pytest.raises(learned_file.Unfit):
                learned_file.read_learned(beside)
            assert any(beside.name in problem for problem in check(memory.store))
            assert everything(memory) == replayed(path, "advantage", tmp_path)


@pytest.mark.parametrize("how", ["renamed", "linked"])
def test_a_memory_of_another_name_now_is_erased_with_what_lies_under_the_old(how: str, tmp_path: Path) -> None:
    path, now = tmp_path / "m.mem", tmp_path / "n.mem"
    told(path)
    told(tmp_path / "other.mem")
    if how == "renamed":
        path.rename(now)
    else:
        now.hardlink_to(path)
    assert "m.mem.learned-" in " ".join(holding(tmp_path))
    erased(now)
    assert all(name.startswith("other.mem") for name in holding(tmp_path))
    assert any(name.startswith("other.mem.learned-") for name in holding(tmp_path))


SLOW = """
import os, sys
from pathlib import Path
from keepworth.memory.policy import learning
from keepworth.memory.store import learned_file
from tests.memory.policy.test_learned_state import opened
learning.KEPT_FROM = 1
path, stage = Path(sys.argv[1]), sys.argv[2]
inner = learned_file._between_writes
def between(store, work, goes_on):
    def say():
        print("now", flush=True)
        sys.stdin.readline()
    if work.__name__ == stage:
        say()
    done = inner(store, work, goes_on)
    if (work.__name__, stage) == ("start", "written"):
        say()
    if done is None or work.__name__ == "put":
        os._exit(9)
    return done
learned_file._between_writes = between
replace = os.replace
os.replace = lambda *names: os._exit(9)  # killed before it has its name
memory = opened(path, "advantage", user_id="kim")
memory.search("x")
memory.learning._keeper.join()
os._exit(8)
"""


@pytest.mark.parametrize("stage", ["start", "written", "put"])
def test_a_writer_that_is_killed_after_something_was_erased_leaves_none_of_it(stage: str, tmp_path: Path) -> None:
    path = tmp_path / "m.mem"
    told(path)
    for each in learned_file.learned_files(path):
        each.unlink()
    slow = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(path), stage],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert slow.stdout.readline() == "now\n"
    erased(path)
    slow.communicate("on\n", timeout=60)
    assert slow.returncode == 9
    assert holding(tmp_path) == []


def test_what_a_killed_writer_left_is_said_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "m.mem"
    (beside,) = learned(path)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = beside.with_name(part_of(beside).name.replace(f".{os.getpid()}-", f".{gone.pid}-"))
    left.write_bytes(beside.read_bytes()[:100])
    with plain(path) as memory:
        assert [problem for problem in check(memory.store) if left.name in problem]
        compact(memory.store)
        assert check(memory.store) == []
    assert not left.exists()
    assert beside.exists()


def test_no_search_waits_for_another_process_that_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned_state, "CLOSING", 0.1)
    path = tmp_path / "m.mem"
    (beside,) = learned(path)
    beside.unlink()
    other = apsw.Connection(str(path))
    with opened(path, "advantage", log="off") as memory:
        other.execute("BEGIN IMMEDIATE")
        begun = time.monotonic()
        memory.search("torn thing")
        assert time.monotonic() - begun < 5.0
        assert not beside.exists()
        other.execute("ROLLBACK")
        memory.learning._keeper.join()
        assert beside.exists()
    beside.unlink()
    with opened(path, "advantage", log="off") as memory:
        other.execute("BEGIN IMMEDIATE")
        memory.search("torn thing")
        begun = time.monotonic()
        memory.learning.close()
        assert time.monotonic() - begun < 5.0
        other.execute("ROLLBACK")
    other.close()


@pytest.mark.parametrize("keep", [None, 2])
def test_compact_leaves_what_is_still_true(keep: int | None, tmp_path: Path) -> None:
    path = tmp_path / "m.mem"
    (beside,) = learned(path)
    with plain(path) as memory:
        compact(memory.store, keep_decisions=keep)
        assert beside.exists() is (keep is None)
        assert check(memory.store) == []
    there = beside.read_bytes() if keep is None else b""
    with opened(path, "advantage") as memory:
        assert everything(memory) == replayed(path, "advantage", tmp_path)
    if keep is None:
        assert beside.read_bytes() == there


def test_closing_twice_keeps_once_and_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "m.mem"
    learned(path)
    memory: Memory = opened(path, "advantage")
    assert memory.learning is not None
    memory.reward(memory.search("a torn thing").decision, 1.0)
    if memory.learning._keeper is not None:
        memory.learning._keeper.join()
    memory.learning._fresh = 5
    memory.close()
    memory.close()
    assert caplog.records == []
