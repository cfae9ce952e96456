"""Backups and new memories appear whole or not at all, and what is no memory does not open as an empty one."""

from __future__ import annotations

import os
import random
import shutil
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from keepworth.cli.main import main
from keepworth.memory import errors
from keepworth.memory.memory import Memory
from keepworth.memory.store.maintenance import backup, check
from tests.memory.helpers import WordEncoder, behind_its_back, texts

BACKING_UP = """
import sys, os
from keepworth.memory.memory import Memory
from keepworth.memory.store import maintenance

class Stopping:
    def __init__(self, job): self.job, self.steps = job, 0
    def __enter__(self): return self
    def __exit__(self, *_): pass
    done = property(lambda self: self.job.done)
    def step(self, pages):
        if self.steps == int(sys.argv[3]):
            os.kill(os.getpid(), 9)
        self.steps += 1
        self.job.step(10)

import apsw
class Connection(apsw.Connection):
    def backup(self, *arguments): return Stopping(super().backup(*arguments))
apsw.Connection = Connection
maintenance.backup(Memory(sys.argv[1], encoder=None).store, sys.argv[2])
"""


def filled(path: Path, count: int = 400) -> int:
    with Memory(path, encoder=None) as m:
        m.add_many([f"fact {n} " + "x" * 300 for n in range(count)])
        return count


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_killed_backup_leaves_no_file(steps: int, tmp_path: Path):
    path, copy = tmp_path / "a.mem", tmp_path / "copies" / "b.mem"
    copy.parent.mkdir()
    count = filled(path)
    done = subprocess.run([sys.executable, "-c", BACKING_UP, str(path), str(copy), str(steps)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not copy.exists()
    with Memory(path, encoder=None) as m:
        backup(m.store, copy)  # and another can be made
    with Memory(copy, encoder=None) as twin:
        assert (len(twin), check(twin.store)) == (count, [])


def test_a_backup_put_beside_the_log_of_a_memory_that_crashed_is_not_mixed_with_it(tmp_path: Path):
    path, copy, crashed = tmp_path / "a.mem", tmp_path / "b.mem", tmp_path / "crashed" / "a.mem"
    crashed.parent.mkdir()
    with Memory(path, encoder=None) as m:
        m.add("kept")
        backup(m.store, copy)
        m.add_many([f"later {n}" for n in range(20)])
        shutil.copy(f"{path}-wal", f"{crashed}-wal")
    shutil.copy(copy, crashed)
    beside = r"is a backup, and .*-wal beside it is the log .*: delete that log"
    with pytest.raises(errors.NotAMemoryFile, match=beside):
        Memory(crashed, encoder=None)
    Path(f"{crashed}-wal").unlink()
    with Memory(crashed, encoder=None) as m:
        assert texts(m) == ["kept"]


@pytest.mark.parametrize("size", [0, 4096])
def test_empty_file_is_refused(size: int, path: Path):
    path.write_bytes(bytes(size))
    with pytest.raises(errors.NotAMemoryFile, match=r"a\.mem is empty.*restore a backup"):
        Memory(path, encoder=None)
    assert path.read_bytes() == bytes(size)


def test_created_files_are_readable_by_the_owner_only(tmp_path: Path):
    before = os.umask(0o022)
    try:
        with Memory(tmp_path / "a.mem", encoder=WordEncoder()) as m:
            m.add("a cat")
            backup(m.store, tmp_path / "b.mem")
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        assert {"a.mem", "a.mem-wal", "b.mem"} <= set(modes)
        assert set(modes.values()) == {0o600}
    finally:
        os.umask(before)


def test_concurrent_creation_makes_one_memory(path: Path):
    def work(number: int) -> None:
        with Memory(path, encoder=None) as m:
            m.add(f"line {number}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    with Memory(path, encoder=None) as m:
        assert (len(m), check(m.store)) == (8, [])
    assert [file.name for file in path.parent.iterdir()] == ["a.mem"]


def test_dangling_link_creates_the_memory_at_its_target(tmp_path: Path):
    (tmp_path / "link.mem").symlink_to(tmp_path / "real.mem")
    with Memory(tmp_path / "link.mem", encoder=None) as m:
        m.add("a cat")
    assert (tmp_path / "link.mem").is_symlink()
    with Memory(tmp_path / "real.mem", encoder=None) as m:
        assert len(m) == 1


PAGE = 8192


def damage(path: Path, page: int) -> None:
    content = bytearray(path.read_bytes())
    content[(page - 1) * PAGE : page * PAGE] = random.Random(page).randbytes(PAGE)
    path.write_bytes(content)


def pages_of_items(path: Path) -> list[int]:
    listed = "SELECT pageno FROM dbstat WHERE name = 'items' AND pagetype = 'leaf'"
    return [number for (number,) in behind_its_back(path, listed)]


@pytest.mark.parametrize("beginning", [True, False])
def test_damaged_file_is_refused_and_a_backup_restores_it(beginning: bool, tmp_path: Path, capsys):
    path, copy = tmp_path / "a.mem", tmp_path / "b.mem"
    count = filled(path)
    assert main(["memory", "backup", str(copy), "--file", str(path)]) == 0
    damage(path, 1 if beginning else pages_of_items(path)[0])
    before = path.read_bytes()
    for words in (["list"], ["export", str(tmp_path / "all.jsonl")], ["check"]):
        capsys.readouterr()
        assert main(["memory", *words, "--file", str(path)]) != 0
        printed = " ".join("".join(capsys.readouterr()).split())
        assert "damaged" in printed or "malformed" in printed, words
        assert "restore a backup" in printed, words
    assert path.read_bytes() == before
    assert not (tmp_path / "all.jsonl").exists()
    shutil.copy(copy, path)
    with Memory(path, encoder=None) as m:
        assert (len(m), check(m.store)) == (count, [])


def test_truncated_file_counts_as_damaged(path: Path):
    with Memory(path, encoder="hashing:32") as m:
        m.add_many([f"fact {number}" for number in range(2000)])
        with m.episode() as episode:
            episode.search("fact")
    with path.open("r+b") as file:  # as by a copy that was broken off
        file.truncate(path.stat().st_size - 100)
    with Memory(path, encoder="hashing:32") as m, pytest.raises(errors.NotAMemoryFile, match="restore a backup"):
        m.search("fact")


def test_memory_refuses_writes_after_finding_damage(path: Path):
    filled(path)
    damage(path, pages_of_items(path)[0])
    m = Memory(path, encoder=None)
    m.episode("before damage was met")
    before = path.read_bytes()
    with pytest.raises(errors.NotAMemoryFile):
        m.get_all()
    with pytest.raises(errors.NotAMemoryFile, match="nothing is written to it any more: restore a backup"):
        m.add("more")
    m.close()
    assert path.read_bytes() == before, "not even what was in the log"
    assert Path(f"{path}-wal").stat().st_size
