"""What comes next rewards what was done before, once, and gives way to whoever gives a reward."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.agents.signals import ASKED, DEV
from keepworth import Memory
from keepworth.memory.episode import LiveEpisode
from keepworth.memory.policy.signals import SIGNALS, signal_of
from keepworth.memory.store.checks import check


def opened(**options: object) -> Memory:
    return Memory(encoder="hashing", seed=0, **options)  # type: ignore[arg-type]


def turn(memory: Memory, task: str = "what does Ana like to drink") -> LiveEpisode:
    with memory.episode(task, by="ana") as episode:
        episode.search()
        episode.act("tea")
    return episode


@pytest.mark.parametrize(("text", "role", "name"), DEV)
def test_the_wordings_they_were_written_against(text: str, role: str, name: str) -> None:
    signal = signal_of(text, role=role, asked_before=ASKED)
    assert (signal.name if signal else "") == name
    if signal is not None:
        assert signal.vote == SIGNALS[name]


@given(st.text(max_size=300), st.sampled_from(["user", "tool"]), st.text(max_size=100))
@settings(max_examples=100, deadline=None)
def test_any_text_is_a_signal_or_none(text: str, role: str, before: str) -> None:
    signal = signal_of(text, role=role, asked_before=before)
    assert signal is None or (signal.name in SIGNALS and signal.vote in (-1, 1))


def test_values_move_at_once_and_a_later_signal_takes_the_place_of_an_earlier_one() -> None:
    with opened() as memory:
        item = memory.add("Ana likes tea")
        episode = turn(memory)
        assert episode.came_next("Thanks, perfect!") is not None
        assert (memory.get(item.id).values.credited, memory.get(item.id).values.total) == (1, 1.0)
        episode.came_next("Thanks!")
        assert memory.get(item.id).values.credited == 1, "the same again says nothing new"
        episode.came_next("No, that's wrong.")
        assert (memory.get(item.id).values.credited, memory.get(item.id).values.total) == (1, 0.0)
        assert episode.came_next("And what does Bob like?") is None
        assert check(memory.store) == []


def test_a_reward_overrides_a_signal_whichever_comes_first() -> None:
    with opened() as memory:
        item = memory.add("Ana likes tea")
        first, second = turn(memory), turn(memory)
        first.came_next("That's wrong.")
        first.reward(0.75)
        second.reward(0.25)
        second.came_next("Thanks!")
        assert (memory.get(item.id).values.credited, memory.get(item.id).values.total) == (2, 1.0)
        assert len(memory.episode_record(second.id).rewards) == 1


def test_a_signal_is_the_word_of_a_name_of_its_own() -> None:
    """So it is weighed as any other rewarder's, and everything that came of it can be undone."""
    with opened() as memory:
        item = memory.add("Ana likes tea")
        turn(memory).came_next("Thanks!")
        memory.rollback(rewarder="signal:ana")
        assert memory.get(item.id).values.credited == 0


def test_where_rewards_are_final_a_signal_is_none() -> None:
    with Memory(encoder="hashing", policy="mixture", seed=0) as memory:
        with memory.episode("open the door") as episode:
            episode.search(actions=("push", "pull"))
            episode.act("push")
        episode.came_next("Thanks!")
        assert episode.reward(0.0).applied
