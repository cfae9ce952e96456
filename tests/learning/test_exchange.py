"""Episodes of a run in the formats of others: Harbor's trajectories, and data sets of TRL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from keepworth import train
from keepworth.base.errors import KeepworthError
from keepworth.cli.export import export
from keepworth.training.front_door import TrainedRun
from keepworth.training.run_folder import RunFolder
from tests.end_to_end.tiny_folder import write_tiny_checkpoint


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    folder = tmp_path_factory.mktemp("exchange")
    how: dict[str, Any] = {
        "max_tokens": 6,
        "tasks_per_step": 2,
        "group_size": 4,
        "steps": 1,
        "patience": 0,
        "threads": 1,
    }
    rows = [{"prompt": f"say {number}"} for number in range(12)]
    score = lambda answer, row: sum(letter < "a" for letter in answer) / 6  # noqa: E731
    return train(rows, model=str(write_tiny_checkpoint(folder / "model")), reward=score, runs=folder / "runs", **how)


def test_trajectories_hold_the_ids_that_were_drawn(run: TrainedRun, tmp_path: Path) -> None:
    export(str(run.path), tmp_path / "atif", episodes="atif")
    files = sorted((tmp_path / "atif").glob("*.json"))
    episodes = [stored.episode for stored in RunFolder.open(run.path).episodes(arm="train")]
    assert len(files) == len(episodes) == 8
    for file, episode in zip(files, episodes, strict=True):
        trajectory = json.loads(file.read_text())
        asked, answered = trajectory["steps"]
        assert (asked["source"], asked["message"]) == ("user", episode.question)
        assert tuple(answered["metrics"]["completion_token_ids"]) == episode.segments[0].ids
        assert tuple(answered["metrics"]["prompt_token_ids"]) == episode.segments[0].context
        assert tuple(answered["metrics"]["logprobs"]) == episode.segments[0].logprobs
        assert trajectory["extra"]["reward"] == episode.reward
        valid_in_harbor(file)


def valid_in_harbor(file: Path) -> None:
    """By Harbor's own validator, where it is installed (`make test-hubs`)."""
    try:
        from harbor.utils.trajectory_validator import TrajectoryValidator  # type: ignore[import-not-found]
    except ImportError:
        return
    validator = TrajectoryValidator()
    assert validator.validate(file), validator.errors


def test_data_sets_of_trl_hold_prompts_answers_and_preferences(run: TrainedRun, tmp_path: Path) -> None:
    export(str(run.path), tmp_path / "trl", episodes="trl")
    completions = rows_of(tmp_path / "trl" / "completions.jsonl")
    rewards = [stored.episode.reward for stored in RunFolder.open(run.path).episodes(arm="train")]
    assert [row["reward"] for row in completions] == rewards
    assert completions[0]["prompt"][0]["role"] == "user"
    for row in rows_of(tmp_path / "trl" / "preferences.jsonl"):
        chosen, rejected = (
            next(
                other["reward"]
                for other in completions
                if (other["prompt"], other["completion"]) == (row["prompt"], row[name])
            )
            for name in ("chosen", "rejected")
        )
        assert chosen > rejected


def rows_of(file: Path) -> list[dict[str, Any]]:
    """By `datasets`, where it is installed (`make test-hubs`)."""
    try:
        import datasets  # type: ignore[import-not-found]
    except ImportError:
        return [json.loads(line) for line in file.read_text().splitlines()]
    return list(datasets.load_dataset("json", data_files=str(file), split="train"))


def test_a_folder_that_holds_files_is_refused(run: TrainedRun, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(KeepworthError, match="holds something already"):
        export(str(run.path), tmp_path, episodes="trl")
