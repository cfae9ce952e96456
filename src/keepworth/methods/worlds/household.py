"""TextWorld Commonsense as a stream: put things where they belong, in rooms made anew for every game.

The world is the package `textworld-express` ("TextWorldExpress: Simulating Text Games at One Million Steps Per Second",
arXiv 2208.01174), which needs Java 1.8 or newer on the path; `available` says what is missing. A decision is where to put the
thing that is carried, among the places of the room: opening places and picking things up is done for the agent, since there is
nothing to learn about it. Games of the stream are of the fold "train" (or "dev"), held-out games of the fold "test", with
other things to put away. Right places, for the oracle arm alone, are those of the game's own solution.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from keepworth.methods.worlds._replayed import Games, OnSharedEngine
from keepworth.records.episode import Observation, Task
from keepworth.registry import Method
from keepworth.worlds.environment import Step
from keepworth.worlds.java import lacks, require
from keepworth.worlds.scene import Scene, Stream, ends, goes_on
from keepworth.worlds.streams import World

GOAL = "put away"
SETTINGS = "numLocations=1,numItemsToPutAway=2,includeDoors=0,limitInventorySize=0"
TRIES = 2
WIDEST = 32
FOLDS = {"dev": "dev", "held-out": "train", "test": "test"}
ROOMS = 6
"""The number of rooms of a house."""
GAMES = Games()


available = partial(lacks, "textworld_express")


class Household(OnSharedEngine):
    """One game: each thing must be put in its place within `TRIES` tries; a wrong place is not offered again."""

    def __init__(self, engine: Any, fold: str, seed: int) -> None:
        self._engine, self._seed, self._fold = engine, seed, fold
        self._state: dict[str, Any] = {}
        self._things: list[str] = []
        self._tried: set[str] = set()
        self._belongs: dict[str, str] = {}
        self.scene = Scene(GOAL, "", ())

    async def reset(self, task: Task, seed: int) -> Observation:
        _, self._state = self._engine.reset(seed=self._seed, gameFold=self._fold, generateGoldPath=True)
        solved = [command for command in self._engine.getGoldActionSequence() if command.startswith("put ")]
        self._belongs = dict(command.removeprefix("put ").split(" in ", 1) for command in solved)
        while shut := self._possible("open "):
            self._step(min(shut))
        self._things = [command.removeprefix("take ") for command in sorted(self._possible("take "))]
        self._tried = set()
        self.scene = self._next()
        return self.scene.seen

    async def step(self, action: str) -> Step:
        place = action.removeprefix("put it in ")
        rose = self._step(f"put {self._things[0]} in {place}")
        if rose:
            self._things.pop(0)
            self._tried = set()
        else:
            self._tried.add(place)
        won = bool(self._state["tasksuccess"])
        # The game's score shows whether a thing was put in the right place.
        if won or not self._things or len(self._tried) == TRIES:
            return ends(float(won), float(rose))
        scene = self._next()
        if not scene.actions:
            return ends(0.0, float(rose))
        self.scene = scene
        return goes_on(scene, float(rose))

    def _step(self, action: str) -> bool:
        before = self._state["score"]
        _, _, _, self._state = self._engine.step(action)
        return bool(self._state["score"] > before)

    def _possible(self, head: str) -> list[str]:
        """Returns the commands that are possible now and begin with `head`."""
        return [command for command in self._state["validActions"] if command.startswith(head)]

    def _next(self) -> Scene:
        thing = self._things[0]
        self._step(min(self._possible(f"take {thing}")))
        head = f"put {thing} in "
        places = sorted(command.removeprefix(head) for command in self._possible(head))
        actions = tuple(f"put it in {place}" for place in places if place not in self._tried)[:WIDEST]
        right = frozenset({f"put it in {self._belongs[thing]}"} if thing in self._belongs else ())
        return Scene(GOAL, thing, actions, right=right, leaning=(0.0,) * len(actions))


def household(
    *,
    split: str = "dev",
    seed: int = 0,
    order: str = "random",
    length: int = 300,
    held_out: int = 60,
    rooms: int | None = None,
) -> Stream:
    """Builds a stream of games. One game engine serves all streams of a process.

    Args:
        split: "dev" for tuning, "held-out" for the final run, whose games are others.
        seed: The seed of the order in which games come.
        order: An order other than "random" is another shuffle: the game does not say which of its games are hard.
        length: The number of games of the stream.
        held_out: The number of games that are played after it.
        rooms: How many rooms of one house come again and again, with the same things to put away; None for another room each
            time.
    """
    require("the stream household", "textworld_express")
    engine = _engine()
    generator = np.random.default_rng([91, seed])
    fold = FOLDS[split]
    games = {"train": engine.getValidSeedsTrain, "dev": engine.getValidSeedsDev, "test": engine.getValidSeedsTest}
    seeds, later = list(games[fold]()), list(games["test"]())
    if rooms is not None:
        seeds = later = list(generator.choice(seeds, size=rooms, replace=False))
    drawn = generator.choice(seeds, size=length, replace=length > len(seeds))
    held_seeds = generator.choice(later, size=held_out, replace=held_out > len(later))
    if order != "random":
        drawn = drawn[np.random.default_rng([94, seed, len(order)]).permutation(length)]
    tasks = []
    for index, number in enumerate((*drawn, *held_seeds)):
        of_fold = fold if index < length or rooms is not None else "test"
        key = f"household/{of_fold}/{number}" if rooms is None else f"house/{fold}/{seed}/{index}"
        tasks.append(GAMES.task(key, partial(Household, engine), of_fold, int(number), "household", GOAL))
    name = "household" if rooms is None else "house"
    return Stream(name, split, seed, order, tuple(tasks[:length]), tuple(tasks[length:]), widest=WIDEST)


@cache
def _engine() -> Any:
    from textworld_express import TextWorldExpressEnv  # type: ignore[import-untyped,import-not-found,unused-ignore]

    engine = TextWorldExpressEnv(envStepLimit=100)
    engine.load("twc", SETTINGS)
    return engine


HOUSEHOLD = Method(
    kind="world",
    name="household",
    title="Household",
    paper="arXiv 2208.01174",
    about="Put things where they belong in one room (TextWorld Commonsense)",
    tags=("experiential",),
    differs="There are two things to put away, without doors and limits.",
    make=World(household, "several-steps", length=300, lacks=available),
    extra="envs",
)
METHODS = (
    HOUSEHOLD,
    replace(
        HOUSEHOLD,
        name="house",
        title="House",
        about="Put things where they belong in a house of several rooms that come again",
        differs="The rooms of one house come again and again, so that memory can help.",
        make=World(partial(household, rooms=ROOMS, held_out=30), "several-steps", length=120, lacks=available),
    ),
)
