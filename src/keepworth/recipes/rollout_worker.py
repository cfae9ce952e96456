"""What the processes of workers and scorers hold: a recipe found by its name, with its model's text side, or with its rewards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keepworth.episodes.episode import RewardTerm
from keepworth.episodes.errors import KeepworthError
from keepworth.learning.collect.workers import Rollouts, WorkerRollout
from keepworth.learning.run_folder import RunFolder
from keepworth.models.files import ModelKind, path_of
from keepworth.models.text_side import TextSide
from keepworth.recipes.front_door import made_of
from keepworth.recipes.own import Given
from keepworth.recipes.rewards import try_rewards
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


class RewardWorker:
    """What a scorer's process holds: the rewards of one's own, tried once as it begins, so that what they load is there."""

    def __init__(self, origin: Mapping[str, Any], config: Mapping[str, Any], record: Mapping[str, Any]) -> None:
        recipe, settings = _same(origin, config, record)
        given: Given = recipe.given
        score = given.score(settings)
        assert score is not None
        self._score = score
        self._tasks = {task.key: task for task in given.tasks.all}
        try_rewards(score, given.tasks.all)

    async def terms(self, task: str, answer: str) -> list[RewardTerm]:
        """Of the task with this key. Answers that are asked for at once are rewarded in threads, as in the training process."""
        return await self._score.terms(self._tasks[task], answer)
