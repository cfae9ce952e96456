"""Tune every method with the same budget, for each kind of stream, on dev rules and games alone.

    python -m benchmarks.streams.tune --out benchmarks/streams/tuned.json

A random search (all of a space that is small), whose first configuration is the published or default one; then the best few
and the published one meet other dev seeds, and the best there is kept, so a rival gets the better of published and tuned. The
objective is the mean over the streams of a kind, of success while learning and, where a stream has dev tasks for it,
frozen. At most four items are shown whatever else is set. The held-out rules and games are never touched here.

A search that was stopped continues. This project's own method stands in the tables with its defaults; it can be tuned alike
(--methods advantage), and its defaults lie inside its space.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from keepworth.agents.simulated import LinearAgent, TabularAgent
from keepworth.cli.eval_stream import method_for
from keepworth.environments.scene import Stream
from keepworth.environments.streams import opened
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.rollouts.stream import Cache, run_stream

Space = dict[str, list[Any]]

STREAMS: dict[str, tuple[tuple[str, int], ...]] = {
    "one-step": tuple((name, 0) for name in ("benign", "near-miss", "noisy-reward", "drift")),
    "several-steps": (("tool-graph", 0), ("household", 150)),
    "seen-before": (("t-maze", 120), ("repeat-previous", 120), ("key-door", 120), ("events", 120), ("updates", 0)),
}
"""Name and length, 0 for the stream's own."""
FROZEN_ELSEWHERE = ("household",)
"""Streams whose held-out tasks are those of the final run: only success while learning is looked at."""
CASES: Space = {"failures": [False, True], "steps": [False, True]}
HERE: Space = {"here": ["ignored", "among", "newest", "oldest"]}
"""Items of the same episode; of use in the kind "seen-before" alone."""
K: Space = {"k": [1, 2, 3, 4]}
SPACES: dict[str, Space] = {
    "exprecent": {**K, **CASES},
    "exprag": {**K, **CASES},
    "remem": {**K, **CASES, "share": [0.0, 0.5, 0.65, 0.8, 0.9, 0.95]},
    "reme": {
        **K,
        "least": [1, 2, 3, 5, 8, 12, 20],
        "share": [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
        "alike": [0.8, 0.9, 0.98, 1.01],
        "steps": [False, True],
    },
    "memrl": {
        **K,
        **CASES,
        "pool": [2, 3, 4, 5, 8, 12, 20],
        "threshold": [-1.0, 0.0, 0.1, 0.25, 0.4, 0.5, 0.62],
        "share": [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0],
        "rate": [0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0],
    },
    "memento-np": {**K, **CASES},
    "memento-p": {
        **K,
        **CASES,
        "rate": [0.0003, 0.001, 0.003, 0.01, 0.03, 0.1],
        "updates": [1, 2, 4, 8],
        "pool": [0, 2, 4, 6, 8, 12, 20],
        "explore": [0.0, 0.05, 0.1],
    },
    "memento-kernel": {
        **K,
        **CASES,
        "pool": [2, 4, 6, 8, 12, 20],
        "alpha": [0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0],
        "gamma": [0.0, 0.5, 0.95, 1.0],
    },
    "rememberer": {
        **K,
        "share": [0.0, 0.25, 0.5, 0.75, 1.0],
        "n": [0, 1, 2, 4],
        "gamma": [0.0, 0.5, 0.9, 1.0],
        "steps": [False, True],
    },
    "amem": {
        **K,
        **CASES,
        "link_above": [0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.01],
        "evolve_above": [0.3, 0.45, 0.6, 0.75, 0.9, 1.01],
    },
    "amemguard": {"k": [2, 3, 4], **CASES, "least": [1, 2, 3]},
    "kernel-mean": {
        **K,
        "pool": [4, 6, 12, 24, 48, 96],
        "bandwidth": [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.6],
        "prior": [0.05, 0.1, 0.2, 0.3, 0.4, 0.5],
        "weight": [0.001, 0.005, 0.02, 0.1, 0.5, 2.0],
        "keep": [0.9, 0.95, 0.97, 0.985, 0.995, 0.999, 1.0],
        "failures": [False, True],
    },
    "kernel-mean-items": {
        **K,
        "pool": [4, 6, 12, 24, 48, 96],
        "bandwidth": [0.005, 0.02, 0.05, 0.1, 0.15, 0.3, 0.6],
        "prior": [0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5],
        "keep": [0.9, 0.95, 0.97, 0.985, 0.995, 0.999, 1.0],
    },
    "nearest-mean": {
        "failures": [False, True],
        **K,
        "pool": [4, 6, 12, 24, 48, 96],
        "n": [1, 2, 3, 5, 10, 20, 40, 80, 160],
        "prior": [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9],
    },
    "linucb": {
        "failures": [False, True],
        **K,
        "pool": [4, 6, 12, 24, 48, 96],
        "alpha": [0.0, 0.05, 0.1, 0.3, 0.6, 1.0],
        "ridge": [0.01, 0.03, 0.1, 0.3, 1.0, 3.0],
    },
    "linear-thompson": {
        "failures": [False, True],
        **K,
        "pool": [4, 6, 12, 24, 48, 96],
        "deviation": [0.02, 0.05, 0.1, 0.2, 0.4],
        "ridge": [0.01, 0.03, 0.1, 0.3, 1.0, 3.0],
    },
    "advantage": {
        **K,
        "similarity": [0.6, 0.9, 1.2, 1.6],
        "bias": [-0.5, -0.3, -0.2, -0.1],
        "spread": [0.003, 0.01, 0.03, 0.1],
        "words": [0.02, 0.05, 0.15, 0.4],
        "heterogeneity": [0.02, 0.06, 0.1, 0.2],
        "noise": [0.1, 0.2, 0.4],
        "bandwidth": [0.1, 0.2, 0.35, 0.6],
        "own": [0.1, 0.3, 0.6],
        "keep": [0.97, 0.985, 0.99, 0.995, 1.0],
        "unshown": [0.0, 0.3, 0.6],
        "refuted": [0.25, 0.5, 1.0],
        "relevance": [0.0, 10.0, 20.0, 40.0],
        "surprise": [0.0, 0.5, 1.0, 2.0],
        "widen": [0.02, 0.05, 0.25, 0.5, 1.0],
        "pool": [8, 12, 16],
    },
}
RIVALS = tuple(name for name in SPACES if name != "advantage")


def configurations(name: str, kind: str, many: int, draw: int) -> Iterator[dict[str, Any]]:
    """The published configuration, then others, all different: the whole space where it is no larger than `many`."""
    space = {**SPACES[name], **(HERE if kind == "seen-before" else {})}
    yield {}
    every = int(np.prod([len(choices) for choices in space.values()]))
    if every <= many:
        for values in itertools.product(*space.values()):
            yield dict(zip(space, values, strict=True))
        return
    generator = np.random.default_rng([draw, sum(map(ord, name))])
    seen: set[str] = set()
    while len(seen) < many - 1:
        found = {key: choices[int(generator.integers(len(choices)))] for key, choices in space.items()}
        if (text := json.dumps(found)) not in seen:
            seen.add(text)
            yield found


@lru_cache(maxsize=32)
def stream(name: str, length: int, seed: int) -> tuple[Stream, Cache]:
    found = opened(name, split="dev", seed=seed, length=length or None)
    return (replace(found, held_out=()) if name in FROZEN_ELSEWHERE else found), {}


def score(name: str, settings: dict[str, Any], kind: str, seeds: range) -> dict[str, float]:
    """Per stream: the mean of success while learning and, where it is looked at, frozen."""
    found = {}
    for family, length in STREAMS[kind]:
        values = []
        for seed in seeds:
            world, cache = stream(family, length, seed)
            agent = TabularAgent() if world.long_term else LinearAgent()
            made = method_for(name, {name: settings}, seed)
            run = run_stream(world, made, agent, HashedWords(), seed=seed, cache=cache, measure_regret=False)
            values.append(float(np.mean([part.mean() for part in (run.success, run.held_out) if len(part)])))
        found[family] = float(np.mean(values))
    return found


def on_the_edge(name: str, settings: dict[str, Any]) -> list[str]:
    """Numbers that were chosen at an end of their range."""
    return [
        key
        for key, value in settings.items()
        if key in SPACES[name]
        and isinstance(value, (int, float))
        and not isinstance(value, bool)
        and value in (SPACES[name][key][0], SPACES[name][key][-1])
    ]


def tuned(name: str, kind: str, many: int, seeds: int, finalists: int, more: int, draw: int) -> dict[str, Any]:
    tried = []
    for settings in configurations(name, kind, many, draw):
        found = score(name, settings, kind, range(seeds))
        tried.append((float(np.mean(list(found.values()))), settings))
    published = tried[0][1]
    best = [settings for _, settings in sorted(tried, key=lambda each: -each[0])[:finalists]]
    final = []
    for settings in [published, *(each for each in best if each != published)]:
        found = score(name, settings, kind, range(seeds, seeds + more))
        final.append((float(np.mean(list(found.values()))), settings, found))
    chosen = max(final, key=lambda each: each[0])
    return {
        "settings": chosen[1],
        "objective": round(chosen[0], 4),
        "published_objective": round(final[0][0], 4),
        "per_stream": {family: round(value, 4) for family, value in chosen[2].items()},
        "configurations": len(tried),
        "seeds": [seeds, more],
        "on_the_edge": on_the_edge(name, chosen[1]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configurations", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=2, help="of the search")
    parser.add_argument("--finalists", type=int, default=5)
    parser.add_argument("--more", type=int, default=4, help="other seeds, for the finalists")
    parser.add_argument("--draw", type=int, default=5, help="seed of the random search")
    parser.add_argument("--kinds", default=",".join(STREAMS))
    parser.add_argument("--methods", default=",".join(RIVALS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/streams/tuned.json"))
    asked = parser.parse_args()
    kept: dict[str, Any] = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    for kind in asked.kinds.split(","):
        for name in asked.methods.split(","):
            if name in kept.get(kind, {}):
                continue
            started = time.perf_counter()
            found = tuned(name, kind, asked.configurations, asked.seeds, asked.finalists, asked.more, asked.draw)
            # Another process may have written since.
            kept = json.loads(asked.out.read_text()) if asked.out.exists() else {}
            kept.setdefault(kind, {})[name] = found
            asked.out.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
            print(
                f"{kind} {name}: published {found['published_objective']:.3f}, best {found['objective']:.3f} "
                f"({time.perf_counter() - started:.0f} s) {found['settings']}, on the edge: {found['on_the_edge']}",
                flush=True,
            )


if __name__ == "__main__":
    main()
