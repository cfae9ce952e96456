"""A slice of ScienceWorld as a stream: which things conduct, and which animals live longest or shortest.

The world is the package `scienceworld` ("ScienceWorld: Is your Agent Smarter than a 5th Grader?", arXiv 2203.07540), which
needs Java on the path; `available` says what is missing. Four of its thirty tasks are in the slice: those whose outcome
hangs on a fact that comes back in other variations (test-conductivity, and the three about life spans). A decision is
what the fact decides: whether the thing goes into the box for conductors, or which animal to focus on. Walking, fetching
and reading which box has which colour are done for the agent, and things of the yard that are no animals are not offered.

Games of the stream are of the fold "dev" or, held out from all tuning, "train": other substances and other sets of
animals. Held-out games are variations of the same fold that the stream does not hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, partial
from typing import Any

import numpy as np

from keepworth.methods.worlds._replayed import Games, OnSharedEngine
from keepworth.records.episode import Observation, Task
from keepworth.registry import Method
from keepworth.worlds.environment import Step
from keepworth.worlds.java import lacks, require
from keepworth.worlds.scene import Scene, Staged, Stream, StreamTask, ends, goes_on
from keepworth.worlds.streams import World

FOLDS = {"dev": "dev", "held-out": "train"}
CONDUCTIVITY = "test-conductivity"
LIFE_SPANS = ("lifespan-longest-lived", "lifespan-shortest-lived", "lifespan-longest-lived-then-shortest-lived")
ELECTRICAL = "is it an electrical conductor"
CONDUCTS, INSULATES = "put it with what conducts", "put it with what does not conduct"
ASKED = {
    "longest": "focus on the animal with the longest life span",
    "shortest": "focus on the animal with the shortest life span",
}
WIDEST = 12
GAMES = Games()
_THING = re.compile(r"determine if (.+?) is electrically conductive.*? around the ([\w ]+)\.")
_BOXES = re.compile(r"is electrically (conductive|nonconductive), place it in the (\w+ box)")
_STAGE = re.compile(r"^(?:baby|egg|adult|juvenile|hatchling) ")
_NO_ANIMAL = re.compile(
    r"door.*|agent|air|axe|shovel|fire pit|fountain|ground|wood|inventory|orange|.*substance.*|outside"
)


available = partial(lacks, "scienceworld")


class Conductivity(OnSharedEngine):
    """One thing and one decision: put it into the box for conductors or into the other box."""

    def __init__(self, game: Any, variation: int) -> None:
        self._game, self._variation = game, variation
        self._thing = ""
        self._boxes: dict[str, str] = {}
        self.scene = Scene(ELECTRICAL, "", ())

    async def reset(self, task: Task, seed: int) -> Observation:
        self._fetch()
        right = CONDUCTS if self._put(CONDUCTS) else INSULATES
        self._fetch()
        actions = (CONDUCTS, INSULATES)
        self.scene = Scene(ELECTRICAL, self._thing, actions, right=frozenset({right}), leaning=(0.0, 0.0))
        return self.scene.seen

    async def step(self, action: str) -> Step:
        won = self._put(action)
        return ends(won, won)

    def _fetch(self) -> None:
        self._game.load(CONDUCTIVITY, self._variation, "easy")
        description = self._game.get_task_description()
        match = _THING.search(description)
        assert match is not None, description
        self._thing, room = match[1], match[2]
        self._boxes = dict(_BOXES.findall(description))
        ways = (f"teleport to {room}", f"focus on {self._thing}", f"pick up {self._thing}", "teleport to workshop")
        for command in ways:
            _command(self._game, command)

    def _put(self, action: str) -> float:
        box = self._boxes["conductive" if action == CONDUCTS else "nonconductive"]
        _command(self._game, f"move {self._thing} to {box}")
        return _won(self._game)


class LifeSpan(OnSharedEngine):
    """Animals in the yard: focus on the one that is asked for, or on both, one after the other."""

    def __init__(self, game: Any, task: str, variation: int) -> None:
        self._game, self._task, self._variation = game, task, variation
        self._asked = _spans(task)
        self._done = 0
        self._animals: dict[str, str] = {}
        self._right: list[str] = []

    async def reset(self, task: Task, seed: int) -> Observation:
        self._right = [
            animal(name) for name in _names_after("focus on ", _solution(self._game, self._task, self._variation))
        ]
        self._game.load(self._task, self._variation, "easy")
        _command(self._game, "teleport to outside")
        offered = sorted(self._game.get_valid_action_object_combinations())
        rooms, names = _names_after("teleport to ", offered), _names_after("focus on ", offered)
        self._animals = {animal(name): name for name in names if name not in rooms and not _NO_ANIMAL.fullmatch(name)}
        self._done = 0
        return self.scene.seen

    async def step(self, action: str) -> Step:
        before = self._game.server.getScore()
        _command(self._game, f"focus on {self._animals[action.removeprefix('focus on ')]}")
        rose = float(self._game.server.getScore() > before)
        self._done += 1
        if not rose or self._done == len(self._asked):
            return ends(_won(self._game), rose)
        return goes_on(self.scene, rose)

    @property
    def scene(self) -> Scene:
        index = min(self._done, len(self._asked) - 1)
        names = sorted(self._animals)[:WIDEST]
        actions = tuple(f"focus on {name}" for name in names)
        # A question that changes within an episode is part of the observation.
        goal = _goal(self._task)
        text = " ".join(names if goal else (ASKED[self._asked[index]], *names))
        right = frozenset({f"focus on {self._right[index]}"})
        return Scene(goal, text, actions, right=right, leaning=(0.0,) * len(actions))


def _names_after(head: str, commands: Iterable[str]) -> list[str]:
    """Returns the objects of the commands that begin with `head`."""
    return [command.removeprefix(head) for command in commands if command.startswith(head)]


def _spans(task: str) -> list[str]:
    """Returns the life spans that a task asks for, in order."""
    return [word for word in ("longest", "shortest") if f"{word}-lived" in task]


def _goal(task: str) -> str:
    """Returns the goal of a task, or "" where it asks for two life spans, one after the other."""
    spans = _spans(task)
    return ELECTRICAL if task == CONDUCTIVITY else ASKED[spans[0]] if len(spans) == 1 else ""


def animal(name: str) -> str:
    """Returns the animal without its stage of life, which differs from game to game: `baby baby wolf` is a wolf."""
    while (shorter := _STAGE.sub("", name)) != name:
        name = shorter
    return re.sub(r" egg$", "", name)


def science(
    *, split: str = "dev", seed: int = 0, order: str = "random", length: int = 120, held_out: int = 30
) -> Stream:
    """Builds a stream of games, half of them about conductors. All arms and seeds of a process share the played games. Raises
    KeepworthError, with what to install, where the package or Java is missing.

    Args:
        split: "dev" for tuning, "held-out" for the final run, whose games are others.
        seed: The seed of the draw.
        order: An order other than "random" is another shuffle: the game does not say which variation is hard.
        length: The number of games of the stream.
        held_out: The number of games that are played after it.
    """
    require("the stream science", "scienceworld")
    game = _game()
    generator = np.random.default_rng([92, seed])
    total = length + held_out
    conductors, spans = (
        [variation[index] for index in generator.permutation(len(variation))]
        for variation in _variations(game, FOLDS[split])
    )
    if total > 2 * min(len(conductors), len(spans)):
        most = 2 * min(len(conductors), len(spans))
        raise ValueError(f"length={length} with held_out={held_out}: the fold {FOLDS[split]!r} holds {most} such games")
    mixed = conductors[: total // 2] + spans[: total - total // 2]
    mixed = [mixed[index] for index in generator.permutation(total)]
    if order != "random":
        mixed[:length] = [mixed[index] for index in np.random.default_rng([93, seed, len(order)]).permutation(length)]

    def task(name: str, variation: int) -> StreamTask:
        return GAMES.task(f"scienceworld/{name}/{variation}", partial(_play, game), name, variation, name, _goal(name))

    tasks, held_tasks = (tuple(task(*variation) for variation in part) for part in (mixed[:length], mixed[length:]))
    return Stream("science", split, seed, order, tasks, held_tasks, widest=WIDEST)


@cache
def _game() -> Any:
    from scienceworld import ScienceWorldEnv  # type: ignore[import-untyped,import-not-found,unused-ignore]

    return ScienceWorldEnv("", envStepLimit=100)


@cache
def _variations(game: Any, fold: str) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Returns (task, variation) of the fold: those about conductors, and those about life spans."""

    def of(task: str) -> list[tuple[str, int]]:
        game.load(task, 0, "easy")  # folds are those of the task that is loaded
        return [(task, int(number)) for number in getattr(game, f"get_variations_{fold}")()]

    return of(CONDUCTIVITY), [variation for task in LIFE_SPANS for variation in of(task)]


@cache
def _solution(game: Any, task: str, variation: int) -> tuple[str, ...]:
    """Returns the game's own solution, for the oracle arm only."""
    game.load(task, variation, "easy", generateGoldPath=True)
    return tuple(game.get_gold_action_sequence())


def _command(game: Any, command: str) -> None:
    # The package's `step` also lists all valid commands, which takes longer than the step.
    reply = game.server.step(command)
    if reply.startswith("Ambiguous"):
        game.server.step("0")


def _won(game: Any) -> float:
    return float(game.server.getScore() >= 1.0)


def _play(game: Any, task: str, variation: int) -> Staged:
    return Conductivity(game, variation) if task == CONDUCTIVITY else LifeSpan(game, task, variation)


METHOD = Method(
    kind="world",
    name="science",
    title="ScienceWorld",
    about="Say which things conduct electricity and which animals live longest (ScienceWorld)",
    tags=("experiential",),
    differs="Only conductivity and life spans are played, and their commands stand behind choices.",
    make=World(science, "several-steps", length=120, lacks=available),
    extra="envs",
)
