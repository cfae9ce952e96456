"""What a run of one's own gained, by how many answers one may draw and by how near a question is to those of training.

`keepworth methods run diagnose --set run=demo` draws several answers to each question from the weights of a run and from the
model that it began from, or from another run (`against`), with the same sampler. pass@k is the share of questions that one of k
answers solves. Who is ahead at k = 1 and overtaken later has sharpened what the other could do already ("Does Reinforcement
Learning Really Incentivize Reasoning Capacity in LLMs Beyond the Base Model?", arXiv 2504.13837). With a run against that was
trained on coins (`keepworth train ... --set 'objective.advantage=Spurious(0.5)'`) the table says what was learned from the
rewards.

Two systems of finished evaluations are compared in the same way, with their seeds as answers: `--set
run=runs/eval/mine:keepworth --set against=runs/eval/mine:random`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from keepworth.episodes.errors import KeepworthError
from keepworth.evaluation.study import Rows, Study
from keepworth.methods.studies._passes import compare_passes, need_clusters
from keepworth.registry import Method
from keepworth.tasks.splits import draw_order

if TYPE_CHECKING:
    from keepworth.episodes.episode import Task

BASE = "base"
"""The name of the model that a run began from."""


def run(
    *,
    run: str = "demo",
    against: str = "",
    samples: int = 32,
    questions: int = 32,
    right: float = 0.5,
    seed: int = 0,
    runs: str = "runs",
    recipe: str = "",
    tasks: str = "",
    reward: str = "",
) -> Rows:
    """pass@k of two systems, where their curves cross, and what one alone solves: by tier of question.

    Args:
        run: A finished run, or FOLDER:ARM of an evaluation with several seeds.
        against: Another one; the model that the run began from if not given.
        samples: Answers to each question.
        questions: Of each tier, at most.
        right: The reward from which an answer counts as right.
        seed: Of the draws.
        runs: The folder that runs are in.
        recipe: The file of the run's recipe, where it was trained by one.
        tasks: The file of the run's tasks, where it was trained on such.
        reward: Its rewards as they were given with the tasks, with commas.
    """
    if samples < 2 or questions < 3:
        raise KeepworthError(
            f"samples={samples}, questions={questions}: there are 2 or more samples, and 3 or more questions.",
            "Write samples=32 and questions=32, say.",
        )
    if ":" in run or (Path(run) / "plan.json").is_file():
        return compare_evaluations(run, against, right)
    from keepworth.methods.studies._runs import finished_run, rewards_of
    from keepworth.recipes.system import TIERS

    first = finished_run(run, runs, recipe=recipe, tasks=tasks, reward=reward)
    second = finished_run(against, runs, recipe=recipe, tasks=tasks, reward=reward) if against else None
    if second is not None and (second.base, _keys(second.test)) != (first.base, _keys(first.test)):
        raise KeepworthError(
            f"{first.name} and {second.name} were not trained from one model on one recipe.",
            "Compare runs that differ in how they learn; `keepworth methods run domains` compares what carries over.",
        )
    if first.name == (second.name if second else BASE):
        raise KeepworthError(f"both sides are called {first.name}.", "Name another run, or rename the folder of one.")
    asked: dict[str, dict[str, list[Task]]] = {}
    for name, of_set in {"": first.train, **first.test}.items():
        for task in sorted(of_set, key=lambda task: draw_order("diagnose", seed, task.key)):
            asked.setdefault(first.tier(name, task), {}).setdefault(name, []).append(task)
    rows: Rows = []
    models = {first.name: first.weights, second.name if second else BASE: second.weights if second else first.before}
    chosen = {tier: _share(asked[tier], questions) for tier in (*TIERS, "unseen") if tier in asked}
    clusters = {
        tier: [first.cluster(task) for of_set in sets.values() for task in of_set] for tier, sets in chosen.items()
    }
    for tier, of in clusters.items():
        need_clusters(f"the tier {tier!r} of {first.name}", of)
    right_counts: dict[str, dict[str, list[int]]] = {tier: {} for tier in chosen}
    for name, load in models.items():
        model = load()
        for tier, sets in chosen.items():
            rewards = rewards_of(first, model, sets, samples, seed)
            right_counts[tier][name] = [sum(value >= right for value in of_one) for of_one in rewards]
        del model
    for tier in chosen:
        rows += compare_passes(right_counts[tier], samples, clusters[tier], f", {tier}")
    return rows


def _keys(sets: Mapping[str, Sequence[Task]]) -> set[str]:
    return {task.key for tasks in sets.values() for task in tasks}


def _share(sets: Mapping[str, list[Task]], count: int) -> dict[str, list[Task]]:
    """At most `count` questions in all, as many of each set as there is room for."""
    shares, left = dict[str, list["Task"]](), count
    for number, (name, tasks) in enumerate(sorted(sets.items(), key=lambda item: len(item[1]))):
        shares[name] = tasks[: left // (len(sets) - number)]
        left -= len(shares[name])
    return {name: tasks for name, tasks in shares.items() if tasks}


def compare_evaluations(one: str, other: str, right: float) -> Rows:
    """The same of two arms of finished evaluations, whose seeds are the answers."""
    from keepworth.evaluation.comparison import name_arm, rows_of
    from keepworth.evaluation.summary import arm_of

    if not other:
        raise KeepworthError(f"{one} is compared with nothing.", "Name another one: --set against=FOLDER:ARM")
    counts: dict[str, dict[str, list[bool]]] = {}
    clusters: dict[str, str] = {}
    for text in (one, other):
        folder, arms = name_arm(text)
        answers = counts.setdefault(text, {})
        for row in rows_of(folder):
            if [arm_of(row)] == arms:
                answers.setdefault(row.key, []).append(row.scores.get("score", 0.0) >= right)
                clusters[row.key] = row.cluster
        if not answers:
            raise KeepworthError(f"{text} names no arm of an evaluation.", "Write FOLDER:ARM, as the report names it.")
    first, *others = counts.values()
    sizes = {len(answers) for of in counts.values() for answers in of.values()}
    if len(sizes) > 1 or sizes == {1} or [set(answers) for answers in others] != [set(first)]:
        raise KeepworthError(
            f"{one} and {other} are not two arms with the same questions and the same number of seeds, 2 or more.",
            "Measure both with `keepworth eval run ... --seeds 8`.",
        )
    right_counts = {text: [sum(of[key]) for key in first] for text, of in counts.items()}
    return compare_passes(right_counts, sizes.pop(), [clusters[key] for key in first])


METHOD = Method(
    kind="study",
    name="diagnose",
    title="pass@k of a run",
    paper="arXiv 2504.13837",
    about="Says what a run gained: pass@k against the model it began from, and where the curves cross, by tier of question",
    claim="Trained by reinforcement, a model is ahead at k = 1, and the model that it began from is ahead at large k.",
    differs="A 135M model answers from memory; the tiers are instance, template and family of the run's own recipe.",
    tags=("parametric", "factual", "formation"),
    label="protocol",
    make=Study(run, "share of questions, unless said otherwise"),
    extra="train",
)
