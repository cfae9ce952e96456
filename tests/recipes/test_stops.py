"""A run that is stopped, by Ctrl-C, by SIGTERM or by an error, goes on where it was and ends as if nothing had happened."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import keepworth
from keepworth.base.errors import KeepworthError
from keepworth.training.collect.pipeline import Pipeline
from keepworth.training.front_door import TrainedRun
from keepworth.training.learner import Learner
from keepworth.training.run_folder import RunConflict, RunFolder
from keepworth.training.system import Playing
from keepworth.training.watch.progress import Progress
from tests.cli.conftest import CommandLine
from tests.cli.conftest import command as command
from tests.recipes import tiny_runs
from tests.recipes.tiny_runs import Notes, same, weights_of

SETTINGS = {
    **tiny_runs.TINY, "steps": 4, "evaluate_every": 2, "checkpoint_every": 100, "questions": 4, "max_tokens": 4,
    "learning_rate": 1e-2,
}  # fmt: skip
ROWS = [{"prompt": f"Say {letter}.", "answer": letter} for letter in "abcdefghijkl"]
Train = Callable[..., TrainedRun]


def paid(answer: str, row: dict[str, Any]) -> float:
    return sum(answer.encode()) % 7 / 7


@pytest.fixture
def train(chat_checkpoint: Path, tmp_path: Path) -> Train:
    usual = {"model": str(chat_checkpoint), "runs": tmp_path, "progress": Progress(), "reward": paid, **SETTINGS}
    return lambda name, **more: keepworth.train(ROWS, name=name, **{**usual, **more})


@pytest.fixture(scope="module")
def straight(chat_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """A run that nobody stopped."""
    runs = tmp_path_factory.mktemp("straight")
    return keepworth.train(
        ROWS, name="straight", model=str(chat_checkpoint), runs=runs, reward=paid, progress=Progress(), **SETTINGS
    )


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    for number, handler in before:
        signal.signal(number, handler)


def stop_at(patch: pytest.MonkeyPatch, owner: type, method: str, call: int, number: int, behind: bool = False) -> None:
    """Sends a signal in the call of that number of a method, before what it does or behind it."""
    calls, done = [0], getattr(owner, method)

    def stopping(self: Any, *given: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] == call and not behind:
            os.kill(os.getpid(), number)
        result = done(self, *given, **more)
        if calls[0] == call and behind:
            os.kill(os.getpid(), number)
        return result

    patch.setattr(owner, method, stopping)


def said_by(path: Path) -> tuple[Any, Any]:
    run = RunFolder.open(path)
    measured = [(row["step"], row["arm"], row["split"], row["metric"], row["mean"]) for row in run.evals()]
    return [{k: v for k, v in row.items() if k[:7] != "seconds" and k != "time"} for row in run.metrics()], measured


def ends_alike(one: TrainedRun, other: TrainedRun) -> bool:
    weights = [weights_of(RunFolder.open(run.path)) for run in (one, other)]
    return same(*weights) and said_by(one.path) == said_by(other.path)


@pytest.mark.parametrize(("owner", "method", "call", "behind", "done"), [
    (Pipeline, "collect", 1, False, 0),
    (Learner, "update", 1, True, 1),
    (Learner, "update", 3, False, 3),
    (RunFolder, "append_metrics", 3, True, 3),
    (Playing, "evaluate", 2, False, 2),  # after step 2
    (RunFolder, "append_eval", 7, True, 2),  # in the middle of that measurement
], ids=["answering", "update", "updated", "metrics", "measuring", "measured in part"])  # fmt: skip
def test_a_stop_keeps_every_whole_step_and_the_same_call_continues_exactly(
    train: Train, straight: TrainedRun, owner: type, method: str, call: int, behind: bool, done: int, tmp_path: Path
) -> None:
    noting, number = Notes(), (signal.SIGINT, signal.SIGTERM)[call % 2]
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, owner, method, call, number, behind)
        with pytest.raises(KeyboardInterrupt):
            train("stopped", progress=noting)
    last = RunFolder.open(tmp_path / "stopped").latest_checkpoint()
    assert last is not None
    assert last.step == done
    assert f"What is done until step {done} is in {tmp_path / 'stopped'}" in noting.notes[-1]
    assert ends_alike(straight, train("stopped"))


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no SIGHUP")
def test_a_terminal_that_is_closed_stops_a_run_as_ctrl_c_does(
    train: Train, straight: TrainedRun, tmp_path: Path
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with pytest.MonkeyPatch.context() as patch:
            stop_at(patch, Learner, "update", 3, signal.SIGHUP, behind=True)
            with pytest.raises(KeyboardInterrupt):
                train("stopped")
    finally:
        signal.signal(signal.SIGHUP, before)
    last = RunFolder.open(tmp_path / "stopped").latest_checkpoint()
    assert last is not None
    assert last.step == 3
    assert ends_alike(straight, train("stopped"))


def test_a_stop_while_answers_are_drawn_keeps_the_steps_before(
    train: Train, straight: TrainedRun, tmp_path: Path
) -> None:
    seen = [0]

    def stopping(answer: str, row: dict[str, Any]) -> float:
        seen[0] += 1
        if seen[0] == stop:
            os.kill(os.getpid(), signal.SIGTERM)
        return paid(answer, row)

    stopping.__name__ = "paid"
    before = 12 + 4 * 2 + 2 * 4  # tried on rows, measured on dev and test, two steps of four answers
    for stop in (before - 1, before + 2):
        seen[0] = 0
        name = f"stopped-{stop}"
        with pytest.raises(KeyboardInterrupt):
            train(name, reward=stopping)
        last = RunFolder.open(tmp_path / name).latest_checkpoint()
        assert last is not None
        assert last.step in (1, 2)
        stop = -1
        assert ends_alike(straight, train(name, reward=stopping))


def test_a_second_signal_does_not_wait_for_the_step(train: Train, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, Learner, "update", 2, signal.SIGINT)
        stop_at(patch, Learner, "update", 2, signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            train("run", checkpoint_every=1)
    assert [each.step for each in RunFolder.open(tmp_path / "run").checkpoints()] == [1]


def test_an_error_between_two_updates_loses_no_step(train: Train, straight: TrainedRun, tmp_path: Path) -> None:
    """The engine died, the judge is down, a hook is wrong: the steps before are kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keepworth.training.trainer.episode_metrics", failing_at(3))
        with pytest.raises(ConnectionError):
            train("failed")
    last = RunFolder.open(tmp_path / "failed").latest_checkpoint()
    assert last is not None
    assert last.step == 2
    assert ends_alike(straight, train("failed"))


