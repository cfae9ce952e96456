"""CuES: an explorer makes the tasks of a world that has none, and a pupil practises on them ("CuES: a curiosity-driven and
environment-grounded synthesis framework for agentic RL", arXiv 2512.01311).

    explore: what was tried least, by 1 / sqrt(1 + n(place, action)) + 1 / sqrt(1 + n(words of it))      (the memory tree)
    abstract: what is carried after a run of steps and was not before  -> a task, and the steps without loops as its guideline
    control: the guideline is executed from the start, and a task whose end is not reached goes
    rewrite: as a hint, some part of the guideline is done for the pupil

The world is a kitchen of TextWorldExpress with rooms around it; a task is a set of things to carry, by words that are said of
them ("diced carrot"). Its own tasks, which are measured and of which practice knows nothing, are what its solution comes to
carry, one by one and together. The pupil is a softmax over words of task, room and action that imitates its successes, without
loops. Every arm has as many steps of the world in all: exploring and executing again count, and practice gets what they leave.

A second world are the tools of tau2-bench (`_tools`): a task is a state of the database, and stays where its calls, executed on a
fresh one, reach that state. Its own tasks are what the set's tasks write for a customer whose tools and records these are.

The verdict, fixed before the worlds that are measured (development kitchens begin at 500; development customers are those of
tau2's test tasks): *held* where at least 80 % of the tasks that stay can be executed though one step in five (of tools, one call)
follows one that is drawn; where practice on them does more of the world's own tasks than practice on tasks drawn from its words,
on tasks of another kitchen (customer), and no practice; and where it is not 0.1 below practice on the world's own tasks, each by
a paired interval over worlds. *Held in part* where they are above no practice and above tasks drawn from words. The verdict of
both kinds is the lower one. Walking by chance in the place of curiosity, tasks without hints, tasks drawn from words with what
was reached in their place (hindsight), and a rule that takes what a task's words say stand beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from keepworth.base.errors import require_known
from keepworth.evaluation.study import Rows, Study, arms_of, differences, rows_of, wrap_names
from keepworth.methods.studies._kitchens import (
    MOST,
    Goal,
    Home,
    MadeTask,
    Place,
    Pupil,
    WordPupil,
    erase_loops,
    lacking,
    open_kitchens,
)
from keepworth.methods.studies._tools import find_customers
from keepworth.registry import Method

ROLLOUT, WINDOW = 18, 12
"""Steps of a rollout, and most steps of a task."""
SHARES = ("executable", "own tasks that")
"""How arms begin that are no pupil's."""


def keys(place: Place, action: str) -> tuple[Any, ...]:
    """Returns the keys of the memory tree's counts: the action in its place, and the words of the action in any place."""
    return (place.room, place.carried, action), tuple(action.split(" in ")[0].split())


def explore(home: Home, draw: np.random.Generator, rollouts: int, curious: bool) -> list[MadeTask]:
    """Returns the distinct tasks abstracted from rollouts, with guidelines that were not executed again.

    Args:
        home: The world, whose steps are counted.
        draw: The source of chance.
        rollouts: The number of rollouts.
        curious: Whether what was tried less often is preferred.
    """
    tried: Counter[Any] = Counter()
    tasks: dict[tuple[Goal, tuple[str, ...]], MadeTask] = {}
    for _ in range(rollouts):
        place, places, actions = home.reset(), list[Place](), list[str]()
        while place.actions and len(actions) < ROLLOUT:
            bonus = [sum((1 + tried[seen]) ** -0.5 for seen in keys(place, action)) for action in place.actions]
            action = place.actions[int(np.argmax(np.array(bonus) * curious + 1e-3 * draw.random(len(bonus))))]
            tried.update(keys(place, action))
            places.append(place)
            actions.append(action)
            place = home.step(action)
            begun = int(draw.integers(max(0, len(places) - WINDOW), len(places)))
            goal = place.carried - places[begun].carried
            if 0 < len(goal) <= MOST and place.carried != places[-1].carried:
                left = erase_loops([*(seen.text for seen in places[begun:]), place.text], actions[begun:])
                steps = tuple(actions[begun + at] for at in left)
                tasks[goal, steps] = MadeTask(goal, steps)
    return list(tasks.values())


def execute(home: Home, task: MadeTask, draw: np.random.Generator | None = None) -> bool:
    """Returns whether the guideline leads from the start to the task's goal.

    Args:
        home: The world, which is reset first.
        task: The goal with its guideline.
        draw: The source of chance for random actions (of tools a whole call) before one step in five (one call in
            five). Then impossible steps are skipped, and whatever else is changed does not count; with None they fail
            the task.
    """
    place = home.reset()
    for action in task.guideline:
        if draw is not None and place.actions and "/" not in place.room and draw.random() < 0.2:
            place = home.step(str(draw.choice(place.actions)))
            while "/" in place.room:
                place = home.step(str(draw.choice(place.actions)))
        if action in place.actions:
            place = home.step(action)
        elif draw is None:
            return False
    return not lacking(task.goal, place.carried) if draw is not None else home.reached(task.goal, place)


