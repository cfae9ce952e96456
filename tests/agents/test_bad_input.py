"""What a program hands to a memory that learns and should not have: a typed error, and nothing changes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from keepworth.agents.learning_memory import LearningMemory
from keepworth.memory.errors import InvalidText
from keepworth.memory.policy.errors import ClosedDecision, InvalidDraft, InvalidPolicy, InvalidReward, UnknownDecision
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.policy.pool import Draft, Pool
from keepworth.memory.policy.slots import Finished, Method
from keepworth.memory.policy.writers import RawCases
from keepworth.recipes.advantage import advantage
from tests.agents.test_learning_memory import ACTIONS, opened, play, state


def test_numbers_of_other_libraries_are_rewards_and_unheard_of_episodes_are_not(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem")
    assert [memory.checked(each) for each in (np.float32(0.5), np.bool_(True), np.int64(1), True)] == [
        0.5,
        1.0,
        1.0,
        1.0,
    ]  # type: ignore[arg-type]
    for name in ("", None, ["e1"]):
        with pytest.raises(UnknownDecision, match="no episode"):
            memory.reward(name, 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [math.nan, math.inf, "good", None])
def test_a_judge_that_says_no_vote_is_refused_and_credits_nothing(tmp_path: Path, bad: object) -> None:
    memory = opened(tmp_path / "j.mem")
    episode = memory.episode("repair the pump")
    episode.recall("valve closed", ("open", "turn"))
    episode.act("open")
    with pytest.raises(InvalidReward, match="judge"):
        episode.next_state("the valve is open", lambda action, text: bad)  # type: ignore[arg-type, return-value]
    assert math.isnan(memory.episodes[episode.id].steps[0])


def test_a_reward_for_a_choice_that_was_never_acted_on_is_refused(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem")
    episode = memory.episode("a torn shirt arrived")
    episode.recall(actions=ACTIONS)
    with pytest.raises(UnknownDecision, match="did not say what was done"):
        episode.reward(1.0)
    episode.act("refund")
    assert episode.reward(1.0)
    with pytest.raises(ClosedDecision, match="has its reward"):
        episode.act("refund")


def test_what_is_no_text_is_refused_and_a_terminals_colours_are_kept_without_them(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem", "exprag")
    for bad in (None, b"goal", 3, "\ud800", "w" * 200_001):
        with pytest.raises(InvalidText, match="the goal"):
            memory.episode(bad)  # type: ignore[arg-type]
    episode = memory.episode("")
    with pytest.raises(InvalidText, match="nothing to go by"):
        episode.recall(" ", ACTIONS)
    for actions in ("refund", None, (1, 2)):
        with pytest.raises(InvalidText, match="action"):
            episode.recall("a torn shirt", actions)  # type: ignore[arg-type]
    episode.recall("a torn shirt", ACTIONS)
    with pytest.raises(InvalidText, match="the action"):
        episode.act(3)  # type: ignore[arg-type]
    play(memory, "a \x1b[31mtorn\x1b[0m shirt", "refund", 1.0)
    assert [item.key for item in memory.experience.pool.items] == ["a  [31mtorn [0m shirt"]


def test_a_writer_that_fails_leaves_memory_as_it_was(tmp_path: Path) -> None:
    broken = [True]

    def writer(finished: Finished, pool: Pool) -> list[Draft]:
        if broken[0]:
            raise ConnectionError("the model is away")
        return ["not a draft", *RawCases()(finished, pool)]  # type: ignore[list-item]

    def made() -> Method:
        return replace(advantage(), writer=writer)

    memory = LearningMemory.open(tmp_path / "j.mem", {"made": made}, HashedWords(64), seed=1)
    episode = memory.episode("a torn shirt arrived")
    episode.recall(actions=ACTIONS)
    episode.act("refund")
    before = state(memory)
    with pytest.raises(ConnectionError):
        episode.reward(1.0)
    assert state(memory) == before
    assert memory.pending() == [episode.id]
    broken[0] = False
    assert episode.reward(1.0)
    assert [item.text for item in memory.experience.pool.items] == ["a torn shirt arrived -> refund: it worked"]


def test_garbage_from_a_writer_admits_nothing(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem")
    for draft in (Draft("", "text", do=("a",)), Draft("key", "te\x00xt", do=("a",)), Draft("key", "text")):
        with pytest.raises(InvalidDraft, match="cannot be kept"):
            memory.add(draft)
        assert memory.experience.observe(draft) is None
    assert len(memory.experience.pool) == 0


@pytest.mark.parametrize("trust", [math.nan, 2.0, "high"])
def test_a_record_from_outside_needs_a_trust_and_to_be_a_draft(tmp_path: Path, trust: object) -> None:
    memory = opened(tmp_path / "j.mem")
    with pytest.raises(InvalidDraft, match="trust"):
        memory.add(Draft("key", "text", do=("a",), source="web", trust=trust))  # type: ignore[arg-type]
    with pytest.raises(InvalidDraft, match="no draft"):
        memory.add("text")  # type: ignore[arg-type]
    assert len(memory.experience.pool) == 0


@pytest.mark.parametrize("bad", [0, 2.5, math.nan, "3", None])
def test_a_capacity_that_is_no_count_is_refused(bad: object) -> None:
    with pytest.raises(InvalidPolicy, match="whole number"):
        advantage(capacity=bad)  # type: ignore[arg-type]
