"""Costs read from a run folder: they are those that the run's times were made with, and what is missing is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keepworth.cli.main import main
from keepworth.episodes import Episode, FinishReason, Segment, StopReason
from keepworth.episodes.errors import KeepworthError
from keepworth.learning.collect.admission import Staleness
from keepworth.learning.planning.calibration import Calibration, as_it_ran, calibrated, contended, fitted, replayed
from keepworth.learning.planning.simulation import Candidate, Costs, simulated
from keepworth.learning.planning.workload import ModelCall, Workload, learned_tokens, recorded
from keepworth.learning.run_folder import RunFolder

GROUPS, MEMBERS = 2, 3
COSTS = Costs(
    ((1.0, 0.003), (11.0, 0.008)), read=0.0002, learn=0.0005, update=0.02, publish=0.01, between=0.05, call=0.004
)
"""A step takes 2.5 ms and half a millisecond for each sequence."""


def episode(group: int, member: int, wait: float) -> Episode:
    length = int(np.random.default_rng((group, member)).integers(2, 40))
    context, ids = tuple(range(7 + group % 3)), tuple(range(length))
    segment = Segment("speaker", "p", context, ids, (0.0,) * length, 1.0, FinishReason.LENGTH, (), "")
    return Episode(
        id=f"{group}/{member}",
        task=f"t/{group}",
        role="speaker",
        question="",
        segments=(segment,),
        answer="",
        expected=(),
        rewards=(),
        stop=StopReason.COMPLETED,
        memory_snapshot="",
        policy_version=0,
        seconds={"environment": wait},
    )


def write(
    path: Path,
    steps: int = 12,
    wait: float = 0.0,
    change: Callable[[dict[str, Any]], None] = lambda row: None,
    **config: object,
) -> RunFolder:
    """A run in turns whose times are exactly those of `COSTS`."""
    now = [1000.0]
    with RunFolder.create(
        path, {"sampling": "turns", "max_staleness": 0, "slots": 6, **config}, clock=lambda: now[0]
    ) as run:
        for step in range(steps):
            groups = [[episode(GROUPS * step + g, m, wait) for m in range(MEMBERS)] for g in range(GROUPS)]
            lengths = [len(e.segments[0].ids) for own in groups for e in own]
            read = sum(len(own[0].segments[0].context) for own in groups)
            decode = 0.0025 * max(lengths) + 0.0005 * sum(lengths) + COSTS.read * read
            tokens = sum(map(learned_tokens, recorded(groups).groups))
            row = {
                "seconds/decode": decode,
                "decode/steps": float(max(lengths)),
                "decode/drawn": float(sum(lengths)),
                "decode/read": float(read),
                "seconds/sample": decode + 6 * COSTS.call + wait,
                "seconds/learn": COSTS.update + COSTS.learn * tokens,
                "seconds/publish": COSTS.publish,
                "role": "speaker",
            }
            now[0] += sum(row[f"seconds/{name}"] for name in ("sample", "learn", "publish")) + COSTS.between  # type: ignore[misc]
            change(row)
            run.write_episodes(step + 1, [e for own in groups for e in own])
            run.append_metrics(step + 1, row)
    return RunFolder.open(path)


def test_costs_are_those_that_the_times_were_made_with(tmp_path: Path) -> None:
    made = calibrated(write(tmp_path / "run"))
    costs = made.costs
    assert costs is not None
    for sequences in (1, 4, 20):
        assert costs.step_seconds(sequences) == pytest.approx(0.0025 + 0.0005 * sequences, rel=1e-6)
    for name in ("read", "learn", "update", "publish", "call"):
        assert getattr(costs, name) == pytest.approx(getattr(COSTS, name), rel=1e-6), name
    assert costs.between == pytest.approx(COSTS.between, abs=0.002), "times of rows have three digits"
    assert (made.groups, made.group_size, made.mode, made.slots) == (GROUPS, MEMBERS, "turns", 6)
    assert any("gradients" in each for each in made.missing)
    assert any("environments" in each for each in made.missing)


def test_the_run_itself_is_foreseen(tmp_path: Path) -> None:
    made = calibrated(write(tmp_path / "run", steps=20))
    assert made.costs is not None
    assert as_it_ran(made) == Candidate(Staleness(GROUPS, 0, 1.0), slots=6, mode="turns")
    # A step's seconds depend on how many sequences are left, which is what the run was not made with; lengths and sums are.
    assert replayed(made, made.costs).seconds_per_update == pytest.approx(made.seconds_per_update, rel=0.03)


def test_a_run_that_overlaps_says_how_much_both_slow_down(tmp_path: Path) -> None:
    alone = calibrated(write(tmp_path / "turns"))
    assert alone.costs is not None
    slow = Costs(alone.costs.step, learn=alone.costs.learn, update=alone.costs.update, contention=1.5)
    candidate = Candidate(Staleness(GROUPS, 1, 2.0), slots=6, mode="overlap")
    seconds = simulated(alone.workload, slow, candidate, updates=12).seconds_per_update
    beside = Calibration(
        None, {}, alone.workload, GROUPS, MEMBERS, "overlap", 1, 2.0, 6, seconds_per_update=seconds, missing=()
    )
    costs = Costs(alone.costs.step, learn=alone.costs.learn, update=alone.costs.update)
    assert contended(costs, beside).contention == pytest.approx(1.5, abs=0.02)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    def of_an_engine(row: dict[str, Any]) -> None:
        for name in ("seconds/decode", "decode/steps", "decode/drawn", "decode/read", "seconds/publish"):
            del row[name]

    made = calibrated(write(tmp_path / "engine", wait=2.0, change=of_an_engine))
    assert made.costs is None
    assert [call.wait for call in made.workload.calls[:2]] == [2.0, 2.0]
    for word in ("decoding step", "publishing", "call costs"):
        assert any(word in each for each in made.missing), word
    with pytest.raises(KeepworthError, match="4 updates"):
        calibrated(write(tmp_path / "short", steps=4))
    with pytest.raises(KeepworthError, match="no role 'reader'"):
        calibrated(RunFolder.open(tmp_path / "engine"), "reader")


def test_no_coefficient_is_negative() -> None:
    """Of what falls with a column, the column is worth nothing; the rest is the mean."""
    assert fitted([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]], [6.0, 4.0, 2.0]) == pytest.approx((4.0, 0.0))
    assert fitted([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]], [3.0, 5.0, 7.0]) == pytest.approx((1.0, 2.0))


def test_the_command_plans_from_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "run")
    command = ["plan", "run", "--runs", str(tmp_path), "--engines", "1,2", "--staleness", "0,1", "--json"]
    assert main(command) == 0
    record = json.loads(capsys.readouterr().out)
    assert [(each["engines"], each["staleness"]["max_staleness"]) for each in record["candidates"]] == [
        (1, 0), (1, 1), (2, 0), (2, 1),
    ]  # fmt: skip
    assert record["run"]["simulated"] == pytest.approx(record["run"]["measured"], rel=0.05)
    forecasts = [each["forecast"] for each in record["candidates"]]
    assert record["best"] == max(range(4), key=lambda i: forecasts[i]["tokens_per_second"])
    assert record["assumptions"]
    assert record["missing"]
    assert main([each for each in command if each != "--json"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("takes for granted") < shown.index("Costs in seconds") < shown.index("updates/h")
    assert "2 engines, 1 learner, staleness 1" in shown


def test_the_command_plans_from_stated_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    costs = tmp_path / "costs.json"
    costs.write_text('{"step": [[1, 0.01], [64, 0.03]], "learn": 0.0001}')
    given = [
        "plan",
        "--costs",
        str(costs),
        "--lengths",
        "30:1:200",
        "--waits",
        "1:1:20",
        "--gpus",
        "8",
        "--updates",
        "3",
    ]
    assert main([*given, "--groups", "4", "--group-size", "4", "--staleness", "1", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [(each["engines"], each["learners"]) for each in record["candidates"]] == [(7, 1), (6, 2), (4, 4)]
    assert any(each.startswith("publish") for each in record["missing"])
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"members": [[{"prompt": 5, "drawn": 20}]]}\n')
    assert (
        main(["plan", "--costs", str(costs), "--trace", str(trace), "--groups", "1", "--mode", "turns", "--json"]) == 0
    )
    made = json.loads(capsys.readouterr().out)["candidates"][0]["forecast"]
    assert made["seconds_per_update"] == pytest.approx(20 * 0.01 + 25 * 0.0001)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "what the work is"),
        (("--lengths", "30"), "decoding step"),
        (("--lengths", "thirty"), "no distribution"),
        (("--waits", "3"), "--waits says"),
        (("--lengths", "30", "--trace", "x"), "both say"),
        (("--lengths", "30", "--costs", "COSTS", "--staleness", "one"), "no list of whole numbers"),
        (("--lengths", "30", "--costs", "COSTS", "--mode", "turns", "--engines", "2"), "one process"),
        (("--lengths", "30", "--costs", "COSTS", "--mode", "beside"), "mode = 'beside'"),
        (("--lengths", "30", "--costs", "COSTS", "--gpus", "8", "--engines", "2"), "--gpus says"),
        (("--lengths", "30", "--costs", "COSTS", "--depth", "3", "--staleness", "1"), "pipeline_depth = 3"),
        (("--lengths", "30", "--costs", "OTHER"), "'stpe'"),
        (("--role", "writer", "--lengths", "30"), "--role is about a run"),
        (("nowhere",), "nowhere"),
    ],
)
def test_mistakes_are_named(
    words: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "costs.json").write_text('{"step": [[1, 0.01]]}')
    (tmp_path / "other.json").write_text('{"stpe": [[1, 0.01]]}')
    files = {"COSTS": str(tmp_path / "costs.json"), "OTHER": str(tmp_path / "other.json")}
    assert main(["plan", "--runs", str(tmp_path), *(files.get(word, word) for word in words)]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_recorded_members_without_a_call_are_left_out() -> None:
    assert recorded([[episode(0, 0, 1.0)]]) == Workload(
        (((ModelCall(7, len(episode(0, 0, 1.0).segments[0].ids), 1.0),),),)
    )
    with pytest.raises(KeepworthError, match="no work"):
        recorded([])
