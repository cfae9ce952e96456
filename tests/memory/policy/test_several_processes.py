"""Several processes learn on one file: what each knows is what a replay of the journal says, kills or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.memory.learning_kills import learned_and_killed
from keepworth import Memory
from keepworth.memory.policy.hashed_words import HashedWords


@pytest.mark.parametrize(
    "policy", ["default", *(pytest.param(policy, marks=pytest.mark.slow) for policy in ("memrl", "kernel-mean"))]
)
def test_four_processes_and_kills_leave_what_the_journal_says(tmp_path: Path, policy: str) -> None:
    found = learned_and_killed(tmp_path / "a.mem", policy=policy, rewards=25, kills=6)
    assert found["acknowledged"] == 100
    assert found["kills"] >= 3


def advised(memory: Memory, number: int) -> tuple[str, ...]:
    """What memory showed in one rewarded episode."""
    with memory.episode(f"a torn shirt arrived, parcel {number}") as episode:
        hits = episode.search(actions=("refund", "repair"))
        episode.act("refund")
        episode.reward(float(number % 2))
    return tuple(hit.id for hit in hits)


def test_a_seeded_policy_alone_draws_as_it_always_did_and_beside_another_draws_apart(tmp_path: Path) -> None:
    def opened(name: str) -> Memory:
        return Memory(tmp_path / name, policy="advantage", seed=3, encoder=HashedWords(64))

    alone, first, second = opened("alone.mem"), opened("two.mem"), opened("two.mem")
    assert first.learning is not None
    assert second.learning is not None
    assert alone.learning is not None
    start = second.learning.draws
    assert start == first.learning.draws == alone.learning.draws
    assert [advised(alone, n) for n in range(6)] == [advised(first, n) for n in range(6)]
    assert first.learning.draws == alone.learning.draws, "its own rewards change nothing of what it draws"
    assert second.learning.draws != start, "it would draw what the other drew, whose outcome it has learned"
    mine = second.learning.draws
    assert second.learning.draws == mine, "once for what it saw"
    advised(second, 6)
    assert first.learning.draws not in (alone.learning.draws, second.learning.draws)
    before = first.learning.draws
    first.learning.draws = before
    assert first.learning.draws == before, "draws that are set go on from there"
