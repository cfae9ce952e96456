"""Tickets: each place is filled once, whatever comes to nothing on the way and wherever the run is stopped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from keepworth.learning.collect.tickets import (
    LOOKS,
    Tickets,
    attempt_of,
    draw_of,
    from_ranges,
    instead_of,
    place_of,
    ticket_of,
    to_ranges,
)


def test_a_ticket_is_a_place_and_a_draw() -> None:
    assert (place_of(7), draw_of(7), attempt_of(7)) == (7, 0, 0)
    other = instead_of(ticket_of(7, 2))  # the third look of the first attempt
    assert (place_of(other), draw_of(other), attempt_of(other)) == (7, LOOKS, 1)
    assert attempt_of(instead_of(other)) == 2


@given(st.sets(st.integers(0, 60) | st.integers(4_000_000_000, 4_000_000_020)))
def test_ranges_hold_the_same_numbers(numbers: set[int]) -> None:
    assert from_ranges(to_ranges(numbers)) == numbers


@given(st.lists(st.sampled_from(["kept", "nothing", "stopped"]), max_size=60))
def test_every_place_is_filled_once_however_often_it_is_begun_anew(fates: list[str]) -> None:
    tickets, kept = Tickets(), list[int]()
    for fate in fates:
        if fate == "stopped":
            again = Tickets()
            again.load(tickets.state())
            tickets = again
            continue
        ticket = tickets.take()
        assert place_of(ticket) not in map(place_of, kept)
        if fate == "nothing":
            tickets.replace(ticket)
        else:
            kept.append(ticket)
    while len(kept) < 60:
        kept.append(tickets.take())
    assert sorted(map(place_of, kept)) == list(range(60))
    assert len(tickets.done) == fates.count("nothing")
    assert not tickets.done & set(kept)


@given(st.lists(st.sampled_from(["kept", "nothing", "found", "stopped"]), max_size=80))
def test_a_place_that_was_found_on_disk_is_not_begun_again_after_a_second_stop(fates: list[str]) -> None:
    """Groups of places that the run has not come to are found after a stop, trained, and forgotten by everything but `done`."""
    tickets, used = Tickets(), set[int]()
    for fate in fates:
        if fate == "stopped":
            again = Tickets()
            again.load(tickets.state())
            tickets = again
        elif fate == "found":
            ticket = max(map(place_of, used), default=-1) + 3
            tickets.fill(ticket)
            used.add(ticket)
            tickets.done.add(ticket)
        else:
            ticket = tickets.take()
            assert ticket not in used
            used.add(ticket)
            if fate == "nothing":
                tickets.replace(ticket)


def test_what_is_owed_comes_first_the_oldest_place_before_the_others() -> None:
    tickets = Tickets()
    begun = [tickets.take() for _ in range(4)]
    tickets.replace(begun[3])
    tickets.replace(begun[1])
    state = tickets.state()
    assert [tickets.take() for _ in range(3)] == [instead_of(1), instead_of(3), 4]
    again = Tickets()
    again.load(state)
    assert [again.take() for _ in range(3)] == [instead_of(1), instead_of(3), 4]


def test_a_group_that_is_found_on_disk_fills_its_place() -> None:
    tickets = Tickets()
    begun = [tickets.take() for _ in range(2)]
    tickets.replace(begun[1])
    tickets.fill(instead_of(begun[1]))
    tickets.fill(ticket_of(2))
    assert tickets.take() == 3
