from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recollect.cli.stream import app, method_for
from recollect.episodes.errors import RecollectError, UnknownName

SMALL = ["--streams", "near-miss", "--arms", "none,exprag,ours,ours+shuffled", "--length", "30"]


def test_one_command_runs_a_recipe_on_a_stream_and_says_what_holds(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = CliRunner().invoke(app, [*SMALL, "--seeds", "3", "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0
    summary = json.loads((out / "summary.json").read_text())
    assert set(summary["table"]["near-miss"]) == {"none", "exprag", "ours", "ours+shuffled"}
    assert all(values["n"] == 3 for values in summary["table"]["near-miss"].values())
    assert (out / "report.png").stat().st_size > 5_000
    rows = (out / "rows.jsonl").read_text()
    again = CliRunner().invoke(app, [*SMALL, "--seeds", "3", "--out", str(out)], catch_exceptions=False)
    assert again.exit_code == 0
    assert (out / "rows.jsonl").read_text() == rows
    with pytest.raises(RecollectError, match="other split"):
        CliRunner().invoke(
            app, [*SMALL, "--seeds", "3", "--split", "held-out", "--out", str(out)], catch_exceptions=False
        )


@pytest.mark.parametrize(
    ("option", "value", "near"),
    [("--streams", "nearmiss", "near-miss"), ("--arms", "exprga", "exprag"), ("--orders", "randm", "random")],
)
def test_unknown_names_are_refused_with_the_nearest(option: str, value: str, near: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=near):
        CliRunner().invoke(app, [option, value, "--out", str(tmp_path / "x")], catch_exceptions=False)


def test_banking_without_its_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecollectError, match="--data"):
        CliRunner().invoke(app, ["--streams", "banking77", "--out", str(tmp_path / "x")], catch_exceptions=False)


def test_tuned_settings_reach_the_method_and_its_ablations() -> None:
    tuned = {"ours": {"widen": 0.5, "keep": 0.9}, "memrl": {"k": 2}}
    assert method_for("memrl", tuned, 0).selector.k == 2  # type: ignore[attr-defined]
    for name in ("ours", "ours-without-local", "ours-quarantine-all"):
        found = method_for(name, tuned, 0)
        assert found.selector.widen == 0.5  # type: ignore[attr-defined]
        assert found.valuer.settings.keep == 0.9  # type: ignore[attr-defined]
        assert found.name == name
