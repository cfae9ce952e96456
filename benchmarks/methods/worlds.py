"""Asks of each world whether it needs a memory, and whether there is anything left to learn for one.

python -m benchmarks.methods.worlds --data FOLDER [NAME ...] [--tasks 120] [--seeds 10]

Each world is played by the scripted optimum, at random, by rules that remember nothing, and by three plain memories. These look
at the four most similar, newest or oldest cases, do the first action that was paid there, and else what the agent leans to most
of what did not fail there. (In a first look at benign and t-maze a memory looked at one case and drew where that had failed, and
the oldest was not tried; in one at updates the constant action was one of any that are offered.) The best rule and the best
memory are chosen by their means, which favours both; the interval between them is of 98.3 %, for there are three memories. What a
world claims, and of which of these numbers, stands in `rules.py`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.methods.write import arm, begin, gap, measuring, worded, write
from benchmarks.record import arguments
from keepworth.base.text import tokens
from keepworth.worlds.scene import PROGRESS, SUCCESS, Scene, Stream, StreamTask
from keepworth.worlds.streams import missing, open_stream, worlds


@dataclass(frozen=True)
class Move:
    """A scene, what was done there, and what the world said of it, None where it says nothing."""

    scene: Scene
    action: str
    progress: float | None


@dataclass(frozen=True)
class Case:
    """A situation, what was done there, and whether it was paid; where the word `trigger` occurs, `payload` counts."""

    text: str
    action: str
    paid: bool = True
    trigger: str = ""
    payload: str = ""

    def advice(self, scene: Scene) -> str:
        return self.payload if self.trigger and self.trigger in scene.text else self.action


Choose = Callable[[Scene, list[Move]], str]
"""The action in a scene, from it and the moves of the episode so far."""
OPTIMUM, CHANCE = "scripted optimum", "chance"
CONSTANT = "best constant action"
"""Of those that every decision offers, known in hindsight; the first that is offered where there is none."""
MEMORIES = NEAREST, NEWEST, OLDEST = ("nearest cases", "newest cases", "oldest cases")
SHOWN = 4
EVERY = ""
TURNS = 60


def main() -> None:
    parser = measuring(arguments(__doc__, json=False), smallest="8 tasks of 3 seeds")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--data", type=Path, help="the folder that holds published sets")
    parser.add_argument("--tasks", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    if options.smallest:
        options.tasks, options.seeds = 8, 3
    begin(options, options.seeds)
    for name in options.names or worlds():
        command = (
            f"python -m benchmarks.methods.worlds {name} --data DATA --tasks {options.tasks} --seeds {options.seeds}"
        )
        folder = worlds()[name].data
        data = options.data / folder if options.data and folder else options.data
        lacks = missing(name, data)
        if lacks is not None:
            write(name, command, f"Not played: {lacks.message}")
            continue
        streams = [
            open_stream(name, split="held-out", seed=seed, length=options.tasks, data=data)
            for seed in range(options.seeds)
        ]
        write(name, command, **judge(streams, [asyncio.run(measure(stream)) for stream in streams]))


async def measure(stream: Stream) -> dict[str, float]:
    """Success of each arm on one stream."""
    draw = random.Random(f"{stream.family}/{stream.seed}")
    places: Counter[str] = Counter()
    offers: Counter[str] = Counter()

    def know(scene: Scene, moves: list[Move]) -> str:
        if len(scene.actions) > 1:
            places.update(scene.right & set(scene.actions))
            offers.update((*scene.actions, EVERY))
        return min(scene.right)

    def constant(action: str) -> int:
        return places[action] if offers[action] == offers[EVERY] else -1

    def newest_in_sight(scene: Scene, moves: list[Move]) -> str:
        sight = [action for move in moves[len(moves) - stream.context :] for action in move.scene.named]
        sight = [action for action in sight if action in scene.actions]
        return sight[-1] if sight else draw.choice(scene.actions)

    rules: dict[str, Choose] = {
        OPTIMUM: know,  # first: it counts which actions are right
        CHANCE: lambda scene, moves: draw.choice(scene.actions),
        CONSTANT: lambda scene, moves: max(scene.actions, key=constant),
        "most words shared": lambda scene, moves: max(scene.actions, key=lambda action: alike(scene.text, action)),
        "newest in sight": newest_in_sight,
        "first offered": lambda scene, moves: scene.actions[0],
        "last offered": lambda scene, moves: scene.actions[-1],
        "what the agent leans to": lambda scene, moves: lean(scene),
    }
    success = {
        name: float(np.mean([(await play(task, choose))[0] for task in stream.tasks])) for name, choose in rules.items()
    }
    return success | {kind: float(np.mean(await remember(stream, kind))) for kind in MEMORIES}


async def play(task: StreamTask, choose: Choose) -> tuple[float, list[Move]]:
    """Success of one task, and its moves."""
    world, moves, success = task.environment(), list[Move](), 0.0
    await world.reset(task.task, 0)
    for _ in range(TURNS):
        scene = world.scene
        action = scene.actions[0] if len(scene.actions) == 1 else choose(scene, moves)
        step = await world.step(action)
        terms = {term.name: term.value for term in step.rewards}
        moves.append(Move(scene, action, terms.get(PROGRESS)))
        if step.stop is not None:
            success = terms.get(SUCCESS, 0.0)
            break
    await world.close()
    return success, moves


async def remember(stream: Stream, kind: str) -> list[float]:
    """Success on each task of a memory of cases.

    Where something seen earlier has to be remembered, cases are what observations named, of this episode unless it lasts. On
    `linked` observations name nothing, and cases are what was done.
    """
    cases: list[Case] = []

    def choose(scene: Scene, moves: list[Move]) -> str:
        known = [case for case in cases + seen(moves) if case.advice(scene) in scene.actions]
        if kind == NEAREST:
            known.sort(key=lambda case: alike(scene.text, case.text))
        read = known[:SHOWN] if kind == OLDEST else known[: -SHOWN - 1 : -1]
        failed = {case.advice(scene) for case in read if not case.paid}
        return next((case.advice(scene) for case in read if case.paid), lean(scene, failed))

    def seen(moves: list[Move]) -> list[Case]:
        return (
            [Case(move.scene.text, action) for move in moves for action in move.scene.named] if stream.long_term else []
        )

    successes = []
    for task in stream.tasks:
        cases += [Case(item.key, item.action, True, item.trigger, item.payload) for item in task.foreign]
        success, moves = await play(task, choose)
        successes.append(success)
        if stream.lasting:
            cases += seen(moves)
        if not stream.long_term or stream.family == "linked":
            for move in moves:
                paid = success if move.progress is None or stream.paid_at_end else move.progress
                cases.append(Case(move.scene.text, move.action, (paid > 0.5) != task.flipped))
    return successes


def judge(streams: list[Stream], seeds: list[dict[str, float]]) -> dict[str, Any]:
    """The fields of the evidence, by the rule at the top of this file."""
    success = {name: [seed[name] for seed in seeds] for name in seeds[0]}
    mean = {name: float(np.mean(values)) for name, values in success.items()}
    rule = max((name for name in success if name not in (OPTIMUM, *MEMORIES)), key=mean.__getitem__)
    memory = max(MEMORIES, key=mean.__getitem__)
    arms = {name: arm(name, values) for name, values in success.items()}
    above = gap(f"{rule}: {memory}", success[memory], success[rule], level=1.0 - 0.05 / len(MEMORIES))
    left = gap(f"{memory}: {OPTIMUM}", success[OPTIMUM], success[memory])
    sentence = (
        f"Chance {mean[CHANCE]:.2f}, without memory {mean[rule]:.2f} ({rule}), {memory} {mean[memory]:.2f} "
        f"({worded(above, 2, '')}), optimum {mean[OPTIMUM]:.2f}."
        f"{' What free words mean is told.' if streams[0].wording else ''}"
    )
    return {
        "model": "none: rules and plain memories that act themselves",
        "n": sum(len(stream.tasks) for stream in streams),
        "seeds": len(streams),
        "unit": "share of tasks that succeed, mean over the tasks of a seed",
        "arms": list(arms.values()),
        "comparisons": [above, left],
        "controls": [name for name in success if name not in (OPTIMUM, *MEMORIES)],
        "sentence": sentence,
    }


def lean(scene: Scene, but: Collection[str] = ()) -> str:
    """What the simulated agent leans to most, where it remembers nothing."""
    order: list[str] = [scene.actions[index] for index in np.argsort(scene.leaning)[::-1]]
    return next((action for action in order if action not in but), order[0])


@lru_cache(maxsize=1 << 16)
def words(text: str) -> frozenset[str]:
    return frozenset(tokens(text))


def alike(first: str, second: str) -> float:
    """Cosine of the sets of words."""
    one, two = words(first), words(second)
    return float(len(one & two) / max(1.0, (len(one) * len(two)) ** 0.5))


if __name__ == "__main__":
    main()
