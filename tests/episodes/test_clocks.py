from __future__ import annotations

import warnings

import pytest

from keepworth.episodes import clocks


@pytest.mark.parametrize(
    ("before", "there", "after", "said"),
    [
        (100.0, 100.5, 101.0, ""),
        (100.0, 50.0 + 60.0, 400.0, ""),  # read at some moment of a long journey
        (100.0, 411.0, 400.0, "0:00:11 ahead of"),
        (100.0, 410.0, 400.0, ""),
        (100.0, 89.0, 400.0, "0:00:11 behind"),
        (100.0, 90.0, 400.0, ""),
        (100.0, 100.0 - 86400.0, 100.0, "1 day, 0:00:00 behind"),
    ],
)
def test_a_clock_that_is_surely_off_is_named_with_its_distance(
    before: float, there: float, after: float, said: str
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clocks.warn(before, there, after, "host b", "dates differ")
    assert [str(each.message) for each in caught] == (
        [f"the clock of host b is {said} this machine's: dates differ. Let a time service (NTP) set both."]
        if said
        else []
    )
