"""Staleness 0: the pipeline with each of its decoders, beside the group sampler without any pipeline, on the same steps.

A step is one of the recipe memory_r1: 8 questions with their memories, 8 answers each. Nothing is learned in between, and draws
are seeded alike, so that every arm draws the same answers but for rounding. The ratio is of CPU time, on one thread: the machine
may have other work. Prints a table and writes staleness_zero.json.

python -m benchmarks.asynchrony.staleness_zero [--model smollm2-135m-instruct] [--rounds 6]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.asynchrony.setting import learner_of, small, tiny, write
from benchmarks.speed.setting import machine
from keepworth.episodes import SamplingParams
from keepworth.learning.collect.curriculum import draw_seed
from keepworth.learning.collect.pipeline import Asynchrony, Pipeline, Staleness, synchronous
from keepworth.learning.run_folder import RunFolder
from keepworth.methods.recipes._memory_r1.answerer import Answering, recall_for, task_sets
from keepworth.methods.recipes.memory_r1 import Config
from keepworth.recipes.settings import GROUP_RELATIVE
from keepworth.rollouts.memory_r1 import asking

GROUPS, MEMBERS = 8, 8
ALONE = "group sampler alone"
PIPELINES = {
    "pipeline, whole calls": synchronous(GROUPS, MEMBERS),
    "pipeline, slots": Asynchrony(Staleness(GROUPS, 0, 1.0), MEMBERS, mode="turns", slots=GROUPS * MEMBERS),
}
LIMIT = 1.03
"""A decoder that costs more than this is not the one of synchronous training."""


def measure(model_name: str, rounds: int) -> dict[str, Any]:
    model = tiny(hidden=128) if model_name == "tiny" else small()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner = learner_of(model, GROUP_RELATIVE, 1e-4, lora=model_name != "tiny")
    config = Config()
    sets, recall = task_sets(config), recall_for(config)
    seconds: dict[str, list[float]] = {ALONE: [], **{arm: [] for arm in PIPELINES}}
    spent: dict[str, list[float]] = {arm: [] for arm in seconds}
    tokens: dict[str, list[int]] = {arm: [] for arm in seconds}
    with tempfile.TemporaryDirectory() as folder:
        collectors = {}
        for number, (arm, settings) in enumerate(PIPELINES.items()):
            run = RunFolder.create(Path(folder) / str(number), {})
            answering = Answering(config, run, model, sets, recall)
            collectors[arm] = Pipeline(run, learner, answering, settings)
            collectors[arm].begin(None, 0, 0)

        def alone(step: int) -> int:
            tasks = [answering.task(step * GROUPS + number) for number in range(GROUPS)]
            asked = [asking(model, task, recall, config.max_tokens, answering.style) for task in tasks]
            stops = model.stop_ids_for("\n")
            params = SamplingParams(config.max_tokens, MEMBERS, seed=draw_seed(0, step, step * GROUPS), stop_ids=stops)
            drawn = model.sample([each.prompt for each in asked], params)
            return sum(len(sample.ids) for own in drawn for sample in own)

        def collected(arm: str) -> Callable[[int], int]:
            def step(number: int) -> int:
                groups = collectors[arm].collect(number).groups
                collectors[arm].publish()
                return sum(len(s.ids) for group in groups for e in group.episodes for s in e.segments)

            return step

        arms = {ALONE: alone, **{arm: collected(arm) for arm in PIPELINES}}
        for number in range(rounds + 1):
            for arm in list(arms) if number % 2 == 0 else reversed(arms):
                begun, cpu = time.perf_counter(), time.process_time()
                drawn = arms[arm](number)
                if number:  # the first warms up
                    spent[arm].append(time.process_time() - cpu)
                    seconds[arm].append(time.perf_counter() - begun)
                    tokens[arm].append(drawn)
        for each in collectors.values():
            each.close()
    return {
        "model": model_name,
        "rounds": rounds,
        "groups": GROUPS,
        "members": MEMBERS,
        "tokens_per_step": tokens,
        "seconds_per_step": seconds,
        "cpu_seconds_per_step": spent,
        "cost": {
            arm: {"median": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)}
            for arm in seconds
            if (ratios := [own / other for own, other in zip(spent[arm], spent[ALONE], strict=True)])
        },
        "limit": LIMIT,
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--model", default="tiny", choices=("tiny", "smollm2-135m-instruct"))
    asked.add_argument("--rounds", type=int, default=6)
    options = asked.parse_args()
    torch.set_num_threads(1)
    setting = machine(1)
    found = measure(options.model, options.rounds)
    name = "staleness_zero.json" if options.model == "tiny" else "staleness_zero_135m.json"
    write(name, {"machine": setting, **found})
    for arm, cost in found["cost"].items():
        cpu, drawn = (
            statistics.median(found["cpu_seconds_per_step"][arm]),
            statistics.median(found["tokens_per_step"][arm]),
        )
        spread = f"{cost['median']:.3f}x ({cost['lowest']:.3f} to {cost['highest']:.3f})"
        print(f"{arm:24} {cpu:7.3f} s of CPU a step, {drawn:.0f} tokens  {spread}")


if __name__ == "__main__":
    main()
