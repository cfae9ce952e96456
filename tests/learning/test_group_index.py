"""Indices of groups: each position is filled once, whatever comes to nothing on the way and wherever the run is stopped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from keepworth.learning.collect.curriculum import GroupOrder, candidate_of, position_of, retry_of


@given(st.lists(st.sampled_from(["kept", "nothing", "stopped"]), max_size=60))
def test_every_position_is_filled_once_however_often_it_is_begun_anew(fates: list[str]) -> None:
    order, kept = GroupOrder(), list[int]()
    for fate in fates:
        if fate == "stopped":
            again = GroupOrder()
            again.load(order.state())
            order = again
            continue
        index = order.take()
        assert position_of(index) not in map(position_of, kept)
        assert bool(candidate_of(index)) == bool(retry_of(index))
        if fate == "nothing":
            order.replace(index)
        else:
            kept.append(index)
    while len(kept) < 60:
        kept.append(order.take())
    assert sorted(map(position_of, kept)) == list(range(60))
    assert sum(map(retry_of, kept)) == fates.count("nothing")
