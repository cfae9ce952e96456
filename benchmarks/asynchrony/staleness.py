"""What staleness costs and which objective bears it: one task, four lags, three objectives, five seeds.

The tiny model learns which letters each of two prompts asks for. The sampler is made to finish all that it may before each
update, so that every token is trained `max_staleness` versions after it was drawn (but for the first steps, which have no
older weights): the lag is forced, not only allowed.

* plain: the clipped objective whose ratio is to the policy that drew the tokens (PPO as it was before AReaL);
* decoupled: ratio to the learner's policy before the step, times a masked correction for the lag (AReaL, arXiv 2505.24298);
* vcpo: sequence weights, off-policy optimal baseline, step scaled by effective sample size (arXiv 2602.17616).

Each has the learning rate whose worst of six seeds earned most over training at lag 0: with a rate that now and then settles
on one prompt's letters, that accident would be all that the table shows. The seeds that are measured are others. The score is
of 64 samples per prompt after the last update; the reward over training, beside it, says how quickly it was reached.
Prints a table and writes staleness.json.

    python -m benchmarks.asynchrony.staleness tune                  # chooses the learning rates; VCPO takes half an hour
    python -m benchmarks.asynchrony.staleness run SEED [OBJECTIVE]  # some minutes; seeds 5 to 9
    python -m benchmarks.asynchrony.staleness table
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

import torch

from benchmarks.asynchrony.setting import HERE, World, learner_of, run, share, tiny, write
from benchmarks.speed.setting import machine
from keepworth.episodes import SamplingParams
from keepworth.learning.collect.groups import FinishedGroup
from keepworth.learning.collect.pipeline import Asynchrony, Pipeline, Staleness
from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.parts import GroupStd, Outcome, Token
from keepworth.learning.objective.presets import preset, varied, without_kl

OBJECTIVES: dict[str, Objective] = {
    "plain": varied(without_kl(preset("grpo")), name="plain", ratio=Token("behaviour"), aggregation="token-mean"),
    "decoupled": varied(preset("areal"), advantage=Outcome("group", GroupStd())),
    "vcpo": preset("vcpo"),
}
LAGS = (0, 1, 4, 8)
SEEDS = (5, 6, 7, 8, 9)
TUNING_SEEDS = (100, 101, 102, 103, 104, 105)
RATES = (1e-3, 2e-3, 4e-3)
STEPS, GROUPS, MEMBERS, TOKENS, PROMPTS = 300, 4, 16, 2, 2
PARTS = HERE / "parts"
"""Where single seeds wait for the table; only the chosen learning rates are kept."""


class Eager(Pipeline):
    """Samples as far ahead as it may before every update."""

    def _choose(self) -> list[FinishedGroup] | None:
        return None if self._open else super()._choose()


def trained(objective: str, lag: int, seed: int, rate: float) -> dict[str, float]:
    """Train once; the model's score afterwards, over training, and how stale what it was trained on was."""
    model = tiny(seed)
    learner = learner_of(model, OBJECTIVES[objective], rate)
    asynchrony = Asynchrony(
        Staleness(GROUPS, lag, float(lag + 1)), MEMBERS, mode="serial", slots=GROUPS * MEMBERS * (lag + 1), seed=seed
    )
    world = World(lambda index, member: TOKENS, prompts=PROMPTS)
    watch = run(learner, world, asynchrony, STEPS, Eager)
    prompts = [world.encode(world.task(number).input) for number in range(PROMPTS)]
    drawn = model.sample(prompts, SamplingParams(TOKENS, n=64, seed=7))
    scores = [share(number, sample.ids) for number, samples in enumerate(drawn) for sample in samples]
    return {
        "score": statistics.fmean(scores),
        "training_reward": statistics.fmean(row["reward"] for row in watch.rows),
        "lag_p95": watch.rows[-1]["lag_p95"],
    }


def tune() -> dict[str, Any]:
    """The learning rate of each objective whose worst tuning seed earns most at lag 0."""
    tried = {
        name: {str(rate): [trained(name, 0, seed, rate)["training_reward"] for seed in TUNING_SEEDS] for rate in RATES}
        for name in OBJECTIVES
    }
    chosen = {name: max(scores, key=lambda rate: min(scores[rate])) for name, scores in tried.items()}
    return {"tried": tried, "chosen": {name: float(rate) for name, rate in chosen.items()}}


