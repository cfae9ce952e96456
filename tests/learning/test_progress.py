"""Progress says the same on a terminal and off it, and costs nothing to ignore."""

from __future__ import annotations

import io

import pytest

from keepworth.base.text import terminal
from keepworth.training.watch import progress as watch
from keepworth.training.watch.progress import PlainProgress, Progress, RichProgress


def told(progress: Progress) -> None:
    progress.start(3, "answerer")
    progress.phase("measuring")
    for step in range(1, 4):
        progress.step(step, {"seconds/sample": 1.5, "reward": 0.25 * step, "reward/f1": 0.5, "drawn_tokens": 12.0})
    progress.note("kept [1] note")
    progress.finish()
    progress.finish()


def test_plain_lines() -> None:
    stream = io.StringIO()
    told(PlainProgress(stream))
    lines = stream.getvalue().splitlines()
    assert lines[:3] == ["== answerer: 3 steps", ".. measuring", "step 1/3  reward 0.250  reward/f1 0.500"]
    assert lines[3] == "step 2/3  reward 0.500  reward/f1 0.500  left 0 s"
    assert lines[4].startswith("step 3/3")
    assert "left" not in lines[4]
    assert lines[-1] == "kept [1] note"


def test_a_step_fits_on_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = {"reward": 0.5, "reward/f1": 0.61, "reward/length_penalty": 0.1, "reward/format": 1.0, "entropy": 1.2}
    for width, last in (("100", "reward/format 1"), ("80", "length_penalty 0.100"), ("40", "reward/f1 0.610")):
        monkeypatch.setenv("COLUMNS", width)
        stream = io.StringIO()
        progress = PlainProgress(stream)
        progress.start(45, "answerer")
        progress.step(1, {**metrics, "response_length": 12.0, "invalid_operations": 0.1, "mismatch_mean": 1e-5})
        line = stream.getvalue().splitlines()[1]
        assert len(line) <= int(width)
        assert last in line


def test_the_live_display_shows_curves_numbers_and_phases() -> None:
    stream = io.StringIO()
    told(RichProgress(terminal(file=stream, force_terminal=True, width=120)))
    text = stream.getvalue()
    for part in ("answerer", "step 3 of 3", "0.750", "▁▅█", "kept [1] note"):
        assert part in text


def test_silence() -> None:
    told(Progress())


def test_off_a_terminal_lines_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert isinstance(watch.progress_for(), PlainProgress)


def test_the_reward_comes_first_and_timings_stay_out() -> None:
    shown = watch.headline({"seconds/x": 1.0, "tokens": 5.0, "entropy": 1.0, "reward/f1": 0.5, "reward": 0.6})
    assert list(shown) == ["reward/f1", "reward", "entropy"]
    assert list(watch.headline({"own": 1.0})) == ["own"]


def test_remaining_time_ignores_start_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("keepworth.training.watch.progress.time.monotonic", lambda: now[0])
    stream = io.StringIO()
    progress = PlainProgress(stream)
    progress.start(12, "x")
    now[0] = 500.0
    progress.step(7, {})
    now[0] = 510.0
    progress.step(8, {})
    now[0] = 530.0
    progress.step(9, {})
    assert stream.getvalue().splitlines()[1:] == ["step 7/12", "step 8/12  left 40 s", "step 9/12  left 45 s"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.12345, "0.123"), (45.0, "45"), (1e-5, "1e-05"), (1234.5, "1.23e+03"), (0.0, "0"), (-0.5, "-0.500")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert watch.short(value) == text


@pytest.mark.parametrize(("seconds", "text"), [(41.7, "42 s"), (200, "3 min 20 s"), (3900, "1 h 05 min")])
def test_durations(seconds: float, text: str) -> None:
    assert watch.duration(seconds) == text


def test_sparklines_use_the_whole_height_or_the_given_one() -> None:
    assert watch.sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert watch.sparkline([0.5, 0.5]) == "▄▄"
    assert watch.sparkline([0.0, 1.0], (0.0, 2.0)) == "▁▅"
    assert watch.sparkline([float("nan")]) == ""
