"""Killed at any moment, with several writers at work: nothing acknowledged is lost and the file is sound."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.memory.crash import crash_rounds
from keepworth.memory.memory import Memory
from keepworth.memory.store.maintenance import check

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
    hits = m.search("writer line", top_k=3)
    assert all("line" in hit.text for hit in hits)
"""


@pytest.mark.parametrize("rounds", [6, pytest.param(30, marks=pytest.mark.slow)])
def test_kill_9(tmp_path: Path, rounds: int):
    result = crash_rounds(tmp_path / "a.mem", rounds, seconds=0.1)
    assert result["lost"] == 0
    assert result["acknowledged"] >= rounds


def test_four_writers_and_four_readers(tmp_path: Path):
    path = tmp_path / "a.mem"
    Memory(path, encoder=None).close()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(path), str(number), "40"], stderr=subprocess.PIPE, text=True
        )
        for number in range(4)
        for script in (WRITER, READER)
    ]
    for process in processes:
        _, problem = process.communicate(timeout=250)
        assert process.returncode == 0, problem
    with Memory(path, encoder=None) as m:
        assert len(m) == 160
        assert check(m.store) == []
