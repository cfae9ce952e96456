"""What tests of whole recipes share: settings of tiny runs and of those that learn, who listens to a run, and the run itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import load_file

from keepworth.training.front_door import find_recipe
from keepworth.training.run_folder import RunFolder
from keepworth.training.trained import find_weights
from keepworth.training.watch.progress import Progress

TINY: dict[str, Any] = {
    "precision": "fp32", "threads": 1, "steps": 2, "tasks_per_step": 2, "group_size": 2, "evaluate_every": 2,
    "checkpoint_every": 1, "questions": 2,
}  # fmt: skip
LEARNS: dict[str, Any] = {
    **TINY, "train": "full", "steps": 12, "tasks_per_step": 1, "group_size": 24, "evaluate_every": 12,
    "warm_start_learning_rate": 6e-2,
}  # fmt: skip
STRINGS = {"warm_start": 2, "warm_start_batch": 2, "tasks": 8, "held_out": 4, "max_tokens": 4}
READING = {"memory_tokens": 4, "answer_tokens": 3, "sections": 2, "warm_start": 0}


class Notes(Progress):
    """Keeps the lines that stay."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


class Interrupted(Notes):
    """As if somebody pressed Ctrl-C while step 2 is reported."""

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        if step == 2 and "reward" in metrics:
            raise KeyboardInterrupt


def run_of(
    recipe: ModuleType, checkpoint: Path, path: Path, progress: Progress | None = None, **settings: Any
) -> RunFolder:
    """A recipe, trained with settings of its own beside those of a tiny run."""
    config = recipe.Config(model=str(checkpoint), **{**TINY, **settings})
    return trained(recipe, config, path, progress)


def trained(recipe: ModuleType, config: Any, path: Path, progress: Progress | None = None) -> RunFolder:
    """A recipe, trained as it is configured, or gone on with."""
    name = recipe.__name__.rsplit(".", 1)[-1]
    with RunFolder.create(path, {"recipe": name, **config.model_dump(mode="json")}, clock=lambda: 0.0) as run:
        find_recipe(name).train(config, run, progress or Progress())
    return run


def weights_of(run: RunFolder, role: str = "policy") -> dict[str, torch.Tensor]:
    """What a run has finished training."""
    (file,) = find_weights(run, role).glob("*.safetensors")
    found: dict[str, torch.Tensor] = load_file(file)
    return found


def same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    """Whether the weights are equal, bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
