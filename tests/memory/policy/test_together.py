"""Episodes that go on beside each other: what is learned is what the file says, in whatever order they chose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from keepworth.memory.by_name import policies_of_cases, policy
from keepworth.memory.episode import LiveEpisode
from keepworth.memory.memory import Memory
from tests.memory.stub_encoder import WordEncoder

ACTIONS = ("open the door", "take the lamp", "wait", "go north")
TASKS = ("find the lamp", "leave the cellar", "feed the cat", "open the chest")


def opened(path: Path, name: str) -> Memory:
    return Memory(path, user_id="h", encoder=WordEncoder(), policy=lambda: policy(name, seed=3), seed=3)


def begun(memory: Memory, task: int, member: int) -> LiveEpisode:
    offered = ACTIONS[: 2 + task % 3]
    episode = memory.episode(TASKS[task])
    episode.search(f"where to begin to {TASKS[task]}", actions=offered, top_k=3)
    episode.act(offered[(task + member) % len(offered)])
    return episode


def known(memory: Memory) -> list[Any]:
    """What the policy says of every task to who does not learn: candidates, estimates, and what it shows."""
    found = []
    for task, goal in enumerate(TASKS):
        with memory.episode(goal, explore=False) as episode:
            episode.search(f"where to begin to {goal}", actions=ACTIONS[: 2 + task % 3], top_k=3)
            (decision,) = episode.record().decisions
        with memory.store.database.reading() as connection:
            details = json.loads(connection.execute(LAST).fetchone()[0])
        found.append((decision.candidates, decision.chosen, details["means"], details["deviations"]))
    return found


LAST = "SELECT details FROM decisions ORDER BY n DESC LIMIT 1"


@pytest.mark.parametrize("name", policies_of_cases())
def test_a_memory_that_is_opened_again_knows_what_it_knew(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.mem"
    memory = opened(path, name)
    for turn in range(3):
        together = [(begun(memory, task, member), task, member) for task in range(4) for member in range(2)]
        for episode, task, member in together:
            episode.reward(float((task * 7 + member + turn) % 3 == 0))
        before = known(memory)
        memory.close()
        memory = opened(path, name)
        assert known(memory) == before
    assert any(candidates for candidates, *_ in before)
    memory.close()
