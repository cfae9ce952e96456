"""Faults of what users give a training: rewards, rows, environments and prompts, through the front door."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import keepworth
from keepworth.base.errors import KeepworthError
from keepworth.models.inprocess import InProcessModel
from keepworth.records import RewardTerm, StopReason, Task
from keepworth.records.episode import Observation
from keepworth.training.front_door import TrainedRun
from keepworth.training.rewards import UnusableReward
from keepworth.training.run_folder import RunFolder
from keepworth.training.watch.progress import PlainProgress, Progress
from keepworth.worlds.data_files import WrongFormat
from keepworth.worlds.environment import Step
from keepworth.worlds.splits import SPLITS
from tests.cli.conftest import CommandLine
from tests.cli.conftest import command as command
from tests.recipes import tiny_runs
from tests.recipes.tiny_runs import Notes

SETTINGS = {**tiny_runs.TINY, "steps": 1, "evaluate_every": 1, "questions": 4, "max_tokens": 4}
ROWS = [{"prompt": f"Say {c}.", "answer": c, "split": SPLITS[n % 3]} for n, c in enumerate("abcdefghijkl")]
Train = Callable[..., TrainedRun]


@pytest.fixture
def train(chat_checkpoint: Path, tmp_path: Path) -> Train:
    usual = {"model": str(chat_checkpoint), "runs": tmp_path, "progress": Progress(), "name": "run", **SETTINGS}
    return lambda rows=ROWS, **more: keepworth.train(rows, **{**usual, **more})


def test_unbounded_reward_is_refused_and_files_stay_valid_json(train: Train, tmp_path: Path) -> None:
    with pytest.raises(UnusableReward, match=r"'huge' returned 1e\+308 .*not beyond 1e\+12"):
        train(reward=huge)
    assert not (tmp_path / "run").exists()

    def later(answer: str, row: dict[str, Any]) -> float:
        return 0.5 if answer == row["answer"] else -1e308 if row["answer"] in "ad" else 1.0

    noting = Notes()
    run = train(reward=later, progress=noting, patience=0)
    assert "-1e+308" in " ".join(noting.notes)
    for name in ("metrics.jsonl", "evals.jsonl", "result.json"):
        text = (run.path / name).read_text()
        assert not [word for word in ("Infinity", "NaN") if word in text]

    class Paying(World):
        async def step(self, action: str) -> Step:
            return Step(rewards=(RewardTerm("paid", 1e308),), stop=StopReason.COMPLETED)

    with pytest.raises(KeepworthError, match=r"Paying.step gave the reward 'paid', which is 1e\+308"):
        train(environment=lambda task: Paying(), name="world")


def huge(answer: str, row: dict[str, Any]) -> float:
    return 1e308


def test_a_reward_without_a_judgement_leaves_its_answer_out(train: Train) -> None:
    def some(answer: str, row: dict[str, Any]) -> float | None:
        return None if row["answer"] in "bc" else 1.0  # of dev and of test one

    run = RunFolder.open(train(reward=some).path)
    rows = {(row["split"], row["n"], row["left_out"]) for row in run.evals() if row["metric"] == "some"}
    assert {(n, left) for _, n, left in rows} == {(3, 1)}


def test_a_reward_that_hangs_is_named_after_two_seconds_and_ended(
    train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    def hanging(answer: str, row: dict[str, Any]) -> float:
        time.sleep(5)
        return 1.0

    with pytest.raises(
        UnusableReward, match=r"'hanging' did not answer in 2.5 s \(row 1 of rows\).*environment_seconds"
    ):
        train(reward=hanging, environment_seconds=2.5)
    assert "Waiting for the reward 'hanging', which is tried on row 1 of rows first" in capsys.readouterr().err


@pytest.mark.parametrize("row", [
    {"prompt": "Say \ud83d.", "answer": "a"},
    {"prompt": [{"role": "user", "content": "Say \ude00."}], "answer": "a"},
    {"prompt": "Say a.", "answers": ["a", "\udfff"]},
    {"prompt": "Say a.", "answer": "a", "solution": {"deep": ["\ud83d"]}},
])  # fmt: skip
def test_half_a_character_is_refused_with_its_row(train: Train, tmp_path: Path, row: dict[str, Any]) -> None:
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps(each) + "\n" for each in [*ROWS, {**row, "split": "train"}])
    )
    for rows in (tmp_path / "rows.jsonl", [*ROWS, {**row, "split": "train"}]):
        with pytest.raises(WrongFormat, match=r"(line|row) 13.*: (prompt|answers|solution) holds half of a character"):
            train(rows)


class World:
    """An answer earns its length."""

    async def reset(self, task: Task, seed: int) -> Any:
        return Observation(task.input)

    async def step(self, action: str) -> Step:
        return Step(rewards=(RewardTerm("length", float(len(action) % 3)),), stop=StopReason.COMPLETED)

    async def close(self) -> None: ...


def test_an_environment_that_fails_to_start_while_measuring_is_left_out(train: Train) -> None:
    made = [0]

    def failing(task: Task) -> World:
        made[0] += 1
        if made[0] == 3:  # the first is made to see what it is
            raise OSError("no display")
        return World()

    noting = Notes()
    run = RunFolder.open(train(environment=failing, progress=noting).path)
    assert {row["left_out"] for row in run.evals() if row["split"] == "dev" and row["step"] == 0} == {1}
    assert any("could not be made: OSError: no display" in note for note in noting.notes)
    assert [row["step"] for row in run.metrics()] == [1]


@pytest.mark.parametrize(("method", "says"), [
    ("reset", r"World.reset gave 'text' to see: it must be an Observation"),
    ("step", r"World.step returned str, not a Step"),
])  # fmt: skip
def test_an_environment_that_gives_a_text_is_named(
    train: Train, monkeypatch: pytest.MonkeyPatch, method: str, says: str
) -> None:
    async def text(self: World, *given: Any) -> str:
        return "text"

    monkeypatch.setattr(World, method, text)
    with pytest.raises(KeepworthError, match=f"None of the 4 answers to dev questions could be scored: {says}"):
        train(environment=lambda task: World())


def test_a_plain_prompt_is_continued_where_it_ends(train: Train, chat_checkpoint: Path, command: CommandLine) -> None:
    rows = [{**row, "prompt": f"Q: b\nA: b\n\nQ: {row['answer']}\nA:\n\n"} for row in ROWS]
    seen = []

    def score(answer: str, row: dict[str, Any]) -> float:
        seen.append(answer)
        return 1.0

    run = RunFolder.open(train(rows, reward=score, format="plain", max_tokens=24).path)
    model = InProcessModel.load(chat_checkpoint)
    (episode, *_) = [stored.episode for stored in run.episodes(arm="train")]
    assert model.decode(episode.segments[0].context) == episode.question
    assert any("\n" in each for each in seen) or all(len(each) for each in seen)
    shown = command.done("show", str(run.path), "--episodes", "--limit", "1")
    assert "Q: b" in shown
    assert "A:⏎⏎" in shown


def test_a_misspelt_name_with_two_letters_swapped_gets_the_right_one(train: Train) -> None:
    with pytest.raises((KeepworthError, ValueError), match="Did you mean 'grpo'"):
        train(objective="gpro")


def test_measuring_says_how_far_it_is(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(PlainProgress, "OFTEN", 0.0)
    monkeypatch.setattr(PlainProgress, "note", lambda self, text: lines.append(text))
    train(progress=PlainProgress())
    assert any(line.startswith(".. measuring before training: ") and line.endswith("of 4 answers") for line in lines)
    assert any(line.startswith(".. measuring the test questions (trained): ") for line in lines)
