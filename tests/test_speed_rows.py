"""Speed is measured in rounds that are kept, and the page shows no factor without rounds and interval. Nothing is timed here."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.speed import page, rows
from benchmarks.speed.rows import DoesNotFit, Row
from benchmarks.speed.setting import ratio

ROOT = Path(__file__).parents[1]
MACHINE = {"processor": "one", "cores": 2, "threads": 2, "load_average_at_start": 0.1, "revision": "abc"}
MACHINE |= {"versions": {"torch": "2", "transformers": "5", "peft": "0"}, "measured_at": "2026-01-01T00:00:00"}


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A clock that only measurements move; rows are kept in a folder of the test's own."""
    found = SimpleNamespace(now=0.0)
    monkeypatch.setattr(rows, "FOLDER", tmp_path / "rows")
    monkeypatch.setattr("benchmarks.speed.rows.time.monotonic", lambda: found.now)
    monkeypatch.setattr("benchmarks.speed.rows.gc.collect", lambda: 0)  # nothing here is timed
    return found


def row(clock: Any, calls: list[str], failing: str = "", rounds: int = 3) -> Row:
    """Ours takes 10 s a call and the other 30 s."""

    @contextmanager
    def opened(threads: int) -> Iterator[Mapping[str, rows.Call]]:
        def call(name: str, seconds: float) -> dict[str, float]:
            if name == failing:
                raise DoesNotFit("needs more memory than there is")
            calls.append(name)
            clock.now += seconds
            return {"wall": seconds, "cpu": seconds}

        yield {"ours": lambda: call("ours", 10.0), "theirs": lambda: call("theirs", 30.0)}

    return Row("sampling", "1 x 8 x 16", rounds, 1.0, opened, {"tokens": 16, "prompt_tokens": 400})


def test_speed_row_resumes_and_respects_its_deadline(clock: Any) -> None:
    calls: list[str] = []
    one = row(clock, calls)
    assert one.left() == 3.0  # minutes, as long as nothing was measured
    assert not one.measure(MACHINE, ends=95.0)  # two rounds of 40 s: a third would end at 120 s
    assert calls == ["ours", "theirs", "theirs", "ours"]  # whoever goes first changes
    assert one.left() == pytest.approx(40 / 60)
    assert one.measure(MACHINE, ends=1e9)
    assert len(calls) == 6
    assert one.measure(MACHINE, ends=1e9)  # complete: nothing is measured again
    assert len(calls) == 6
    assert len(json.loads(one.path.read_text())["rounds"]) == 3


def test_rounds_of_another_machine_are_not_mixed_in(clock: Any) -> None:
    one = row(clock, [])
    one.measure(MACHINE, ends=50.0 + 60.0)
    with pytest.raises(SystemExit, match="another threads"):
        one.measure({**MACHINE, "threads": 1}, ends=1e9)


def test_oversized_measurement_is_reported_and_not_retried(clock: Any) -> None:
    calls: list[str] = []
    one = row(clock, calls, failing="theirs")
    assert one.measure(MACHINE, ends=1e9)
    record = one.record()
    assert calls == ["ours"] * 3
    assert record["does_not_fit"] == {"theirs": "needs more memory than there is"}
    assert page.times(record, "theirs") == "does not fit"


def test_a_ratio_has_the_interval_of_its_rounds() -> None:
    found = ratio([20.0, 40.0, 80.0], [10.0, 10.0, 10.0])
    assert found["mean"] == pytest.approx(4.0)
    # Logarithms ln 2, ln 4, ln 8: standard deviation ln 2; Student's t for 2 degrees of freedom is 4.303.
    half = 4.303 * math.log(2) / math.sqrt(3)
    assert found["low"] == pytest.approx(4.0 * math.exp(-half), rel=1e-3)
    assert found["high"] == pytest.approx(4.0 * math.exp(half), rel=1e-3)
    assert ratio([2.0], [1.0]) == {"mean": 2.0, "low": 0.0, "high": math.inf}


def test_the_page_gives_no_factor_without_rounds_and_interval() -> None:
    text = (ROOT / "docs" / "appendix" / "speed.md").read_text(encoding="utf-8")
    # "Of the floor" is no comparison with another tool: its seconds are means, and say of how many steps.
    lines = [line for line in text.splitlines() if line.startswith("|") and "**" in line]
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert int(cells[1]) >= 3, line
        factors = [cell for cell in cells if "x**" in cell]
        assert factors, line
        assert all(re.fullmatch(r"\*\*[\d.]+x\*\* \[[\d.]+, [\d.]+\]", cell) for cell in factors), line
    assert not re.search(r"load average (at most )?(1\d|2\d|3\d)\.", text)
