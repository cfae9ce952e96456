"""ALFWorld-style games as a stream: find a thing in a kitchen, heat, cool or clean it, put it where it is wanted.

The package `alfworld` ("ALFWorld: Aligning Text and Embodied Environments for Interactive Learning", arXiv 2010.03768)
brings the rules (a planning domain), the wording and the tables of what can lie where; its own games are a separate
download and are not used. Games are made here as problems of that domain, and TextWorld plays them. A decision is which
place to look in for the thing, and at which place to heat, cool or clean it; walking, opening, taking and putting down
are done for the agent.

A house, drawn by (split, seed), has its habits: where things of a kind are mostly kept, among the places that the package's
table allows. The package needs a C++ compiler where it is installed (its planner has no wheel): `available` says what is
missing.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from keepworth.environments.environment import Step
from keepworth.environments.made_up import checked
from keepworth.environments.scene import Replayed, Scene, Staged, Stream, StreamTask, ends, goes_on, stream_task
from keepworth.environments.streams import World
from keepworth.episodes.episode import Observation, Task
from keepworth.episodes.errors import KeepworthError
from keepworth.registry import Method

PLACES = (
    "Cabinet",
    "CounterTop",
    "DiningTable",
    "Drawer",
    "Fridge",
    "GarbageCan",
    "Microwave",
    "Shelf",
    "SinkBasin",
    "StoveBurner",
)
OPENABLE = ("Cabinet", "Drawer", "Fridge", "Microwave")
TREATMENTS = {
    "heat": ("hot", "Microwave", "Heatable", "isHot"),
    "cool": ("cool", "Fridge", "Coolable", "isCool"),
    "clean": ("clean", "SinkBasin", "Cleanable", "isClean"),
}
TRIES = 3
HABIT = 0.8
OTHERS = 6
GAMES = 512
"""Translated games that are kept, so that the next arm of a comparison does not wait for them again."""


def available() -> str:
    """What is missing to play, or "" where nothing is."""
    missing = [name for name in ("alfworld", "textworld", "fast_downward") if find_spec(name) is None]
    return "the Python package alfworld (pip install alfworld, which compiles a planner in C++)" if missing else ""


@dataclass(frozen=True, slots=True)
class KitchenOrder:
    """What a game wants: `thing` treated ("" for as it is) and put at `place`. lies: where it is; others: what lies where
    besides."""

    thing: str
    treatment: str
    place: str
    lies: str
    others: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        state = f"{TREATMENTS[self.treatment][0]} " if self.treatment else ""
        return f"put a {state}{self.thing} in {self.place}".lower()


class Kitchen:
    """One game: `TRIES` places to look in, then as many to treat the thing at; the game says whether it is won."""

    def __init__(self, order: KitchenOrder) -> None:
        self._order = order
        self._has_thing = False
        self._tried: set[str] = set()
        self._game: Any = None
        self._over: Any = None
        self._state: Any = None

    async def reset(self, task: Task, seed: int) -> Observation:
        from textworld import EnvInfos  # type: ignore[import-untyped,import-not-found,unused-ignore]
        from textworld.envs.pddl import PddlEnv  # type: ignore[import-untyped,import-not-found,unused-ignore]

        domain, grammar = _package()
        self._game = PddlEnv(EnvInfos(admissible_commands=True))
        self._over = weakref.finalize(self._game, _IDLE.append, self._game.downward_lib)
        self._over.atexit = False
        self._game.load({"pddl_domain": domain, "grammar": grammar, "pddl_problem": problem(self._order)})
        self._state = self._game.reset()
        return self.scene.seen

    async def step(self, action: str) -> Step:
        step = self._tried_at(action)
        if step.stop is not None:
            self._over()
        return step

    async def close(self) -> None:
        if self._over is not None:
            self._over()

    def _tried_at(self, action: str) -> Step:
        order = self._order
        place = action.split(" the ")[1]
        self._go(place)
        if not self._has_thing:
            good = self._step(f"take {order.thing.lower()}_1 from {place}_1")
            self._has_thing = good
        else:
            good = self._step(f"{order.treatment} {order.thing.lower()}_1 with {place}_1")
        if not good:
            self._tried.add(place)
            if len(self._tried) == TRIES:
                return ends(0.0, 0.0)
            return goes_on(self.scene, 0.0)
        self._tried = set()
        if order.treatment and action.startswith("look"):
            return goes_on(self.scene, 1.0)
        self._go(order.place.lower())
        self._step(f"move {order.thing.lower()}_1 to {order.place.lower()}_1")
        return ends(float(self._state["won"]), 1.0)

    @property
    def scene(self) -> Scene:
        order = self._order
        verb, right = ("look in", order.lies) if not self._has_thing else (f"{order.treatment} it at", "")
        if self._has_thing:
            right = TREATMENTS[order.treatment][1]
        actions = tuple(f"{verb} the {place.lower()}" for place in PLACES if place.lower() not in self._tried)
        seen = f"{order.thing} to be found" if not self._has_thing else f"{order.thing} to {order.treatment}"
        return Scene(
            order.text,
            seen.lower(),
            actions,
            right=frozenset({f"{verb} the {right.lower()}"}),
            leaning=(0.0,) * len(actions),
        )

    def _go(self, place: str) -> None:
        self._step(f"go to {place}_1")
        self._step(f"open {place}_1")

    def _step(self, command: str) -> bool:
        """Whether the game knew the command here."""
        if command not in self._state["admissible_commands"]:
            return False
        self._state, _, _ = self._game.step(command)
        return True


def problem(order: KitchenOrder) -> str:
    """The game as a problem of the package's planning domain."""
    lying = ((order.thing, order.lies), *order.others)
    counted: dict[str, int] = {}
    things = []
    for kind, place in lying:
        counted[kind] = counted.get(kind, 0) + 1
        things.append((f"{kind.lower()}_{counted[kind]}", kind, place))
    kinds = sorted({kind for _, kind, _ in things})
    holds, able = _tables()
    objects = [
        "agent1 - agent",
        "loc_0 - location",
        *(f"loc_{place.lower()} - location" for place in PLACES),
        *(f"{place.lower()}_1 - receptacle" for place in PLACES),
        *(f"{place}Type - rtype" for place in PLACES),
        *(f"{name} - object" for name, _, _ in things),
        *(f"{kind}Type - otype" for kind in sorted({*kinds, "Knife", "ButterKnife"})),
    ]
    facts = ["(= (total-cost) 0)", "(atLocation agent1 loc_0)"]
    for place in PLACES:
        facts += [
            f"(receptacleAtLocation {place.lower()}_1 loc_{place.lower()})",
            f"(receptacleType {place.lower()}_1 {place}Type)",
        ]
        if place in OPENABLE:
            facts.append(f"(openable {place.lower()}_1)")
        facts += [f"(canContain {place}Type {kind}Type)" for kind in kinds if kind in holds[place]]
    for name, kind, place in things:
        facts += [
            f"(objectType {name} {kind}Type)",
            f"(pickupable {name})",
            f"(inReceptacle {name} {place.lower()}_1)",
            f"(objectAtLocation {name} loc_{place.lower()})",
        ]
        facts += [f"({word.lower()} {name})" for word, those in able.items() if kind in those]
    state = f"({TREATMENTS[order.treatment][3]} ?o) " if order.treatment else ""
    goal = (
        f"(exists (?r - receptacle ?o - object) (and {state}(inReceptacle ?o ?r) "
        f"(objectType ?o {order.thing}Type) (receptacleType ?r {order.place}Type)))"
    )
    return (
        "(define (problem kitchen) (:domain alfred)\n"
        f"(:objects {' '.join(objects)})\n(:init {' '.join(facts)})\n(:goal {goal})\n(:metric minimize (total-cost)))"
    )


