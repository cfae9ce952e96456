"""What is on disk when a call returns: asked of another process, or of the setting that decides it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.memory.crash import crash_rounds
from keepworth.memory.errors import NotAMemoryFile, UnknownEpisode
from keepworth.memory.memory import Memory
from keepworth.memory.store import database
from keepworth.memory.store.maintenance import backup, check
from tests.memory.helpers import finds

KILLED = """
import os, signal, sys
from keepworth.memory.memory import Memory
m = Memory(sys.argv[1], encoder=None)
m.add("a cat")
episode = m.episode(task="t")
print(episode.id, episode.search("cat").decision, m.search("cat").decision, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_episode_decision_survives_an_immediate_kill(path: Path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True, text=True)
    episode, inside, outside = done.stdout.split()
    with Memory(path, encoder=None) as m:
        (decision,) = m.episode_record(episode).decisions
        assert (decision.id, decision.chosen) == (inside, ("m1",))
        assert m.reward(inside, 1.0).applied
        with pytest.raises(UnknownEpisode, match="a logged search"):
            m.reward(outside, 1.0)  # it waited for the next commit in the background


def test_the_write_ahead_log_is_moved_into_the_file_beside_the_writes(path: Path, monkeypatch):
    monkeypatch.setattr(database, "LOG_PAGES", 5)
    with Memory(path, encoder=None) as m:
        before = path.stat().st_size
        m.add_many([f"note {number} " + "x" * 500 for number in range(200)])  # less than what a write moves itself
        end = time.monotonic() + 60.0
        while path.stat().st_size <= before and time.monotonic() < end:
            time.sleep(0.01)
        assert path.stat().st_size > before
        m.add("one more")
        assert check(m.store) == []
    assert [file.name for file in path.parent.iterdir()] == ["a.mem"]
    with Memory(path, encoder=None) as m:
        assert len(m.get_all(limit=300)) == 201


def test_replaced_file_does_not_receive_the_old_log(tmp_path: Path):
    path, other = tmp_path / "a.mem", tmp_path / "b.mem"
    with Memory(other, encoder=None) as m:
        m.add("another file")
    with Memory(path, encoder=None) as m:
        m.add("a cat")
        before = other.read_bytes()
        other.replace(path)
        m.store.database._checkpoints._move_beside()
        assert path.read_bytes() == before


@pytest.mark.parametrize("how", ["deleted", "replaced", "moved"])
def test_write_to_a_removed_file_is_refused(how: str, tmp_path: Path):
    path = tmp_path / "folder" / "a.mem"
    path.parent.mkdir()
    with Memory(path, encoder=None) as m:
        m.add("a cat")
        if how == "deleted":
            path.unlink()
        elif how == "replaced":
            backup(m.store, tmp_path / "b.mem")
            (tmp_path / "b.mem").replace(path)
        else:
            path.parent.rename(tmp_path / "elsewhere")
        with pytest.raises(NotAMemoryFile, match="nothing was written now"):
            m.add("a dog")
        assert finds(m, "a cat a dog") == ["a cat"]


@pytest.fixture
def left_behind(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Path:
    """A memory that was renamed to b.mem while it was open as a.mem, and closed then: what was written lies in a.mem-wal."""
    path, other = tmp_path / "a.mem", tmp_path / "b.mem"
    with Memory(path, encoder=None) as m:
        m.add("a cat")
        path.rename(other)
        with pytest.raises(
            NotAMemoryFile, match=rf"was moved to {other} .*{path}-wal: move it back .*nothing was written now"
        ):
            m.add("a dog")
        assert finds(m, "a cat a dog") == ["a cat"]
        other.rename(path)
        m.add("a cow")
        path.rename(other)
    assert f"was moved to {other}" in caplog.text
    return other


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="the system has no extended attributes")
def test_file_that_was_moved_away_from_its_log_is_refused_until_it_is_back(left_behind: Path):
    path = left_behind.with_name("a.mem")
    for read_only in (False, True):
        with pytest.raises(NotAMemoryFile, match=rf"was moved here from {path} without its log {path}-wal"):
            Memory(left_behind, encoder=None, read_only=read_only)
    left_behind.rename(path)
    with Memory(path, encoder=None) as m:
        assert finds(m, "a cat a cow") == ["a cat", "a cow"]
        m.add("a hen")
    path.rename(left_behind)  # it is whole now
    with Memory(left_behind, encoder=None) as m:
        assert finds(m, "a cat a cow a hen") == ["a cat", "a cow", "a hen"]


def test_memory_is_not_made_beside_the_log_of_another(left_behind: Path):
    path = left_behind.with_name("a.mem")
    with pytest.raises(NotAMemoryFile, match=rf"but its log {path}-wal is.* move it back to {path}"):
        Memory(path, encoder=None)
    path.with_name("a.mem-wal").unlink()
    with Memory(path, encoder=None) as m:
        assert m.get_all() == []


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="the system has no extended attributes")
def test_file_in_the_place_of_another_is_not_read_with_the_log_of_that_one(left_behind: Path, tmp_path: Path):
    path, new = tmp_path / "a.mem", tmp_path / "new.mem"
    with Memory(new, encoder=None) as m:
        m.add("a hen")
    new.rename(path)
    with pytest.raises(NotAMemoryFile, match=rf"{path}-wal is the log of that one: put that one back"):
        Memory(path, encoder=None)
    left_behind.replace(path)
    with Memory(path, encoder=None) as m:
        assert finds(m, "a cat a cow") == ["a cat", "a cow"]


