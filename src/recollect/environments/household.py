"""TextWorld Commonsense as a stream: put things where they belong, in rooms made anew for every game.

The world is the package `textworld-express` ("TextWorldExpress: Simulating Text Games at One Million Steps Per Second",
arXiv 2208.01174), which needs Java 1.8 or newer on the path; `available` says what is missing. Games of the stream are of the
fold "train" (or "dev"), held-out games of the fold "test", with other things to put away.
"""

from __future__ import annotations

import shutil
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from recollect.environments.scene import Scene, Stream, StreamTask, World
from recollect.episodes.errors import RecollectError

GOAL = "put things where they belong"
SETTINGS = "numLocations=1,numItemsToPutAway=2,includeDoors=0,limitInventorySize=0"
IDLE = ("look around", "inventory", "help")
STEPS = 15
WIDEST = 64
FOLDS = {"dev": "dev", "held-out": "train"}


def available() -> str:
    """What is missing to play, or "" where nothing is."""
    missing = [name for name in ("textworld_express", "py4j", "orjson") if find_spec(name) is None and name != "orjson"]
    if missing:
        return f"the Python package {missing[0]} (pip install textworld-express)"
    return "" if shutil.which("java") else "Java (a runtime of version 8 or newer on the path)"


class Household:
    """One game. The observation is what is carried, or else what could be taken: a situation that comes again elsewhere."""

    def __init__(self, engine: Any, seed: int, fold: str) -> None:
        self._engine, self._seed, self._fold = engine, seed, fold
        self._score, self._steps = 0.0, 0

    def reset(self) -> Scene:
        _, state = self._engine.reset(seed=self._seed, gameFold=self._fold)
        self._score, self._steps = 0.0, 0
        return self._scene(state, None)

    def act(self, action: str) -> Scene:
        _, _, _, state = self._engine.step(action)
        self._steps += 1
        rose = state["score"] > self._score
        self._score = state["score"]
        # Putting a thing where it earns nothing is what the game tells to be wrong; other moves are neither.
        signal = 1.0 if rose else 0.0 if action.startswith("put ") else 0.5
        if state["tasksuccess"] or state["taskfailure"] or self._steps >= STEPS:
            return Scene(GOAL, "", (), reward=float(state["tasksuccess"]), done=True, signal=signal)
        return self._scene(state, signal)

    def _scene(self, state: dict[str, Any], signal: float | None) -> Scene:
        actions = tuple(sorted(each for each in state["validActions"] if each not in IDLE))[:WIDEST]
        carried = [line.strip() for line in state["inventory"].splitlines()[1:] if line.strip()]
        if not carried or "empty" in carried[0]:
            carried = [f"in sight {each.removeprefix('take ')}" for each in actions if each.startswith("take ")]
        else:
            carried = [f"carrying {each}" for each in carried]
        return Scene(GOAL, ", ".join(carried), actions, signal=signal, leaning=(0.0,) * len(actions))


def household(*, split: str = "dev", seed: int = 0, length: int = 100, held_out: int = 40) -> Stream:
    """`length` games in an order drawn by `seed`. One game engine serves the whole stream, one game at a time."""
    missing = available()
    if missing:
        raise RecollectError(f"the stream household needs {missing}.", "Install it, or choose a generated stream.")
    from textworld_express import TextWorldExpressEnv  # type: ignore[import-untyped,import-not-found,unused-ignore]

    engine = TextWorldExpressEnv(envStepLimit=100)
    engine.load("twc", SETTINGS)
    generator = np.random.default_rng([91, seed])
    fold = FOLDS[split]
    seeds = list(engine.getValidSeedsTrain() if fold == "train" else engine.getValidSeedsDev())
    later = list(engine.getValidSeedsTest())

    def game(key: str, number: int, which: str) -> StreamTask:
        return StreamTask(key, partial(_world, engine, number, which), "household", 0.5)

    drawn = generator.choice(seeds, size=length, replace=length > len(seeds))
    held = generator.choice(later, size=held_out, replace=held_out > len(later))
    tasks = tuple(game(f"household/{fold}/{each}", int(each), fold) for each in drawn)
    others = tuple(game(f"household/test/{each}", int(each), "test") for each in held)
    return Stream("household", split, seed, "random", tasks, others, widest=WIDEST)


def _world(engine: Any, seed: int, fold: str) -> World:
    return Household(engine, seed, fold)
