"""Lines of text for numbers: short, in scale, and every value counted once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.learning.watch.progress import averaged, duration, short, sparkline


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.12345, "0.123"), (45.0, "45"), (1e-5, "1e-05"), (1234.5, "1.23e+03"), (0.0, "0"), (-0.5, "-0.500")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert short(value) == text


@pytest.mark.parametrize(("seconds", "text"), [(41.7, "42 s"), (200, "3 min 20 s"), (3900, "1 h 05 min")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_sparklines_use_the_whole_height_or_the_given_one() -> None:
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([0.5, 0.5]) == "▄▄"
    assert sparkline([0.0, 1.0], (0.0, 2.0)) == "▁▅"
    assert sparkline([float("nan")]) == ""


def test_long_curves_are_averaged_not_thinned() -> None:
    assert averaged([0.0, 2.0, 4.0, 6.0], 2) == [1.0, 5.0]
    assert sparkline([0.0, 0.0, 1.0, 0.0, 1.0, 1.0], width=2) == "▁█"


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.integers(1, 60))
def test_every_value_enters_one_stretch(values: list[float], width: int) -> None:
    found = averaged(values, width)
    assert len(found) == min(width, len(values))
    assert min(values) - 1e-9 <= min(found)
    assert max(found) <= max(values) + 1e-9
    if len(values) % len(found) == 0:
        assert sum(found) * len(values) / len(found) == pytest.approx(sum(values))
