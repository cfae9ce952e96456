"""What was learned is saved in the file: a new process goes on from there, and knows exactly what the one before knew."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepworth import Memory
from keepworth.memory.policy import learning
from tests.memory.helpers import behind_its_back
from tests.memory.policy.learning_kills import learned_and_killed

QUESTIONS = [f"when does train {number} leave" for number in range(7)]


def opened(path: Path) -> Memory:
    return Memory(path, encoder="hashing", seed=0)


def teach(path: Path, rewards: int, by: str = "") -> list[list[tuple[str, float]]]:
    """Reward searches; returns what is expected afterwards where each question is asked."""
    with opened(path) as memory:
        if not len(memory):
            memory.add_many([f"Train {number % 7} leaves at {number}." for number in range(21)])
        for number in range(rewards):
            hits = memory.search(QUESTIONS[number % 7], top_k=3)
            memory.reward(hits.decision, float(hits[0].text.endswith(("1.", "3.", "7."))), by=f"{by}{number % 3}")
        return expected(memory)


def expected(memory: Memory) -> list[list[tuple[str, float]]]:
    items = [item.id for item in memory.get_all()]
    return [[(id, memory.worth(id, question).with_it) for id in items] for question in QUESTIONS]


def known_at(path: Path) -> list[list[tuple[str, float]]]:
    with opened(path) as memory:
        return expected(memory)


def saved(path: Path) -> list[tuple[object, ...]]:
    return behind_its_back(path, "SELECT name, value FROM facts_of_file WHERE name LIKE 'learned%'")


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "SAVED_EVERY", 20)


def test_a_new_process_knows_exactly_what_the_one_before_knew(path: Path, often: None) -> None:
    known = teach(path, 70, by="person")
    assert len(saved(path)) == 1
    assert known_at(path) == known
    behind_its_back(path, "DELETE FROM facts_of_file WHERE name LIKE 'learned%'")
    assert known_at(path) == known, "judging all rewards anew comes to the same"


def test_what_does_not_hold_any_more_is_not_believed(path: Path, often: None) -> None:
    teach(path, 70)
    with opened(path) as memory:
        memory.rollback(since="s60")
        known = expected(memory)
    assert known_at(path) == known


DAMAGES = ("replace(value, '0.', '1.')", "substr(value, 1, 90)", "'[1]'", "'5'", "''")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_is_not_believed(damage: str, path: Path, often: None) -> None:
    known = teach(path, 70)
    behind_its_back(path, f"UPDATE facts_of_file SET value = {damage} WHERE name LIKE 'learned%'")
    assert known_at(path) == known


def test_who_is_erased_is_in_no_saved_state(path: Path, often: None) -> None:
    teach(path, 70, by="somebody")
    assert "somebody" in str(saved(path))
    with opened(path) as memory:
        memory.forget("m1", purge_history=True)
    assert saved(path) == []


@pytest.mark.parametrize(
    "policy", ["default", *(pytest.param(policy, marks=pytest.mark.slow) for policy in ("memrl", "kernel-mean"))]
)
def test_four_processes_and_kills_leave_what_the_journal_says(tmp_path: Path, policy: str) -> None:
    found = learned_and_killed(tmp_path / "a.mem", policy=policy, rewards=25, kills=6)
    assert found["acknowledged"] == 100
    assert found["kills"] >= 3
