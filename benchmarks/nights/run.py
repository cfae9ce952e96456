"""Simulate nights: drawn work and drawn faults by a seed, on one file with three handles, beside a naive model.

    make simulate SEEDS=0:200
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
from pathlib import Path
from typing import Any

from benchmarks.memory.engine import machine
from benchmarks.nights.night import Failure, Step, Tally, drawn_steps, run_night
from benchmarks.record import arguments, save

IN_MEMORY = Path("/dev/shm")
Tried = Callable[[Sequence[Step]], bool]


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


def shrunk(seed: int, steps: Sequence[Step], failure: Failure, folder: Path) -> tuple[list[Step], set[int] | None]:
    """Return the fewest steps that still fail by the same claim, and the steps whose faults are needed; None for all.

    Args:
        seed: That of the night.
        steps: Its steps.
        failure: How it failed.
        folder: Where nights may run.
    """
    left = [step for step in steps if step.number <= failure.step]
    faulty: set[int] | None = None
    for fewer in (set[int](), {failure.step}):
        if fails(seed, left, failure, folder, fewer):
            faulty = fewer
            break
    return shrink(left, lambda some: fails(seed, some, failure, folder, faulty)), faulty


def fails(seed: int, steps: Sequence[Step], failure: Failure, folder: Path, faulty: set[int] | None) -> bool:
    """Return whether a night fails by the same claim as another.

    Args:
        seed: That of the night.
        steps: Its steps.
        failure: How the other failed.
        folder: Where it may run.
        faulty: The steps at which faults happen; None for all.
    """
    result = run_night(seed, steps, folder, faulty=faulty)[1]
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
    parser.add_argument("--steps", type=int, default=40, help="steps of a night")
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
    tally, failures, seeds = Tally(), list[dict[str, Any]](), numbers(options.seeds)
    faulty = {-1} if options.faulty == "-" else set(numbers(options.faulty)) if options.faulty else None
    record: dict[str, Any] = {"machine": machine()}
    began, nights = time.process_time(), 0
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as place:
        folder = Path(place) / "night"
        for seed in seeds:
            steps = drawn_steps(seed, options.steps)
            if options.only:
                steps = [step for step in steps if step.number in numbers(options.only)]
            done, failure = run_night(seed, steps, folder, faulty=faulty)
            tally.add(done)
            nights += 1
            if failure is None:
                continue
            kept, at = (steps, faulty) if options.whole else shrunk(seed, steps, failure, folder)
            command = f"python -m benchmarks.nights.run --seeds {seed} --steps {options.steps}"
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
        "seeds": options.seeds, "nights": nights, "steps": tally.steps, "processor_seconds": round(seconds, 1),
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
