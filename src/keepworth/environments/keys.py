"""Key and door in words: notes on the way say which key opens which door, and at the end one key is in the hand.

The note that counts comes anywhere on the way but in its last `context` steps, so the correlation horizon xi varies from
episode to episode ("Unraveling the Complexity of Memory in RL Agents", arXiv 2412.06531); the other notes name other keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from keepworth.environments.rules import checked
from keepworth.environments.scene import Course, Scene, Stream, StreamTask, stream_task
from keepworth.environments.words import words

WALK = "walk on"
GOAL = "leave the house"


@dataclass(frozen=True, slots=True)
class KeyStream:
    """length: steps before the doors; keys: how many notes, one for each key; doors: how many; context: how many past
    scenes the agent itself sees."""

    family: str = "key-door"
    length: int = 10
    keys: int = 5
    doors: int = 4
    context: int = 3
    episodes: int = 300
    held_out: int = 60


FAMILIES = {"key-door": KeyStream()}


def generate(parameters: KeyStream, *, split: str, seed: int, order: str = "random") -> Stream:
    """Words for keys and doors are new in every (split, seed), which door a key opens in every episode."""
    generator = np.random.default_rng([63, checked(split, order), seed])
    vocabulary = words(split, parameters.keys + parameters.doors + 25, generator)
    keys = vocabulary[: parameters.keys]
    doors = tuple(f"open {word}" for word in vocabulary[parameters.keys : parameters.keys + parameters.doors])
    fillers = vocabulary[parameters.keys + parameters.doors :]

    def some(count: int) -> list[str]:
        return [fillers[int(place)] for place in generator.integers(0, len(fillers), size=count)]

    def house(key: str) -> StreamTask:
        held = int(generator.integers(len(keys)))
        opens = [doors[int(place)] for place in generator.integers(0, len(doors), size=len(keys))]
        early = int(generator.integers(parameters.length - parameters.context))
        free = [place for place in range(parameters.length) if place != early]
        places = {
            int(place): number
            for place, number in zip(
                generator.permutation(free), [number for number in range(len(keys)) if number != held], strict=False
            )
        } | {early: held}
        scenes = []
        for place in range(parameters.length):
            note = places.get(place)
            named = () if note is None else (opens[note],)
            said = some(5) if note is None else ["key", keys[note], *some(2), *named]
            scenes.append(Scene(GOAL, " ".join(said), (WALK,), named=named, right=frozenset({WALK}), leaning=(0.0,)))
        leaning = tuple(generator.normal(0.0, 0.3, size=len(doors)).tolist())
        end = Scene(
            GOAL,
            " ".join(["in hand key", keys[held], *some(2)]),
            doors,
            right=frozenset({opens[held]}),
            leaning=leaning,
        )
        return stream_task(key, partial(Course, *scenes, end), "key", 1.0 - 1.0 / len(doors), GOAL)

    prefix = f"{parameters.family}/{split}/{seed}"
    tasks = [house(f"{prefix}/{number}") for number in range(parameters.episodes)]
    held_out = [house(f"{prefix}/held-out/{number}") for number in range(parameters.held_out)]
    if order != "random":  # all houses are equally hard: an order is another shuffle
        tasks = [tasks[place] for place in np.random.default_rng([64, len(order), seed]).permutation(len(tasks))]
    return Stream(
        parameters.family,
        split,
        seed,
        order,
        tuple(tasks),
        tuple(held_out),
        horizons=tuple(range(parameters.context + 1, parameters.length + 1)),
        context=parameters.context,
    )