def alfworld(
    *, split: str = "dev", seed: int = 0, order: str = "random", length: int = 200, held_out: int = 40
) -> Stream:
    """`length` games in one house. An order other than "random" is another shuffle: no game is known to be harder.

    Errors: KeepworthError, naming what to install, where the package is missing."""
    missing = available()
    if missing:
        raise KeepworthError(f"the stream alfworld needs {missing}.", "Install it, or choose a generated stream.")
    holds, able = _tables()
    generator = np.random.default_rng([97, checked(split, order), seed])
    whole = {kind for kinds in able.values() for kind in kinds if not kind.endswith("Sliced")}
    kinds = sorted(kind for kind in whole if sum(kind in holds[place] for place in PLACES) > 2)
    habits = {kind: _one([place for place in PLACES if kind in holds[place]], generator) for kind in kinds}

    def lies(kind: str, but: str = "") -> str:
        allowed = [place for place in PLACES if kind in holds[place] and place != but]
        return habits[kind] if habits[kind] != but and generator.random() < HABIT else _one(allowed, generator)

    def game(key: str) -> StreamTask:
        thing = _one(kinds, generator)
        treatment = _one(
            ["", *(name for name, (_, _, word, _) in TREATMENTS.items() if thing in able[word])], generator
        )
        place = _one([each for each in PLACES if thing in holds[each]], generator)
        others = tuple((kind, lies(kind)) for kind in (_one(kinds, generator) for _ in range(OTHERS)) if kind != thing)
        wanted = KitchenOrder(thing, treatment, place, lies(thing, but=place), others)
        return stream_task(key, partial(Replayed, partial(_game, wanted), {}), treatment or "put", 0.5, wanted.text)

    tasks = [game(f"alfworld/{split}/{seed}/{number}") for number in range(length)]
    later = [game(f"alfworld/{split}/{seed}/held-out/{number}") for number in range(held_out)]
    if order != "random":
        tasks = [tasks[place] for place in np.random.default_rng([98, seed, len(order)]).permutation(length)]
    return Stream("alfworld", split, seed, order, tuple(tasks), tuple(later), widest=len(PLACES))


