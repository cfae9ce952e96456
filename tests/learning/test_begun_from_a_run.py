"""A run begins from what another has learned: exported weights, with the adapter merged into them, are a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keepworth import train
from keepworth.training.front_door import TrainedRun
from keepworth.training.run_folder import RunFolder
from tests.end_to_end.tiny_folder import write_tiny_checkpoint

ROWS = [{"prompt": f"say {n}"} for n in range(12)]


def score(answer: str, row: dict[str, Any]) -> float:
    return sum(letter < "a" for letter in answer) / 6


def measured(run: TrainedRun, arm: str) -> list[float]:
    evals = RunFolder.open(run.path).evals()
    return [float(row["mean"]) for row in evals if row["arm"] == arm and row["split"] == "rows, test"]


def test_the_second_run_begins_where_the_first_ended(tmp_path: Path) -> None:
    how: dict[str, Any] = {"max_tokens": 6, "tasks_per_step": 4, "group_size": 4, "learning_rate": 1e-2, "steps": 3}
    how |= {"precision": "fp32", "threads": 1, "patience": 0, "runs": tmp_path / "runs", "reward": score}
    first = train(ROWS, model=str(write_tiny_checkpoint(tmp_path / "base")), name="first", **how)
    first.export(tmp_path / "learned")
    second = train(ROWS, model=str(tmp_path / "learned"), name="second", **how)
    assert measured(first, "trained") != measured(first, "untrained")
    assert measured(second, "untrained") == pytest.approx(measured(first, "trained"))