def run(
    *,
    worlds: str = "kitchens,tools",
    kitchens: int = 20,
    first: int = 0,
    side: str = "train",
    customers: int = 40,
    steps: int = 5000,
    tool_steps: int = 2000,
    rollouts: int = 40,
) -> Rows:
    """Measures the share of a world's own tasks that a pupil does after practice, by what it practised on.

    Args:
        worlds: "kitchens", "tools", or both, separated by a comma.
        kitchens, first: Number of games, and the number of the first.
        side, customers: Whose tools are measured: customers of tau2-bench's tasks for "train" (or "test"), and most of them.
        steps, tool_steps: Steps of a kitchen, or with tools, for exploring, executing again and practice together.
        rollouts: Rollouts of the explorer.
    """
    rows: Rows = []
    for name in worlds.split(","):
        require_known("worlds", name, ("kitchens", "tools"))
        if name == "kitchens":
            seeds = [seed % 1000 for seed in range(first - 1, first + kitchens)]
            homes: Homes = list(zip(map(str, seeds), seeds, open_kitchens("the study cues", seeds), strict=True))
            rows += _measure_all(homes, steps, rollouts)
        else:
            served = list(islice(find_customers(side), customers))
            homes = [(customer.name, at, customer) for at, customer in enumerate([served[-1], *served])]
            rows += wrap_names(_measure_all(homes, tool_steps, rollouts), "tools: ")
    return rows


Homes = list[tuple[str, int, Home]]
"""Worlds with the names of their clusters and their seeds. The first only provides the second one's foreign tasks."""


def _measure_all(homes: Homes, steps: int, rollouts: int) -> Rows:
    """Returns the rows of worlds of one kind."""
    foreign: list[MadeTask] = []
    arms = arms_of([measure(home, seed, steps, rollouts, foreign) for _, seed, home in homes][1:])
    names, rows = [name for name, _, _ in homes[1:]], list[dict[str, Any]]()
    for name, values in arms.items():  # no task may stay in a world: then there is no share of them
        seen = np.isfinite(values)
        rows += rows_of({name: np.array(values)[seen].tolist()}, np.array(names)[seen].tolist())
    pairs = [("tasks by curiosity", other) for other in list(arms)[1:] if not other.startswith(SHARES)]
    return rows + differences(arms, pairs, names, within=None)


def measure(home: Home, seed: int, steps: int, rollouts: int, foreign: list[MadeTask]) -> dict[str, float]:
    """Returns the results of one world.

    Args:
        home: The world.
        seed: That of the pupils.
        steps: The steps of practice in the world.
        rollouts: The rollouts of the explorer.
        foreign: Tasks of the world before, which are replaced by those of this one.
    """
    targets = home.solve()
    done: dict[str, float] = {}

    def learn(name: str, tasks: Sequence[MadeTask], spent: int, hints: bool = True, hindsight: bool = False) -> None:
        pupil = (WordPupil if name.startswith("a rule") else Pupil)(np.random.default_rng([82, seed]))
        home.steps = spent
        pupil.practise(home, tasks, steps, hints, hindsight)
        tries = [pupil.attempt(home, MadeTask(goal), cold=2.0)[0] for goal in targets for _ in range(home.tries)]
        done[name] = float(np.mean(tries))

    synthesised: dict[bool, tuple[list[MadeTask], int]] = {}
    for curious in (True, False):
        home.steps = 0
        candidates = explore(home, np.random.default_rng([81, seed]), rollouts, curious)
        stays = [task for task in candidates if execute(home, task)]
        synthesised[curious] = stays, home.steps
        kind = "curiosity" if curious else "chance"
        learn(f"tasks by {kind}", *synthesised[curious])
        again = np.random.default_rng([84, seed])
        done[f"executable of those by {kind}, as abstracted"] = len(stays) / max(1, len(candidates))
        done[f"executable of those by {kind}, that stay"] = float(
            np.mean([float(execute(home, t, again)) for t in stays] or [np.nan])
        )
    made = {task.goal for task in synthesised[True][0]}
    done["own tasks that curiosity made as well"] = float(np.mean([goal in made for goal in targets]))
    drawn = home.draw_tasks(60, np.random.default_rng([83, seed]))
    learn("tasks by curiosity without hints", *synthesised[True], hints=False)
    learn("tasks drawn from words", drawn, 0)
    learn("tasks drawn from words, with hindsight", drawn, 0, hindsight=True)
    learn("tasks of another kitchen" if home.tries == 3 else "tasks of another customer", foreign, 0)
    learn("the world's own tasks", [MadeTask(goal) for goal in targets], 0)
    learn("a rule that says the task's words", (), 0)
    learn("no practice", (), 0)
    foreign[:] = synthesised[True][0]
    return done


METHOD = Method(
    kind="study",
    name="cues",
    title="CuES",
    paper="arXiv 2512.01311",
    about="A curious explorer makes tasks of what it did, keeps those that can be done again, and a pupil practises on them",
    tags=("token", "experiential", "formation"),
    claim="Its tasks match or exceed curated ones in diversity and executability, and training on them does (no number checked).",
    differs=(
        "Kitchens of TextWorldExpress and tools of tau2-bench, counts for a model that explores, rules for those that word and "
        "judge tasks, and a small softmax that imitates its successes."
    ),
    label="analogue",
    make=Study(run, "share of a world's own tasks that are done"),
    extra="envs",
)
