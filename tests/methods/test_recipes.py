"""Every recipe of the registry: two updates on a tiny model; killed and continued, it ends with the same weights."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from keepworth.methods.recipes._bank import course as bank_course
from keepworth.registry import methods
from keepworth.training.front_door import find_recipe
from keepworth.training.run_folder import RunFolder
from keepworth.training.system import TIERS
from keepworth.training.watch.progress import Progress
from tests.end_to_end.tiny_folder import write_tiny_checkpoint
from tests.recipes.tiny_runs import READING, STRINGS, TINY, Interrupted, same, weights_of
from tests.recipes.writer_runs import echoing
from tests.slow import slow_but_for

WRITER = {
    "length": 6, "budget": 2, "streams": 1, "warm_start": 2, "warm_start_batch": 4, "group_size": 4, "train": "full",
}  # fmt: skip
CALLS = {**WRITER, "chunk": 3, "recent": 1}
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
    "openclaw_rl": {"max_tokens": 3},
    "overwrite_reading": READING,
    "strings": STRINGS,
}  # fmt: skip
"""What makes a recipe small; one that is not here is trained with what all have in common."""


def trained(name: str, model: Path, path: Path, progress: Progress) -> None:
    recipe = find_recipe(name)
    config = recipe.Config(model=str(model), **{**TINY, "learning_rate": 1e-2, **SMALL.get(name, {})})
    with (
        RunFolder.create(path, {"recipe": name, **config.model_dump(mode="json")}) as run,
        contextlib.suppress(KeyboardInterrupt),
    ):
        recipe.train(config, run, progress)


def weights(path: Path) -> dict[str, Tensor]:
    (role,) = RunFolder.open(path).finished_roles()
    return weights_of(RunFolder.open(path), role)


SLOW = ("agemem", "memory_r1_joint", "mem_alpha", "agent_rlvr", "datamind", "dart", "memory_r2", "deepsearch")
"""Those that take longest, and are killed and go on as the others do."""


@pytest.mark.parametrize("name", slow_but_for(methods("recipe").keys() - set(SLOW), methods("recipe")))
def test_two_updates_and_killed_the_same_weights(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bank_course, "MOST_WORDS", 1)  # the tiny model's tokens are bytes
    model = write_tiny_checkpoint(tmp_path / "model")
    with echoing(monkeypatch):
        trained(name, model, tmp_path / "straight", Progress())
        trained(name, model, tmp_path / "killed", Interrupted())
        assert RunFolder.open(tmp_path / "killed").result() is None
        trained(name, model, tmp_path / "killed", Progress())
    run = RunFolder.open(tmp_path / "straight")
    assert [row["step"] for row in run.metrics()] == [1, 2]
    tables = run.result()["tables"]
    assert tables
    # How near rows are to each other, only their author knows; another recipe says how near its test questions are to training.
    assert find_recipe(name).given is not None or all(table["tier"] in TIERS for table in tables)
    assert same(weights(tmp_path / "straight"), weights(tmp_path / "killed"))
