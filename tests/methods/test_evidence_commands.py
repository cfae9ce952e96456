"""Commands that measure methods: each has a smallest size, and nothing is recorded that could not be measured again."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.methods import smallest, study, worlds
from benchmarks.methods.recipes import ARMS, curve
from benchmarks.methods.write import FOLDER, begin, measuring, write


def run(*words: str, cwd: Path = FOLDER.parents[1]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False, cwd=cwd)


def test_every_record_has_a_command_at_its_smallest_size_or_a_reason_why_not() -> None:
    assert smallest.uncovered() == []
    assert set(study.SMALLEST) == set(smallest.STUDIES)


def test_a_world_at_its_smallest_size_goes_beside_the_record(tmp_path: Path) -> None:
    before = (FOLDER / "benign.json").read_bytes()
    ran = run("benchmarks.methods.worlds", "benign", "--smallest", "--out", str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    ((name, score, control),) = smallest.arms("scripted optimum", "chance")(tmp_path)
    assert (name, score) == ("benign", 1.0)
    assert control is not None
    assert control < score
    assert (FOLDER / "benign.json").read_bytes() == before


def test_too_few_seeds_are_refused_before_the_first_run() -> None:
    ran = run("benchmarks.methods.recipes", "agent_rlvr", "--seeds", "2")
    assert ran.returncode == 1
    assert ran.stderr == "An interval needs 3 seeds, and --seeds is 2. Nothing was run.\n"


def test_a_tree_with_changes_is_not_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    git: Callable[..., Any] = lambda *words: subprocess.run(["git", "-C", str(tmp_path), *words], check=True)  # noqa: E731
    git("init", "-q")
    (tmp_path / "changed.py").write_text("1")
    monkeypatch.setattr("benchmarks.methods.write.ROOT", tmp_path)
    options = measuring(argparse.ArgumentParser(), smallest="small").parse_args(["--record"])
    with pytest.raises(SystemExit, match=r"1 files have changes that are in no commit \(changed.py\)"):
        begin(options)
    both = measuring(argparse.ArgumentParser(), smallest="small").parse_args(["--record", "--smallest"])
    with pytest.raises(SystemExit, match="record without it"):
        begin(both)


def test_several_records_of_one_command_have_the_revision_before_the_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first record changes the tree, which has made most records of before look as if their code was in no commit."""
    monkeypatch.setattr("benchmarks.methods.write.FOLDER", tmp_path)
    monkeypatch.setattr("benchmarks.methods.write.ROOT", tmp_path)
    monkeypatch.setattr("benchmarks.methods.write.Destination.folder", tmp_path)
    monkeypatch.setattr("benchmarks.methods.write.Destination.revision", "")
    revisions = iter(["0123abc", "0123abc-dirty", "0123abc-dirty"])
    about = {"processor": "", "cores": 2, "python": "", "versions": dict.fromkeys(("torch", "keepworth"), "")}
    monkeypatch.setattr("benchmarks.methods.write.machine", lambda _: {**about, "revision": next(revisions)})
    subprocess.run(["git", "-C", str(tmp_path), "init", "-q"], check=True)
    begin(measuring(argparse.ArgumentParser()).parse_args(["--record"]))
    for name in ("benign", "t-maze"):
        write(
            name,
            "python -m benchmarks.methods.worlds",
            "It was not played.",
            rule={"unreachable": "It was not played."},
        )
    assert {json.loads(file.read_text())["revision"] for file in tmp_path.glob("*.json")} == {"0123abc"}


def test_a_command_without_a_score_above_zero_fails(tmp_path: Path) -> None:
    record = {"name": "some", "arms": [{"name": "score", "mean": 0.0}, {"name": "control", "mean": 0.1}]}
    folder = f"{tmp_path}/some.json"
    Path(folder).write_text(json.dumps(record))

    def scores(_: Path) -> Any:
        return smallest.arms("score", "control")(tmp_path)

    command = smallest.Smallest("some", "python -c pass", scores, (), 1)
    assert smallest.check(command) == "some scores 0.000; some scores 0.000, its control 0.100"


def test_the_list_of_commands_that_are_left_runs_none() -> None:
    ran = run("benchmarks.methods.smallest", "worlds", "--list", "--again")
    assert ran.returncode == 2
    assert "left: worlds (" in ran.stdout


def test_the_tiny_bank_reads_streams_of_its_own() -> None:
    """Its pupil is right now and then before any reward; with the streams of another data set it never is."""
    assert curve(ARMS["bounded_bank"]["recipe"], 0, smallest=True)[0] > 0.0


def test_the_rule_of_too_few_seeds_holds_for_worlds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["worlds", "benign", "--seeds", "1"])
    with pytest.raises(SystemExit, match="An interval needs 3 seeds"):
        worlds.main()
    assert capsys.readouterr().out == ""
