"""Runs side by side: only what both have is compared, and what differs between them is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepworth.cli.main import main
from keepworth.episodes.errors import KeepworthError
from keepworth.evaluation.report import compared, differing
from keepworth.learning.run_folder import RunFolder
from tests.evaluation.sample_run import sample_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    folder = tmp_path_factory.mktemp("runs")
    return [sample_run(folder / "short", steps=6), sample_run(folder / "long", steps=12)]


def test_the_table_has_a_line_per_arm_that_both_measured(runs: list[RunFolder]) -> None:
    table = compared(runs).table
    assert table is not None
    assert table.metrics == ("short", "long")
    rows = {row.label: row for row in table.rows}
    assert rows["Token F1, test: trained, oracle evidence"].cells[0].mean == pytest.approx(0.7)  # type: ignore[union-attr]
    assert not [label for label in rows if label.startswith("Exact")]


def test_only_what_differs_is_listed(runs: list[RunFolder]) -> None:
    assert compared(runs).settings == {"answerer.steps": (6, 12), "manager.steps": (2, 4)}
    assert differing([{"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 2}, "d": None}]) == {"d": (None, None)}


def test_the_same_run_twice_and_one_run_alone_are_mistakes(runs: list[RunFolder]) -> None:
    with pytest.raises(KeepworthError, match="twice"):
        compared([runs[0], RunFolder(runs[0].path)])
    with pytest.raises(KeepworthError, match="at least two"):
        compared(runs[:1])


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for place in ("a", "b"):
        with RunFolder.create(tmp_path / place / "r", {"seed": place}) as run:
            run.append_metrics(1, {"reward": 0.5})
    found = compared([RunFolder.open(tmp_path / place / "r") for place in ("a", "b")])
    assert found.names == ("a/r", "b/r")
    assert found.table is None


def test_the_terminal_says_what_differs_and_what_was_measured(
    runs: list[RunFolder], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    folder = str(runs[0].path.parent)
    assert main(["show", "short", "long", "--runs", folder]) == 0
    terminal = capsys.readouterr().out
    for text in ("answerer.steps", "Token F1, test: trained", "0.620"):
        assert text in terminal


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "short", "long", "--episodes"], "--episodes pages through those of one run"),
        (["show", "short", "short"], "named twice"),
    ],
)
def test_options_that_cannot_take_effect_are_refused(
    runs: list[RunFolder], arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--runs", str(runs[0].path.parent)]) == 2
    assert says in capsys.readouterr().err