def failing_at(call: int) -> Callable[..., Any]:
    from keepworth.training.watch.metrics import episode_metrics

    calls = [0]

    def failing(*given: Any) -> Any:
        calls[0] += 1
        if calls[0] == call:
            raise ConnectionError("gone")
        return episode_metrics(*given)

    return failing


def test_checkpoints_come_by_time_too_and_how_often_may_change(train: Train, tmp_path: Path) -> None:
    train("timed", checkpoint_minutes=1e-9)
    assert [each.step for each in RunFolder.open(tmp_path / "timed").checkpoints()] == [3, 4]
    train("never", checkpoint_minutes=0)
    assert [each.step for each in RunFolder.open(tmp_path / "never").checkpoints()] == [4]
    train("never", checkpoint_minutes=3, checkpoint_every=2)  # is no other run


def test_stopped_training_states_its_progress_and_resumes(
    command: CommandLine, chat_checkpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_text(
        "".join(f'{{"prompt": "Say {c}.", "answer": "{c}"}}\n' for c in "abcdefghijkl")
    )
    options = {key: value for key, value in {**SETTINGS, "patience": 0}.items() if key != "steps"}
    words = ["train", "--tasks", "rows.jsonl", "--model", str(chat_checkpoint), "--steps", "4"]
    words += [word for key, value in options.items() for word in ("--set", f"{key}={value}")]
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, Learner, "update", 3, signal.SIGTERM)
        code, out, _ = command(*words)
    assert code == 130
    assert "Stopped. What is done until step 3 is in runs/rows. To continue: keepworth train --tasks rows.jsonl" in out
    assert "Continuing runs/rows from step 3." in command.done(*words)


def test_a_finished_run_takes_more_steps_and_no_fewer(train: Train, straight: TrainedRun, tmp_path: Path) -> None:
    train("run", steps=2)
    longer = RunFolder.open(train("run").path)
    assert same(weights_of(longer), weights_of(RunFolder.open(straight.path)))
    assert said_by(longer.path)[0] == said_by(straight.path)[0]
    (table,) = (longer.result() or {})["tables"]
    assert [row["step"] for row in table["rows"] if row["arm"] == "trained"] == [4, 4, 4]  # once for each metric
    with pytest.raises(RunConflict, match="steps: 4 -> 3"):
        train("run", steps=3)
    train("falling", steps=2, schedule="linear")
    with pytest.raises(RunConflict, match="steps: 2 -> 4"):
        train("falling", schedule="linear")


def test_run_without_signal_stops_after_three_steps_with_a_fix(train: Train, tmp_path: Path) -> None:
    def never(answer: str, row: dict[str, Any]) -> float:
        return 0.0

    noting = Notes()
    with pytest.raises(KeepworthError, match=r"In none of 3 steps .* nothing was learned") as stopped:
        train("never", reward=never, progress=noting, refill=2)
    assert "worked examples" in stopped.value.fix
    assert "patience = 0" in stopped.value.fix
    said = [note for note in noting.notes if "no group had a signal" in note]
    assert [note[:7] for note in said] == ["Step 1:", "Step 2:", "Step 3:"]
    assert "6 groups were sampled, as refill replaces such groups" in said[0]
    rows = RunFolder.open(tmp_path / "never").metrics()
    assert [(row["signal_groups"], row["curriculum/sampled_groups"]) for row in rows] == [(0, 6)] * 3
    run = train("never", reward=never, refill=2, patience=0)  # it is the same run
    assert [row["step"] for row in RunFolder.open(run.path).metrics()] == [1, 2, 3, 4]
    assert "Nothing was learned" in run.result["tables"][0]["note"]
    assert "Nothing was learned" in run.report.read_text()


def test_run_with_perfect_or_earlier_signal_continues(train: Train) -> None:
    train("always", reward=lambda answer, row: 1.0)
    calls = [0]

    def once(answer: str, row: dict[str, Any]) -> float:
        calls[0] += 1
        return float(calls[0] == 22)  # one answer of an early step

    run = train("once", reward=once)
    assert [row["signal_groups"] for row in RunFolder.open(run.path).metrics()] in ([1, 0, 0, 0], [0, 1, 0, 0])
    assert "Nothing was learned" not in run.result["tables"][0]["note"]


@pytest.mark.parametrize("objective", ["reinforce_pp", "ppo", "kdrl"])
def test_patience_is_refused_where_equal_rewards_teach_something(train: Train, objective: str) -> None:
    with pytest.raises((KeepworthError, ValueError), match="patience = 5 has no effect with objective"):
        train("run", objective=objective, patience=5)
