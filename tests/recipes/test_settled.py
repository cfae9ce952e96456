"""With what a run computes, when it begins and when it goes on. The speeds are made up: nothing is timed."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepworth.learning.run_folder import RunFolder
from keepworth.learning.watch.progress import SilentProgress
from keepworth.methods.recipes import memory_r1
from keepworth.models.threads import Speed
from keepworth.recipes import training
from tests.end_to_end.tiny_folder import write_tiny_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("model"))


class Notes(SilentProgress):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def settled(checkpoint: Path, path: Path, speed: Speed, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], int]:
    """What is said, and how many threads were asked for (0: measure)."""
    asked: list[int] = []

    def settle(model: object, threads: int = 0) -> Speed:
        asked.append(threads)
        return speed

    monkeypatch.setattr(training, "settle_threads", settle)
    progress = Notes()
    with RunFolder.create(path, {"recipe": "memory_r1"}) as run:
        training.settled_model(memory_r1.Config(model=str(checkpoint), precision="fp32"), run, progress)
    return progress.notes, asked[0]


def test_a_run_goes_on_with_the_threads_it_began_with(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settled(checkpoint, tmp_path / "run", Speed(2, 0.3), monkeypatch) == ([], 0)
    assert settled(checkpoint, tmp_path / "run", Speed(2, 0.32), monkeypatch) == ([], 2)
    assert settled(checkpoint, tmp_path / "run", Speed(2, 0.75), monkeypatch) == ([], 2)


def test_the_type_of_number_is_measured_once_and_stays(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "settle_threads", lambda model, threads=0: Speed(1, 0.3))
    measured = []

    def faster(load: object) -> object:
        measured.append(1)
        return load("fp32")  # type: ignore[operator]

    monkeypatch.setattr(training, "in_faster_type", faster)
    for _ in range(2):
        with RunFolder.create(tmp_path / "run", {"recipe": "memory_r1"}) as run:
            model = training.settled_model(memory_r1.Config(model=str(checkpoint)), run, SilentProgress())
            assert model.precision == run.environment["precision"] == "fp32"
    assert measured == [1]
