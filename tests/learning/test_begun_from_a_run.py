"""A run begins from what another has learned: with its adapter, or with the adapter merged into the weights, as a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keepworth import train
from keepworth.base.errors import KeepworthError
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


SIZES: dict[str, Any] = {"max_tokens": 6, "tasks_per_step": 4, "group_size": 4, "learning_rate": 1e-2, "steps": 2}
SIZES |= {"precision": "fp32", "threads": 1, "patience": 0, "reward": score}


@pytest.mark.parametrize("part", ["lora", "full"])
def test_a_run_begins_with_the_weights_of_another_and_its_own_hold_both(tmp_path: Path, part: str) -> None:
    how = {**SIZES, "model": str(write_tiny_checkpoint(tmp_path / "base")), "runs": tmp_path / "runs", "train": part}
    first = train(ROWS, name="first", **how)
    second = train(ROWS, name="second", start=str(first.path), **how)
    assert measured(second, "untrained") == pytest.approx(measured(first, "trained"))
    assert measured(second, "trained") != measured(second, "untrained")
    second.export(tmp_path / "learned")
    third = train(ROWS, name="third", **{**how, "model": str(tmp_path / "learned")})
    assert measured(third, "untrained") == pytest.approx(measured(second, "trained"))


def test_a_finished_run_that_began_from_another_takes_more_steps(tmp_path: Path) -> None:
    how = {**SIZES, "model": str(write_tiny_checkpoint(tmp_path / "base")), "runs": tmp_path / "runs"}
    first = train(ROWS, name="first", **how)
    train(ROWS, name="second", start=str(first.path), **how)
    longer = train(ROWS, name="second", start=str(first.path), **{**how, "steps": 3})
    whole = train(ROWS, name="whole", start=str(first.path), **{**how, "steps": 3})
    assert [row["step"] for row in RunFolder.open(longer.path).metrics()] == [1, 2, 3]
    assert measured(longer, "trained")[-1] == pytest.approx(measured(whole, "trained")[-1])


def test_a_start_of_another_shape_is_refused_with_the_fix(tmp_path: Path) -> None:
    how = {**SIZES, "model": str(write_tiny_checkpoint(tmp_path / "base")), "runs": tmp_path / "runs", "steps": 1}
    first = str(train(ROWS, name="first", **how).path)
    for more, says in (
        ({"rank": 4}, r"rank = 16, and this one 4.*Set rank = 16"),
        ({"train": "full"}, "with train = lora, and this run"),
        ({"start": str(tmp_path)}, "no run"),
    ):
        with pytest.raises(KeepworthError, match=f"(?s){says}"):
            train(ROWS, name="other", **{**how, "start": first, **more})
