"""Any agent plays any environment with any memory, and the memory is told what came of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from keepworth.base.errors import KeepworthError
from keepworth.memory.choose.hashed_words import HashedWords
from keepworth.memory.choose.slots import Use
from keepworth.memory.memory import Memory
from keepworth.memory.search.search import Hits
from keepworth.records.episode import Episode, Observation, StopReason, episode_from_json, episode_to_json
from keepworth.worlds.acting import FunctionActor
from keepworth.worlds.agent import Completer
from keepworth.worlds.course import Course
from keepworth.worlds.driver import Feedback, run_episode
from keepworth.worlds.environment import Step
from keepworth.worlds.scene import StreamTask
from keepworth.worlds.streams import open_stream
from tests.memory.helpers import note_uses


def following(observation: Observation, shown: Hits) -> str:
    """Does what memory advises, else the first thing that it was not warned of."""
    votes = dict.fromkeys(observation.actions, 0.0)
    for action, weight, _ in shown.advice:
        if action in votes:
            votes[action] += weight
    return max(votes, key=lambda action: votes[action])


def played(memory: Memory, task: StreamTask, choose=following, environment: Any = None) -> Episode:
    live = memory.episode(task.task.input)
    actor, world = FunctionActor(choose, live), environment or task.environment()
    return asyncio.run(run_episode(task.task, world, actor, feedback=Feedback(live), identity=live.id))


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "world.mem", policy="mixture", encoder=HashedWords(), seed=1)


@pytest.fixture
def task() -> StreamTask:
    (only,) = open_stream("benign", seed=1, length=1).tasks
    return only


def test_a_memory_around_an_environment_gets_better_and_is_on_file(tmp_path: Path) -> None:
    path = tmp_path / "world.mem"
    learned: list[Use] = []
    policy = note_uses("mixture", learned)
    memory = Memory(path, policy=policy, encoder=HashedWords(), reward_range=(-1.0, 1.0), seed=1)
    episodes = [played(memory, task) for task in open_stream("benign", seed=1, length=90).tasks]
    won = [episode.metric for episode in episodes]
    assert sum(won[60:]) > sum(won[:30]) + 5
    assert not memory.pending()
    assert [use.reward for use in learned] == won
    on_file = memory.episode_record(episodes[-1].id)
    assert [2.0 * won[-1] - 1.0] == [term.value for term in on_file.rewards]
    assert on_file.decisions[0].chosen == tuple(each.item for each in episodes[-1].shown)
    assert episode_from_json(episode_to_json(episodes[-1])) == episodes[-1]
    assert len(episodes[-1].exchanges) == 1
    memory.close()
    again = Memory(path, policy="mixture", encoder=HashedWords(), reward_range=(-1.0, 1.0))
    assert again.learning.experience.learned == 90


def test_tasks_of_many_steps_are_one_episode_each(memory: Memory) -> None:
    episodes = [played(memory, task) for task in open_stream("tool-graph", seed=1, length=3).tasks]
    assert memory.learning.experience.time == 3
    assert memory.learning.experience.learned > 3
    assert all(len(episode.exchanges) > 1 for episode in episodes)


def test_asynchronous_agent_is_awaited(memory: Memory, task: StreamTask) -> None:
    async def asking(observation: Observation, shown: Hits) -> str:
        await asyncio.sleep(0)
        return following(observation, shown)

    assert played(memory, task, asking).exchanges[0].done in task.environment().scene.actions


def test_an_impossible_choice_is_refused_and_the_episode_stays_open(memory: Memory, task: StreamTask) -> None:
    with pytest.raises(KeepworthError, match="fly away"):
        played(memory, task, lambda observation, shown: "fly away")
    assert not memory.pending()
    assert memory.learning.experience.time == 0


def test_failing_environment_gives_no_reward(memory: Memory, task: StreamTask) -> None:
    class Crashing(Course):
        async def step(self, action: str) -> Step:
            raise OSError("the game crashed")

    episode = played(memory, task, environment=Crashing(task.environment().scene))
    assert episode.stop is StopReason.ENVIRONMENT_ERROR
    assert "the game crashed" in episode.errors[0]
    assert memory.pending() == [episode.id]
    assert memory.learning.experience.time == 0


def test_an_agent_that_calls_a_model_says_that_it_needs_one(task: StreamTask) -> None:
    with pytest.raises(KeepworthError, match=r"calls a model.*play\(model"):
        asyncio.run(run_episode(task.task, task.environment(), Completer("Say it.", max_tokens=4)))


def test_measured_memory_does_not_explore(memory: Memory) -> None:
    """explore=False: the same question is answered alike each time, however often the policy would explore."""
    for task in open_stream("benign", seed=1, length=60).tasks:
        played(memory, task)
    shown, scene = set(), task.environment().scene
    for _ in range(40):
        hits = memory.episode("", explore=False).search(scene.observation, actions=scene.actions)
        assert hits.propensity == 1.0
        shown.add(tuple(hit.id for hit in hits))
    assert len(shown) == 1
