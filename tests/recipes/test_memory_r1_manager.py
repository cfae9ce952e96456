"""What the manager's half finds before it begins, what it reads with, and what it says of what it trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keepworth.episodes.errors import KeepworthError, UnknownName
from keepworth.learning.run_folder import RunFolder
from keepworth.learning.watch.progress import Progress
from keepworth.methods.benchmarks._longmemeval import longmemeval
from keepworth.methods.recipes import memory_r1
from keepworth.methods.recipes._memory_r1 import manager as memory_r1_manager
from keepworth.methods.recipes._memory_r1.manager import manager_tables, reading_of
from keepworth.methods.recipes._memory_r1.measures import always
from keepworth.models.errors import UnknownModel
from keepworth.recipes import training
from keepworth.recipes.training import kept_weights
from tests.rollouts.scripted_model import FunctionReader


def run_of(path: Path, config: dict[str, Any], weights: bytes = b"") -> RunFolder:
    """A run folder as an answerer's training leaves it, as far as a reader's place is concerned."""
    with RunFolder.create(path, config) as run:
        if weights:
            kept_weights(run, "answerer").mkdir(parents=True)
            (kept_weights(run, "answerer") / "weights.safetensors").write_bytes(weights)
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
    measures._reader = FunctionReader("first@1", lambda question, memories: memories[0])  # type: ignore[assignment]
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
def test_what_is_not_there_is_said_before_a_model_is_loaded(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object]
) -> None:
    monkeypatch.setattr(training, "prepared", lambda *_: pytest.fail("a model was loaded first"))
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
