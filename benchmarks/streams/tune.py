"""Tune every method with the same budget, on dev rules alone, and write what was found.

    python -m benchmarks.streams.tune --configurations 24 --seeds 3 --out benchmarks/streams/tuned.json

Random search; the first configuration of each method is its published (or default) one. The objective is the mean AUC over
the dev streams below. The held-out rules are never touched here.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from recollect.agents.experience import LinearAgent
from recollect.environments.streams import generated
from recollect.memory.policy.hashed_words import HashedWords
from recollect.memory.policy.slots import Method
from recollect.recipes import ours as our
from recollect.recipes.experience_methods import method
from recollect.rollouts.stream import run_stream

STREAMS = ("benign", "similarity-mid", "near-miss", "noisy-reward", "drift")
Space = dict[str, list[Any]]

SPACES: dict[str, Space] = {
    "exprecent": {"k": [1, 2, 3, 4]},
    "exprag": {"k": [1, 2, 3, 4], "failures": [False, True]},
    "reme": {"k": [2, 3, 4], "least": [3, 5, 8], "share": [0.3, 0.4, 0.5], "alike": [0.9, 0.98, 1.01]},
    "memrl": {
        "k": [1, 2, 3, 4],
        "pool": [5, 8, 12],
        "threshold": [0.25, 0.4, 0.5, 0.62],
        "share": [0.3, 0.5, 0.7],
        "rate": [0.1, 0.3, 0.5],
        "failures": [True, False],
    },
    "memento-p": {
        "k": [1, 2, 4],
        "rate": [0.003, 0.01, 0.03],
        "steps": [1, 2, 4],
        "pool": [0, 8, 12],
        "explore": [0.0, 0.05],
    },
    "ours": {
        "likeness": [0.9, 1.2, 1.6],
        "bias": [-0.3, -0.2, -0.1],
        "spread": [0.01, 0.03, 0.1],
        "words": [0.02, 0.05, 0.15, 0.4],
        "heterogeneity": [0.005, 0.02, 0.06],
        "noise": [0.1, 0.2, 0.4],
        "bandwidth": [0.1, 0.2, 0.35],
        "own": [0.1, 0.3, 0.6],
        "keep": [0.97, 0.985, 0.995],
        "unshown": [0.0, 0.3, 0.6],
        "widen": [0.25, 0.5, 1.0],
        "pool": [8, 12, 16],
    },
}
PUBLISHED: dict[str, dict[str, Any]] = {name: {} for name in SPACES}


def build(name: str, settings: dict[str, Any], seed: int) -> Method:
    """A method from flat settings, as they stand in the JSON file."""
    if name.startswith("ours"):
        return our.from_flat(name, settings, seed=seed)
    return method(name, seed=seed, **settings)


def score(make: Callable[[int], Method], seeds: int, streams: tuple[str, ...] = STREAMS) -> dict[str, float]:
    """Mean AUC per stream over dev seeds."""
    encoder = HashedWords()
    found = {}
    for family in streams:
        values = []
        for seed in range(seeds):
            stream = replace(generated(family, split="dev", seed=seed), held_out=())
            cache = _CACHES.setdefault((family, seed), {})
            run = run_stream(stream, make(seed), LinearAgent(), encoder, seed=seed, cache=cache, measure_regret=False)
            values.append(float(run.success.mean()))
        found[family] = float(np.mean(values))
    return found


_CACHES: dict[tuple[str, int], Any] = {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configurations", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draw", type=int, default=5, help="seed of the random search")
    parser.add_argument("--methods", default=",".join(SPACES))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/streams/tuned.json"))
    options = parser.parse_args()
    kept: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in options.methods.split(","):
        generator = np.random.default_rng([options.draw, len(name)])
        tried = []
        started = time.perf_counter()
        for number in range(options.configurations):
            settings = dict(PUBLISHED[name])
            if number:
                settings = {
                    key: choices[int(generator.integers(len(choices)))] for key, choices in SPACES[name].items()
                }
            found = score(partial(build, name, settings), options.seeds)
            tried.append((float(np.mean(list(found.values()))), settings, found))
        best = max(tried, key=lambda each: each[0])
        kept[name] = {
            "settings": best[1],
            "objective": best[0],
            "published_objective": tried[0][0],
            "per_stream": best[2],
            "configurations": len(tried),
            "seeds": options.seeds,
        }
        print(
            f"{name:12s} default {tried[0][0]:.3f} best {best[0]:.3f} "
            f"({time.perf_counter() - started:.0f} s) {best[1]} "
            + " ".join(f"{key} {value:.3f}" for key, value in best[2].items()),
            flush=True,
        )
        options.out.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
