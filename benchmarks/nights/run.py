"""Simulate nights: drawn work and drawn faults by a seed, beside a naive model; of the engine (one file with three handles), of
the gateway, of the hooks or of the trainer.

    make simulate SEEDS=0:200
    make simulate LAYER=gateway SEEDS=0:200
    python -m benchmarks.nights.run --seeds 0:200 --json benchmarks/nights/nights.json
    python -m benchmarks.nights.run --seeds 17 --only 3,8,21 --faulty 21

A failure is printed with its seed, shrunk to the fewest steps that still fail, with the command that repeats it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.memory.engine import machine
from benchmarks.nights.night import Failure, Step, Tally
from benchmarks.record import arguments, save

IN_MEMORY = Path("/dev/shm")
Tried = Callable[[Sequence[Step]], bool]
LAYERS = {
    "engine": ("night", 40),
    "gateway": ("gateway_night", 25),
    "hooks": ("hooks_night", 40),
    "trainer": ("trainer_night", 12),
}
"""By the name of a layer, the module of its nights, and how many steps a night has."""


def load_layer(name: str) -> Any:
    """Return the module of the nights of a layer: it has `drawn_steps` and `run_night`."""
    return import_module(f"benchmarks.nights.{LAYERS[name][0]}")


def shrink(steps: Sequence[Step], fails: Tried) -> list[Step]:
    """Return few of the steps with which it still fails: ever smaller runs of steps are left out, as long as that is so.

    Args:
        steps: Those of a night that fails.
        fails: Whether a night of these steps fails.
    """
    left, size = list(steps), max(1, len(steps) // 2)
    while True:
        start = 0
        while start < len(left):
            fewer = left[:start] + left[start + size :]
            if fewer and fails(fewer):
                left = fewer
            else:
                start += size
        if size == 1:
            return left
        size //= 2


def shrunk(
    seed: int, steps: Sequence[Step], failure: Failure, folder: Path, layer: str = "engine"
) -> tuple[list[Step], set[int] | None]:
    """Return the fewest steps that still fail by the same claim, and the steps whose faults are needed; None for all.

    Args:
        seed: That of the night.
        steps: Its steps.
        failure: How it failed.
        folder: Where nights may run.
        layer: Whose nights they are.
    """
    left = [step for step in steps if step.number <= failure.step]
    faulty: set[int] | None = None
    for fewer in (set[int](), {failure.step}):
        if fails(seed, left, failure, folder, fewer, layer):
            faulty = fewer
            break
    return shrink(left, lambda some: fails(seed, some, failure, folder, faulty, layer)), faulty


def fails(
    seed: int, steps: Sequence[Step], failure: Failure, folder: Path, faulty: set[int] | None, layer: str = "engine"
) -> bool:
    """Return whether a night fails by the same claim as another.

    Args:
        seed: That of the night.
        steps: Its steps.
        failure: How the other failed.
        folder: Where it may run.
        faulty: The steps at which faults happen; None for all.
        layer: Whose night it is.
    """
    result = load_layer(layer).run_night(seed, steps, folder, faulty=faulty)[1]
    return result is not None and result.claim == failure.claim


def numbers(text: str) -> list[int]:
    """Return the numbers that `3,5` or `0:20` stands for."""
    out = list[int]()
    for each in text.split(","):
        begin, _, end = each.partition(":")
        out += range(int(begin), int(end)) if end else [int(begin)]
    return out


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", default="0:20", help="numbers, such as 0:200 or 3,17")
    parser.add_argument("--layer", choices=[*LAYERS], default="engine", help="whose nights they are")
    parser.add_argument("--steps", type=int, default=None, help="steps of a night")
    parser.add_argument("--only", default="", help="of a night, only the steps with these numbers")
    parser.add_argument("--faulty", default="", help="faults only at the steps with these numbers; - for none")
    parser.add_argument("--stop", action="store_true", help="stop at the first failure")
    parser.add_argument("--whole", action="store_true", help="do not shrink")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of texts are gone through in an order that it decides
        os.execve(
            sys.executable,
            [sys.executable, "-m", "benchmarks.nights.run", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    nights_of, options.steps = load_layer(options.layer), options.steps or LAYERS[options.layer][1]
    tally, failures, seeds = Tally(), list[dict[str, Any]](), numbers(options.seeds)
    faulty = {-1} if options.faulty == "-" else set(numbers(options.faulty)) if options.faulty else None
    record: dict[str, Any] = {"machine": machine()}
    began, nights = time.process_time(), 0
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as place:
        folder = Path(place) / "night"
        for seed in seeds:
            steps = nights_of.drawn_steps(seed, options.steps)
            if options.only:
                steps = [step for step in steps if step.number in numbers(options.only)]
            done, failure = nights_of.run_night(seed, steps, folder, faulty=faulty)
            tally.add(done)
            nights += 1
            if failure is None:
                continue
            kept, at = (steps, faulty) if options.whole else shrunk(seed, steps, failure, folder, options.layer)
            command = f"python -m benchmarks.nights.run --seeds {seed} --steps {options.steps}"
            command += "" if options.layer == "engine" else f" --layer {options.layer}"
            if not options.whole:
                command += " --only " + ",".join(str(step.number) for step in kept)
                command += "" if at is None else " --faulty " + (",".join(map(str, sorted(at))) or "-")
            failures.append(
                {"seed": seed, "claim": failure.claim, "detail": failure.detail, "place": failure.place,
                 "steps": [step.verb for step in kept] if not options.whole else [], "again": command}
            )  # fmt: skip
            print(f"seed {seed}, step {failure.step}, {failure.place or 'no fault'}: {failure}"[:700])
            if not options.whole:
                print(f"  {len(kept)} of {len(steps)} steps fail too: {', '.join(step.verb for step in kept)}")
            print(f"  again: {command}", flush=True)
            if options.stop:
                break
    seconds = time.process_time() - began
    faults = sum(tally.faults.values())
    record |= {
        "layer": options.layer, "seeds": options.seeds, "nights": nights, "steps": tally.steps,
        "processor_seconds": round(seconds, 1),
        "faults": faults, "faults_per_core_hour": round(3600 * faults / max(seconds, 1e-9)),
        "by_kind": dict(sorted(tally.faults.items())), "while_serving": tally.at_clients,
        "places": len(tally.places), "images_seen_before": tally.repeated,
        "comparisons": tally.checks, "failures": failures,
        "claims_that_failed": dict(Counter(each["claim"] for each in failures)),
    }  # fmt: skip
    print(
        f"{nights} nights, {tally.steps} steps, {faults:,} distinct faults at {len(tally.places):,} kinds of places, "
        f"{record['faults_per_core_hour']:,} in an hour of one core; {tally.checks:,} comparisons; {len(failures)} nights failed"
    )
    save(options.json, record)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
