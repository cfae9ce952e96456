"""Environments that take their time: throughput with sampler and learner in turns, and overlapping, beside synchronous.

Every episode waits once, log-normal with sigma 1 and a median of 0.2 times a step's compute, before its reward. The
synchronous arm waits for all 64 episodes of its batch at once, so that it pays for the slowest and not for the sum.
Prints a table and writes latency.json.

python -m benchmarks.asynchrony.latency [--model smollm2-135m-instruct]
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import torch

from benchmarks.asynchrony.setting import World, learner_of, lognormal, run, small, tiny, write
from benchmarks.speed.setting import machine
from keepworth.learning.collect.pipeline import Asynchrony, Mode, Staleness
from keepworth.learning.objective.parts import GroupStd, Outcome
from keepworth.learning.objective.presets import preset, varied

OBJECTIVE = varied(preset("areal"), advantage=Outcome("group", GroupStd()))
GROUPS, MEMBERS, TOKENS = 8, 8, 16
SKIP = 3
ARMS: dict[str, tuple[Mode, int, float]] = {
    "synchronous": ("turns", 0, 1.0),
    "turns, staleness 1": ("turns", 1, 2.0),
    "turns, staleness 4": ("turns", 4, 4.0),
    "overlap, staleness 1": ("overlap", 1, 2.0),
    "overlap, staleness 4": ("overlap", 4, 4.0),
}


def asynchrony(arm: str) -> Asynchrony:
    mode, staleness, depth = ARMS[arm]
    return Asynchrony(Staleness(GROUPS, staleness, depth), MEMBERS, mode=mode, slots=GROUPS * MEMBERS)


def measure(model_name: str, rounds: int, steps: int, names: list[str]) -> dict[str, Any]:
    def fresh() -> Any:
        model = tiny(hidden=128) if model_name == "tiny" else small()
        return learner_of(model, OBJECTIVE, 1e-4, lora=model_name != "tiny")

    learner = fresh()
    encode = learner.model.encode

    def world(waits: Any) -> World:
        return World(lambda index, member: TOKENS, waits, encode=encode, padding="a few words to read first. " * 3)

    dry = run(learner, world(None), asynchrony("synchronous"), SKIP + 4).steady(SKIP)
    compute = dry["seconds"]
    median = 0.2 * compute
    seconds: dict[str, list[float]] = {arm: [] for arm in names}
    learning: dict[str, list[float]] = {arm: [] for arm in names}
    for number in range(rounds):
        for arm in names if number % 2 == 0 else names[::-1]:
            learner = fresh()
            watch = run(learner, world(lognormal(median, 1.0, number)), asynchrony(arm), steps).steady(SKIP)
            seconds[arm].append(watch["seconds"])
            learning[arm].append(watch["seconds/learn"])
    return {
        "model": model_name,
        "rounds": rounds,
        "steps": steps,
        "steps_measured": steps - SKIP,
        "episodes_per_step": GROUPS * MEMBERS,
        "tokens_per_episode": TOKENS,
        "compute_seconds_per_step": compute,
        "learn_seconds_per_step": dry["seconds/learn"],
        "latency_median_seconds": median,
        "latency_sigma": 1.0,
        "seconds_per_step": seconds,
        "learn_seconds_in_arm": learning,
        "speedup": {
            arm: {
                "median": statistics.median(ratios),
                "lowest": min(ratios),
                "highest": max(ratios),
                "of_which_hidden_latency": statistics.median(
                    [s / max(each, compute) for s, each in zip(seconds["synchronous"], seconds[arm], strict=True)]
                ),
            }
            for arm in names
            if (ratios := [s / each for s, each in zip(seconds["synchronous"], seconds[arm], strict=True)])
        },
        "bound_turns": statistics.median(seconds["synchronous"]) / compute,
        "bound_overlap": statistics.median(seconds["synchronous"])
        / max(dry["seconds/learn"], compute - dry["seconds/learn"]),
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--model", default="tiny", choices=("tiny", "smollm2-135m-instruct"))
    asked.add_argument("--rounds", type=int, default=3)
    asked.add_argument("--steps", type=int, default=15)
    asked.add_argument("--arms", nargs="+", type=int, default=range(len(ARMS)), help="by number; 0 is synchronous")
    options = asked.parse_args()
    arms = [list(ARMS)[each] for each in options.arms]
    torch.set_num_threads(1)
    setting = machine(1)
    found = measure(options.model, options.rounds, options.steps, arms)
    name = "latency.json" if options.model == "tiny" else "latency_135m.json"
    write(name, {"machine": setting, **found})
    print(
        f"compute {found['compute_seconds_per_step']:.3f} s a step, of which learning {found['learn_seconds_per_step']:.3f} s"
    )
    for arm, each in found["speedup"].items():
        spent = statistics.median(found["seconds_per_step"][arm])
        print(f"{arm:24} {spent:7.3f} s a step  {each['median']:.2f}x ({each['lowest']:.2f} to {each['highest']:.2f})")


if __name__ == "__main__":
    main()
