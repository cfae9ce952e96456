"""How often few sequences are left, counted as `benchmarks.asynchrony.few_left` does it."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the count shares a module with measurements that load a model")

from benchmarks.asynchrony.few_left import live, saved

GROUPS = [[1, 4], [2, 6], [3, 3], [5, 5]]


def test_whole_calls_of_two_groups_run_empty_each() -> None:
    # 1, 2, 4, 6: steps with 4, 3, 2, 2, 1, 1 left. 3, 3, 5, 5: 4, 4, 4, 2, 2.
    assert live(GROUPS, None) == {4: 4, 3: 1, 2: 4, 1: 2}


def test_slots_run_empty_at_the_end_alone() -> None:
    # Two slots. One: 1, 2, 6, 5, to step 14. Other: 4, 3, 3, 5, to step 15.
    assert live([[1, 4], [2, 3], [6, 3], [5, 5]], 2) == {2: 14, 1: 1}


def test_what_is_saved_is_of_the_time_of_all_steps() -> None:
    # Four steps of 1 s with 1 left, three of 2 s with 2 left: 10 s, of which 2 s and 3 s are saved.
    assert saved({1: 4, 2: 3}, float, {1: 2.0, 2: 2.0}) == pytest.approx(0.5)
    assert saved({1: 4, 2: 3}, float, {1: float("inf")}) == pytest.approx(0.4)
    assert saved({4: 9}, float, {1: 2.0}) == 0
