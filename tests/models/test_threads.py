"""How many threads are chosen, on machines whose clock and noise are simulated: nothing here is timed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from keepworth.models import threads
from keepworth.models.threads import candidate_threads, fastest, in_faster_type, settle_threads
from tests.models.tiny import tiny_model


class Machine:
    """Passes that take `quiet[count]` seconds, and `busy[count]` where they begin in a busy interval."""

    def __init__(
        self,
        quiet: dict[int, float],
        busy: dict[int, float] | None = None,
        until: float = 0.0,
        noise: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self.quiet, self.busy, self.until, self.noise = quiet, busy or quiet, until, noise
        self.now = 0.0
        self.passes: dict[int, int] = dict.fromkeys(quiet, 0)

    def timed(self, count: int) -> float:
        seconds = (self.busy if self.now < self.until else self.quiet)[count] * self.noise()
        self.now += seconds
        self.passes[count] += 1
        return seconds

    def chosen(self) -> int:
        return fastest(tuple(self.quiet), self.timed, clock=lambda: self.now).threads


TWO_CORES = {1: 0.5, 2: 0.3}
COLLAPSED = {1: 0.6, 2: 4.0}
"""Two threads that wait for each other while another program has one of the cores."""


def test_a_busy_interval_does_not_cost_half_of_the_cores() -> None:
    machine = Machine(TWO_CORES, COLLAPSED, until=5.0)
    assert machine.chosen() == 2


def test_a_machine_that_stays_busy_gets_what_is_fastest_on_it() -> None:
    assert Machine(TWO_CORES, COLLAPSED, until=1e9).chosen() == 1


@pytest.mark.parametrize("seed", range(20))
def test_an_idle_machine_gets_all_its_cores_whatever_the_noise_and_soon(seed: int) -> None:
    """A tenth of the passes take three times as long, as where something else wakes up for a moment."""
    draw = random.Random(seed)
    machine = Machine(TWO_CORES, noise=lambda: draw.uniform(0.9, 1.1) * (3.0 if draw.random() < 0.1 else 1.0))
    assert machine.chosen() == 2
    assert machine.now < threads.PATIENCE + 2.0


def test_half_of_the_cores_is_chosen_where_that_is_faster_for_good() -> None:
    assert Machine({1: 2.0, 8: 0.3, 16: 0.5}).chosen() == 8
    assert Machine({1: 2.0, 8: 0.48, 16: 0.5}).chosen() == 16


def test_a_hopeless_count_is_not_tried_again() -> None:
    machine = Machine({1: 4.0, 8: 0.3, 16: 0.28})
    assert machine.chosen() == 16
    assert machine.passes[1] == 1


def test_where_every_pass_takes_long_the_number_of_passes_is_bounded() -> None:
    machine = Machine({1: 20.0, 2: 40.0})
    assert machine.chosen() == 1
    assert machine.passes == {1: 3, 2: 3}


def test_what_the_user_asks_for_is_the_only_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "available_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert candidate_threads() == (1, 4, 8)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert candidate_threads() == (3,)


@pytest.mark.parametrize(("limit", "cores"), [("max 100000", 8), ("150000 100000", 2), ("50000 100000", 1)])
def test_a_container_s_quota_bounds_the_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str, cores: int
) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text(f"{limit}\n")
    monkeypatch.setattr(threads, "CPU_QUOTA", quota)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert threads.available_cores() == cores


def test_the_passes_are_the_model_s_own_and_torch_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a simulated machine whose model is faster on one thread for good, one thread is what torch is left with."""
    model = tiny_model()
    machine = Machine(TWO_CORES, COLLAPSED, until=1e9)
    calls = []
    sample = model.sample

    def sampled(*args: object, **more: object) -> object:
        calls.append(torch.get_num_threads())
        machine.timed(torch.get_num_threads())
        return sample(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(model, "sample", sampled)
    monkeypatch.setattr(threads, "candidate_threads", lambda: (1, 2))
    monkeypatch.setattr("time.perf_counter", lambda: machine.now)
    monkeypatch.setattr("time.monotonic", lambda: machine.now)
    before = torch.get_num_threads()
    try:
        speed = settle_threads(model)
        assert torch.get_num_threads() == speed.threads == 1
    finally:
        torch.set_num_threads(before)
    assert set(calls[1:]) == {1, 2}
    assert speed.seconds == pytest.approx(COLLAPSED[1])


@pytest.mark.parametrize(
    ("seconds", "chosen"), [({"fp32": 1.0, "bf16": 0.4}, "bf16"), ({"fp32": 1.0, "bf16": 4.0}, "fp32")]
)
def test_the_type_of_number_is_the_one_that_computes_faster(
    monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float], chosen: str
) -> None:
    monkeypatch.setattr(threads, "processor_seconds", lambda model: seconds[model.precision])
    assert in_faster_type(lambda precision: tiny_model(precision=precision)).precision == chosen
