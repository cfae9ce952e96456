"""Tasksets of verifiers, trained on as they are, beside the real package: `make test-hubs`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from keepworth import train
from keepworth.base.errors import KeepworthError
from keepworth.cli.main import app
from keepworth.records.episode import Episode
from keepworth.training.run_folder import RunFolder
from tests.learning.intercepted import write_chat_model

pytest.importorskip("verifiers.v1")

TASKSET = """
import verifiers.v1 as vf

class CountData(vf.TaskData):
    most: int = 0

class CountTask(vf.Task[CountData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def small(self, trace: vf.Trace) -> float:
        return sum(letter < "a" for letter in trace.last_reply) / 5

    @vf.reward(weight=0.5)
    async def says_something(self, trace: vf.Trace) -> float:
        return float(bool(trace.last_reply))

class CountConfig(vf.TasksetConfig):
    word: str = "say"

class CountTaskset(vf.Taskset[CountTask, CountConfig]):
    def load(self):
        for number in range(12):
            yield CountTask(CountData(name=f"count{number}", prompt=f"{self.config.word} {number}"), self.config.task)

__all__ = ["CountTaskset"]
"""


@pytest.fixture
def taskset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "counts.py").write_text(TASKSET)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "verifiers:counts"


def test_a_taskset_is_trained_on_as_it_is(tmp_path: Path, taskset: str) -> None:
    how: dict[str, Any] = {"max_tokens": 5, "steps": 1, "tasks_per_step": 2, "group_size": 3, "questions": 2}
    how |= {"learning_rate": 1e-2, "precision": "fp32", "threads": 1, "patience": 0, "agent_seconds": 120}
    run = train(f"{taskset},word=tell", model=str(write_chat_model(tmp_path / "model")), runs=tmp_path / "runs", **how)
    stored: list[Episode] = [each.episode for each in RunFolder.open(run.path).episodes(arm="train")]
    assert len(stored) == 6
    for episode in stored:
        (call,) = episode.segments
        assert episode.question.startswith("tell ")
        words = call.text.removesuffix("<|end|>").strip()
        assert episode.reward == pytest.approx(sum(letter < "a" for letter in words) / 5 + 0.5 * bool(words))


def test_an_unusable_taskset_is_refused_with_its_reason(tmp_path: Path, taskset: str) -> None:
    with pytest.raises(KeepworthError, match="'nowhere' of verifiers cannot be loaded: ModuleNotFoundError"):
        train("verifiers:nowhere", model="none", runs=tmp_path)
    with pytest.raises(KeepworthError, match="brings its own rewards"):
        train(taskset, reward="exact_match", model="none", runs=tmp_path)
    with pytest.raises(KeepworthError, match=r"cannot be loaded: .*colour"):
        train(f"{taskset},colour=red", model="none", runs=tmp_path)


HELPED = """
import verifiers.v1 as vf

class HelpedTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def remembers(self, trace: vf.Trace) -> float:
        return 2.0 * ("which earned 0, to: say" in self.data.prompt)

class HelpedTaskset(vf.Taskset[HelpedTask, vf.TasksetConfig]):
    def load(self):
        for number in range(40):
            yield HelpedTask(vf.TaskData(name=f"task{number}", prompt=f"say {number}"), self.config.task)

__all__ = ["HelpedTaskset"]
"""


def test_a_taskset_is_measured_with_a_memory_of_attempts_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "helped.py").write_text(HELPED)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    model = str(write_chat_model(tmp_path / "model"))
    words = ["eval", "run", "verifiers:helped", "none", "keepworth", "--reader", model, "--limit", "2", "--json"]
    words += ["--set", "attempts=2", "--set", "max_tokens=4", "--encoder", "hashing", "--setting", "frozen,live"]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.output
    arms = json.loads(answer.stdout)["arms"]
    assert {name: arm["scores"]["score"]["mean"] for name, arm in arms.items()} == {
        "none": 0.0,
        "keepworth": 2.0,
        "keepworth+live": 2.0,
    }
    assert arms["keepworth"]["scores"]["remembers"]["mean"] == 2.0
    # What was played is stored, so that the same command needs no model.
    again = CliRunner().invoke(app, words)
    assert json.loads(again.stdout)["arms"] == arms


def test_a_taskset_that_cannot_be_played_says_why(tmp_path: Path, taskset: str) -> None:
    words = ["eval", "run", taskset, "none", "--reader", "http://127.0.0.1:9", "--model", "m", "--set", "attempts=1"]
    answer = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])
    assert isinstance(answer.exception, KeepworthError)
    assert "none of 1 tasks" in str(answer.exception)
    assert "ProviderError" in str(answer.exception)


def test_our_questions_are_loaded_and_judged_by_verifiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from verifiers.v1.utils.loaders import load_environment, resolve_env_config

    (tmp_path / "questions.jsonl").write_text(
        "".join(f'{{"prompt": "What is {n} + 4?", "answer": "{n + 4}"}}\n' for n in range(9))
    )
    (tmp_path / "our_questions.py").write_text(
        "from keepworth.training.offered_tasksets import taskset_of\n"
        f"Ours = taskset_of({str(tmp_path / 'questions.jsonl')!r}, verifier='exact_match')\n__all__ = ['Ours']\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    runtime = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
    environment = load_environment(resolve_env_config({"taskset": {"id": "our_questions"}, "agent": runtime}))
    tasks = list(environment.taskset)
    assert sorted(task.data.prompt for task in tasks) == [f"What is {n} + 4?" for n in range(9)]
    # What we export comes in again as a taskset, and is judged there.
    how: dict[str, Any] = {
        "max_tokens": 5,
        "steps": 1,
        "tasks_per_step": 2,
        "group_size": 2,
        "questions": 2,
        "patience": 0,
    }
    how |= {"precision": "fp32", "threads": 1, "agent_seconds": 120}
    run = train(
        "verifiers:our_questions", model=str(write_chat_model(tmp_path / "model")), runs=tmp_path / "runs", **how
    )
    stored = [each.episode for each in RunFolder.open(run.path).episodes(arm="train")]
    for episode in stored:
        number = int(episode.question.split()[2])
        words = episode.segments[0].text.removesuffix("<|end|>").strip()
        assert episode.reward == float(words == str(number + 4))
    assert len(stored) == 4
