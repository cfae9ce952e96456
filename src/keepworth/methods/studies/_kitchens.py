"""Kitchens of TextWorldExpress with tasks of carrying things, and a pupil that learns them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol
from zlib import crc32

import numpy as np

from keepworth.base.arrays import Floats, Rows
from keepworth.worlds.java import require

SETTINGS = "numLocations=3,numIngredients=2,numDistractorItems=4,includeDoors=0,limitInventorySize=0"
CUTS, HEATS = ("diced", "sliced", "chopped"), ("grilled", "roasted", "fried")
IDLE = ("examine", "look", "inventory", "read", "eat")
MOST, HORIZON = 3, 25
"""Most things of a task, and most steps of a pupil."""
WIDTH = 1 << 15
Goal = frozenset[str]


@lru_cache(maxsize=1 << 16)
def lacking(goal: Goal, carried: Goal) -> Goal:
    """Returns the things of a goal that are not carried. A carried thing counts if it has all words of the wanted one."""
    of = [set(thing.split()) for thing in carried]
    return frozenset(thing for thing in goal if not any(words.issuperset(thing.split()) for words in of))


@dataclass(frozen=True, slots=True)
class Place:
    """An observation: the whole text, the room, the carried things, and the possible actions."""

    text: str
    room: str
    carried: Goal
    actions: tuple[str, ...]


class Home(Protocol):
    """A world that begins the same each time. `steps` counts all its steps; `tries` is how often its own tasks are tried."""

    steps: int
    tries: int

    def reset(self) -> Place: ...

    def step(self, action: str) -> Place: ...

    def reached(self, goal: Goal, place: Place) -> bool: ...

    def solve(self) -> Collection[Goal]: ...

    def draw_tasks(self, count: int, draw: np.random.Generator) -> list[MadeTask]: ...


@dataclass(frozen=True, slots=True)
class MadeTask:
    """The things to carry, and the steps to the goal, empty where they are unknown."""

    goal: Goal
    guideline: tuple[str, ...] = ()


class Kitchen:
    """A game of TextWorldExpress."""

    tries = 3

    def __init__(self, engine: Any, seed: int) -> None:
        self._engine, self._seed, self.steps = engine, seed, 0

    def reset(self) -> Place:
        return self._place(self._engine.reset(seed=self._seed, gameFold="train", generateGoldPath=False)[1])

    def step(self, action: str) -> Place:
        self.steps += 1
        return self._place(self._engine.step(action)[3])

    def reached(self, goal: Goal, place: Place) -> bool:
        return not lacking(goal, place.carried)

    def draw_tasks(self, count: int, draw: np.random.Generator) -> list[MadeTask]:
        """Draws tasks from the words of the things that are met by chance."""
        place, things = self.reset(), set[str]()
        for at in range(400):
            things |= {action.removeprefix("take ") for action in place.actions if action.startswith("take ")}
            place = self.step(str(draw.choice(place.actions))) if place.actions and at % 50 else self.reset()
        made = []
        for _ in range(count):
            goal = set()
            for thing in draw.choice(sorted(things), size=int(draw.integers(1, MOST + 1))):
                cut = f"{draw.choice(CUTS)} " if draw.random() < 0.3 else ""
                heat = f"{draw.choice(HEATS)} " if draw.random() < 0.3 else ""
                goal.add(f"{heat}{cut}{thing}")
            made.append(MadeTask(frozenset(goal)))
        return made

    def solve(self) -> list[Goal]:
        """Returns the kitchen's own tasks: the things that its solution comes to carry, one by one, and together."""
        self._engine.reset(seed=self._seed, gameFold="train", generateGoldPath=True)
        solution = [action for action in self._engine.getGoldActionSequence() if not action.startswith("eat")]
        place, goals = self.reset(), list[Goal]()
        for action in solution:
            before, place = place, self.step(action)
            goals += [frozenset([thing]) for thing in place.carried - before.carried] + [place.carried]
        return list(dict.fromkeys(goal for goal in goals if goal and goal != {"cookbook"}))

    @staticmethod
    def _place(state: Any) -> Place:
        lines = [line.strip() for line in state["inventory"].splitlines()]
        carried = frozenset(line.split(" ", 1)[1] for line in lines if re.match(r"(an?|some|the) ", line))
        room = re.match(r"You are in the ([\w ]+)", state["look"])
        over = state["done"] or state["taskfailure"]
        actions = () if over else sorted(a for a in state["validActions"] if not a.startswith(IDLE))
        return Place(state["look"] + state["inventory"], room[1] if room else "", carried, tuple(actions))


def open_kitchens(what: str, seeds: Sequence[int]) -> list[Kitchen]:
    """Returns a kitchen with rooms around it for each seed. Raises KeepworthError, which says what `what` lacks."""
    require(what, "textworld_express")
    from textworld_express import TextWorldExpressEnv  # type: ignore[import-untyped,import-not-found,unused-ignore]

    engine = TextWorldExpressEnv(envStepLimit=1000)
    engine.load("cookingworld", SETTINGS)
    return [Kitchen(engine, seed) for seed in seeds]


