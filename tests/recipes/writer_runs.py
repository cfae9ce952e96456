"""Runs of the recipes of writers on a model of a few thousand weights, with a reader that answers with the bank."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from keepworth.learning.run_folder import RunFolder
from keepworth.learning.watch.progress import SilentProgress
from keepworth.recipes import memory_r2
from keepworth.recipes.memory_r1_manager import FoundReader
from keepworth.recipes.training import kept_weights
from keepworth.recipes.writing import WriterTraining
from tests.rollouts.scripted_model import FunctionReader

TINY: dict[str, Any] = {
    "precision": "fp32", "threads": 1, "steps": 2, "tasks_per_step": 2, "group_size": 4, "evaluate_every": 2,
    "checkpoint_every": 1, "questions": 2, "length": 6, "budget": 2, "streams": 1, "warm_start": 16, "warm_start_batch": 8,
    "warm_start_learning_rate": 5e-2, "learning_rate": 1e-2, "train": "full",
}  # fmt: skip
LOCAL = {"horizons": [{"steps": 1, "length": 4}], "reroll_share": 1.0, "rerolls": 2}


@contextmanager
def echoing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A reader that answers with the bank: what is kept makes a difference, which a random model's answer would not."""
    reader = FunctionReader("echo@1", lambda question, memories: " ".join(memories))
    with monkeypatch.context() as patched:
        patched.setattr(FoundReader, "loaded", lambda *_: reader)
        yield


def run_of(recipe: ModuleType, checkpoint: Path, path: Path, **changes: Any) -> RunFolder:
    own = LOCAL if recipe is memory_r2 else {}
    config = recipe.Config(model=str(checkpoint), **{**TINY, **own, **changes})
    with RunFolder.create(path, {"recipe": recipe.__name__, **config.model_dump(mode="json")}) as run:
        recipe.train(config, run, SilentProgress())
    return run


def killed_and_continued(
    recipe: ModuleType,
    checkpoint: Path,
    straight: RunFolder,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    **changes: Any,
) -> None:
    """A run that is killed after its first step and begun again ends like `straight`, to the last bit."""
    from safetensors.torch import load_file

    task = WriterTraining.task

    def killed(self: WriterTraining, group: int) -> Any:
        if group >= TINY["tasks_per_step"]:
            raise KeyboardInterrupt
        return task(self, group)

    with monkeypatch.context() as patched:
        patched.setattr(WriterTraining, "task", killed)
        with pytest.raises(KeyboardInterrupt):
            run_of(recipe, checkpoint, path, **changes)
    resumed = run_of(recipe, checkpoint, path, **changes)
    (first,) = kept_weights(straight, "writer").glob("*.safetensors")
    one, other = load_file(first), load_file(kept_weights(resumed, "writer") / first.name)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    rows = [
        [(r["step"], r["split"], r["arm"], r["metric"], r["mean"]) for r in run.evals()] for run in (straight, resumed)
    ]
    assert rows[0] == rows[1]
