"""Chooses which cases a method keeps, on the dev split, and adds the choice to tuned.json: failures or not; where single
steps have rewards, steps or episodes.

python -m benchmarks.streams.grid --methods memq,romerl [--kinds paid-at-end]

A method that has settings under which its mechanism acts has those while its cases are chosen.
"""

from __future__ import annotations

import argparse
import json
from inspect import signature
from itertools import product
from pathlib import Path

import numpy as np

from keepworth.cli.eval_stream import run_job
from keepworth.registry import method

TUNED = Path(__file__).parent / "tuned.json"
STREAMS = {
    "one-step": ("near-miss", "noisy-reward"),
    "several-steps": ("tool-graph",),
    "paid-at-end": ("tool-graph-end",),
}
LENGTHS = {"one-step": 150, "several-steps": 50, "paid-at-end": 50}
SEEDS = (2, 3)
CHOICES = ("failures", "steps")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", required=True, help="names of policies, separated by commas")
    parser.add_argument("--kinds", default=",".join(STREAMS), help="kinds of streams, separated by commas")
    options = parser.parse_args()
    tuned = json.loads(TUNED.read_text(encoding="utf-8"))
    for name in options.methods.split(","):
        for kind in options.kinds.split(","):
            tuned.setdefault(kind, {})[name] = choose(name, kind)
            print(name, kind, tuned[kind][name]["settings"], tuned[kind][name]["objective"], flush=True)
            TUNED.write_text(json.dumps(tuned, indent=1) + "\n", encoding="utf-8")


def choose(name: str, kind: str) -> dict[str, object]:
    """The settings with the highest mean success, in the form of tuned.json; the published ones win a tie."""
    usual = {key: value.default for key, value in signature(method("policy", name).make).parameters.items()}
    free = [key for key in CHOICES if key in usual and not (key == "steps" and kind != "several-steps")]
    tried = []
    for values in product((False, True), repeat=len(free)):
        settings = dict(zip(free, values, strict=True))
        published = settings == {key: usual[key] for key in free}
        per_stream = {stream: success(name, kind, stream, settings) for stream in STREAMS[kind]}
        tried.append((round(float(np.mean(list(per_stream.values()))), 4), published, settings, per_stream))
    objective, _, settings, per_stream = max(tried, key=lambda each: each[:2])
    return {
        "configurations": len(tried),
        "objective": objective,
        "on_the_edge": [],
        "per_stream": per_stream,
        "published_objective": next(each[0] for each in tried if each[1]),
        "seeds": list(SEEDS),
        "settings": settings,
    }


def success(name: str, kind: str, stream: str, settings: dict[str, bool]) -> float:
    given = {kind: {name: settings}}
    arm = f"{name}+on" if method("policy", name).on else name
    rows = [
        run_job((stream, "random", seed), arms=(arm,), split="dev", length=LENGTHS[kind], settings=given, data=None)
        for seed in SEEDS
    ]
    return round(float(np.mean([row.auc for (row,) in rows])), 4)


if __name__ == "__main__":
    main()
