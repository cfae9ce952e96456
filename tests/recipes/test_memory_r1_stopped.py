"""Training that was stopped where it is awkward: at its first step, in the warm start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from keepworth.episodes.errors import KeepworthError
from keepworth.learning.learner import Learner
from keepworth.learning.run_folder import RunFolder
from keepworth.learning.watch.progress import SilentProgress
from keepworth.methods.recipes import memory_r1
from keepworth.recipes.training import kept_weights
from tests.end_to_end.tiny_folder import write_tiny_checkpoint

COMMON = {
    "precision": "fp32",
    "threads": 1,
    "questions": 2,
    "tasks_per_step": 2,
    "group_size": 2,
    "steps": 1,
    "evaluate_every": 1,
    "learning_rate": 0.01,
    "entropy": 0.1,
}
ANSWERER = {"memories": 1, "words": 10, "max_tokens": 2}
MANAGER = {"role": "manager", "maintained": False, "warm_start": 8, "warm_start_passes": 1, "warm_start_batch": 4}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("model"))


def config_of(checkpoint: Path, settings: dict[str, Any]) -> memory_r1.Config:
    return memory_r1.Config(**{"model": str(checkpoint), **COMMON, **settings})


def train(config: memory_r1.Config, path: Path) -> RunFolder:
    with RunFolder.create(path, config.model_dump(mode="json")) as run:
        memory_r1.METHOD.make.train(config, run, SilentProgress())
    return run


def weights(run: RunFolder, role: str) -> dict[str, torch.Tensor]:
    (file,) = kept_weights(run, role).glob("*.safetensors")
    found: dict[str, torch.Tensor] = load_file(file)
    return found


def same_weights(one: RunFolder, other: RunFolder, role: str) -> bool:
    left, right = weights(one, role), weights(other, role)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def tables(run: RunFolder) -> list[dict[str, Any]]:
    result = run.result()
    assert result is not None
    return [{**t, "rows": [{k: v for k, v in r.items() if k != "time"} for r in t["rows"]]} for t in result["tables"]]


def fails(at: int, error: BaseException, work: Any) -> Any:
    """`work` as it is, but for its call number `at`, which raises."""
    calls = iter(range(1, 1_000_000))

    def either(*given: Any, **named: Any) -> Any:
        if next(calls) == at:
            raise error
        return work(*given, **named)

    return either


def test_a_manager_whose_first_step_diverged_goes_on_from_there(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(checkpoint, MANAGER)
    straight = train(config, tmp_path / "straight")
    with monkeypatch.context() as patched:
        patched.setattr(Learner, "update", fails(1, FloatingPointError("not finite"), Learner.update))
        with pytest.raises(FloatingPointError):
            train(config, tmp_path / "diverged")
    measured = (tmp_path / "diverged" / "evals.jsonl").read_text().splitlines()
    with monkeypatch.context() as patched:
        # Its weights are those after the warm start: neither may it be done again, nor may they be called untrained.
        patched.setattr(Learner, "imitate", fails(1, AssertionError("a second warm start"), Learner.imitate))
        resumed = train(config, tmp_path / "diverged")
    lines = (tmp_path / "diverged" / "evals.jsonl").read_text().splitlines()
    assert lines[: len(measured)] == measured
    assert [json.loads(line)["arm"] for line in lines].count("untrained") == [
        json.loads(line)["arm"] for line in measured
    ].count("untrained")
    assert tables(resumed) == tables(straight)
    assert same_weights(resumed, straight, "manager")


def test_a_warm_start_that_diverged_does_not_claim_to_be_saved(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Learner, "imitate", fails(2, FloatingPointError("not finite"), Learner.imitate))
    with pytest.raises(
        KeepworthError, match=r"warm start diverged at its step 2 of 2.*warm_start_learning_rate"
    ) as said:
        train(config_of(checkpoint, MANAGER), tmp_path / "run")
    # The command line answers FloatingPointError with the place of the saved weights.
    assert not isinstance(said.value, FloatingPointError)
    assert RunFolder.open(tmp_path / "run").latest_checkpoint() is None
