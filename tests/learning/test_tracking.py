"""A tracker receives the numbers of each step, once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from keepworth.episodes.errors import KeepworthError
from keepworth.learning.run_folder import RunFolder
from keepworth.recipes.front_door import track_of


def test_a_function_receives_the_numbers_of_each_step(tmp_path: Path) -> None:
    rows: list[tuple[int, Mapping[str, float]]] = []
    with RunFolder.create(tmp_path / "run", {}) as run:
        run.track = lambda step, numbers: rows.append((step, dict(numbers)))
        run.append_metrics(1, {"reward": 0.5, "role": "policy", "loss": float("inf")})
        run.append_metrics(2, {"reward": 0.75})
    assert [(step, numbers["reward"]) for step, numbers in rows] == [(1, 0.5), (2, 0.75)]
    assert all("loss" not in numbers and "role" not in numbers for _, numbers in rows)


def test_a_function_is_named_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def log(step, numbers):\n    return step\n")
    function = track_of(f"{tmp_path}/mine.py:log")
    assert callable(function)
    assert function(3, {}) == 3
    assert track_of("") is None
    with pytest.raises(KeepworthError, match="tensorboard"):
        track_of("tensorboard")
