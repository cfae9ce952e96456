"""Reward: what counts as a number, whoever returns it."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from keepworth.records.episode import RewardScope, RewardTerm, check_terms, finite_number, metric


@pytest.mark.parametrize("value", [
    0.5, np.float32(0.5), np.float64(0.5), np.array(0.5), torch.tensor(0.5), torch.tensor(0.5, dtype=torch.bfloat16),
    Fraction(1, 2), Decimal("0.5"),
])  # fmt: skip
def test_a_scalar_of_any_library_is_a_number(value: Any) -> None:
    number = finite_number(value)
    assert (number, type(number)) == (0.5, float)


@pytest.mark.parametrize("value", [1, True, np.int64(1), np.bool_(True), torch.tensor(1), torch.tensor(True)])
def test_so_are_counts_and_yes_or_no(value: Any) -> None:
    assert finite_number(value) == 1.0


@pytest.mark.parametrize(("value", "says"), [
    (10**400, "too large"),
    pytest.param(10**6000, "too large", id="an int that Python refuses to write out"),
    (math.nan, "nan"),
    (np.float32("inf"), "inf"),
    (torch.tensor(math.nan), "nan"),
    ("0.5", "'0.5', not a number"),
    (None, "None, not a number"),
    ([0.5], "a list, not a number"),
    (np.array([0.5]), r"shape \(1,\)"),
    (torch.zeros(2), r"shape \(2,\)"),
    (1j, "complex"),
])  # fmt: skip
def test_invalid_rewards_are_named(value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        finite_number(value)


@given(st.one_of(st.floats(), st.integers(), st.text(), st.binary(), st.none(), st.complex_numbers(), st.decimals()))
def test_any_value_is_a_finite_float_or_a_value_error(value: Any) -> None:
    try:
        number = finite_number(value)
    except ValueError:
        return
    assert type(number) is float
    assert math.isfinite(number)


def test_terms_come_out_as_plain_floats_and_their_sum_is_finite() -> None:
    (term,) = check_terms([RewardTerm("r", np.float32(0.5), torch.tensor(2.0))])  # type: ignore[arg-type]
    assert (type(term.value), type(term.weight), term.value * term.weight) == (float, float, 1.0)
    for bad, says in (
        ([RewardTerm("r", math.nan)], "the reward 'r', which is nan"),
        ([RewardTerm("r", 1.0, math.inf)], "the reward 'r' a weight that is inf"),
        ([RewardTerm("r", 1e308), RewardTerm("s", 1e308)], r"beyond 1e\+12"),
        ([0.5], "a float, not a RewardTerm"),
    ):
        with pytest.raises(ValueError, match=says):
            check_terms(bad)  # type: ignore[arg-type]


def test_the_metric_leaves_shaping_out() -> None:
    right = RewardTerm("f1", 0.5)
    shaped = (right, RewardTerm("format", 0.2, shaping=True), RewardTerm("turn", 1.0, scope=RewardScope.SEGMENT))
    logged = RewardTerm("exact_match", 1.0, weight=0.0)
    assert metric((*shaped, logged)) == 0.5
    assert metric((RewardTerm("f1", 0.5, weight=0.5),)) == 0.25
    attribution = RewardTerm("attribution", 0.3, scope=RewardScope.SEGMENT, segment=0)
    assert metric((attribution, logged)) == 1.0  # the score, which is in the turns' terms already
    assert metric((RewardTerm("format", 0.2, shaping=True),)) == 0.2  # nothing else says anything
    assert metric(()) == 0.0
