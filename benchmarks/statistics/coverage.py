"""Do intervals hold the truth as often as they say, and are verdicts as rarely wrong? Simulated, with the truth known.

    python -m benchmarks.statistics.coverage --out benchmarks/statistics/coverage.json

Four questions: the t interval against the percentile bootstrap with few clusters; clusters against questions as the unit of
resampling; how often "ahead of every rival" is said of a method that is level with the best; and how often a plan of seeds gives
an interval as narrow as it promised. The numbers are shares of runs; `runs` says of how many.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from keepworth.evaluation.power import half_width, seeds_for_half_width
from keepworth.evaluation.statistics import against_each, bootstrapped, paired_difference, student

Draw = Callable[[np.random.Generator, int], np.ndarray]
RESAMPLES = 1000
SEED = 20261121
SIZES = (3, 5, 8, 12, 16, 20, 25, 30, 40, 60, 100)
# What differences over seeds look like: nearly normal, skewed, with heavy tails, and mostly nothing with now and then a step.
WORLDS: dict[str, tuple[Draw, float]] = {
    "normal": (lambda draw, n: draw.normal(size=n), 0.0),
    "skewed": (lambda draw, n: draw.exponential(size=n), 1.0),
    "heavy tails": (lambda draw, n: draw.standard_t(3, size=n), 0.0),
    "mostly 0": (lambda draw, n: np.where(draw.random(n) < 0.7, 0.0, np.where(draw.random(n) < 0.6, 1.0, -1.0)), 0.06),
}
# Questions of ten conversations, as many as LoCoMo has in each.
CONVERSATIONS = (199, 105, 193, 260, 242, 158, 190, 239, 196, 204)


def share(hits: int, runs: int) -> dict[str, float]:
    return {"share": hits / runs, "error": (hits / runs * (1 - hits / runs) / runs) ** 0.5}


def intervals(runs: int) -> list[dict[str, Any]]:
    """Coverage of 95 % intervals of a mean over n clusters."""
    rows = []
    for world, (draw, truth) in WORLDS.items():
        for n in SIZES:
            generator = np.random.default_rng([SEED, n, len(rows)])
            hits = {"t": 0, "bootstrap": 0}
            for _ in range(runs):
                values = draw(generator, n).astype(float)
                low, high = student(values, np.ones(n))
                hits["t"] += low <= truth <= high
                if values.min() < values.max():
                    low, high = bootstrapped((values,), np.mean, generator, resamples=RESAMPLES)
                hits["bootstrap"] += low <= truth <= high
            rows.append({"world": world, "n": n, **{name: share(each, runs) for name, each in hits.items()}})
    return rows


def units(runs: int) -> dict[str, Any]:
    """Ten conversations that differ: an interval over questions, and one over conversations."""
    generator = np.random.default_rng([SEED, 1])
    hits = {"questions": 0, "conversations": 0}
    sizes = np.array(CONVERSATIONS, dtype=float)
    for _ in range(runs):
        level = np.clip(generator.normal(0.5, 0.08, len(sizes)), 0.0, 1.0)
        answers = [(generator.random(int(n)) < p).astype(float) for n, p in zip(sizes, level, strict=True)]
        every = np.concatenate(answers)
        half = half_width(float(every.std(ddof=1)), len(every))
        hits["questions"] += abs(every.mean() - 0.5) <= half
        low, high = student(np.array([each.sum() for each in answers]), sizes)
        hits["conversations"] += low <= 0.5 <= high
    return {name: share(each, runs) for name, each in hits.items()}


def verdicts(runs: int) -> list[dict[str, Any]]:
    """How often "ahead" of every rival is said where it is not so: level with all rivals, and with the best of them alone."""
    rows = []
    for name, truths in (
        ("level with all six", (0.0,) * 6),
        ("level with one, 3 points ahead of five", (0.0, *(0.03,) * 5)),
    ):
        generator = np.random.default_rng([SEED, 2, len(rows)])
        said: dict[str, int] = {"ahead": 0, "not worse": 0, "behind": 0, "open": 0}
        picked = 0
        for _ in range(runs):
            ours, n = generator.normal(0.0, 0.03, 24), 24
            named = [
                (str(place), (truth + ours - generator.normal(0.0, 0.03, n)).tolist())
                for place, truth in enumerate(truths)
            ]
            said[against_each(named).verdict] += 1
            # What one must not do: choose the rival that looks weakest and show that comparison alone.
            easy = max(named, key=lambda pair: float(np.mean(pair[1])))
            picked += paired_difference(*easy, resamples=RESAMPLES).low > 0.0
        row = {"truth": name, "seeds": 24, **{f"said {each}": share(many, runs) for each, many in said.items()}}
        if not any(truths):
            row["ahead of a rival picked by its result"] = share(picked, runs)
        rows.append(row)
    return rows


def plans(runs: int) -> list[dict[str, Any]]:
    """The share of runs whose interval is as narrow as planned."""
    rows = []
    for sd, wanted in ((0.028, 0.01), (0.05, 0.01), (0.03, 0.03)):
        n = seeds_for_half_width(sd, wanted)
        naive = int(np.ceil((1.96 * sd / wanted) ** 2))
        generator = np.random.default_rng([SEED, 3, len(rows)])

        def narrow(seeds: int, sd: float = sd, wanted: float = wanted, draw: np.random.Generator = generator) -> int:
            found = draw.normal(0.0, sd, (runs, seeds)).std(axis=1, ddof=1)
            return int((found * half_width(1.0, seeds) <= wanted).sum())

        rows.append(
            {
                "sd": sd,
                "half-width": wanted,
                "seeds": n,
                "as narrow": share(narrow(n), runs),
                "seeds of (1.96 sd / w)^2": naive,
                "as narrow with those": share(narrow(naive), runs),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    record = {
        "runs": asked.runs,
        "seed": SEED,
        "resamples": RESAMPLES,
        "intervals": intervals(asked.runs),
        "units": units(asked.runs),
        "verdicts": verdicts(min(asked.runs, 1000)),
        "plans": plans(asked.runs),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in ("numpy", "scipy")}},
    }
    for row in record["intervals"]:
        print(f"{row['world']:12} n={row['n']:<4} t {row['t']['share']:.3f}  bootstrap {row['bootstrap']['share']:.3f}")
    print(json.dumps({key: record[key] for key in ("units", "verdicts", "plans")}, indent=1))
    if asked.out:
        asked.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
