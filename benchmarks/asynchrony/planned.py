"""The simulator of `keepworth plan` beside real pipelines: seconds per update measured, and foreseen from other runs.

Two runs without waits are the calibration: one in which engine and learner take turns, for what decoding, reading and
learning cost, and one in which they overlap, for how much they slow each other down. From these alone every other
configuration is foreseen: slow environments (log-normal with sigma 1, a median of 0.2 times a synchronous update's compute),
other bounds of staleness, other batches, slots, lengths and caches. Nothing is tuned on those. Each round measures all of
them, in changing order, and foresees them from its own two runs, because other programs on the machine change its speed from
minute to minute. Prints a table and writes planned.json.

python -m benchmarks.asynchrony.planned [--rounds 3] [--steps 18]
"""

from __future__ import annotations

import argparse
import os
import statistics
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks.asynchrony.setting import Stopwatch, Trace, World, learner_of, lognormal, run, tiny, write
from benchmarks.speed.setting import machine
from keepworth.learning.collect.pipeline import Asynchrony, Caches, Mode, Staleness
from keepworth.learning.objective.parts import GroupStd, Outcome
from keepworth.learning.objective.presets import preset, varied
from keepworth.learning.planning.calibration import Calibration, calibrated, contended
from keepworth.learning.planning.simulation import Candidate, Costs, Forecast, simulated
from keepworth.learning.planning.workload import ModelCall, Workload

OBJECTIVE = varied(preset("areal"), advantage=Outcome("group", GroupStd()))
PADDING = "a few words to read first. " * 3
PROMPTS = 64
LONGEST = 64
LIMIT = 0.15
"""A forecast that is further off than this falls short."""


@dataclass(frozen=True, slots=True)
class Arm:
    """waits: whether environments take their time. median: tokens of an answer."""

    mode: Mode
    max_staleness: int
    pipeline_depth: float
    waits: bool
    groups: int = 8
    members: int = 8
    slots: int = 64
    median: float = 16.0
    caches: Caches = "recompute"

    def asynchrony(self) -> Asynchrony:
        bound = Staleness(self.groups, self.max_staleness, self.pipeline_depth)
        return Asynchrony(bound, self.members, mode=self.mode, slots=self.slots, caches=self.caches)

    def candidate(self) -> Candidate:
        bound = Staleness(self.groups, self.max_staleness, self.pipeline_depth)
        mode = "overlap" if self.mode == "overlap" else "turns"
        return Candidate(bound, slots=self.slots, mode=mode, caches=self.caches)


ALONE, BESIDE = "turns, staleness 0, no waits", "overlap, staleness 1, no waits"
CALIBRATION = {
    ALONE: Arm("turns", 0, 1.0, waits=False),
    BESIDE: Arm("overlap", 1, 2.0, waits=False),
}
FORESEEN = {
    "synchronous, slow environments": Arm("turns", 0, 1.0, waits=True),
    "turns, staleness 4, slow environments": Arm("turns", 4, 4.0, waits=True),
    "overlap, staleness 1, slow environments": Arm("overlap", 1, 2.0, waits=True),
    "overlap, staleness 4, slow environments": Arm("overlap", 4, 4.0, waits=True),
    "overlap, staleness 2, 4 groups of 4, 16 slots, slow environments": Arm(
        "overlap", 2, 3.0, waits=True, groups=4, members=4, slots=16
    ),
    "turns, staleness 2, 16 slots, longer answers, caches kept": Arm(
        "turns", 2, 3.0, waits=False, slots=16, median=32.0, caches="keep"
    ),
}
ARMS = {**CALIBRATION, **FORESEEN}


def lengths_of(arm: Arm, seed: int) -> Trace:
    return lognormal(arm.median, 1.0, seed, 1, LONGEST)


def work(arm: Arm, world: World, steps: int) -> Workload:
    """What the arm's episodes do, from its traces."""
    waits = world.waits or (lambda index, member: 0.0)

    def group(index: int) -> tuple[tuple[ModelCall, ...], ...]:
        prompt = len(world.encode(world.task(index).input))
        return tuple(
            (ModelCall(prompt, max(1, round(world.lengths(index, member))), waits(index, member)),)
            for member in range(arm.members)
        )

    return Workload(tuple(group(index) for index in range((steps + arm.max_staleness + 1) * arm.groups)))


