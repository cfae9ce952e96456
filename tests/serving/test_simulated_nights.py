"""Simulated nights of the gateway and of the hooks, at their smallest size: the claims hold, and a seed repeats a night."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.nights import gateway_night, hooks_night
from benchmarks.nights.night import Tally


def simulate(layer: Any, seed: int, folder: Path, steps: int) -> Tally:
    done, failure = layer.run_night(seed, layer.drawn_steps(seed, steps), folder)
    assert failure is None, f"seed {seed}, step {failure.step}, {failure.place}: {failure}"
    return done


def test_claims_of_the_gateway_hold_after_drawn_faults(tmp_path: Path) -> None:
    done = Tally()
    for seed in range(3):
        done.add(simulate(gateway_night, seed, tmp_path / "night", 12))
    assert sum(done.faults.values()) > 60
    assert {"kill", "torn"} <= {*done.faults}


def test_claims_of_the_hooks_hold_after_drawn_faults(tmp_path: Path) -> None:
    done = Tally()
    for seed in range(4):
        done.add(simulate(hooks_night, seed, tmp_path / "night", 30))
    assert sum(done.faults.values()) > 30
    assert {"killed", "at once", "down"} <= {*done.faults}


@pytest.mark.parametrize("layer", [gateway_night, hooks_night], ids=["gateway", "hooks"])
def test_seed_repeats_a_night_of_a_layer(layer: Any, tmp_path: Path) -> None:
    first, again = (simulate(layer, 5, tmp_path / "night", 8) for _ in range(2))
    assert (first.faults, first.places, first.checks) == (again.faults, again.places, again.checks)


@pytest.mark.parametrize(
    ("seed", "steps", "faulty"),
    [
        pytest.param(20045, [22], {22}, id="two processes erase one person at once"),
        pytest.param(20006, [2, 5, 6, 7], {-1}, id="a call that is sent again is answered by a tool"),
        pytest.param(20128, [5, 10, 19], None, id="what a call says again is deleted while it is under way"),
    ],
)
def test_nights_of_the_gateway_that_once_failed(
    seed: int, steps: list[int], faulty: set[int] | None, tmp_path: Path
) -> None:
    chosen = [step for step in gateway_night.drawn_steps(seed, 25) if step.number in steps]
    failure = gateway_night.run_night(seed, chosen, tmp_path / "night", faulty=faulty)[1]
    assert failure is None, f"step {failure.step}, {failure.place}: {failure}"
