"""Whatever is printed as a table fits the terminal: nothing is cut, and no number is broken in two."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from keepworth.base.text import terminal
from keepworth.charts.curves import arm_name
from keepworth.cli.show import print_curves, print_tables
from keepworth.cli.tables import print_evaluation, print_table
from keepworth.training.run_folder import RunFolder
from keepworth.training.watch.tables import ArmRow, Cell, ResultTable, table_of_rows
from tests.cli.conftest import CommandLine
from tests.evaluation.sample_run import sample_run

WIDTHS = [60, 80, 100, 120]
INTERVAL = re.compile(r"\[-?\d+\.\d+, -?\d+\.\d+\]")


def printed(width: int, work: Any) -> str:
    out = io.StringIO()
    work(terminal(file=out, width=width, force_terminal=True, color_system=None))
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert "[" not in INTERVAL.sub("", text), "an interval is whole"
    return text


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return sample_run(tmp_path_factory.mktemp("runs") / "demo", steps=6)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_run_fits(width: int, run: RunFolder) -> None:
    text = printed(width, lambda console: print_tables(run, console))
    assert text.count("trained, another question's memory") == 2, "of the trained and of the untrained model"
    assert len(INTERVAL.findall(text)) >= 16
    printed(width, lambda console: print_curves(run, console))


METRICS = (
    "operation accuracy", "operation accuracy, near", "accuracy on ADD", "accuracy on UPDATE", "invalid operations",
)  # fmt: skip


@pytest.mark.parametrize("width", [*WIDTHS, 200])
def test_many_columns_are_whole(width: int) -> None:
    rows = [
        {"arm": arm, "metric": metric, "mean": 0.5125, "low": 0.25, "high": 0.75, "n": 40 + len(metric)}
        for arm in ("untrained", "trained", "always the most frequent operation of the training set")
        for metric in METRICS
    ]
    table = table_of_rows("The manager, on cases it has not seen", rows, "95 % intervals.")
    text = printed(width, lambda console: print_table(table, console))
    assert text.count("0.512") == text.count("[0.25, 0.75]") == 3 * len(METRICS)
    for metric in table.metrics:  # whole, on a line of its own for each arm where it is narrow
        once = len(re.findall(rf"^  {metric}  ", text, re.MULTILINE))
        assert once == 3 if width < 200 else metric in text
    assert width < 200 or sum("0.512" in line for line in text.splitlines()) == 3


@pytest.mark.parametrize("width", WIDTHS)
def test_streams_fit(width: int) -> None:
    arms = ["none", "mixture-without-kernel", "mixture-without-ridge+rollback"]
    values = {"auc": 0.5, "auc_error": 0.0123, "held_out": 0.75, "calls": 1.25, "routing_loss": 0.125}
    claims = {"best_rival": [], "against_rivals": [], "parts": []}
    more = {"not_worse": [], "gain_left_when_permuted": [], "gain_left_when_masked": [], "no_lower_than_none": []}
    table = {"near-miss, easy-to-hard": dict.fromkeys(arms, values)}
    summary = {"plan": {"method": "default"}, "seeds": 1, "table": table, "claims": {**claims, **more}}
    text = printed(width, lambda console: print_evaluation(summary, console))
    assert text.count("0.500") == text.count("0.012") == text.count("0.750") == len(arms)
    assert all(arm in text for arm in arms)
    heads = ("success", "held-out", "calls", "lost")
    assert all(re.search(rf"(^|\s){head}\s", text) for head in heads)


@pytest.mark.parametrize("width", WIDTHS)
def test_sentences_are_broken_between_words_and_numbers_are_not(width: int) -> None:
    how = "of it 28 MB mapped file pages the system may take back; 41 MB before opening"
    rows = (
        ArmRow("one", "resident memory after ten searches", (Cell(56.7), Cell(1024.25), Cell(1.0)), n=how),
        ArmRow("two", "add one", (Cell(0.2), None, None)),
    )
    table = ResultTable("engine", ("p50", "p95", "unit"), rows, counted="how")
    text = printed(width, lambda console: print_table(table, console))
    assert {"56.700", "1,024"} <= set(text.split())
    assert all(word in text.split() for word in how.split())
    assert bool(re.search(r"^  p50  ", text, re.M)) == (width < 100), "a block per row where a line has no room"


@pytest.mark.parametrize("width", WIDTHS)
def test_lists_fit(width: int, monkeypatch: pytest.MonkeyPatch, command: CommandLine) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for words in (["eval", "list"], ["methods", "--kind", "recipe"]):
        assert [line for line in command.done(*words).splitlines() if len(line) > width] == [], words


def test_arms_have_one_word_order() -> None:
    """The model, then what it is shown."""
    known = ["no_memory", "wrong_memory", "oracle", "no_tool", "another_memory", "oracle_evidence", "mine"]
    beside = [*known, *(f"{arm}_untrained" for arm in known), "trained", "untrained"]
    for arm in beside:
        model, comma, shown = arm_name(arm, beside).partition(", ")
        assert comma, arm
        assert shown, arm
        assert model == ("untrained" if arm.endswith("untrained") else "trained"), arm
    assert arm_name("mine", ["mine"]) == "mine", "nothing was trained"
