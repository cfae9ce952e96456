"""Game On: an experimenter proposes tasks from what succeeded and failed, takes hard ones apart into skills, finds a skill that
was learned for the start of a task, and judges when to go on ("Game On: towards language models as RL experimenters", arXiv
2409.03402).

    propose(history) -> task            the hardest task that is not mastered and whose parts all succeeded once, else a part
    judge(curve)     -> continue | stop | harder

The world is a kitchen of TextWorldExpress with rooms around it. Its own tasks are things to carry ("diced carrot" and
"pepper"); the parts of a task are its things, and a thing before it was cut or cooked. A skill is the shortest way, without
loops, in which a task was done; every second attempt begins with the skill of the largest part that is known. The pupil is a
softmax over words of task, room and action that imitates its successes, and is measured without skills. All arms have the same
steps, tasks, parts and skills: random tasks, and a curriculum that takes the task whose success rate is nearest to a half.

The verdict, fixed before the kitchens that are measured (development kitchens begin at 500): *held* where the experimenter is
above random tasks, the curriculum, whole tasks alone and itself without skills, each by a paired interval over kitchens; *held
in part* where it is above random tasks and whole tasks alone; else *not held*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from keepworth.evaluation.study import Rows, Study, arms_of, differences, rows_of
from keepworth.memory.choose.case_writers import AskModel, parsed
from keepworth.methods.studies._kitchens import Goal, Home, Kitchen, MadeTask, Pupil, erase_loops, open_kitchens
from keepworth.registry import Method

WINDOW, PATIENCE, MASTERED = 4, 6, 3
"""Number of latest attempts considered; failed attempts after which a task is taken apart; successes among `WINDOW` that master
it."""
Judgement = Literal["continue", "stop", "harder"]
History = Mapping[Goal, Sequence[bool]]
"""The outcomes of each task's attempts, in order."""


def take_apart(goal: Goal) -> list[Goal]:
    """Returns the parts of a task: each of its things, or a thing before it was cut or cooked; empty where it has none."""
    if len(goal) > 1:
        return [frozenset([thing]) for thing in sorted(goal)]
    words = next(iter(goal)).split()
    return [frozenset([" ".join(words[1:])])] if len(words) > 1 else []


def with_parts(goals: Sequence[Goal]) -> list[Goal]:
    """Returns tasks and all their parts, the simplest first."""
    wanted = dict.fromkeys(goals)
    for goal in (waiting := list(goals)):
        for part in take_apart(goal):
            if part not in wanted:
                wanted[part] = None
                waiting.append(part)
    return sorted(wanted, key=lambda goal: (len(" ".join(goal).split()), sorted(goal)))


class ByRules:
    """The experimenter without a language model."""

    def judge(self, curve: Sequence[bool]) -> Judgement:
        if sum(curve[-WINDOW:]) >= MASTERED:
            return "harder"
        return "stop" if len(curve) >= PATIENCE and not any(curve[-PATIENCE:]) else "continue"

    def propose(self, tasks: Sequence[Goal], history: History) -> Goal:
        """Proposes a task; `tasks` has the simplest first."""
        left = [task for task in tasks if self.judge(history[task]) != "harder"] or list(tasks)
        feasible = [task for task in left if all(any(history[part]) for part in take_apart(task))]
        going_on = [task for task in feasible if self.judge(history[task]) == "continue"]
        if going_on:
            return going_on[-1]
        # All tasks failed: returns the one with the fewest attempts.
        return min(feasible or left, key=lambda task: len(history[task]))


@dataclass(frozen=True, slots=True)
class ByModel:
    """The experimenter that asks a chat model; the rules decide where a reply has no valid task or judgement."""

    ask: AskModel
    rules: ByRules = field(default_factory=ByRules)

    def propose(self, tasks: Sequence[Goal], history: History) -> Goal:
        lines = [
            f"{number}. carry {' and '.join(sorted(task))}: {sum(history[task])} of {len(history[task])} attempts succeeded"
            for number, task in enumerate(tasks)
        ]
        reply = parsed(
            self.ask("Tasks of a robot that learns:\n" + "\n".join(lines) + '\nNext? JSON: {"task": number}')
        )
        number = reply.get("task") if isinstance(reply, dict) else None
        if type(number) is int and 0 <= number < len(tasks):
            return tasks[number]
        return self.rules.propose(tasks, history)

    def judge(self, curve: Sequence[bool]) -> Judgement:
        shown = "".join("+" if done else "-" for done in curve)
        reply = parsed(self.ask(f'Attempts at a task: {shown}\nJSON: {{"judgement": "continue", "stop" or "harder"}}'))
        named = reply.get("judgement") if isinstance(reply, dict) else None
        return named if named in ("continue", "stop", "harder") else self.rules.judge(curve)


