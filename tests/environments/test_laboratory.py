"""The laboratory's worlds: an oracle is right, a rule that does not compose is not, and what is held out is taught nowhere."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from itertools import islice

import pytest
from hypothesis import given, strategies

from keepworth.base.errors import KeepworthError, UnknownName
from keepworth.records import Task
from keepworth.worlds.agent import Action
from keepworth.worlds.driver import Limits, run_episode
from keepworth.worlds.laboratory import WORLDS, ComposedWorld

NAMES = pytest.mark.parametrize("name", list(WORLDS))


class Says:
    """An agent that says these texts in turn."""

    def __init__(self, actions: Iterable[str]) -> None:
        self._actions = iter(actions)

    async def act(self, observation: object, model: object) -> Action:
        return Action(next(self._actions, ""))


def reward_of(world: ComposedWorld, task: Task, actions: Iterable[str]) -> float:
    limits = Limits(max_turns=world.turns)
    return asyncio.run(run_episode(task, world.play(task), Says(actions), limits=limits)).reward


@NAMES
def test_careful_way_is_right_at_every_level_and_a_rule_without_composing_is_not(name: str) -> None:
    world, draw = WORLDS[name], random.Random(0)
    for level in world.dials:
        exercises, tasks = world.exercises("test", 60, 3, level), world.tasks("test", 60, 3, level)
        pairs = list(zip(exercises, tasks, strict=True))
        assert [reward_of(world, task, exercise.careful.actions) for exercise, task in pairs] == [1.0] * 60
        simple = [reward_of(world, task, world.simple(exercise, draw)) for exercise, task in pairs]
        assert sum(simple) / 60 < 0.7, level


@NAMES
def test_no_held_out_composition_is_taught(name: str) -> None:
    world = WORLDS[name]
    hidden = {*world.splits["train"], *world.splits["test"]}
    lessons = list(islice(world.lessons(random.Random(1)), 4000))
    compositions = Counter(exercise.composition for exercise, _ in lessons)
    assert not hidden & compositions.keys()
    assert set(world.splits["taught"]) <= compositions.keys()
    questions = {exercise.question for exercise, _ in lessons}
    assert not questions & {exercise.question for exercise in world.exercises("test", 200)}


@NAMES
def test_splits_are_apart_and_each_skill_is_taught_as_often_first_as_then(name: str) -> None:
    world = WORLDS[name]
    every = [pair for pairs in world.splits.values() for pair in pairs]
    assert len(every) == len(set(every)) == len(world.first) * len(world.offsets)
    for place in (0, 1):
        counts = Counter(pair[place] for pair in world.splits["taught"])
        assert set(counts.values()) == {len(world.taught)}
    assert len(world.splits["test"]) >= 10


@NAMES
def test_the_same_seed_draws_the_same_tasks(name: str) -> None:
    world = WORLDS[name]
    assert world.tasks("train", 30, 5) == world.tasks("train", 30, 5)
    assert world.tasks("train", 30, 5) != world.tasks("train", 30, 6)
    assert {task.tags["split"] for task in world.tasks("test", 3, side="dev")} == {"dev"}


@NAMES
def test_a_lesson_ends_the_episode_with_its_last_action(name: str) -> None:
    world = WORLDS[name]
    for exercise, way in islice(world.lessons(random.Random(2)), 500):
        assert len(way.actions) <= world.turns
        replies = [world.reply(exercise.state, way.actions[:count]) for count in range(1, len(way.actions) + 1)]
        assert replies[-1] is None
        assert None not in replies[:-1]
        assert [action for _, action in world.conversation(exercise, way)] == list(way.actions)


@NAMES
@given(action=strategies.text())
def test_any_text_is_an_action(name: str, action: str) -> None:
    world = WORLDS[name]
    (task,) = world.tasks("train", 1)
    assert reward_of(world, task, [action] * world.turns) in (0.0, 1.0)


def test_an_unknown_level_or_split_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(KeepworthError, match="functions has no level 9") as refused:
        WORLDS["functions"].tasks("test", 1, level=9)
    assert "3, 4, 5 (letters of the word)" in str(refused.value)
    with pytest.raises(UnknownName, match="dev"):
        WORLDS["functions"].tasks("dev", 1)


def test_two_walks_into_one_room_are_in_the_same_state() -> None:
    world = WORLDS["rooms"]
    state = {"start": "attic", "goal": "pub", "limit": 6}
    assert world.state_of(state, ["e", "s"]) == world.state_of(state, ["s", "e"]) == "forge"
    assert world.state_of(state, ["e"]) != world.state_of(state, ["s"])
