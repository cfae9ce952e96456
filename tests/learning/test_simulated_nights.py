"""Simulated nights of the trainer, at their smallest size: the claims hold."""

from __future__ import annotations

from pathlib import Path

from benchmarks.nights import trainer_night
from benchmarks.nights.night import Step, Tally


def test_claims_of_the_trainer_hold_after_drawn_faults(tmp_path: Path) -> None:
    done = Tally()
    verbs = ("kill", "power", "rot", "interrupt")
    steps = [Step(number, verb, 0.0, (0.3 + 0.15 * number, 0.9)) for number, verb in enumerate(verbs)]
    tally, failure = trainer_night.run_night(3, steps, tmp_path / "night")
    assert failure is None, f"step {failure.step}, {failure.place}: {failure}"
    done.add(tally)
    assert {*verbs} <= {*done.faults}
