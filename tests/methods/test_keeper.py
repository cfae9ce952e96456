"""The keeper: a budget that is never passed, a good rule from the first day, weights learned from rewards alone."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth import Facts, Keeper, Memory
from keepworth.memory.choose.slots import Finished
from keepworth.memory.errors import InvalidAdvice, InvalidPolicy
from keepworth.memory.importance import FEATURES, MARKS, PRIOR, hand_features

NAMES = ["Ana", "Bo", "Cy", "Di", "Ed", "Fay", "Gus", "Hal", "Ivy", "Jo", "Kim", "Lea"]
THINGS = ["lamp", "kettle", "bicycle", "piano", "carpet", "mirror", "tent", "drum"]
TALK = ["weather", "traffic", "music", "coffee", "clouds", "films", "weekends", "gardens"]


def lines(messages: Sequence[Any]) -> list[str]:
    return [line for message in messages for line in message["content"].splitlines()]


def opened(most: int, path: str | Path = ":memory:", **options: Any) -> Memory:
    """All that it hears, it hears at one time."""
    keeper = Keeper(Facts(lines), most, **options)
    return Memory(path, encoder=None, policy=None, writer=keeper, clock=lambda: "2026-01-01T00:00:00+00:00")


def texts(memory: Memory, **scope: str) -> list[str]:
    return [item.text for item in memory.get_all(limit=1000, **scope)]


def test_of_equals_the_oldest_goes() -> None:
    with opened(2) as memory:
        memory.add("by hand, and no part of the budget")
        became = memory.add("one\ntwo\nthree", infer=True)
        assert texts(memory) == ["by hand, and no part of the budget", "two", "three"]
        assert [item.text for item in became] == ["two", "three"]
        memory.add("four", infer=True)
        assert texts(memory) == ["by hand, and no part of the budget", "three", "four"]


def test_dropped_item_has_a_tombstone_and_a_logged_decision() -> None:
    with opened(2) as memory:
        memory.add("one\ntwo\nthree", infer=True)
        (gone,) = [item for item in memory.get_all(all_states=True) if item.deleted]
        assert gone.text == "one"
        assert [each.kind for each in memory.history(gone.id)] == ["ADD", "DELETE"]
        with memory.store.database.reading() as connection:
            (row,) = connection.execute("SELECT kind, policy, propensity, chosen, details FROM decisions").fetchall()
        assert row[:3] == ("write", "keeper:0", 1.0)
        assert (json.loads(row[3]), json.loads(row[4])["most"]) == ([gone.id], 2)


def test_each_scope_has_its_budget() -> None:
    with opened(1) as memory:
        for user in ("ana", "bo"):
            memory.add("one\ntwo", infer=True, user_id=user)
        assert texts(memory, user_id="ana") == texts(memory, user_id="bo") == ["two"]


@settings(max_examples=25)
@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=10))
def test_keeper_respects_its_budget_and_pinned_items(most: int, steps: list[tuple[int, bool]]) -> None:
    with opened(most) as memory:
        pinned: set[str] = set()
        for number, pin in steps:
            before, state = memory.snapshot(), texts(memory)
            for item in memory.add(f"fact {number}", infer=True):
                if pin:
                    memory.update(item.id, metadata={"pinned": True})
                    pinned.add(item.id)
            assert len(memory) <= most
            assert all(memory.get(id).current for id in pinned)
            undone = memory.rollback(since=before)
            assert texts(memory) == state
            memory.rollback(undone.id)


def test_ineffective_keeper_options_are_refused() -> None:
    for options in ({"most": 0}, {"begin": (1.0,)}):
        with pytest.raises(InvalidPolicy):
            Keeper(Facts(lines), **{"most": 2, **options})  # type: ignore[arg-type]
    with pytest.raises(InvalidAdvice):
        Keeper("facts", 2)  # type: ignore[arg-type]
    with pytest.raises(InvalidAdvice):
        list(Keeper(Facts(lines), 2)(Finished()))
    with opened(2) as memory:
        with pytest.raises(InvalidAdvice, match="budget"):
            memory.add("one", infer=True, source="chat")
        assert not len(memory)
        with pytest.raises(InvalidPolicy):
            memory.writer.demote(memory)  # type: ignore[union-attr]


def test_keeper_prior_prefers_informative_statements() -> None:
    said = [
        "Thanks!", "Ok.", "My sister Ana moved to Oslo in 2019", "Can you say more?", "Hm.",
        "I bought 3 lamps on Monday",
    ]  # fmt: skip
    with opened(2) as memory:
        memory.add("\n".join(said), infer=True)
        assert texts(memory) == [said[2], said[5]]
        assert tuple(keeper_of(memory).weights(memory).values()) == PRIOR
        assert tuple(keeper_of(memory).weights(memory)) == MARKS


def keeper_of(memory: Memory) -> Keeper:
    keeper = memory.writer
    assert isinstance(keeper, Keeper)
    return keeper


def talks(
    rng: random.Random, memory: Memory, person: str, wanted: str, permuted: bool = False, times: int = 1, among: int = 3
) -> float:
    """What a person says, and four questions about it; what is asked for says `wanted`, and the reward is the share of `among`
    such facts that memory holds. Returns the mean of the true rewards."""
    said = [
        f"we talked about {rng.choice(TALK)} and {rng.choice(TALK)}, part {number}"
        if rng.random() < 0.7
        else f"Ana has bought the {rng.choice(THINGS)}s, order {number}"
        for number in range(20)
    ] + ["Ana has bought the lamps, order 20", "we talked about cats and dogs, part 21"]
    memory.add("\n".join(said), infer=True, user_id=person)
    there = set(texts(memory, user_id=person))
    right = [text for text in said if wanted in text]
    rewards = []
    for _ in range(4):
        asked = rng.choices(right, k=among)
        rewards.append(sum(text in there for text in asked) / among)
        for _ in range(times):
            with memory.episode(user_id=person) as episode:
                episode.search(asked[0], top_k=1)
                episode.reward(rng.choice([0.0, 1.0]) if permuted else rewards[-1])
    return float(np.mean(rewards))


@pytest.mark.parametrize("wanted", ["bought", "talked"])
def test_keeper_learns_from_rewards_for_any_prior(wanted: str, tmp_path: Path) -> None:
    rng, path = random.Random(1), tmp_path / "agent.mem"
    begin = (0.0,) * len(MARKS) if wanted == "bought" else PRIOR
    with opened(6, path, begin=begin) as memory:
        keeper = keeper_of(memory)
        assert keeper.check(memory) is None
        assert "rewards are needed" in str(keeper.learned(memory))
        before = [talks(rng, memory, f"u{number}", wanted, among=20) for number in range(20)]
        check = keeper.learned(memory)
        assert check.promoted, check
        assert (check.rewards, check.groups) == (80, 20)
        assert check.value > 0.0
        weights = keeper.weights(memory)
    with opened(6, path, begin=begin) as memory:
        keeper = keeper_of(memory)
        assert keeper.weights(memory) == weights
        assert keeper.check(memory) == check
        after = [talks(rng, memory, f"v{number}", wanted, among=20) for number in range(8)]
        assert np.mean(after) > np.mean(before) + 0.05
        keeper.demote(memory)
        assert tuple(keeper.weights(memory).values()) == begin
        with pytest.raises(InvalidPolicy):
            keeper.demote(memory)


def test_rewards_by_chance_move_little() -> None:
    rng = random.Random(2)
    with opened(6) as memory:
        for number in range(14):
            talks(rng, memory, f"u{number}", "bought", permuted=True)
        check = keeper_of(memory).learned(memory)
        assert check.low <= 0.0 <= check.high
        assert list(keeper_of(memory).weights(memory).values()) == pytest.approx(PRIOR, abs=0.5)


def learned_of_twelve(seed: int, times: int = 1, last: float | None = None) -> tuple[dict[str, float], float]:
    """The weights after twelve people, and how wide the interval of the check is. last: a reward more, of the first."""
    with opened(6, begin=(0.0,) * len(MARKS)) as memory:
        rng = random.Random(seed)
        for number in range(12):
            talks(rng, memory, f"u{number}", "bought", times=times)
        if last is not None:
            with memory.episode(user_id="u0") as episode:
                episode.reward(last)
        check = keeper_of(memory).learned(memory)
        return keeper_of(memory).weights(memory), check.high - check.low


def test_a_question_asked_three_times_is_one_piece_of_evidence() -> None:
    (once, width), (thrice, of_three) = (learned_of_twelve(3, times) for times in (1, 3))
    assert thrice == pytest.approx(once, abs=0.02)
    assert of_three > 0.9 * width


def test_single_extreme_reward_hardly_changes_the_keeper() -> None:
    one, hundred = (learned_of_twelve(4, last=last)[0] for last in (1.0, 100.0))
    assert one == pytest.approx(hundred, abs=1e-6)


def test_an_undone_choice_is_no_evidence() -> None:
    with opened(2) as memory:
        memory.add("one\ntwo", infer=True)
        before = memory.snapshot()
        memory.add("three", infer=True)
        for number in range(25):
            with memory.episode() as episode:
                episode.reward(number % 2)
        assert keeper_of(memory).learned(memory).rewards == 25
        memory.rollback(since=before)
        assert len(memory) == 2
        # Nothing is given up any more, so nothing says what it would have been worth.
        assert keeper_of(memory).learned(memory).rewards == 0


def test_hand_features_of_a_statement() -> None:
    found = dict(zip(FEATURES, hand_features('I bought "Dune" for $12 from my sister Nora last week.'), strict=True))
    assert found["digits"] == 1.0  # two digits
    assert found["names"] == pytest.approx(1 / 3)  # Nora; "Dune" begins with its quotation mark
    assert [found[name] for name in ("quoted", "money", "times", "kin", "done", "my")] == [1.0] * 6
    assert [found[name] for name in ("wanting", "starts with I am", "numbers in words")] == [0.0] * 3
    assert found["words"] == pytest.approx(11 / 20)
