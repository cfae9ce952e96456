from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from keepworth.base.errors import KeepworthError, UnknownName
from keepworth.cli.eval_stream import app
from keepworth.cli.main import app as program
from keepworth.evaluation.arms import Settings, StreamConditions, method_for, run_job
from keepworth.evaluation.stream_claims import CONTROLS
from keepworth.memory import event_loop
from keepworth.memory.by_name import policies_of_cases
from keepworth.memory.memory import Memory
from keepworth.registry import method
from keepworth.worlds.streams import worlds
from tests.slow import slow_but_for

GENERATED = [name for name, world in worlds().items() if world.generated]
SMALL = ["--streams", "near-miss", "--arms", "none,exprag,mixture,mixture+shuffled", "--length", "30", "--seeds", "3"]


def stream(out: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["stream", *words, "--out", str(out)], catch_exceptions=False)


def test_stream_command_runs_arms_and_prints_verdicts(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = stream(out, *SMALL)
    assert done.exit_code == 0
    summary = json.loads((out / "summary.json").read_text())
    assert set(summary["table"]["near-miss"]) == {"none", "exprag", "mixture", "mixture+shuffled"}
    assert all(values["n"] == 3 for values in summary["table"]["near-miss"].values())
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "No verdict: 2 comparisons need 7 seeds. There are 3." in page
    assert "too short for a curve" in page
    assert "3 seeds: expect +-14.9 points. Of 2 comparisons corrected together" in " ".join(done.output.split())
    assert "No verdict is possible: 2 comparisons corrected together need at least 7 seeds." in done.output
    assert json.loads((out / "plan.json").read_text())["power"]["floor"] == 7
    shown = CliRunner().invoke(program, ["show", str(out)]).stdout
    assert "mixture - exprag on near-miss, stream" in " ".join(shown.split())
    assert all(line in done.output for line in shown.splitlines())
    assert json.loads(CliRunner().invoke(program, ["show", str(out), "--json"]).stdout) == summary
    rows = (out / "rows.jsonl").read_text()
    assert stream(out, *SMALL).exit_code == 0
    assert (out / "rows.jsonl").read_text() == rows
    with pytest.raises(KeepworthError, match="other split"):
        stream(out, *SMALL, "--split", "held-out")


def test_stream_command_does_not_warn_of_its_own_event_loop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the user's own loop, which waits for a memory, that a warning names."""
    monkeypatch.setattr(event_loop, "_warned", False)
    small = ["--streams", "near-miss", "--arms", "none,default", "--length", "3", "--seeds", "3", "--method", "default"]
    assert stream(tmp_path / "run", *small).exit_code == 0
    assert "event loop" not in caplog.text

    async def ask() -> None:
        Memory(encoder=None).search("a cat")

    asyncio.run(ask())
    assert "inside an event loop" in caplog.text


def test_without_this_projects_method_the_verdict_is_about_the_arm_named_last_and_curves_left_out_are_named(
    tmp_path: Path,
) -> None:
    arms = "none,oracle,random,irrelevant,attempts,exprecent,exprag,memento-p,memrl"
    done = stream(tmp_path, "--streams", "near-miss", "--arms", arms, "--length", "60", "--seeds", "1")
    assert "No verdict: a comparison needs at least 3 seeds. There is 1." in done.output
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Not drawn: irrelevant, attempts." in page or "Not drawn: random, " in page
    assert "best method" not in page
    assert json.loads((tmp_path / "plan.json").read_text())["method"] == "memrl"


@pytest.mark.parametrize(
    ("option", "value", "near"),
    [("--streams", "nearmiss", "near-miss"), ("--arms", "exprga", "exprag"), ("--orders", "randm", "random")],
)
def test_unknown_names_are_refused_with_the_nearest(option: str, value: str, near: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=near):
        stream(tmp_path / "x", option, value)


def test_list_describes_streams_and_arms() -> None:
    done = CliRunner().invoke(app, ["list"], env={"COLUMNS": "80"}, catch_exceptions=False)
    listed = " ".join(done.output.split())
    assert "near-miss Tasks that look alike need different answers near-miss-numbered" in listed
    assert "what a customer of a bank wants (BANKING77). Give banking77, or what holds it, as --data." in listed
    about = "Fits one ridge regression of reward for each action and takes the highest upper bound"
    assert f"linucb {about} (arXiv 1003.0146) linear-thompson" in listed
    assert "attempts no memory; a second attempt where the first failed random" in listed
    known = json.loads(CliRunner().invoke(app, ["list", "--json"], catch_exceptions=False).stdout)
    assert set(known["streams"]) == set(worlds())
    assert set(known["arms"]["controls"]) == set(CONTROLS)
    assert set(known["arms"]["methods"]) >= {*policies_of_cases(), "default", "mixture-without-ridge"}


def test_the_summary_as_json_is_all_of_standard_output(tmp_path: Path) -> None:
    done = stream(tmp_path, "--streams", "benign", "--arms", "none,exprag", "--length", "10", "--seeds", "1", "--json")
    assert json.loads(done.stdout) == json.loads((tmp_path / "summary.json").read_text())


@pytest.mark.parametrize("name", ["cues", "game_on"])
def test_a_study_without_its_world_names_it_with_its_licence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepworth.base.extras.find_spec", lambda module: None)
    with pytest.raises(KeepworthError, match=f"study {name} needs the Python package textworld_express, Apache-2.0"):
        method("study", name).make.run()


def test_a_memory_that_cannot_use_a_stream_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(KeepworthError, match="rmm cannot use a stream: it keeps no cases"):
        stream(tmp_path / "x", "--streams", "benign", "--arms", "none,rmm")


@pytest.mark.parametrize("name", ["household", "science"])
def test_a_world_that_cannot_run_here_is_refused_with_its_fix(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    absent = ("textworld_express", "scienceworld")
    monkeypatch.setattr("keepworth.base.extras.find_spec", lambda module: None if module in absent else object())
    with pytest.raises(KeepworthError, match=f"stream {name} needs the Python package .*pip install"):
        stream(tmp_path / "x", "--streams", name)
    assert not (tmp_path / "x").exists()


def test_tuned_settings_reach_the_method_and_its_ablations() -> None:
    tuned = {"mixture": {"k": 3, "share": 0.1}, "memrl": {"k": 2}}
    assert method_for("memrl", tuned, 0).selector.k == 2  # type: ignore[attr-defined]
    for name in ("mixture", "mixture-without-ridge"):
        found = method_for(name, tuned, 0)
        assert found.selector.k == 3  # type: ignore[attr-defined]
        assert found.valuer.share == 0.1  # type: ignore[attr-defined]
        assert found.name == name


NO_ARMS = (
    *("none+shuffled", "mixture+shufled", "oracle+masked", "exprag+on", "memrl+masked+on", "memrl+on+published"),
    "rememberer+masked",  # its values stand in its records, so that hiding them would change nothing
)
NAMED = (*policies_of_cases(), "mixture+masked", "mixture+shuffled", *CONTROLS)


@pytest.mark.parametrize("family", slow_but_for(["near-miss", "updates"], GENERATED))
def test_every_method_runs_on_every_stream(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = run_job((family, "random", 0), NAMED, StreamConditions(length=6))
    assert [row.arm for row in rows] == list(NAMED)
    assert all(set(row.bits) <= {"0", "1"} and len(row.bits) >= 6 for row in rows)


def test_an_arm_may_have_settings_and_a_control_at_once() -> None:
    arms = ("memrl", "memrl+masked", "memrl+on", "memrl+on+masked")
    rows = run_job(("near-miss", "random", 0), arms, StreamConditions(length=60))
    tuned, masked, on, on_and_masked = (row.bits for row in rows)
    assert len({tuned, masked, on, on_and_masked}) == 4
    chosen: Settings = {"one-step": {"memrl": dict(method("policy", "memrl").on)}}
    (same,) = run_job(("near-miss", "random", 0), arms[1:2], StreamConditions(length=60, settings=chosen))
    assert same.bits == on_and_masked


def test_the_policy_can_be_chosen_and_is_part_of_the_plan(tmp_path: Path) -> None:
    out = tmp_path / "run"
    small = ["--streams", "benign", "--arms", "none,mixture", "--length", "40", "--seeds", "1", "--agent"]
    assert stream(out, *small, "tabular").exit_code == 0
    with pytest.raises(KeepworthError, match="other agent"):
        stream(out, *small, "linear")
    with pytest.raises(UnknownName, match="linear"):
        stream(out, *small, "linaer")


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [("--streams", "banking77-drift", "--data")] + [("--arms", arm, "no arm") for arm in NO_ARMS],
)
def test_data_and_changes_that_there_are_not_are_refused(option: str, value: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(KeepworthError, match=says):
        stream(tmp_path / "x", option, value)


@pytest.mark.parametrize("text", ["", "[]", '{"mixture": {}}', '{"mixture": {"settings": {"kep": 1}}}'])
def test_invalid_tuned_settings_are_refused_before_running(text: str, tmp_path: Path) -> None:
    tuned = tmp_path / "tuned.json"
    tuned.write_text(text)
    with pytest.raises(KeepworthError, match=r"tuned\.json"):
        stream(tmp_path / "x", "--arms", "mixture", "--tuned", str(tuned))
    assert not (tmp_path / "x").exists()
