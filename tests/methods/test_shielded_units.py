"""The units of the microgrid: whatever is proposed, and whatever comes, no constraint is broken."""

from __future__ import annotations

from itertools import product

import pytest

from keepworth.methods.studies.shielded_units import Grid, NothingAllowed, count_violations

GRID = Grid()


def test_no_proposal_breaks_a_constraint_with_any_outcome() -> None:
    assert count_violations(GRID) == (0, len(GRID.states) * len(GRID.actions) * 9)


def test_a_shielded_action_stays_as_it_is() -> None:
    for state, action in product(GRID.states, GRID.actions):
        once = GRID.shielded(state, action)
        assert GRID.shielded(state, once) == once


def test_an_action_within_all_constraints_is_not_changed() -> None:
    for state, action in product(GRID.states, GRID.actions):
        if not any(GRID.violates(state, action, outcome) for outcome in GRID.outcomes(state)):
            assert GRID.shielded(state, action) == action


def test_a_shield_without_any_action_names_unit_and_state() -> None:
    with pytest.raises(NothingAllowed, match="the balance unit forbids every action with charge 0, wind 0") as raised:
        count_violations(Grid(most=3))
    assert "stronger generator" in raised.value.fix


def test_safe_set_is_all_of_a_strong_grid_and_empty_for_a_weak_one() -> None:
    assert GRID.safe_set() == set(GRID.states)
    assert Grid(most=3).safe_set() == set()
