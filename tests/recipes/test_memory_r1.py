"""Memory-R1: its configuration, its two halves whole on a tiny model, and what the manager's half finds before it begins."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from keepworth.base.errors import KeepworthError, UnknownName
from keepworth.base.model_errors import UnknownModel
from keepworth.cli import train as commands
from keepworth.cli.main import main
from keepworth.methods.recipes import memory_r1
from keepworth.methods.recipes._memory_r1 import manager as memory_r1_manager
from keepworth.methods.recipes._memory_r1.manager import manager_tables, reading_of
from keepworth.methods.recipes._memory_r1.measures import always
from keepworth.training import run as training
from keepworth.training.learner import Learner
from keepworth.training.run_folder import RunFolder
from keepworth.training.trained import find_weights
from keepworth.training.watch.progress import Progress
from keepworth.training.watch.tables import tables_of
from keepworth.worlds.data_sets.longmemeval import longmemeval
from tests.recipes.tiny_runs import TINY, same, trained, weights_of
from tests.rollouts.scripted_model import FunctionReader


def test_single_question_is_refused_without_a_control() -> None:
    with pytest.raises(ValidationError, match=r"questions = 1 .* set at least 2"):
        memory_r1.Config(questions=1)
    assert memory_r1.Config(questions=2).questions == 2
    assert memory_r1.Config(role="manager", questions=1).questions == 1


def test_defaults_depend_on_the_role_and_are_shown_resolved() -> None:
    assert memory_r1.Config().steps == 45
    assert memory_r1.Config().train == "lora"
    assert memory_r1.Config(role="manager").entropy == 0.02
    assert memory_r1.Config(role="manager", entropy=0.0).entropy == 0.0


def small(checkpoint: Path, **settings: object) -> memory_r1.Config:
    """Both roles' settings at their smallest; those that the role has no use for are left out."""
    common = {**TINY, "model": str(checkpoint), "questions": 3}
    if settings.get("role") != "manager":
        common |= {"memories": 1, "words": 10, "max_tokens": 3}
    elif settings.get("maintained", True):
        common |= {"encoder": "hashing", "max_tokens": 3}
    if settings.get("role") == "manager":
        common["token_budget"] = 2048  # the tiny model's tokens are bytes
    if settings.get("method") == "supervised":
        del common["group_size"]
    return memory_r1.Config(**{**common, **settings})


@pytest.mark.parametrize("settings", [{}, {"method": "supervised"}])
def test_the_answerer_half_runs_whole(checkpoint: Path, tmp_path: Path, settings: dict[str, object]) -> None:
    run = trained(memory_r1, small(checkpoint, **settings), tmp_path / "run")
    (table,) = tables_of(run)
    arms = ["no_memory_untrained", "no_memory", "wrong_memory", "untrained", "trained", "oracle_untrained", "oracle"]
    assert [row.arm for row in table.rows] == arms
    assert [row["step"] for row in run.metrics()] == [1, 2]
    assert (find_weights(run, "answerer") / "adapter_config.json").exists()


def test_the_manager_half_runs_whole_and_reads_with_a_trained_answerer(checkpoint: Path, tmp_path: Path) -> None:
    other = shutil.copytree(checkpoint, tmp_path / "other")
    trained(memory_r1, small(other), tmp_path / "reader")
    config = small(checkpoint, role="manager", warm_start=8, warm_start_passes=1, reader="reader")
    run = trained(memory_r1, config, tmp_path / "manager")
    plain, near_misses, banks = tables_of(run)
    for operations in (plain, near_misses):
        assert [row.arm for row in operations.rows] == ["untrained", "warm_start", "reinforced"]
    arms = ["always_add", "untrained", "warm_start", "reinforced", "evidence_only"]
    assert [row.arm for row in banks.rows] == arms
    # The model that the reader's run trained, and the weights that it ended with: not those it began with.
    (reader,) = {row["reader"] for row in run.evals() if row["split"] == "banks, test"}
    assert re.fullmatch(re.escape(f"{other}@0+reader/") + "[0-9a-f]{12} .+", reader)


# Training that was stopped where it is awkward: at its first step, in the warm start.

