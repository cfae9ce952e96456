"""Samples answers to single questions from finished runs: from the trained weights, and from the model before training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepworth.base.errors import KeepworthError
from keepworth.evaluation.study import need_clusters
from keepworth.training.system import TIERS
from keepworth.worlds.splits import draw_order

if TYPE_CHECKING:
    from keepworth.models.inprocess import InProcessModel
    from keepworth.records.episode import Episode, Task
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


def require_alike(one: FinishedRun, other: FinishedRun) -> None:
    """Raises KeepworthError unless both runs began from one model, have the same test questions, and have different names."""
    if (one.base, one.asked) != (other.base, other.asked):
        raise KeepworthError(
            f"{one.name} and {other.name} were not trained from one model on one recipe.",
            "Compare runs that differ in how they learn; the diagnostic `domains` says what carries over to other questions.",
        )
    if one.name == other.name:
        raise KeepworthError(f"both runs are called {one.name}.", "Name another run, or rename the folder of one.")


def questions_by_tier(
    run: FinishedRun, questions: int, seed: int, *, trained: bool
) -> dict[str, dict[str, list[Task]]]:
    """Returns at most `questions` questions of each tier, in equal shares of its sets; sets by name, "" for training.

    Args:
        run: The run that has the questions.
        questions: Limit for each tier.
        seed: Seed of the draw.
        trained: Whether training questions are included.

    Raises:
        KeepworthError: A tier has too few for an interval.
    """
    asked: dict[str, dict[str, list[Task]]] = {}
    for name, of_set in {**({"": run.train} if trained else {}), **run.test}.items():
        for task in sorted(of_set, key=lambda task: draw_order("diagnose", seed, task.key)):
            asked.setdefault(run.tier(name, task), {}).setdefault(name, []).append(task)
    chosen = {tier: share_out(asked[tier], questions) for tier in (*TIERS, "unseen") if tier in asked}
    for tier, sets in chosen.items():
        need_clusters(f"the tier {tier!r} of {run.name}", clusters_of(run, sets))
    return chosen


def share_out(sets: Mapping[str, list[Task]], count: int) -> dict[str, list[Task]]:
    """Returns at most `count` questions in all, in equal shares of the sets as far as they have so many."""
    shares, left = dict[str, list["Task"]](), count
    for number, (name, tasks) in enumerate(sorted(sets.items(), key=lambda item: len(item[1]))):
        shares[name] = tasks[: left // (len(sets) - number)]
        left -= len(shares[name])
    return {name: tasks for name, tasks in shares.items() if tasks}


def clusters_of(run: FinishedRun, sets: Mapping[str, Sequence[Task]]) -> list[str]:
    """Returns the cluster of each question, in the order in which `episodes_of` answers them."""
    return [run.cluster(task) for tasks in sets.values() for task in tasks]


def count_right(
    run: FinishedRun,
    models: Mapping[str, Callable[[], InProcessModel]],
    tiers: Mapping[str, Mapping[str, Sequence[Task]]],
    samples: int,
    right: float,
    seed: int,
) -> dict[str, dict[str, list[int]]]:
    """Returns how many of the answers to each question are right, by tier and by the name of the model. One model is loaded at a
    time.

    Args:
        run: The run that has the questions.
        models: Loads each model.
        tiers: Questions by tier, and by set.
        samples: Answers to each question.
        right: The least reward of a right answer.
        seed: Seed of the draws.
    """
    counts: dict[str, dict[str, list[int]]] = {tier: {} for tier in tiers}
    for name, load in models.items():
        model = load()
        for tier, sets in tiers.items():
            rewards = rewards_of(run, model, sets, samples, seed)
            counts[tier][name] = [sum(value >= right for value in of_one) for of_one in rewards]
        del model
    return counts


def rewards_of(
    run: FinishedRun, model: InProcessModel, asked: Mapping[str, Sequence[Task]], samples: int, seed: int
) -> list[list[float]]:
    """Returns for each question the rewards of its episodes, see `episodes_of`.

    Args:
        run: The finished run.
        model: The model that plays, with the run's weights or others.
        asked: The questions by set, "" for those of training.
        samples: The number of episodes of each question.
        seed: The seed of the samples.
    """
    return [[episode.reward for episode in group] for group in episodes_of(run, model, asked, samples, seed)]


def episodes_of(
    run: FinishedRun, model: InProcessModel, asked: Mapping[str, Sequence[Task]], samples: int, seed: int
) -> list[Sequence[Episode]]:
    """Returns `samples` episodes of each question, drawn at temperature 1.

    Args:
        run: The run that has the questions.
        model: The model that plays.
        asked: Questions by set, "" for those of training.
        samples: Episodes of a question.
        seed: Seed of the draws.
    """
    from keepworth.worlds.driver import together

    return [
        group.episodes
        for name, tasks in asked.items()
        for group in together(model, tasks, run.rollout(name, model), n=samples, seed=seed, label=f"{name or 'train'}/")
    ]
