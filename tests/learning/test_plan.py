"""A plan counts down one time for all of its parts, from what was measured. The clock is simulated."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from keepworth.learning.watch.progress import (
    STEP,
    PlainProgress,
    Plan,
    PlanPart,
    RichProgress,
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


PARTS = [
    PlanPart("before", "answer", 10),
    PlanPart("training", STEP, 4),
    PlanPart("nothing", STEP, 0),
    PlanPart("after", "answer", 10),
]
SECONDS = {STEP: 6.0, "answer": 0.3}


def test_the_time_left_is_that_of_all_parts_and_follows_what_is_measured() -> None:
    clock = Clock()
    plan = Plan(PARTS, SECONDS, clock)
    assert plan.planned == plan.left() == 30.0
    clock.now = 2.0
    assert plan.left() == 28.0
    clock.now = 3.0
    plan.did("answer", 10, 3.0)
    assert plan.left() == 27.0
    clock.now = 100.0  # whatever this step takes, the time left is never negative
    assert plan.left() == 0.0
    for _ in range(3):
        plan.did(STEP, 1, 12.0)
    # One step, expected to take (6 + 3 * 12) / 4 s, and ten answers.
    assert plan.left() == pytest.approx(10.5 + 3.0)
    plan.did(STEP, 1, 12.0)
    plan.did("answer", 10, 1.0)
    assert plan.left() == 0.0
    assert plan.planned == 30.0


def test_its_lines_are_the_parts_that_there_are_and_their_sum() -> None:
    assert Plan(PARTS, SECONDS).lines() == [
        "  before      0.1 min",
        "  training    0.4 min",
        "  after       0.1 min",
        "  together    0.5 min",
    ]


def test_a_kind_that_was_not_planned_is_an_error() -> None:
    with pytest.raises(KeyError):
        Plan(PARTS, SECONDS).did("episode", 1, 1.0)


def test_plain_lines_say_the_time_left_of_the_whole_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stream = Clock(), io.StringIO()
    plan, progress = Plan(PARTS, SECONDS, clock), PlainProgress(stream)
    progress.planned(plan)
    progress.start(2, "first half")
    for step in (1, 2):
        plan.did(STEP, 1, 6.0)
        progress.step(step, {})
    progress.start(2, "second half")
    plan.did(STEP, 1, 6.0)
    progress.step(1, {})
    lines = stream.getvalue().splitlines()
    assert lines[1:3] == ["step 1/2  left 24 s", "step 2/2  left 18 s"]  # not 0: the whole is not at its end
    assert lines[4] == "step 1/2  left 12 s"


def test_the_live_display_shows_the_time_left_of_the_whole() -> None:
    stream = io.StringIO()
    plan = Plan(PARTS, {STEP: 60.0, "answer": 6.0}, Clock())
    progress = RichProgress(Console(file=stream, force_terminal=True, width=120))
    progress.planned(plan)
    progress.start(4, "training")
    progress.phase("measuring before training")
    progress.finish()
    assert "6 min 00 s left" in stream.getvalue()