STOPPED: dict[str, Any] = {
    "role": "manager", "maintained": False, "warm_start": 8, "warm_start_passes": 1, "warm_start_batch": 4, "steps": 1,
    "evaluate_every": 1, "learning_rate": 0.01, "entropy": 0.1, "questions": 2,
}  # fmt: skip


def fails(at: int, error: BaseException, work: Any) -> Any:
    """`work` as it is, but for its call number `at`, which raises."""
    calls = iter(range(1, 1_000_000))

    def either(*given: Any, **named: Any) -> Any:
        if next(calls) == at:
            raise error
        return work(*given, **named)

    return either


def test_a_manager_goes_on_from_a_first_step_that_diverged(checkpoint: Path, tmp_path: Path) -> None:
    config = small(checkpoint, **STOPPED)
    straight = trained(memory_r1, config, tmp_path / "straight")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Learner, "update", fails(1, FloatingPointError("not finite"), Learner.update))
        with pytest.raises(FloatingPointError):
            trained(memory_r1, config, tmp_path / "diverged")
    measured = (tmp_path / "diverged" / "evals.jsonl").read_text().splitlines()
    with pytest.MonkeyPatch.context() as patched:
        # Its weights are those after the warm start: neither may it be done again, nor may they be called untrained.
        patched.setattr(Learner, "imitate", fails(1, AssertionError("a second warm start"), Learner.imitate))
        resumed = trained(memory_r1, config, tmp_path / "diverged")
    lines = (tmp_path / "diverged" / "evals.jsonl").read_text().splitlines()
    assert lines[: len(measured)] == measured
    assert not [line for line in lines[len(measured) :] if json.loads(line)["arm"] == "untrained"]
    assert same(weights_of(resumed, "manager"), weights_of(straight, "manager"))


def test_a_warm_start_that_diverged_claims_no_weights(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Learner, "imitate", fails(2, FloatingPointError("not finite"), Learner.imitate))
    says = r"warm start diverged at its step 2 of 2.*warm_start_learning_rate"
    with pytest.raises(KeepworthError, match=says) as said:
        trained(memory_r1, small(checkpoint, **STOPPED), tmp_path / "run")
    # The command line answers FloatingPointError with the place of the saved weights.
    assert not isinstance(said.value, FloatingPointError)
    assert RunFolder.open(tmp_path / "run").latest_checkpoint() is None


