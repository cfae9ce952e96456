"""For whom an episode is and on whose word its reward stands: on file, and undone by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepworth.memory.errors import InvalidPolicy, InvalidScope
from keepworth.memory.memory import Memory
from keepworth.memory.store import log
from tests.memory.helpers import play
from tests.memory.policy.test_learning import POLICIES, opened, shirts, state

MALLORY = "mallory \u0645\u0647\u200c\u0631\u06cc"
"""With a joiner of Persian letters."""


def episode(memory: Memory, id: str) -> log.Record:
    with memory.store.database.reading() as connection:
        return log.record(connection, id)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_rewarders_survive_opening_again_and_can_be_undone_by_name(path: Path, policy: str) -> None:
    memory = opened(path, policy)
    shirts(memory, 4)
    before = state(memory)
    bad = play(memory, "a torn shirt arrived late", "escalate", 1.0, by="bob", judge=MALLORY)
    worse = play(memory, "a torn shirt arrived late", "escalate", 1.0, by=MALLORY)
    now = state(memory)
    memory.close()
    memory = opened(path, policy)
    assert state(memory) == now
    assert episode(memory, bad).rewards == ((1.0, MALLORY),)
    assert episode(memory, bad).person == "bob"
    assert {term.scorer for term in memory.episode_record(bad).rewards} == {f"own:{MALLORY}"}
    memory.rollback(rewarder=MALLORY)
    assert state(memory) == before
    assert memory.pending() == [bad, worse]
    assert memory.reward(bad, 0.0, by="").applied
    memory.close()
    assert episode(opened(path, policy), bad).rewards == ((0.0, ""),)


def test_unknown_rewarders_and_names_that_are_none_are_refused(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem")
    play(memory, "a torn shirt arrived", "refund", 1.0)
    with pytest.raises(InvalidPolicy, match="No reward here has a name"):
        memory.rollback(rewarder=MALLORY)
    for bad in (5, " ", "a\nb", None):
        with pytest.raises(InvalidScope, match=r"^by "):
            memory.episode("a torn shirt", by=bad)  # type: ignore[arg-type]