Curriculum = Callable[[Sequence[Goal], History], Goal]


def practise(
    home: Home, pupil: Pupil, tasks: Sequence[Goal], propose: Curriculum, until: int, skills: bool
) -> dict[Goal, tuple[str, ...]]:
    """Attempts one proposed task after the other until the world has counted `until` steps.

    Args:
        home: The world, which counts its steps.
        pupil: It attempts tasks and learns.
        tasks: Those that may be proposed.
        propose: It chooses the next task by the history of successes.
        until: The number of steps at which practice ends.
        skills: Whether an attempt may begin with a skill, in one of two cases.

    Returns:
        The skills: for each task that succeeded, the shortest action sequence without loops.
    """
    history: dict[Goal, list[bool]] = {task: [] for task in tasks}
    library: dict[Goal, tuple[str, ...]] = {}
    while home.steps < until:
        goal = propose(tasks, history)
        start: tuple[str, ...] = ()
        if skills and pupil.draw.random() < 0.5:
            start = library.get(goal) or find_skill(library, goal)
        done, places, actions = pupil.attempt(home, MadeTask(goal, start), len(start))
        history[goal].append(done)
        if not done or not actions:
            continue
        pupil.imitate(goal, places, actions)
        way = tuple(actions[at] for at in erase_loops([place.text for place in places], actions))
        if goal not in library or len(way) < len(library[goal]):
            library[goal] = way
    return library


def find_skill(library: Mapping[Goal, tuple[str, ...]], goal: Goal) -> tuple[str, ...]:
    """Returns the longest skill of a part of the task, or of a part of a part; empty where none is known."""
    parts = take_apart(goal)
    return max((library.get(part) or find_skill(library, part) for part in parts), key=len, default=())


def run(*, kitchens: int = 40, first: int = 0, steps: int = 2000) -> Rows:
    """Measures the share of a kitchen's own tasks that a pupil does after practice, by who chose the tasks to practise.

    Args:
        kitchens, first: Number of games, and the number of the first.
        steps: Steps of the world, for each arm.
    """
    seeds = range(first, first + kitchens)
    opened = zip(open_kitchens("the study game_on", seeds), seeds, strict=True)
    arms, names = arms_of(measure(kitchen, seed, steps) for kitchen, seed in opened), list(map(str, seeds))
    pairs = [("experimenter", other) for other in list(arms)[1:]]
    return rows_of(arms, names) + differences(arms, pairs, names, within=None)


def measure(kitchen: Kitchen, seed: int, steps: int) -> dict[str, float]:
    """Returns the results of one kitchen.

    Args:
        kitchen: The world.
        seed: That of all draws.
        steps: The steps of practice of each arm.
    """
    optimum = kitchen.solve()
    tasks, draw = with_parts(optimum), np.random.default_rng([91, seed])

    def at_random(tasks: Sequence[Goal], history: History) -> Goal:
        return tasks[int(draw.integers(len(tasks)))]

    def near_a_half(tasks: Sequence[Goal], history: History) -> Goal:
        rates = [(1 + sum(history[task][-10:])) / (2 + len(history[task][-10:])) for task in tasks]
        return tasks[int(np.argmin(np.abs(np.array(rates) - 0.5) + 1e-3 * draw.random(len(tasks))))]

    arms: dict[str, tuple[Sequence[Goal], Curriculum, bool, int]] = {
        "experimenter": (tasks, ByRules().propose, True, steps),
        "experimenter without skills": (tasks, ByRules().propose, False, steps),
        "random tasks": (tasks, at_random, True, steps),
        "success near a half": (tasks, near_a_half, True, steps),
        "whole tasks alone": (optimum, at_random, True, steps),
        "random tasks without skills": (tasks, at_random, False, steps),
        "no practice": (tasks, at_random, False, 0),
    }
    done = {}
    for name, (among, propose, skills, until) in arms.items():
        pupil, kitchen.steps = Pupil(np.random.default_rng([92, seed])), 0
        practise(kitchen, pupil, among, propose, until, skills)
        done[name] = float(
            np.mean([pupil.attempt(kitchen, MadeTask(goal), cold=2.0)[0] for goal in optimum for _ in range(3)])
        )
    return done


METHOD = Method(
    kind="study",
    name="game_on",
    title="Game On",
    paper="arXiv 2409.03402",
    claim="A model that proposes and judges experiments gathers skills without a person (no number checked).",
    about="An experimenter proposes tasks from successes and failures, takes hard ones apart, finds skills and judges progress",
    tags=("token", "experiential", "formation"),
    differs=(
        "Kitchens of TextWorldExpress in the place of a robot, rules in the place of the language model (`ByModel` asks one), "
        "and a small softmax that imitates its successes."
    ),
    label="analogue",
    make=Study(run, "share of a kitchen's own tasks that are done"),
    extra="envs",
)