def test_the_demo_says_how_long_it_usually_takes_and_is_the_answerers_training(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = {**TINY, "model": str(checkpoint), "questions": 3, "memories": 1, "words": 10, "max_tokens": 2}
    monkeypatch.setattr(commands, "DEMO_QUICK", {**commands.DEMO_QUICK, **tiny})
    assert main(["demo", "--quick", "--runs", str(tmp_path)]) == 0
    assert re.search(r"About \d min on [12] idle cores", capsys.readouterr().out)
    run = RunFolder.open(tmp_path / "demo-quick")
    assert {row["split"] for row in run.evals()} == {"test"}, "the curve is of test questions"
    assert find_weights(run, "answerer").is_dir()
    steps = [memory_r1.Config(**made).steps for made in (commands.DEMO, commands.DEMO_QUICK)]
    assert steps == [45, 2], "the README's table was measured after 45 steps"


def run_of(path: Path, config: dict[str, Any], weights: bytes = b"") -> RunFolder:
    """A run folder as an answerer's training leaves it, as far as a reader's place is concerned."""
    with RunFolder.create(path, config) as run:
        if weights:
            find_weights(run, "answerer").mkdir(parents=True)
            (find_weights(run, "answerer") / "weights.safetensors").write_bytes(weights)
    return run


def manager(**settings: object) -> memory_r1.Config:
    return memory_r1.Config(role="manager", encoder="hashing", **settings)  # type: ignore[arg-type]


def test_a_reader_is_read_with_the_model_and_the_weights_of_its_run(checkpoint: Path, tmp_path: Path) -> None:
    own = run_of(tmp_path / "own", {})
    run_of(tmp_path / "one", {"model": str(checkpoint), "style": "direct"}, b"learned")
    run_of(tmp_path / "two", {"model": str(checkpoint), "style": "direct"}, b"learned otherwise")
    run_of(tmp_path / "again", {"model": str(checkpoint), "style": "direct"}, b"learned")
    one, two, again = (reading_of(manager(reader=name), own) for name in ("one", "two", "again"))
    assert one.model == two.model == again.model == str(checkpoint)
    assert one.weights == tmp_path / "one" / "weights" / "answerer"
    assert one.identity.startswith("one/")
    assert one.identity.removeprefix("one/") == again.identity.removeprefix("again/")
    assert one.identity.removeprefix("one/") != two.identity.removeprefix("two/")
    untrained = reading_of(manager(model=str(checkpoint)), own)
    assert (untrained.model, untrained.weights, untrained.identity) == (str(checkpoint), None, "")


def test_a_reader_that_cannot_be_read_with_is_said_with_its_fix(checkpoint: Path, tmp_path: Path) -> None:
    own = run_of(tmp_path / "own", {})
    run_of(tmp_path / "unfinished", {"model": str(checkpoint)})
    run_of(tmp_path / "distilled", {"model": str(checkpoint), "style": "distil"}, b"learned")
    run_of(tmp_path / "moved", {"model": str(tmp_path / "gone")}, b"learned")
    with pytest.raises(UnknownName, match=r"no run 'unfinishd'.*Did you mean 'unfinished'"):
        reading_of(manager(reader="unfinishd"), own)
    with pytest.raises(KeepworthError, match="finished training an answerer"):
        reading_of(manager(reader="unfinished"), own)
    with pytest.raises(KeepworthError, match="--set style=distil"):
        reading_of(manager(reader="distilled"), own)
    with pytest.raises(UnknownModel, match="gone"):
        reading_of(manager(reader="moved"), own)
    assert reading_of(manager(reader="distilled", style="distil"), own).weights


def test_banks_are_measured_on_the_split_that_is_asked_for(checkpoint: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", {})
    config = manager(model=str(checkpoint), questions=3)
    measures = memory_r1_manager.Measures(config, run, None, Progress(), reading_of(config, run))  # type: ignore[arg-type]
    measures.reader = FunctionReader("first@1", lambda question, memories: memories[0])  # type: ignore[assignment]
    with run:
        measures.maintained(0, "always_add", lambda tasks: always("ADD"), "dev")
        measures.maintained(0, "always_add", lambda tasks: always("ADD"))
    for split in ("dev", "test"):
        keys = {task.key for task in longmemeval(split, extractive=True, abstention=False)}
        (row,) = [row for row in run.evals() if row["split"] == f"banks, {split}" and row["metric"] == "f1"]
        assert len(row["values"]) == row["n"] == 3
        assert set(row["values"]) <= keys
        assert row["reader"] == "first@1"
    assert [table["title"] for table in manager_tables(run, config)] == ["Answers from the bank it kept"]


@pytest.mark.parametrize("settings", [
    {"model": "smollm"},
    {"model": "all-minilm-l6-v2"},
    {"recall": "retrieved", "encoder": "minilmm"},
    {"role": "manager", "model": "smollm"},
    {"role": "manager", "encoder": "minilmm"},
    {"role": "manager", "reader": "nowhere"},
])  # fmt: skip
def test_missing_files_are_reported_before_loading_a_model(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object]
) -> None:
    monkeypatch.setattr(training, "prepare_learner", lambda *_: pytest.fail("a model was loaded first"))
    config = memory_r1.Config(**{"model": str(checkpoint), **settings})  # type: ignore[arg-type]
    run = run_of(tmp_path / "run", {})
    with pytest.raises((UnknownModel, UnknownName)):
        memory_r1.METHOD.make.train(config, run, Progress())
    assert not run.evals()


@pytest.mark.parametrize("practised", ["plain", "near-miss"])
def test_a_table_says_whether_its_cases_are_of_a_kind_trained_on(tmp_path: Path, practised: str) -> None:
    run = run_of(tmp_path / "run", {})
    levels = ("plain", "near-miss")
    for level in levels:
        row = {"metric": "operation_accuracy", "mean": 0.5, "low": 0.4, "high": 0.6, "n": 3}
        run.append_eval(0, arm="untrained", role="manager", split=f"{level} operations, test", **row)  # type: ignore[arg-type]
    notes = [table["note"] for table in manager_tables(run, manager(level=practised))]
    assert [level for level, note in zip(levels, notes, strict=True) if "not trained on" not in note] == [practised]
