"""The keeper: a budget that is never passed, and a good rule from the first day."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth import Facts, Keeper, Memory
from keepworth.memory.choose.slots import Finished
from keepworth.memory.errors import InvalidAdvice, InvalidPolicy
from keepworth.memory.importance import FEATURES, hand_features

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
        assert row[:3] == ("write", "keeper", 1.0)
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
    for options in ({"most": 0}, {"weights": (1.0,)}):
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


def test_keeper_prior_prefers_informative_statements() -> None:
    said = [
        "Thanks!", "Ok.", "My sister Ana moved to Oslo in 2019", "Can you say more?", "Hm.",
        "I bought 3 lamps on Monday",
    ]  # fmt: skip
    with opened(2) as memory:
        memory.add("\n".join(said), infer=True)
        assert texts(memory) == [said[2], said[5]]


def test_hand_features_of_a_statement() -> None:
    found = dict(zip(FEATURES, hand_features('I bought "Dune" for $12 from my sister Nora last week.'), strict=True))
    assert found["digits"] == 1.0  # two digits
    assert found["names"] == pytest.approx(1 / 3)  # Nora; "Dune" begins with its quotation mark
    assert [found[name] for name in ("quoted", "money", "times", "kin", "done", "my")] == [1.0] * 6
    assert [found[name] for name in ("wanting", "starts with I am", "numbers in words")] == [0.0] * 3
    assert found["words"] == pytest.approx(11 / 20)
