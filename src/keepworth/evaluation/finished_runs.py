"""Finished runs with the questions of their recipes, to be asked again: by the trained weights, and by the model before
training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepworth.base.errors import KeepworthError

if TYPE_CHECKING:
    from keepworth.models.inprocess import InProcessModel
    from keepworth.records.episode import Task
    from keepworth.records.model import Model
    from keepworth.training.run_folder import RunFolder
    from keepworth.training.system import Questions
    from keepworth.worlds.driver import Rollout


@dataclass(frozen=True)
class FinishedRun:
    """A finished run, with the questions of its recipe.

    Attributes:
        folder: The run's folder.
        train, test, unit, tiers, rollout: See `Questions`.
    """

    folder: RunFolder
    train: Sequence[Task]
    test: Mapping[str, Sequence[Task]]
    unit: Callable[[str], str] | None
    tiers: Mapping[str, str]
    rollout: Callable[[str, Model], Rollout]

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def base(self) -> str:
        """Returns the name of the model that it began from."""
        from keepworth.training.trained import model_of

        return model_of(self.folder)

    def weights(self) -> InProcessModel:
        """Loads the trained model."""
        from keepworth.training.trained import find_trained

        return find_trained(self.folder).loaded()

    def before(self) -> InProcessModel:
        """Loads the model before training."""
        from keepworth.training.trained import find_trained

        return find_trained(self.folder).untrained()

    @property
    def asked(self) -> frozenset[str]:
        """Returns the keys of its test questions."""
        return frozenset(task.key for tasks in self.test.values() for task in tasks)

    def cluster(self, task: Task) -> str:
        return self.unit(task.key) if self.unit else str(task.tags.get("cluster") or task.key)

    def tier(self, name: str, task: Task) -> str:
        """Returns one of `TIERS`, or "unseen" where the recipe declares neither a tier nor a unit. name: the task's set."""
        if task.input in self._trained_inputs:
            return "instance"
        if declared := self.tiers.get(name):
            return declared
        if self.unit is None:
            return "unseen"
        return "template" if self.unit(task.key) in self._trained_units else "family"

    @cached_property
    def _trained_inputs(self) -> frozenset[str]:
        return frozenset(task.input for task in self.train)

    @cached_property
    def _trained_units(self) -> frozenset[str]:
        return frozenset(self.unit(task.key) for task in self.train) if self.unit else frozenset()


def open_finished_run(name: str, runs: str, *, recipe: str = "", tasks: str = "", reward: str = "") -> FinishedRun:
    """Returns a run by its name or folder, with the questions of its recipe.

    Args:
        name: The run's name or folder.
        runs: The folder of all runs.
        recipe: The file of its recipe, for a run of `keepworth train FILE.py`.
        tasks: The file of its tasks, for a run of `keepworth train --tasks FILE`.
        reward: Its rewards as they were given with the tasks, separated by commas.

    Raises:
        KeepworthError: It is not finished, it is of other tasks, or its recipe's questions cannot be asked alone.
    """
    from keepworth.training.front_door import TASKS, make_recipe
    from keepworth.training.recipe import Origin
    from keepworth.training.run_folder import find_run
    from keepworth.training.trained import find_trained

    folder = find_run(name, Path(runs))
    find_trained(folder)
    record, called = folder.config, str(folder.config.get("recipe", ""))
    if called == TASKS and not tasks:
        raise KeepworthError(f"{folder.path} is a run of tasks of your own.", "Name their file: --set tasks=FILE.jsonl")
    rewards = tuple(filter(None, reward.split(",")))
    made = make_recipe(Origin(tasks=tasks, reward=rewards) if called == TASKS else Origin(recipe or called))
    config: Any = made.Config.model_validate({key: record[key] for key in record if key in made.Config.model_fields})
    if differ := [key for key, value in made.record(config).items() if value != record.get(key)]:
        raise KeepworthError(f"{folder.path} was begun with other {', '.join(differ)}.", "Name what it was begun with.")
    system: Any = made(folder, **{key: getattr(config, key) for key in config.model_fields_set})
    questions: Questions | None = system.questions(config) if hasattr(system, "questions") else None
    if questions is None:
        raise KeepworthError(
            f"{folder.path} is a run of {called}, whose questions cannot be asked by themselves.",
            "Name a run of tasks of your own, of strings, of arithmetic, or of the answerer of memory_r1.",
        )
    return FinishedRun(folder, questions.train, questions.test, questions.unit, questions.tiers, questions.rollout)