def test_memory_that_is_moved_with_its_log_opens_there(tmp_path: Path):
    """As after a kill."""
    (tmp_path / "there").mkdir()
    with Memory(tmp_path / "a.mem", encoder=None) as m:
        m.add("a cat")
        for file in tmp_path.glob("a.mem*"):
            file.rename(tmp_path / "there" / file.name)
        with pytest.raises(NotAMemoryFile, match=r"close this memory, and open .*there"):
            m.add("a dog")
    with Memory(tmp_path / "there" / "a.mem", encoder=None) as m:
        assert finds(m, "a cat") == ["a cat"]
    for file in (tmp_path / "there").glob("a.mem*"):
        shutil.copy(file, tmp_path)
    with Memory(tmp_path / "a.mem", encoder=None) as m:
        assert finds(m, "a cat") == ["a cat"]


def test_plain_searches_are_logged_in_batches_unless_switched_off(path: Path):
    with Memory(path, encoder=None) as m:
        m.add("a cat")
        decisions = [m.search("cat").decision for _ in range(5)]
        assert m.reward(decisions[2], 1.0).applied
    with Memory(path, encoder=None, log="off") as m:
        assert m.reward(decisions[4], 0.0).applied  # closing wrote what was waiting
        assert m.search("cat").decision == ""
        with m.episode() as episode:
            assert episode.search("cat").decision


@pytest.mark.parametrize(("durability", "synchronous"), [("process", 1), ("power", 2)])
def test_durability_option_sets_the_sync_mode(path: Path, durability: str, synchronous: int):
    """1 syncs when the write-ahead log is moved into the file, 2 at every commit."""
    with Memory(path, encoder=None, durability=durability) as m:
        settings = m.store.database.exclusive(lambda c: (c.pragma("synchronous"), c.pragma("journal_mode")))
        assert settings == (synchronous, "wal")


# Killed at any moment, with several writers at work: nothing acknowledged is lost and the file is sound.


WRITER = """
import sys
from keepworth.memory.memory import Memory
m = Memory(sys.argv[1], encoder=None)
for n in range(int(sys.argv[3])):
    m.add(f"writer {sys.argv[2]} line {n}", user_id=sys.argv[2])
"""
READER = """
import sys
from keepworth.memory.memory import Memory
m = Memory(sys.argv[1], encoder=None, read_only=True)
for n in range(int(sys.argv[3])):
    assert all("line" in hit.text for hit in m.search("writer line", top_k=3))
"""


@pytest.mark.parametrize("rounds", [6, pytest.param(30, marks=pytest.mark.slow)])
def test_killed_writer_loses_no_acknowledged_write(tmp_path: Path, rounds: int):
    result = crash_rounds(tmp_path / "a.mem", rounds, seconds=0.1)
    assert result["lost"] == 0
    assert result["acknowledged"] >= rounds


def test_four_writers_and_four_readers_agree(path: Path):
    Memory(path, encoder=None).close()
    commands = [
        [sys.executable, "-c", script, str(path), str(n), "40"] for n in range(4) for script in (WRITER, READER)
    ]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    for process in processes:
        _, problem = process.communicate(timeout=250)
        assert process.returncode == 0, problem
    with Memory(path, encoder=None) as m:
        assert len(m) == 160
        assert check(m.store) == []
