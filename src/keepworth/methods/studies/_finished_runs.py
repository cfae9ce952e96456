"""Samples answers to single questions from finished runs: from the trained weights, and from the model before training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from keepworth.base.errors import KeepworthError
from keepworth.evaluation.study import need_clusters
from keepworth.training.system import TIERS
from keepworth.worlds.splits import draw_order

if TYPE_CHECKING:
    from keepworth.evaluation.finished_runs import FinishedRun
    from keepworth.models.inprocess import InProcessModel
    from keepworth.records.episode import Episode, Task


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
