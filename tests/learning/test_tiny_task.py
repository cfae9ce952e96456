"""Every setting of the benchmark of objectives runs, permuted rewards permute nothing else, and docs/asynchrony.md trains."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.objectives.run import SETTINGS, train
from benchmarks.objectives.world import GRADED, Permuted, tiny
from keepworth.training.run_folder import RunFolder
from tests.end_to_end.tiny_folder import write_tiny_checkpoint


@pytest.mark.parametrize(
    ("name", "arm"),
    [
        (n, a)
        for n in ("stale", "sparse", "turns", "small")
        for a in SETTINGS[n].arms
        if n != "small" or a.name != "grpo"
    ],
    ids=lambda each: getattr(each, "name", each),
)
def test_every_arm_of_the_benchmark_takes_its_steps(name: str, arm) -> None:
    result = train(replace(SETTINGS[name], steps=2), arm, seed=0)
    assert result["episodes"] > 0
    assert all(math.isfinite(value) for value in result["measured"])


def test_permuted_rewards_keep_episodes_unchanged() -> None:
    model = tiny(0)
    plain, dealt = (
        [e for group in world.rollout(model, 3, 8) for e in group.episodes] for world in (GRADED, Permuted(GRADED))
    )
    rewards = [[e.reward for e in episodes] for episodes in (plain, dealt)]
    assert sorted(rewards[0]) == sorted(rewards[1])
    assert rewards[0] != rewards[1]
    assert [e.segments for e in plain] == [e.segments for e in dealt]


PAGE = Path(__file__).parents[2] / "docs" / "asynchrony.md"


def test_the_example_of_the_page_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)[0]
    model = write_tiny_checkpoint(tmp_path / "model")
    assert '"smollm2-135m-instruct"' in code
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    exec(compile(code.replace('"smollm2-135m-instruct"', repr(str(model))), str(PAGE), "exec"), namespace)
    rows = RunFolder.open(tmp_path / "runs" / "vowels").metrics()
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(row["episodes"] == 16 for row in rows)
