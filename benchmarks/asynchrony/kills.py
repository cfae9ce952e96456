"""Kill a training at random moments, again and again, and compare what comes out with a run that was left alone.

serial: asynchronous collecting in serial mode, with parked answers, two-turn episodes, and environments that take their
time. Weights, optimiser and metric rows (but for seconds) must be identical.
overlap: sampler and learner in two threads. No group that stood on disk as finished may be gone afterwards, none may be
trained twice, and every step must have its groups.
Prints both and writes kills.json; for SmolLM2-135M with LoRA in bfloat16, serial mode alone, kills_135m.json.

    python -m benchmarks.asynchrony.kills [--kills 50] [--only serial]
    python -m benchmarks.asynchrony.kills --model smollm2-135m-instruct --kills 3
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.asynchrony.setting import HERE, ROLE, learner_of, small, write
from benchmarks.speed.setting import machine
from keepworth.learning.run_folder import RunFolder
from tests.learning.letters import OBJECTIVE, settings, train_letters
from tests.learning.test_pipeline_resume import (
    SERIAL,
    STEPS,
    journalled,
    kill_once,
    letters,
    same,
    trained,
    weights,
    without_times,
)
from tests.learning.test_pipeline_resume import run as run_to_the_end

Training = Callable[[Path, str], None]


def run_135m(folder: Path, mode: str) -> None:
    """The same on SmolLM2-135M: an adapter, in bfloat16; the reward is the share of even ids, which differs within groups."""
    torch.set_num_threads(1)
    learner = learner_of(small(), OBJECTIVE, 1e-3, lora=True)
    world = letters(score=lambda ids: sum(each % 2 == 0 for each in ids) / len(ids))
    train_letters(folder, STEPS, settings(**SERIAL), world, checkpoint_every=3, learner=learner)


def left_by(folder: Path) -> dict[str, Any]:
    """What a run leaves that must be the same after kills."""
    return {
        "rows": [{name: value for name, value in row.items() if name != "time"} for row in without_times(folder)],
        "weights": weights(folder),
        "curriculum": RunFolder.open(folder).curriculum(),
    }


def serial(kills: int, folder: Path, generator: random.Random, training: Training = run_to_the_end) -> dict[str, Any]:
    """As many killed runs as it takes: a run that ends is compared, and the next begins."""
    begun = time.perf_counter()
    training(folder / "straight", "serial")
    whole = time.perf_counter() - begun
    left = left_by(folder / "straight")
    done = runs = most = 0
    identical = True
    while done < kills:
        run = folder / f"killed-{runs}"
        alive, own = True, 0
        while alive and done < kills:
            alive = kill_once(run, "serial", 0.5 * whole * generator.random(), training)
            done, own = done + alive, own + alive
        training(run, "serial")
        identical = identical and same(left, left_by(run))
        runs, most = runs + 1, max(most, own)
        print(f"serial: {done} kills, {runs} runs, identical: {identical}", flush=True)
    return {
        "kills": done,
        "runs": runs,
        "most_kills_of_one_run": most,
        "identical": identical,
        "rows": len(left["rows"]),
        "gradient_norms": [row["gradient_norm"] for row in left["rows"]],
    }


def overlap(
    kills: int, folder: Path, generator: random.Random, training: Training = run_to_the_end, role: str = ROLE
) -> dict[str, Any]:
    begun = time.perf_counter()
    training(folder / "straight-overlap", "overlap")
    whole = time.perf_counter() - begun
    done = runs = lost = twice = short = finished_at_kill = 0
    while done < kills:
        run, alive = folder / f"overlap-{runs}", True
        known: set[int] = set()
        while alive and done < kills:
            alive = kill_once(run, "overlap", 0.5 * whole * generator.random(), training)
            done += alive
            now = journalled(run, role) | set(trained(run))
            lost += len(known - now)
            finished_at_kill += len(now - set(trained(run)))
            known = now
        training(run, "overlap")
        groups = trained(run)
        lost += len(known - set(groups) - journalled(run, role))
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
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--kills", type=int, default=50)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--model", default="tiny", choices=("tiny", "smollm2-135m-instruct"))
    asked.add_argument("--only", choices=("serial", "overlap"))
    options = asked.parse_args()
    large = options.model != "tiny"
    name = "kills_135m.json" if large else "kills.json"
    measures = {"serial": lambda *each: serial(*each, run_135m)} if large else {"serial": serial, "overlap": overlap}
    if options.only:
        measures = {options.only: measures[options.only]}
    begun, path = time.perf_counter(), HERE / name
    found: dict[str, Any] = json.loads(path.read_text()) if options.only and path.exists() else {}
    found |= {"machine": machine(1), "model": options.model, "seed": options.seed, "steps": STEPS, "groups_per_step": 4}
    with tempfile.TemporaryDirectory() as folder:
        generator = random.Random(options.seed)
        for what, measure in measures.items():
            found[what] = measure(options.kills, Path(folder), generator)
            print(what, found[what], flush=True)
            write(name, {**found, "seconds": time.perf_counter() - begun})


if __name__ == "__main__":
    main()
