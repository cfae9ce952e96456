"""Indices of groups: each position is filled once, whatever comes to nothing on the way and wherever the run is stopped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from keepworth.learning.collect.curriculum import (
    CANDIDATES,
    GroupOrder,
    candidate_of,
    from_ranges,
    group_at,
    instead_of,
    position_of,
    retry_of,
    to_ranges,
)


def test_an_index_is_a_position_and_a_candidate() -> None:
    assert (position_of(7), candidate_of(7), retry_of(7)) == (7, 0, 0)
    other = instead_of(group_at(7, 2))  # the third candidate of the first try
    assert (position_of(other), candidate_of(other), retry_of(other)) == (7, CANDIDATES, 1)
    assert retry_of(instead_of(other)) == 2


@given(st.sets(st.integers(0, 60) | st.integers(4_000_000_000, 4_000_000_020)))
def test_ranges_hold_the_same_numbers(numbers: set[int]) -> None:
    assert from_ranges(to_ranges(numbers)) == numbers


@given(st.lists(st.sampled_from(["kept", "nothing", "stopped"]), max_size=60))
def test_every_place_is_filled_once_however_often_it_is_begun_anew(fates: list[str]) -> None:
    order, kept = GroupOrder(), list[int]()
    for fate in fates:
        if fate == "stopped":
            again = GroupOrder()
            again.load(order.state())
            order = again
            continue
        index = order.take()
        assert position_of(index) not in map(position_of, kept)
        if fate == "nothing":
            order.replace(index)
        else:
            kept.append(index)
    while len(kept) < 60:
        kept.append(order.take())
    assert sorted(map(position_of, kept)) == list(range(60))
    assert len(order.done) == fates.count("nothing")
    assert not order.done & set(kept)


@given(st.lists(st.sampled_from(["kept", "nothing", "found", "stopped"]), max_size=80))
def test_a_place_that_was_found_on_disk_is_not_begun_again_after_a_second_stop(fates: list[str]) -> None:
    """Groups of positions that the run has not come to are found after a stop, trained, and only `done` knows them."""
    order, used = GroupOrder(), set[int]()
    for fate in fates:
        if fate == "stopped":
            again = GroupOrder()
            again.load(order.state())
            order = again
        elif fate == "found":
            index = max(map(position_of, used), default=-1) + 3
            order.fill(index)
            used.add(index)
            order.done.add(index)
        else:
            index = order.take()
            assert index not in used
            used.add(index)
            if fate == "nothing":
                order.replace(index)


def test_what_is_owed_comes_first_the_oldest_place_before_the_others() -> None:
    order = GroupOrder()
    begun = [order.take() for _ in range(4)]
    order.replace(begun[3])
    order.replace(begun[1])
    state = order.state()
    assert [order.take() for _ in range(3)] == [instead_of(1), instead_of(3), 4]
    again = GroupOrder()
    again.load(state)
    assert [again.take() for _ in range(3)] == [instead_of(1), instead_of(3), 4]


def test_a_group_that_is_found_on_disk_fills_its_place() -> None:
    order = GroupOrder()
    begun = [order.take() for _ in range(2)]
    order.replace(begun[1])
    order.fill(instead_of(begun[1]))
    order.fill(group_at(2))
    assert order.take() == 3
