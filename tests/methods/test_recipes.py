"""Every recipe of the registry: two updates on a tiny model; killed and continued, it ends with the same weights."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch import Tensor

from keepworth.learning.run_folder import RunFolder
from keepworth.learning.watch.progress import Progress, SilentProgress
from keepworth.methods.recipes._bank import course as bank_course
from keepworth.recipes.front_door import find_recipe
from keepworth.registry import methods
from tests.end_to_end.tiny_folder import write_tiny_checkpoint
from tests.recipes.writer_runs import echoing

TINY = {
    "precision": "fp32",
    "threads": 1,
    "steps": 2,
    "tasks_per_step": 2,
    "group_size": 2,
    "evaluate_every": 2,
    "checkpoint_every": 1,
    "questions": 2,
    "learning_rate": 1e-2,
}
WRITER = {
    "length": 6,
    "budget": 2,
    "streams": 1,
    "warm_start": 2,
    "warm_start_batch": 4,
    "group_size": 4,
    "train": "full",
}
CALLS = {**WRITER, "chunk": 3, "recent": 1}
STRINGS = {"warm_start": 2, "warm_start_batch": 2, "tasks": 8, "held_out": 4, "max_tokens": 4}
SMALL: Mapping[str, Mapping[str, Any]] = {
    "agent_rlvr": {**STRINGS, "guided": 2},
    "dart": STRINGS,
    "datamind": STRINGS,
    "deepsearch": {**STRINGS, "node_tokens": 2, "searches": 3, "group_size": 8},
    "agemem": {**CALLS, "distractors": 2},
    "arithmetic": {"max_tokens": 4},
    "bounded_bank": WRITER,
    "fine_mem": WRITER,
    "mem_alpha": CALLS,
    "memory_r1": {"memories": 1, "words": 10, "max_tokens": 2},
    "memory_r1_joint": {
        "facts": 2, "max_tokens": 2, "tasks": 8, "held_out": 4, "warm_start": 2, "warm_start_batch": 2,
    },
    "memory_r2": {**WRITER, "horizons": [{"steps": 1, "length": 4}], "reroll_share": 1.0, "rerolls": 2},
    "memory_r_plus": {**WRITER, "encoder": "hashing:32", "explore_after": 1},
    "open_rubrics": STRINGS,
    "overwrite_reading": {"memory_tokens": 4, "answer_tokens": 3, "sections": 2, "warm_start": 0},
    "strings": STRINGS,
}  # fmt: skip
"""What makes a recipe small; one that is not here is trained with what all have in common."""


class Interrupted(SilentProgress):
    """As if somebody pressed Ctrl-C while the second step is reported."""

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        if step == 2 and "reward" in metrics:
            raise KeyboardInterrupt


def trained(name: str, model: Path, path: Path, progress: Progress) -> None:
    recipe = find_recipe(name)
    config = recipe.Config(model=str(model), **{**TINY, **SMALL.get(name, {})})
    with (
        RunFolder.create(path, {"recipe": name, **config.model_dump(mode="json")}) as run,
        contextlib.suppress(KeyboardInterrupt),
    ):
        recipe.train(config, run, progress)


def weights(path: Path) -> dict[str, Tensor]:
    (file,) = (path / "weights").rglob("*.safetensors")
    found: dict[str, Tensor] = load_file(file)
    return found


@pytest.mark.parametrize("name", methods("recipe"))
def test_two_updates_and_killed_and_continued_the_same_weights(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bank_course, "MOST_WORDS", 1)  # the tiny model's tokens are bytes
    model = write_tiny_checkpoint(tmp_path / "model")
    with echoing(monkeypatch):
        trained(name, model, tmp_path / "straight", SilentProgress())
        trained(name, model, tmp_path / "killed", Interrupted())
        assert RunFolder.open(tmp_path / "killed").result() is None
        trained(name, model, tmp_path / "killed", SilentProgress())
    run = RunFolder.open(tmp_path / "straight")
    assert [row["step"] for row in run.metrics()] == [1, 2]
    assert run.result()
    one, other = weights(tmp_path / "straight"), weights(tmp_path / "killed")
    assert one.keys() == other.keys()
    assert all(one[key].equal(other[key]) for key in one)
