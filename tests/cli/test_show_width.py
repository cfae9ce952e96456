"""A result is whole on a terminal of 80 columns: no heading is cut and no number broken in two."""

from __future__ import annotations

import io
import re

import pytest

from keepworth.cli.tables import print_table
from keepworth.episodes.text import terminal
from keepworth.evaluation.tables import ResultTable, table_of_rows

METRICS = (
    "operation accuracy",
    "operation accuracy, near",
    "accuracy on ADD",
    "accuracy on UPDATE",
    "invalid operations",
)


def result() -> ResultTable:
    rows = [
        {"arm": arm, "metric": metric, "mean": 0.5125, "low": 0.25, "high": 0.75, "n": 40 + len(metric)}
        for arm in ("untrained", "trained", "always the most frequent operation of the training set")
        for metric in METRICS
    ]
    return table_of_rows("The manager, on cases it has not seen", rows, "95 % intervals.")


def printed(width: int) -> str:
    out = io.StringIO()
    print_table(result(), terminal(file=out, width=width, force_terminal=True, color_system=None))
    return out.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_nothing_is_cut_at_any_width(width: int) -> None:
    text = printed(width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    assert text.count("0.512") == text.count("[0.25, 0.75]") == 3 * len(METRICS)
    for metric in result().metrics if width < 200 else ():
        assert len(re.findall(rf"^  {metric}  ", text, re.MULTILINE)) == 3, "whole, on a line of its own for each arm"


def test_wide_terminals_have_a_line_for_each_arm() -> None:
    lines = printed(200).splitlines()
    assert all(metric in "\n".join(lines) for metric in result().metrics)
    assert sum("0.512" in line for line in lines) == 3
