"""Curves and tables say what the run folder says."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any

import pytest

from keepworth.charts.charts import PALETTE, PALETTE_DARK, Panel, Series, as_elements, charts, colour_indices
from keepworth.charts.curves import panels
from keepworth.training.run_folder import RunFolder
from keepworth.training.watch.report import write_report
from keepworth.training.watch.tables import table_of_rows, tables_of


def measured(step: int, arm: str, mean: float, **more: object) -> dict[str, object]:
    row = {"step": step, "arm": arm, "metric": "f1", "mean": mean, "low": mean - 0.1, "high": mean + 0.1, "n": 54}
    return {**row, **more}


def test_a_held_out_metric_has_one_line_per_arm_with_its_interval() -> None:
    (panel,) = panels([], [measured(0, "trained", 0.3), measured(0, "no_memory", 0.1), measured(5, "trained", 0.5)])
    assert panel.held_out
    lines = [(s.key, s.steps, s.values) for s in panel.series]
    assert lines == [("trained", (0, 5), (0.3, 0.5)), ("no_memory", (0,), (0.1,))]
    assert panel.series[0].low == pytest.approx((0.2, 0.4))
    assert "n = 54" in panel.unit


def test_roles_splits_and_metrics_are_kept_apart() -> None:
    rows = [measured(0, "trained", 0.3, role=role, split="dev") for role in ("answerer", "manager")]
    metrics = [{"step": 1, "role": "manager", "reward": 0.1}, {"step": 2, "role": "answerer", "reward": 0.2}]
    found = [(panel.role, panel.held_out) for panel in panels(metrics, rows)]
    assert found == [("manager", True), ("manager", False), ("answerer", True), ("answerer", False)]


def test_training_curves_follow_the_names_of_the_metrics() -> None:
    first = {"step": 1, "time": 5.0, "reward": 0.1, "reward/f1": 0.1, "entropy": 2.0, "seconds/sample": 3}
    counted = {"invalid_operations": 0.5, "response_length": 7.0}
    rows = [{**first, "mismatch_mean": 0.01}, {"step": 2, "time": 6.0, "reward": 0.2, "reward/f1": 0.3, **counted}]
    found = {panel.key: panel for panel in panels(rows, [])}
    assert set(found) == {"reward", "entropy", "seconds", "gap", "invalid", "length"}
    assert [(s.label, s.values) for s in found["reward"].series] == [("total", (0.1, 0.2)), ("f1", (0.1, 0.3))]
    assert found["invalid"].series[0].steps == (2,)


def test_a_total_that_is_one_of_its_terms_does_not_lie_under_it() -> None:
    rows = [{"step": n, "reward": n / 10, "reward/f1": n / 10, "reward/exact": n / 20} for n in (1, 2)]
    (panel,) = panels(rows, [])
    assert [s.label for s in panel.series] == ["f1", "exact"]


def test_arm_keeps_its_colour_in_every_chart() -> None:
    assert colour_indices(["something", "trained", "else"])[1] == colour_indices(["trained"])[0]
    assert len(set(colour_indices(["a", "trained", "b", "untrained", "c"]))) == 5
    assert len(colour_indices([str(index) for index in range(30)])) == 30
    assert len(PALETTE) == len(PALETTE_DARK)


def test_a_table_has_a_line_per_arm_and_a_column_per_metric() -> None:
    untrained = [measured(0, "untrained", 0.35), measured(0, "untrained", 0.2, metric="em")]
    rows = [*untrained, measured(0, "trained", 0.62)]
    table = table_of_rows("T", rows)
    assert table.metrics == ("Token F1", "Exact match")
    labelled = [(row.label, row.n, row.emphasis) for row in table.rows]
    assert labelled == [("untrained", "54", False), ("trained", "54", True)]
    assert table.rows[1].cells[1] is None
    assert table.rows[0].cells[0] is not None
    assert table.rows[0].cells[0].interval == "[0.25, 0.45]"


def test_with_memory_is_said_where_an_arm_without_it_stands_beside() -> None:
    means = {"trained": 0.6, "no_memory": 0.1, "warm_start": 0.2}
    table = table_of_rows("T", [measured(0, arm, mean) for arm, mean in means.items()])
    labels = ["trained, with memory", "trained, no memory", "after the supervised warm start"]
    assert [row.label for row in table.rows] == labels


def test_before_the_end_the_latest_measurements_stand_in(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", {}) as run:
        for step in (0, 5):
            run.append_eval(step, arm="trained", metric="f1", mean=step / 10, low=0.0, high=1.0, n=3)
        (table,) = tables_of(run)
        assert table.rows[0].cells[0] is not None
        assert table.rows[0].cells[0].mean == 0.5
        assert "step 5" in table.note
        run.write_result({"tables": [{"title": "Final", "rows": [measured(5, "trained", 0.6)]}]})
        assert [table.title for table in tables_of(run)] == ["Final"]


def test_the_measurement_before_training_is_the_first_point_of_the_curve() -> None:
    rows = [measured(0, "untrained", 0.3), measured(0, "no_memory_untrained", 0.1)]
    rows += [measured(9, arm, mean) for arm, mean in {"trained": 0.6, "no_memory": 0.1, "oracle": 0.7}.items()]
    (panel,) = panels([], rows)
    assert [(s.key, s.label, s.steps, s.values) for s in panel.series] == [
        ("trained", "with memory", (0, 9), (0.3, 0.6)),
        ("no_memory", "no memory", (0, 9), (0.1, 0.1)),
        ("oracle", "trained, oracle evidence", (9,), (0.7,)),
    ]


def test_the_first_metric_of_a_split_is_the_wide_one() -> None:
    rows = [measured(0, "trained", 0.3, split="test", metric=metric) for metric in ("f1", "em")]
    wide = [(panel.key, panel.wide) for panel in panels([], rows)]
    assert wide == [("held_out.test.f1", True), ("held_out.test.em", False)]
    assert panels([], [measured(0, "trained", 0.3, low=None, high=None)]) == []


def test_a_count_without_an_interval_has_a_column_and_no_curve(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", {}) as run:
        run.append_eval(1, arm="trained", metric="f1", mean=0.5, low=0.4, high=0.6, n=8)
        run.append_eval(1, arm="trained", metric="invalid", mean=0.25, low=None, high=None, n=8)
        (table,) = tables_of(run)
        assert table.metrics == ("Token F1", "Invalid")
        assert [panel.key for panel in panels([], run.evals())] == ["held_out.f1"]
        page = write_report(run).read_text(encoding="utf-8")
    assert '<td class="number" data-label="Invalid" data-value="0.25">0.250</td>' in page


def test_a_chart_is_the_same_as_html_and_as_elements() -> None:
    """A title may hold what no XML does."""

    def html(node: Any) -> str:
        if isinstance(node, str):
            return escape(node)
        tag, attributes, children = node
        said = "".join(f' {name}="{value}"' for name, value in attributes.items() if name != "aria-label")
        return f"<{tag}{said}>{''.join(map(html, children))}</{tag}>"

    title = "<b>\x00\x1b & more"
    panel = Panel("x", title, "mean", (Series("a", "<i>", (1, 2), (0.0, 1.0), (0.0, 0.5), (0.5, 1.5)),))
    made = as_elements(panel)
    assert (made["title"], made["svg"][1]["aria-label"]) == (title, title)
    drawn_ = re.sub(r' aria-label="[^"]*"', "", charts([panel]).partition("</div>")[2].partition("<script")[0].strip())
    assert html(made["svg"]) == re.sub(r"<(\w+)([^>]*)/>", r"<\1\2></\1>", drawn_)
    assert "<i>" not in charts([panel])