def erase_loops(texts: Sequence[str], actions: Sequence[str]) -> list[int]:
    """Returns the indices of the actions that remain without loops. `texts` has one observation more than `actions`."""
    left: list[int] = []
    seen = [texts[0]]
    for at in range(len(actions)):
        if texts[at + 1] in seen:
            back = seen.index(texts[at + 1])
            del seen[back + 1 :], left[back:]
        else:
            seen.append(texts[at + 1])
            left.append(at)
    return left


@lru_cache(maxsize=1 << 18)
def features(wanted: Goal, room: str, action: str, done: bool) -> Rows:
    """Returns hashed features of an action: its words with the words of what is still wanted, and with the room. All actions have
    as many."""
    verb, *words = action.split()
    asked = {word for thing in wanted for word in thing.split()}
    names = [verb, action, f"{room}/{action}", f"{verb}/{done}", f"{verb}/{len(asked & set(words))}/{len(words)}"]
    names += [f"{word}/{part}" for word in asked for part in (verb, action, f"{room}/{action}")]
    return np.array([crc32(name.encode()) % WIDTH for name in names])


@dataclass
class Pupil:
    """A softmax over actions that imitates its successes."""

    draw: np.random.Generator
    weights: Floats = field(default_factory=lambda: np.zeros(WIDTH))
    memory: list[tuple[Rows, int]] = field(default_factory=list)

    def attempt(
        self, home: Home, task: MadeTask, hint: int = 0, cold: float = 1.0
    ) -> tuple[bool, list[Place], list[str]]:
        """Plays a task and returns whether it succeeded, the places and the actions. hint: how many steps of the guideline are
        taken for the pupil; cold: inverse temperature of the softmax."""
        place, places, actions = home.reset(), list[Place](), list[str]()
        while not home.reached(task.goal, place) and place.actions and len(actions) < HORIZON:
            if len(actions) < hint and task.guideline[len(actions)] in place.actions:
                action = task.guideline[len(actions)]
            else:
                scores = cold * self.score(task.goal, place, actions)
                odds = np.exp(scores - scores.max())
                action = place.actions[int(self.draw.choice(len(scores), p=odds / odds.sum()))]
            places.append(place)
            actions.append(action)
            place = home.step(action)
        places.append(place)
        return home.reached(task.goal, place), places, actions

    def score(self, goal: Goal, place: Place, past: Sequence[str]) -> Floats:
        return np.asarray(self.weights[self.look(goal, place, past)].sum(1))

    @staticmethod
    def look(goal: Goal, place: Place, past: Sequence[str]) -> Rows:
        wanted = lacking(goal, place.carried)
        return np.stack([features(wanted, place.room, action, action in past) for action in place.actions])

    def imitate(self, goal: Goal, places: Sequence[Place], actions: Sequence[str], rate: float = 0.1) -> None:
        """Adds an episode without its loops to the memory, and imitates a sample of all remembered steps."""
        past: list[str] = []
        for at in erase_loops([place.text for place in places], actions):
            self.memory.append((self.look(goal, places[at], past), places[at].actions.index(actions[at])))
            past.append(actions[at])
        for at in self.draw.integers(len(self.memory), size=min(100, 2 * len(self.memory))):
            rows, right = self.memory[at]
            scores = self.weights[rows].sum(1)
            odds = np.exp(scores - scores.max())
            for row, share in zip(rows, odds / odds.sum(), strict=True):
                if share > 1e-3:
                    self.weights[row] -= rate * share
            self.weights[rows[right]] += rate

    def practise(self, home: Home, tasks: Sequence[MadeTask], until: int, hints: bool, hindsight: bool) -> None:
        """Tries random tasks until the world has counted `until` steps."""
        while tasks and home.steps < until:
            task = tasks[int(self.draw.integers(len(tasks)))]
            hint = int(self.draw.integers(len(task.guideline) + 1)) if hints and self.draw.random() < 0.5 else 0
            done, places, actions = self.attempt(home, task, hint)
            goal = task.goal if done else frozenset(sorted(places[-1].carried - places[0].carried)[:MOST])
            if actions and (done or (hindsight and goal)):
                self.imitate(goal, places, actions)


class WordPupil(Pupil):
    """A rule that learns nothing: it takes an action with most words of what is wanted, and one that it took less often first."""

    def score(self, goal: Goal, place: Place, past: Sequence[str]) -> Floats:
        asked = {word for thing in lacking(goal, place.carried) for word in re.split(r"[ _]", thing)}
        return np.array([len(asked & set(re.split(r"[ _]", a))) - past.count(a) for a in place.actions]) * 10.0
