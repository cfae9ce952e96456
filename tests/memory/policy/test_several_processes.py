"""Several processes learn on one file: what they know is what a replay of the journal says, kills or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.memory.learning_kills import learned_and_killed


@pytest.mark.parametrize(
    "policy", ["default", *(pytest.param(policy, marks=pytest.mark.slow) for policy in ("memrl", "kernel-mean"))]
)
def test_four_processes_and_kills_leave_what_the_journal_says(tmp_path: Path, policy: str) -> None:
    found = learned_and_killed(tmp_path / "a.mem", policy=policy, rewards=25, kills=6)
    assert found["acknowledged"] == 100
    assert found["kills"] >= 3
