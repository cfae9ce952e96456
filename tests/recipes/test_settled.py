"""With what a run computes, when it begins and when it goes on. Nothing is timed."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepworth.learning.run_folder import RunFolder
from keepworth.learning.watch.progress import Progress
from keepworth.methods.recipes import memory_r1
from keepworth.recipes import training


def test_a_run_goes_on_with_the_threads_it_began_with(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(training, "settle_threads", lambda model, threads=0: asked.append(threads) or 2)
    for _ in range(2):
        with RunFolder.create(tmp_path / "run", {"recipe": "memory_r1"}) as run:
            training.settled_model(memory_r1.Config(model=str(checkpoint), precision="fp32"), run, Progress())
    assert asked == [0, 2]  # the usual number, then what it began with


def test_the_type_of_number_is_measured_once_and_stays(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "settle_threads", lambda model, threads=0: 1)
    measured = []

    def faster() -> str:
        measured.append(1)
        return "fp32"

    monkeypatch.setattr(training, "faster_type", faster)
    for _ in range(2):
        with RunFolder.create(tmp_path / "run", {"recipe": "memory_r1"}) as run:
            model = training.settled_model(memory_r1.Config(model=str(checkpoint)), run, Progress())
            assert model.precision == run.environment["precision"] == "fp32"
    assert measured == [1]
