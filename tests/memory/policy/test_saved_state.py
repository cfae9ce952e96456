"""What was learned is saved in the file: a new process goes on from there, and knows exactly what the one before knew."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from keepworth import Memory
from keepworth.memory.policy import learning
from tests.memory.policy.learning_kills import learned_and_killed

QUESTIONS = [f"when does train {number} leave" for number in range(7)]


def teach(path: Path, rewards: int, by: str = "") -> list[list[tuple[str, float]]]:
    """Reward searches; returns what is expected afterwards where each question is asked."""
    with Memory(path, encoder="hashing", seed=0) as memory:
        if not len(memory):
            memory.add_many([f"Train {number % 7} leaves at {number}." for number in range(21)])
        for number in range(rewards):
            hits = memory.search(QUESTIONS[number % 7], top_k=3)
            memory.reward(hits.decision, float(hits[0].text.endswith(("1.", "3.", "7."))), by=f"{by}{number % 3}")
        return expected(memory)


def expected(memory: Memory) -> list[list[tuple[str, float]]]:
    items = [item.id for item in memory.get_all()]
    return [[(id, memory.worth(id, question).with_it) for id in items] for question in QUESTIONS]


def saved(path: Path) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(path))
    return connection.execute("SELECT name, value FROM facts_of_file WHERE name LIKE 'learned%'").fetchall()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "SAVED_EVERY", 20)


def test_a_new_process_knows_exactly_what_the_one_before_knew(tmp_path: Path, often: None) -> None:
    path = tmp_path / "a.mem"
    known = teach(path, 70, by="person")
    assert len(saved(path)) == 1
    with Memory(path, encoder="hashing", seed=0) as memory:
        assert expected(memory) == known
    apsw.Connection(str(path)).execute("DELETE FROM facts_of_file WHERE name LIKE 'learned%'")
    with Memory(path, encoder="hashing", seed=0) as memory:
        assert expected(memory) == known, "judging all rewards anew comes to the same"


def test_what_does_not_hold_any_more_is_not_believed(tmp_path: Path, often: None) -> None:
    path = tmp_path / "a.mem"
    teach(path, 70)
    with Memory(path, encoder="hashing", seed=0) as memory:
        memory.rollback(since="s60")
        known = expected(memory)
    with Memory(path, encoder="hashing", seed=0) as memory:
        assert expected(memory) == known


DAMAGES = ("replace(value, '0.', '1.')", "substr(value, 1, 90)", "'[1]'", "'5'", "''")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_is_not_believed(damage: str, tmp_path: Path, often: None) -> None:
    path = tmp_path / "a.mem"
    known = teach(path, 70)
    apsw.Connection(str(path)).execute(f"UPDATE facts_of_file SET value = {damage} WHERE name LIKE 'learned%'")
    with Memory(path, encoder="hashing", seed=0) as memory:
        assert expected(memory) == known


def test_who_is_erased_is_in_no_saved_state(tmp_path: Path, often: None) -> None:
    path = tmp_path / "a.mem"
    teach(path, 70, by="somebody")
    assert "somebody" in str(saved(path))
    with Memory(path, encoder="hashing", seed=0) as memory:
        memory.forget("m1", purge_history=True)
    assert saved(path) == []


@pytest.mark.parametrize(
    "policy", ["default", *(pytest.param(policy, marks=pytest.mark.slow) for policy in ("memrl", "kernel-mean"))]
)
def test_four_processes_and_kills_leave_what_the_journal_says(tmp_path: Path, policy: str) -> None:
    found = learned_and_killed(tmp_path / "a.mem", policy=policy, rewards=25, kills=6)
    assert found["acknowledged"] == 100
    assert found["kills"] >= 3