def foreseen(arm: Arm, world: World, costs: Costs, steps: int, skip: int) -> Forecast:
    return simulated(work(arm, world, steps), costs, arm.candidate(), updates=steps - skip, skip=skip)


def fresh() -> Any:
    return learner_of(tiny(hidden=128), OBJECTIVE, 1e-4)


def trained(arm: Arm, world: World, steps: int, calibrates: bool) -> tuple[Stopwatch, Calibration | None]:
    """A real run, and what its folder says where it `calibrates`."""
    read: list[Calibration | None] = []
    watch = run(
        fresh(),
        world,
        arm.asynchrony(),
        steps,
        ended=lambda folder: read.append(calibrated(folder) if calibrates else None),
    )
    return watch, read[0]


def measure(rounds: int, steps: int, skip: int) -> dict[str, Any]:
    encode = fresh().model.encode

    def world(arm: Arm, seed: int, median: float) -> World:
        waits = lognormal(median, 1.0, seed) if arm.waits else None
        return World(lengths_of(arm, seed), waits, prompts=PROMPTS, encode=encode, padding=PADDING)

    alone = CALIBRATION[ALONE]
    dry = run(fresh(), world(alone, 0, 0.0), alone.asynchrony(), skip + 4).steady(skip)
    median = 0.2 * dry["seconds"]
    measured: dict[str, list[float]] = {name: [] for name in ARMS}
    predicted: dict[str, list[dict[str, float]]] = {name: [] for name in ARMS}
    costs, load = [], []
    for number in range(rounds):
        calibrations: dict[str, Calibration] = {}
        for name in list(ARMS) if number % 2 == 0 else reversed(ARMS):
            arm = ARMS[name]
            watch, calibration = trained(arm, world(arm, number, median), steps, name in CALIBRATION)
            measured[name].append(watch.steady(skip)["seconds"])
            if calibration is not None:
                calibrations[name] = calibration
        load.append(os.getloadavg()[0])
        priced = calibrations[ALONE].costs
        assert priced is not None
        priced = contended(priced, calibrations[BESIDE])
        costs.append(asdict(priced))
        for name, arm in ARMS.items():
            predicted[name].append(asdict(foreseen(arm, world(arm, number, median), priced, steps, skip)))
    return {
        "model": "tiny",
        "rounds": rounds,
        "steps": steps,
        "steps_measured": steps - skip,
        "latency_median_seconds": median,
        "lengths": {"sigma": 1.0, "longest": LONGEST},
        "limit": LIMIT,
        "costs": costs,
        "load_average_after_each": load,
        "arms": {name: _arm(arm, name, measured[name], predicted[name]) for name, arm in ARMS.items()},
    }


def _arm(arm: Arm, name: str, measured: list[float], predicted: list[dict[str, float]]) -> dict[str, Any]:
    errors = [f["seconds_per_update"] / seconds - 1 for f, seconds in zip(predicted, measured, strict=True)]
    return {
        "settings": asdict(arm),
        "calibration": name in CALIBRATION,
        "seconds_per_update": measured,
        "forecasts": predicted,
        "errors": errors,
        "error": {"median": statistics.median(errors), "lowest": min(errors), "highest": max(errors)},
        "within_limit": abs(statistics.median(errors)) <= LIMIT,
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rounds", type=int, default=3)
    asked.add_argument("--steps", type=int, default=18)
    asked.add_argument("--skip", type=int, default=5, help="steps before the measured ones, to fill the pipeline")
    options = asked.parse_args()
    torch.set_num_threads(1)
    setting = machine(1)
    result = measure(options.rounds, options.steps, options.skip)
    write("planned.json", {"machine": setting, **result})
    for name, arm in result["arms"].items():
        seconds = statistics.median(arm["seconds_per_update"])
        planned = statistics.median(each["seconds_per_update"] for each in arm["forecasts"])
        error = arm["error"]
        print(
            f"{name:66} {seconds:6.3f} s measured, {planned:6.3f} s foreseen  {100 * error['median']:+.0f} % "
            f"({100 * error['lowest']:+.0f} to {100 * error['highest']:+.0f})"
        )


if __name__ == "__main__":
    main()