def interval(differences: list[float]) -> tuple[float, float, float]:
    """Mean and 95 % interval of paired differences (Student's t)."""
    from scipy.stats import t

    mean = statistics.fmean(differences)
    half = float(t.ppf(0.975, len(differences) - 1)) * statistics.stdev(differences) / len(differences) ** 0.5
    return mean, mean - half, mean + half


def compared(values: list[float], synchronous: list[float]) -> dict[str, Any]:
    differences = [a - b for a, b in zip(values, synchronous, strict=True)]
    mean, low, high = interval(differences)
    minus = {"mean": mean, "low": low, "high": high}
    return {"values": values, "mean": statistics.fmean(values), "minus_synchronous": minus}


def measured(rates: dict[str, float]) -> dict[str, Any]:
    """The cells of every seed, all at the learning rates that were chosen."""
    found: dict[str, Any] = {}
    for path in sorted(PARTS.glob("seed-*.json")):
        _, seed, name = path.stem.split("-")
        part = json.loads(path.read_text())
        assert part["rate"] == rates[name], f"{path.name} is of another learning rate than was chosen: run it again"
        found.setdefault(seed, {}).update(part["cells"])
    return found


def table(parts: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    seeds = sorted(found, key=int)
    cells: dict[str, Any] = {}
    for name in OBJECTIVES:
        for lag in LAGS:
            have = [seed for seed in seeds if f"{name}/{lag}" in found[seed] and "decoupled/0" in found[seed]]
            if len(have) < 2:
                continue
            own = [found[seed][f"{name}/{lag}"] for seed in have]
            cells[f"{name}/{lag}"] = {
                "n": len(have),
                "lag_p95": statistics.fmean(each["lag_p95"] for each in own),
                **{
                    measure: compared(
                        [each[measure] for each in own], [found[seed]["decoupled/0"][measure] for seed in have]
                    )
                    for measure in ("score", "training_reward")
                },
            }
    return {
        "machine": parts["machine"],
        "task": {"steps": STEPS, "groups": GROUPS, "members": MEMBERS, "tokens": TOKENS, "prompts": PROMPTS},
        "n": len(seeds),
        "seeds": [int(each) for each in seeds],
        "interval": "95 %, Student's t over seeds, paired with the decoupled objective at lag 0",
        "learning_rates": parts["tuned"],
        "cells": cells,
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("what", choices=("tune", "run", "table"))
    asked.add_argument("seed", type=int, nargs="?", choices=SEEDS)
    asked.add_argument("objective", nargs="?", choices=OBJECTIVES, help="one of them instead of all")
    asked.add_argument("--rate", type=float, help="the learning rate, before the tuning is done; the table checks it")
    options = asked.parse_args()
    torch.set_num_threads(1)
    PARTS.mkdir(exist_ok=True)
    if options.what == "tune":
        found = {"machine": machine(1), "tuned": tune()}
        (PARTS / "tuned.json").write_text(json.dumps(found))
        print(json.dumps(found["tuned"], indent=2))
    elif options.what == "run":
        for name in [options.objective] if options.objective else OBJECTIVES:
            rate = options.rate or json.loads((PARTS / "tuned.json").read_text())["tuned"]["chosen"][name]
            cells = {f"{name}/{lag}": trained(name, lag, options.seed, rate) for lag in LAGS}
            (PARTS / f"seed-{options.seed}-{name}.json").write_text(json.dumps({"rate": rate, "cells": cells}))
    else:
        tuned = json.loads((PARTS / "tuned.json").read_text())
        result = table(tuned, measured(tuned["tuned"]["chosen"]))
        write("staleness.json", result)
        for name, cell in result["cells"].items():
            shown = []
            for measure in ("score", "training_reward"):
                minus = cell[measure]["minus_synchronous"]
                shown.append(
                    f"{measure} {cell[measure]['mean']:.3f}, minus synchronous {minus['mean']:+.3f} "
                    f"({minus['low']:+.3f} to {minus['high']:+.3f})"
                )
            print(f"{name:12} lag {cell['lag_p95']:.1f}  {'  '.join(shown)}")


if __name__ == "__main__":
    main()
