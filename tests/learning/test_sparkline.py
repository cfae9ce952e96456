"""Lines of text for numbers: short, in scale, and every value counted once."""

from __future__ import annotations

import pytest

from keepworth.learning.watch.progress import duration, short, sparkline


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
