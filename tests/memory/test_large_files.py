"""Work on all of a large file takes hardly more memory than a search in it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from keepworth.cli.output import working
from keepworth.memory.memory import Memory
from keepworth.memory.store.checks import check

WORK = """
import resource, sys
from keepworth import Memory
from keepworth.memory.store.maintenance import check, compact
with Memory(sys.argv[1], encoder="hashing:64", writer=None, policy=None) as memory:
    if sys.argv[2] == "search":
        for query in ("topic 3", "note 17", "a topic of a note"):
            memory.search(query, top_k=5)
    elif sys.argv[2] == "erase":
        assert memory.erase(user_id="user 3").log_emptied
    elif sys.argv[2] == "check":
        assert check(memory.store) == []
    else:
        compact(memory.store)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory of some 80 MB."""
    path = tmp_path_factory.mktemp("large") / "a.mem"
    with Memory(path, encoder="hashing:64", writer=None, policy=None) as memory:
        for user in range(50):
            texts = [f"note {user * 100 + n} about topic {n % 7}" for n in range(100)]
            metadata = [{"page": f"{user} {n} " + "x" * 7000} for n in range(100)]
            memory.add_many(texts, user_id=f"user {user}", metadata=metadata)
    return path


def peak(file: Path, work: str) -> int:
    """The most memory in kB that a process of its own held during some work."""
    run = subprocess.run([sys.executable, "-c", WORK, str(file), work], capture_output=True, text=True, check=True)
    return int(run.stdout)


def test_erase_and_compact_use_at_most_half_more_memory_than_a_search(large: Path, tmp_path: Path) -> None:
    copy = tmp_path / "a.mem"
    shutil.copy(large, copy)
    search = peak(copy, "search")
    assert peak(copy, "erase") < 1.5 * search
    assert peak(copy, "compact") < 1.5 * search
    with Memory(copy, encoder="hashing:64", writer=None, policy=None) as memory:
        assert len(memory) == 4900
        assert check(memory.store) == []


def test_check_uses_at_most_half_more_memory_than_a_search(large: Path) -> None:
    assert peak(large, "check") < 1.5 * peak(large, "search")


def test_compact_works_without_a_temporary_folder(large: Path, tmp_path: Path) -> None:
    copy, nowhere = tmp_path / "a.mem", tmp_path / "nowhere"
    shutil.copy(large, copy)
    environment = {
        "PATH": "/usr/bin",
        "SQLITE_TMPDIR": str(nowhere),
        "TMPDIR": str(nowhere),
        "PYTHONPATH": ":".join(sys.path),
    }
    script = f"import os, pathlib; os.chdir({str(tmp_path)!r})\n{WORK}"
    run = subprocess.run(
        [sys.executable, "-c", script, str(copy), "compact"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def test_check_reports_its_progress(large: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []
    with Memory(large, encoder="hashing:64", writer=None, policy=None) as memory:
        assert check(memory.store, report=told.append) == []
    assert len(told) > 5
    assert any("journal" in part for part in told)
    with working("checking") as report:
        report("the items")
    assert capsys.readouterr().err == "", "no line for what is quick"
