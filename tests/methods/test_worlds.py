"""Every world of the registry: who does what is right is paid in full, who draws at random is not; same seed, same world.

Worlds of other people's programs or data are skipped by name where these are not here; KEEPWORTH_DATA names a folder with data.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.methods.worlds import CHANCE, NEWEST, OLDEST, OPTIMUM, measure
from keepworth.worlds.scene import Stream, StreamTask
from keepworth.worlds.streams import missing, open_stream, worlds
from tests.environments.game import Game, Met

TASKS = 12
TURNS = 60
"""More than an episode of any world takes."""


@pytest.fixture(params=worlds())
def open_world(request: pytest.FixtureRequest) -> Callable[[int], Stream]:
    made = worlds()[request.param]
    place = os.environ.get("KEEPWORTH_DATA")
    data = Path(place) / made.data if place and made.data else None
    lacks = missing(request.param, data)
    if lacks is not None:
        pytest.skip(lacks.message)
    split = "held-out" if request.param.startswith(("relations", "kinds")) else "dev"  # sets without a dev side
    return lambda seed: open_stream(request.param, split=split, seed=seed, length=TASKS, data=data)


def played(task: StreamTask, choose: Callable[[Met], str]) -> float:
    game = Game(task)
    met = game.reset()
    for _ in range(TURNS):
        if met.done:
            break
        met = game.act(choose(met))
    return met.reward


def test_the_optimum_is_known_chance_is_below_and_a_seed_makes_one_world(open_world: Callable[[int], Stream]) -> None:
    draw = random.Random(0)
    stream = open_world(0)
    best = [played(task, lambda met: min(met.right or met.actions)) for task in stream.tasks]
    chance = [played(task, lambda met: draw.choice(met.actions)) for task in stream.tasks]
    assert best == [1.0] * len(stream.tasks)
    assert sum(chance) < 0.8 * sum(best)
    first = [Game(task).reset() for task in stream.tasks]
    assert first == [Game(task).reset() for task in open_world(0).tasks]
    assert first != [Game(task).reset() for task in open_world(1).tasks]


def test_the_measure_of_worlds_has_its_optimum_and_its_memories() -> None:
    success = asyncio.run(measure(open_stream("t-maze", length=TASKS)))
    assert success[OPTIMUM] == success[OLDEST] == 1.0  # the sign comes first
    assert success[CHANCE] < 0.6
    assert success[NEWEST] < 0.8, "posters come after it"
