"""Kill a training at random moments, again and again, and compare what comes out with a run that was left alone.

serial: asynchronous collecting in serial mode, with parked answers, two-turn episodes and environments that take their time.
Weights, optimiser and metric rows (but for seconds) must be identical.
overlap: sampler and learner in two threads. No group that stood on disk as finished may be gone afterwards, none may be
trained twice, and every step must have its groups.
Prints both and writes kills.json.

python -m benchmarks.asynchrony.kills [--kills 50]
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.asynchrony.setting import write
from benchmarks.speed.setting import machine
from tests.learning.test_asynchronous_resume import (
    STEPS,
    journalled,
    kill_once,
    same,
    state,
    trained,
    weights,
    without_times,
)
from tests.learning.test_asynchronous_resume import run as run_to_the_end


def serial(kills: int, folder: Path, generator: random.Random) -> dict[str, Any]:
    """As many killed runs as it takes: a run that ends is compared, and the next begins."""
    begun = time.perf_counter()
    run_to_the_end(folder / "straight", "serial")
    whole = time.perf_counter() - begun
    rows, learned = without_times(folder / "straight"), weights(folder / "straight")
    done = runs = most = 0
    identical = True
    while done < kills:
        run = folder / f"killed-{runs}"
        alive, own = True, 0
        while alive and done < kills:
            alive = kill_once(run, "serial", whole * generator.random())
            done, own = done + alive, own + alive
        run_to_the_end(run, "serial")
        identical = identical and rows == without_times(run) and same(learned, weights(run))
        runs, most = runs + 1, max(most, own)
        print(f"serial: {done} kills, {runs} runs, identical: {identical}", flush=True)
    return {"kills": done, "runs": runs, "most_kills_of_one_run": most, "identical": identical, "rows": len(rows)}


def overlap(kills: int, folder: Path, generator: random.Random) -> dict[str, Any]:
    begun = time.perf_counter()
    run_to_the_end(folder / "straight-overlap", "overlap")
    whole = time.perf_counter() - begun
    done = runs = lost = twice = short = finished_at_kill = 0
    while done < kills:
        run, alive = folder / f"overlap-{runs}", True
        known: set[int] = set()
        while alive and done < kills:
            alive = kill_once(run, "overlap", whole * generator.random())
            done += alive
            now = journalled(run) | set(trained(run))
            lost += len(known - now)
            finished_at_kill += len(now - set(trained(run)))
            known = now
        run_to_the_end(run, "overlap")
        groups = trained(run)
        lost += len(known - set(groups) - {each["ticket"] for each in state(run)["finished"]})
        twice += sum(count - 1 for count in Counter(groups).values())
        short += 4 * STEPS - len(groups)
        runs += 1
        print(f"overlap: {done} kills, {runs} runs, lost {lost}, twice {twice}, short {short}", flush=True)
    return {
        "kills": done,
        "runs": runs,
        "groups_finished_and_untrained_at_kills": finished_at_kill,
        "lost": lost,
        "trained_twice": twice,
        "missing_from_steps": short,
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--kills", type=int, default=50)
    asked.add_argument("--seed", type=int, default=0)
    options = asked.parse_args()
    setting, begun = machine(1), time.perf_counter()
    found: dict[str, Any] = {"machine": setting, "seed": options.seed, "steps": STEPS, "groups_per_step": 4}
    with tempfile.TemporaryDirectory() as folder:
        generator = random.Random(options.seed)
        for name, measure in (("serial", serial), ("overlap", overlap)):
            found[name] = measure(options.kills, Path(folder), generator)
            print(name, found[name], flush=True)
            write("kills.json", {**found, "seconds": time.perf_counter() - begun})


if __name__ == "__main__":
    main()
