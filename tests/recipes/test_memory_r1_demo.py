"""The demo says what it will do, does all of it whatever the machine, and learns exactly what training without a plan learns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from keepworth.learning.learner import Learner
from keepworth.learning.run_folder import RunFolder
from keepworth.learning.watch.progress import STEP, Plan, SilentProgress
from keepworth.methods.recipes import memory_r1
from keepworth.methods.recipes._memory_r1 import demo as memory_r1_demo
from keepworth.methods.recipes._memory_r1.answerer import ANSWER
from keepworth.methods.recipes._memory_r1.demo import demo_config, plan_of
from keepworth.recipes.training import kept_weights
from tests.end_to_end.tiny_folder import write_tiny_checkpoint

SIZES = {"train": 113, "dev": 12, "test": 43}
SHOWN_STEPS = 45
"""Steps after which the README's table was measured."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("model"))


def tiny(checkpoint: Path) -> memory_r1.Config:
    return memory_r1.Config(
        model=str(checkpoint),
        precision="fp32",
        threads=1,
        curve="test",
        questions=3,
        tasks_per_step=2,
        group_size=2,
        steps=3,
        evaluate_every=2,
        checkpoint_every=1,
        learning_rate=0.01,
        entropy=0.1,
        memories=1,
        words=10,
        max_tokens=2,
    )


class Watched(SilentProgress):
    """What is said, and the time left at every step."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.plan: Plan | None = None
        self.left: list[float] = []

    def planned(self, plan: Plan) -> None:
        self.plan = plan

    def note(self, text: str) -> None:
        self.notes.append(text)

    def said(self, begins: str) -> str:
        """The one note that begins so: on a busy machine there may be others."""
        (found,) = (note for note in self.notes if note.startswith(begins))
        return found

    def step(self, step: int, metrics: object) -> None:
        assert self.plan is not None
        self.left.append(self.plan.left())


def demonstrated(path: Path, seconds: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> Watched:
    """A demo on a machine of which this was measured."""
    measure = memory_r1_demo.measured_seconds
    monkeypatch.setattr(memory_r1_demo, "measured_seconds", lambda *given: {**measure(*given), **seconds})
    progress = Watched()
    with RunFolder.create(path, {"recipe": "memory_r1"}) as run:
        memory_r1_demo.demo(False, run, progress)
    return progress


def weights(path: Path) -> dict[str, torch.Tensor]:
    (file,) = kept_weights(RunFolder.open(path), "answerer").glob("*.safetensors")
    found: dict[str, torch.Tensor] = load_file(file)
    return found


def scores(run: RunFolder) -> list[tuple[object, ...]]:
    return [(row["step"], row["arm"], row["metric"], row["mean"]) for row in run.evals()]


def test_planning_leaves_no_trace_in_what_is_learned(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(checkpoint)
    monkeypatch.setattr(memory_r1_demo, "demo_config", lambda quick: config)
    progress = demonstrated(tmp_path / "demo", {}, monkeypatch)
    with RunFolder.create(tmp_path / "plain", {"recipe": "memory_r1"}) as plain:
        memory_r1.METHOD.make.train(config, plain, SilentProgress())
    learned, alike = weights(tmp_path / "demo"), weights(tmp_path / "plain")
    assert learned.keys() == alike.keys()
    assert all(torch.equal(learned[name], alike[name]) for name in learned)
    run = RunFolder.open(tmp_path / "demo")
    assert set(scores(plain)) <= set(scores(run))
    assert len(progress.left) == 3


def test_a_stopped_demo_goes_on_plans_what_is_left_and_ends_like_a_straight_one(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_r1_demo, "demo_config", lambda quick: tiny(checkpoint))
    straight = demonstrated(tmp_path / "straight", {}, monkeypatch)
    with monkeypatch.context() as patched:
        update, calls = Learner.update, iter(range(100))

        def stops(self: Learner, groups: object) -> object:
            if next(calls) == 2:  # the first is the measurement's
                raise KeyboardInterrupt
            return update(self, groups)  # type: ignore[arg-type]

        patched.setattr(Learner, "update", stops)
        with pytest.raises(KeyboardInterrupt):
            demonstrated(tmp_path / "stopped", {}, patched)
    went_on = demonstrated(tmp_path / "stopped", {}, monkeypatch)
    one, other = RunFolder.open(tmp_path / "straight"), RunFolder.open(tmp_path / "stopped")
    assert scores(one) == scores(other)
    learned, alike = weights(one.path), weights(other.path)
    assert all(torch.equal(learned[name], alike[name]) for name in learned)
    assert re.match(r"About [67] min on [12] idle cores", straight.notes[0]), "before anything is measured"
    assert not any(note.startswith("About ") for note in went_on.notes)
    assert "training, 3 steps" in straight.said("What will be done")
    rest = went_on.said("What is left to do")
    assert "training, 2 steps" in rest
    assert "measuring before training" not in rest
    # Only an uninterrupted run says how long it took.
    assert re.search(r"[\d.]+ min; took [\d.]+ min\.", straight.said("Planned: "))
    assert set(one.result()["minutes"]) - set(other.result()["minutes"]) == {"took"}  # type: ignore[arg-type, index]


def test_no_machine_is_too_slow_for_the_steps_that_show_the_gain(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two and a half times slower than the machine of the docs, and a hundred times: the same steps, and what is long is said."""
    assert demo_config(False).steps == SHOWN_STEPS
    config = tiny(checkpoint).model_copy(update={"steps": SHOWN_STEPS, "evaluate_every": 15})
    for factor in (1.0, 2.5, 100.0):
        plan = plan_of(config, SIZES, None, {STEP: 6.0 * factor, ANSWER: 0.2 * factor})
        assert sum(part.units for part in plan.parts if part.kind == STEP) == SHOWN_STEPS
    config = tiny(checkpoint)
    monkeypatch.setattr(memory_r1_demo, "demo_config", lambda quick: config)
    slow = demonstrated(tmp_path / "slow", {STEP: 600.0, ANSWER: 20.0}, monkeypatch)
    assert re.search(r"keepworth demo --quick.* takes about \d+ min here", slow.said("That is long"))
    fast = demonstrated(tmp_path / "fast", {STEP: 1.0, ANSWER: 0.1}, monkeypatch)
    assert not any("--quick" in note for note in fast.notes)
    assert weights(tmp_path / "slow").keys() == weights(tmp_path / "fast").keys()


def test_the_plan_is_what_is_then_done(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every unit of the plan is used up, and none is missing: the time left ends at 0."""
    monkeypatch.setattr(memory_r1_demo, "demo_config", lambda quick: tiny(checkpoint))
    told: list[tuple[str, int]] = []
    did = Plan.did

    def counted(self: Plan, kind: str, units: int, seconds: float) -> None:
        told.append((kind, units))
        did(self, kind, units, seconds)

    monkeypatch.setattr(Plan, "did", counted)
    progress = demonstrated(tmp_path / "run", {}, monkeypatch)
    assert progress.plan is not None
    for kind in (STEP, ANSWER):
        planned = sum(part.units for part in progress.plan.parts if part.kind == kind)
        assert sum(units for each, units in told if each == kind) == planned
    assert progress.plan.left() == 0.0


def test_the_quick_demo_is_short_and_whole() -> None:
    quick, full = demo_config(True), demo_config(False)
    assert quick.steps is not None
    assert full.steps is not None
    assert quick.steps * 10 < full.steps
    assert quick.role == full.role == "answerer"
