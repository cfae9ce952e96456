"""`keepworth export`, and the commands that the end of a training names: each does what it says when it is copied."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from keepworth.cli.export import uses_of
from keepworth.memory.place import MemoryPlace
from keepworth.models.adapter import attach_lora, save_trained
from keepworth.models.inprocess import InProcessModel
from keepworth.training.run_folder import RunFolder
from tests.cli.conftest import CommandLine
from tests.end_to_end.tiny_folder import write_tiny_checkpoint


def trained_run(path: Path, *roles: str) -> RunFolder:
    """As a training leaves it."""
    base = write_tiny_checkpoint(path.parent / "base")
    config = {"recipe": "mine", "model": str(base), "train": "lora"}
    with RunFolder.create(path, config) as run:
        run.record_environment(precision="fp32")
        for role in roles:
            model = InProcessModel.load(base, name=str(base), precision="fp32")
            named = attach_lora(model, rank=2)
            with torch.no_grad():
                for value in named.values():
                    value.add_(0.05)
            with run.writing_weights(role) as folder:
                save_trained(model, named, folder)
    return run


def commands(run: RunFolder) -> list[list[str]]:
    return [shlex.split(command) for _, command in uses_of(run)]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What would be served."""
    given: dict[str, Any] = {}
    monkeypatch.setattr("keepworth.cli.serve._serve_memory", lambda path, **options: given.update(options, path=path))
    return given


def test_commands_printed_for_a_trained_run_work(command: CommandLine, served: dict[str, Any]) -> None:
    run = trained_run(Path("a run"), "policy")
    export, remember = commands(run)
    said = command.done(*export)
    assert "a run-model  merged, policy at step 0, float32" in said
    assert "2 of 2 greedy answers to the run's own questions are the run's" in said
    assert Path("a run-model", "README.md").is_file()
    made = json.loads(command.done(*export[:2], "as json", "--json"))
    assert (made["folder"], made["kind"], made["agreement"]["identical"]) == ("as json", "merged", 2)
    command.done(*remember, "--port", "0")
    assert isinstance(served["upstream"].transport.model, InProcessModel)
    assert not hasattr(served["upstream"].transport.model.network, "peft_config")
    assert served["path"] == MemoryPlace("agent.mem")


def test_a_manager_is_named_as_a_writer(command: CommandLine, served: dict[str, Any]) -> None:
    run = trained_run(Path("both"), "answerer", "manager")
    export_one, answer, export_other, remember = commands(run)
    assert export_one[-2:] == answer[-2:] == ["--role", "answerer"]
    assert export_other[-2:] == ["--role", "manager"]
    command.done(*remember, "--port", "0")
    assert served["writer"] == "both"


def test_mistakes_are_named(tmp_path: Path, command: CommandLine) -> None:
    trained_run(tmp_path / "runs" / "mine", "policy")
    for arguments, says in (
        (["mime", "out"], "Did you mean 'mine'"),
        (["mine", "out", "--role", "polici"], "Did you mean 'policy'"),
        (["mine", "runs"], "holds something else"),
    ):
        assert says in command.refused("export", *arguments)
    assert not (tmp_path / "out").exists()
    assert uses_of(RunFolder.open(trained_run(tmp_path / "runs" / "new").path)) == []
