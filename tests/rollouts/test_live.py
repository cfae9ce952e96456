from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from keepworth.environments.streams import generated
from keepworth.episodes.errors import KeepworthError
from keepworth.memory.memory import Memory
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.policy.slots import Presented
from keepworth.recipes.advantage import advantage
from keepworth.rollouts.live import played


def following(situation: str, actions: Sequence[str], shown: Presented) -> str:
    """Does what memory advises, else the first thing that it was not warned of."""
    votes = dict.fromkeys(actions, 0.0)
    for action, weight, _ in shown.advice:
        if action in votes:
            votes[action] += weight
    return max(votes, key=lambda action: votes[action])


def test_a_memory_around_a_world_gets_better_and_is_on_file(tmp_path: Path) -> None:
    path = tmp_path / "world.mem"
    memory = Memory(path, policy={"advantage": advantage}, encoder=HashedWords(), reward_range=(-1.0, 1.0), seed=1)
    won = [played(memory, task.world(), following) for task in generated("benign", seed=1, length=90).tasks]
    assert sum(won[60:]) > sum(won[:30]) + 5
    assert not memory.pending()
    rewards = [told for _, told in memory.learning.experience.uses]
    assert rewards == won
    memory.close()
    again = Memory(path, policy="advantage", encoder=HashedWords(), reward_range=(-1.0, 1.0))
    assert len(again.learning.experience.uses) == 90


def test_worlds_of_many_steps_are_one_episode_each(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "world.mem", policy={"advantage": advantage}, encoder=HashedWords(), seed=1)
    for task in generated("tool-graph", seed=1, length=3).tasks:
        played(memory, task.world(), following)
    assert memory.learning.experience.time == 3
    assert len(memory.learning.experience.uses) > 3


def test_an_impossible_choice_is_refused_and_the_episode_stays_open(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "world.mem", policy={"advantage": advantage}, encoder=HashedWords(), seed=1)
    (task,) = generated("benign", seed=1, length=1).tasks
    with pytest.raises(KeepworthError, match="fly away"):
        played(memory, task.world(), lambda situation, actions, shown: "fly away")
    assert not memory.pending()
    assert memory.learning.experience.time == 0
