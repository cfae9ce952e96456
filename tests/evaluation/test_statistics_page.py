"""The page on statistics holds what was measured."""

from __future__ import annotations

from benchmarks.statistics import page
from benchmarks.tables import with_appendix
from keepworth.evaluation.statistics import SMALL


def test_the_page_holds_what_was_measured() -> None:
    text = "".join(each.read_text() for each in with_appendix(page.PAGE))
    for name, table in page.TABLES.items():
        assert text.count(f"<!-- {name} -->\n{table()}\n<!-- /{name} -->") == 1, name


def test_intervals_cover_as_the_page_says() -> None:
    found = page.of("coverage")
    few = [row for row in found["intervals"] if row["n"] < SMALL]
    assert all(row["t"]["share"] > row["bootstrap"]["share"] for row in few)
    assert all(abs(row["t"]["share"] - 0.95) < 0.02 for row in few if row["world"] == "normal")
    level, one = found["verdicts"]
    assert level["said ahead"]["share"] <= 0.025
    assert one["said ahead"]["share"] <= 0.025 + 3 * one["said ahead"]["error"]
    assert all(row["as narrow"]["share"] > 0.78 for row in found["plans"])
