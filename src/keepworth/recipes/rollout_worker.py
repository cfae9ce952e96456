"""What the process of a worker holds: a recipe found by its name, with its model's text side."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keepworth.episodes.errors import KeepworthError
from keepworth.learning.collect.workers import Rollouts, WorkerRollout
from keepworth.learning.run_folder import RunFolder
from keepworth.models.files import ModelKind, path_of
from keepworth.models.text_side import TextSide
from keepworth.recipes.front_door import made_of
from keepworth.recipes.workers import Origin


def _same(origin: Mapping[str, Any], config: Mapping[str, Any], record: Mapping[str, Any]) -> tuple[Any, Any]:
    """The recipe and its settings. Raises KeepworthError for files that are not the same here."""
    recipe: Any = made_of(Origin(**origin))
    settings: Any = recipe.Config.model_validate(config)
    made_with = getattr(recipe, "given", None)
    if made_with is not None and record:
        here = json.loads(json.dumps(made_with.record(settings)))
        if differ := sorted(name for name in record if record[name] != here.get(name)):
            raise KeepworthError(
                f"What the run was begun with is not the same here: {', '.join(differ)}.",
                "Every host needs the same files.",
            )
    return recipe, settings


class RolloutWorker(Rollouts):
    """origin, config: where the recipe is found, and how it is configured. run: its folder, in which a worker writes nothing.
    record: what else the run was begun with; files that are not the same here are refused."""

    def __init__(
        self, origin: Mapping[str, Any], config: Mapping[str, Any], run: str, record: Mapping[str, Any]
    ) -> None:
        recipe, settings = _same(origin, config, record)
        name = str(config["model"])
        text = TextSide.load(path_of(name, kind=ModelKind.LANGUAGE), name)
        rollout = getattr(recipe, "rollout", None)
        if rollout is None:
            raise KeepworthError(f"{origin['recipe']} says nothing of rollouts to workers.", "Leave workers out.")
        load: WorkerRollout = rollout(settings, RunFolder(Path(run)), text)
        super().__init__(load.rollout, text, load.memory)
