"""Does reward improve the model, the memory, or both? The arms of `text_world`, side by side, over houses nobody trained in.

    python -m benchmarks.text_world.run --seeds 3 --runs runs/text_world --out benchmarks/text_world/text_world.json
    python -m benchmarks.text_world.run --headroom

Three runs a seed, alike but for `policy`: no memory, plain search (`exprag`) and a memory that learns (`advantage`). Each is
measured before anything is learned (frozen), after the warm start and after reinforcement, in the same houses, so nine arms
come of them. All begin from the same warm start and play as many episodes. Intervals are over houses, paired between arms. A run
that was stopped goes on. `--headroom` says first what there is to gain: chance, simple rules that follow memory, the oracle.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from keepworth.evaluation.statistics import paired_difference
from keepworth.learning.run.run_episodes import stored_episodes
from keepworth.recipes.text_world import house_of

HERE = Path(__file__).parent
POLICIES = {"no memory": "none", "plain search": "exprag", "learning memory": "advantage"}
STATES = {"frozen": "untrained", "warm start": "imitated", "trained": "trained"}
BOTH = "trained, learning memory"
RULES = ("exprag", "nearest-mean", "kernel-mean", "memrl", "advantage")


def arms_of(folders: dict[str, Path]) -> Iterator[tuple[str, dict[str, float]]]:
    """(arm, success of each house) of one seed. folders: of the runs, by memory."""
    controls = (
        (f"{state}, oracle", f"oracle_{when}" if when != "trained" else "oracle") for state, when in STATES.items()
    )
    for memory, folder in folders.items():
        own = [(f"{state}, {memory}", when) for state, when in STATES.items()]
        for arm, when in (*own, *(controls if memory == "learning memory" else ())):
            houses: dict[str, list[float]] = {}
            for stored in stored_episodes(folder, arm=f"new_houses-{when}"):
                houses.setdefault(house_of(stored.episode.task), []).append(stored.episode.metric)
            if houses:
                yield arm, {house: float(np.mean(values)) for house, values in houses.items()}


def summary(by_arm: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """Mean success of each arm with its interval over houses, and against the arm in which both learn, house by house."""
    both, rows = by_arm.get(BOTH, {}), []
    generator = np.random.default_rng(0)
    for arm, houses in by_arm.items():
        values = np.array(list(houses.values()))
        draws = values[generator.integers(len(values), size=(10_000, len(values)))].mean(axis=1)
        low, high = np.quantile(draws, [0.025, 0.975])
        row = {
            "arm": arm,
            "success": float(values.mean()),
            "low": float(low),
            "high": float(high),
            "houses": len(values),
        }
        paired = [both[house] - value for house, value in houses.items() if house in both]
        if arm != BOTH and len(paired) > 2:
            found = paired_difference(f"{BOTH} - {arm}", paired)
            row |= {"both_minus": found.difference, "both_minus_low": found.low, "both_minus_high": found.high}
        rows.append(row)
    return rows


def headroom(houses: int, tasks: int) -> list[dict[str, Any]]:
    """What simple agents reach in the houses of the measurement: at random, and following what memory says."""
    from dataclasses import replace

    from keepworth.agents.simulated import LinearAgent
    from keepworth.memory.policy.hashed_words import HashedWords
    from keepworth.recipes.experience_methods import method
    from keepworth.recipes.text_world import Config, Houses
    from keepworth.rollouts.stream import run_stream

    kept, rows = Houses(Config(tasks=tasks)), []
    for arm in ("none", *RULES, "oracle"):
        control = arm if arm in ("none", "oracle") else "learn"
        found = []
        for number in range(houses):
            stream = replace(kept.house(2, number), held_out=())
            policy = method("exprag" if control != "learn" else arm, seed=number)
            run = run_stream(stream, policy, LinearAgent(follow=8.0), HashedWords(), seed=number, control=control)
            found.append(float(run.success.mean()))
        rows.append({"agent": arm, "success": float(np.mean(found)), "houses": houses, "tasks": tasks})
        print(f"{arm:14} {rows[-1]['success']:.3f}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=Path, default=Path("runs/text_world"))
    parser.add_argument("--out", type=Path, default=HERE / "text_world.json")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of every run")
    parser.add_argument("--headroom", action="store_true", help="only what there is to gain")
    options = parser.parse_args()
    if options.headroom:
        rows = headroom(10, 40)
        (HERE / "headroom.json").write_text(json.dumps({"command": "--headroom", "rows": rows}, indent=1) + "\n")
        return
    by_arm: dict[str, dict[str, float]] = {}
    began = time.perf_counter()
    for seed in range(options.seeds):
        folders = {}
        for memory, policy in POLICIES.items():
            name = f"{policy}-{seed}"
            assigned = ["threads=1", "precision=bf16", f"policy={policy}", f"seed={seed}", *options.set]
            subprocess.run(
                [
                    *(sys.executable, "-m", "keepworth", "train", "text_world"),
                    *("--runs", str(options.runs), "--name", name),
                    *(part for each in assigned for part in ("--set", each)),
                ],
                check=True,
            )
            folders[memory] = options.runs / name
        for arm, houses in arms_of(folders):
            by_arm.setdefault(arm, {}).update(houses)
        found = {
            "command": f"python -m benchmarks.text_world.run --seeds {seed + 1}",
            "settings": options.set,
            "seeds": seed + 1,
            "hours": (time.perf_counter() - began) / 3600,
            "versions": {name: version(name) for name in ("torch", "numpy", "textworld-express")},
            "arms": summary(by_arm),
        }
        options.out.write_text(json.dumps(found, indent=1) + "\n")
        for row in found["arms"]:
            print(f"{row['arm']:32} {row['success']:.3f} [{row['low']:.3f}, {row['high']:.3f}]", flush=True)


if __name__ == "__main__":
    main()
