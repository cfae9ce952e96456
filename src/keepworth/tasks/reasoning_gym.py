"""Reasoning Gym: generated puzzles with a verifier each, as tasks (Stojanovski and others, arXiv 2505.24760; Apache-2.0).

The package `reasoning-gym` is an extra (`pip install "keepworth[envs]"`). Everything about a puzzle follows from its
dataset's name, its parameters, a seed and an index, so that a task's key says all of it. Seeds of training and testing
never meet: the split is part of the seed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

from keepworth.episodes.episode import Task
from keepworth.episodes.errors import KeepworthError, require_known
from keepworth.episodes.extras import require
from keepworth.tasks.splits import SPLITS, draw_order

SOURCE = "reasoning_gym"


def reasoning_gym(name: str, split: str, count: int, seed: int = 0, **parameters: Any) -> list[Task]:
    """`count` puzzles of the dataset `name` ("chain_sum", "spell_backward", ...). parameters: the dataset's own.

    tags: type (the dataset), split, entry (the puzzle as JSON: part of the key, no agent may read it).

    Errors: UnknownName for a dataset or split; MissingExtra where the package is not installed; KeepworthError where the
    dataset refuses its parameters."""
    require_known("split", split, SPLITS)
    if count < 1:
        raise ValueError(f"reasoning_gym: count={count}: ask for at least one puzzle")
    require_known("dataset of reasoning-gym", name, _factory().DATASETS)
    settings = json.dumps(parameters, sort_keys=True)
    try:
        puzzles = _package().create_dataset(
            name, seed=int(draw_order(SOURCE, split, seed, name)[:8], 16), size=count, **parameters
        )
    except (TypeError, AssertionError, ValueError) as error:
        raise KeepworthError(f"The dataset {name} of reasoning-gym refuses {settings}: {error}.") from error
    return [_task(name, split, seed, settings, index, puzzles[index]) for index in range(count)]


def score(task: Task, answer: str) -> float:
    """The reward that the puzzle's own dataset gives, at most 1; 0 for an empty answer."""
    entry = json.loads(task.tags["entry"])
    return float(_scorer(task.tags["type"])(answer, entry)) if answer else 0.0


def _task(name: str, split: str, seed: int, settings: str, index: int, entry: Mapping[str, Any]) -> Task:
    return Task(
        key=f"{SOURCE}/{name}/{split}/{seed}/{index}" + (f"?{settings}" if settings != "{}" else ""),
        source=f"{SOURCE}-{name}",
        input=str(entry["question"]),
        answers=(str(entry["answer"]),),
        verifier=SOURCE,
        tags={"type": name, "split": split, "entry": json.dumps(entry, default=str)},
    )


@lru_cache(maxsize=64)
def _scorer(name: str) -> Any:
    return _factory().get_score_answer_fn(name)


def _package() -> Any:
    require("envs", "A puzzle of Reasoning Gym", "reasoning_gym")
    return import_module("reasoning_gym")


def _factory() -> Any:
    _package()
    return import_module("reasoning_gym.factory")