def _one(names: Sequence[str], generator: np.random.Generator) -> str:
    return names[int(generator.integers(len(names)))]


def _game(order: KitchenOrder) -> Staged:
    return Kitchen(order)


_IDLE: list[Any] = []
"""Planners whose game is over. TextWorld loads a copy of the library, 33 MB that stay on the disk until the process ends, for
every game; a planner that is given another problem forgets the one before."""


@cache
def _package() -> tuple[str, str]:
    """The planning domain and the grammar that the package ships."""
    import alfworld.info as info  # type: ignore[import-untyped,import-not-found,unused-ignore]
    import fast_downward  # type: ignore[import-untyped,import-not-found,unused-ignore]
    from textworld.envs.pddl import textgen  # type: ignore[import-untyped,import-not-found,unused-ignore]

    # TextWorld translates a game several times whenever it is opened, and parses the same few phrases at every step: most of
    # the time that it takes to play. Both depend on their text alone, and what a parse gives is only read.
    load = fast_downward.load_lib
    fast_downward.load_lib = lambda: _IDLE.pop() if _IDLE else load()
    fast_downward.pddl2sas = lru_cache(maxsize=GAMES)(fast_downward.pddl2sas)
    textgen._PARSER.parse = lru_cache(maxsize=8192)(textgen._PARSER.parse)

    return Path(info.ALFRED_PDDL_PATH).read_text(encoding="utf-8"), Path(info.ALFRED_TWL2_PATH).read_text(
        encoding="utf-8"
    )


@cache
def _tables() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """What each place can hold, and what can be heated, cooled and cleaned, as the package says."""
    from alfworld.gen import constants  # type: ignore[import-untyped,import-not-found,unused-ignore]

    return constants.VAL_RECEPTACLE_OBJECTS, {
        word: constants.VAL_ACTION_OBJECTS[word] for _, _, word, _ in TREATMENTS.values()
    }


METHOD = Method(
    kind="world",
    name="alfworld",
    title="ALFWorld",
    about="find a thing in a kitchen, heat, cool or clean it, put it in its place (ALFWorld)",
    differs="kitchens alone, made by seed; the agent chooses among offered actions",
    make=World(alfworld, "several-steps", length=200, lacks=available),
)
