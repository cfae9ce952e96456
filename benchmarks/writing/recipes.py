"""A recipe of a writer on the real model, in a short run, beside its headroom: what rules, chance and an oracle keep of
the same streams.

    python -m benchmarks.writing.recipes NAME [--steps 8] [--questions 12] [--seed 0] [--runs runs/writing/recipes]

NAME: bounded_bank, memory_r2, fine_mem, mem_alpha, ... (`keepworth recipes`). The recipe trains SmolLM2-135M with its
own code, on the questions of LongMemEval's train split, and is measured on some of its test questions, one stream of 16
facts each. It is short: a few updates of a few streams, to show that the recipe runs on the real model and what the
size of its effect could be; no setting was chosen on these questions. Answers are replayed: the token F1 of a real
reading of the same stream with the same evidence in the bank (`benchmarks.writing.reads`). What is read of streams
without a log is not scored, only what is kept of them.

It goes on where it was stopped. Results of all recipes are in `recipes.json`, one after the other.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from keepworth.episodes.needs import needs_train

import numpy as np
import torch

from benchmarks.writing.credit import Replay
from benchmarks.writing.setting import HERE, WORLDS, Reads, Setting
from keepworth.environments.parted_bank import CUT
from keepworth.evaluation.statistics import paired_difference, pooled_estimate
from keepworth.learning.run_folder import RunFolder, versions
from keepworth.learning.watch.progress import PlainProgress
from keepworth.memory.policy.importance import best, hand_features, specificity
from keepworth.methods.recipes import agemem, bounded_bank, fine_mem, mem_alpha, memory_r2, memory_r_plus
from keepworth.recipes.writing import WriterStreams
from keepworth.rollouts.bounded_bank import BankAnswer
from keepworth.tasks.fact_streams import FactStream, longmemeval_streams

OUT = HERE / "recipes.json"
WORLD = "4 of 16"
RECIPES = {
    "bounded_bank": bounded_bank,
    "memory_r2": memory_r2,
    "fine_mem": fine_mem,
    "mem_alpha": mem_alpha,
    "agemem": agemem,
    "memory_r_plus": memory_r_plus,
}
SHORT: dict[str, Any] = {
    "streams": 1, "tasks_per_step": 2, "group_size": 8, "warm_start": 10, "warm_start_batch": 8, "threads": 1,
    "precision": "bf16",
}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {
    # Streams four times as long as in training. The bank is not in the prompt: so the members of a group share their prompts.
    "mem_alpha": {"longer": 64, "recent": 0},
    "agemem": {"recent": 0},
    "memory_r_plus": {"explore_after": 2},
    "memory_r2": {"horizons": ({"steps": 2, "length": 8},)},
}
EVENLY = 200
"""Evenly drawn banks of each stream, for what chance keeps."""


class Replayed:
    """Banks are worth what a real reader once answered from the same evidence of the same stream."""

    identity, failed = "replayed readings", 0

    def __init__(self) -> None:
        length, budget = WORLDS[WORLD]
        streams = tuple(longmemeval_streams(length))
        nothing: Any = np.zeros((0, 0))
        world = Setting(WORLD, length, budget, streams, np.zeros(len(streams), dtype=np.intp), (), nothing, ())
        self._replay = Replay(world, Reads.on_file())
        self._number = {stream.key: number for number, stream in enumerate(streams)}

    def __call__(self, banks: Sequence[tuple[FactStream, Sequence[str]]], /) -> list[BankAnswer]:
        return [BankAnswer("replayed", self._score(stream, numbers_of(stream, texts))) for stream, texts in banks]

    def _score(self, stream: FactStream, stay: Sequence[int]) -> float:
        number = self._number.get(stream.key)
        return self._replay(number, stay) if number is not None else float(any(stream.evidence[each] for each in stay))


def numbers_of(stream: FactStream, texts: Sequence[str]) -> tuple[int, ...]:
    """Of the facts that a bank's texts are, or begin, where they were cut."""
    begun = [text.removesuffix(CUT) for text in texts]
    return tuple(
        number
        for number, fact in enumerate(stream.facts)
        if fact.statement in texts
        or any(text != own and fact.statement.startswith(own) for text, own in zip(texts, begun, strict=True))
    )


def headroom(streams: Sequence[FactStream], budget: int) -> dict[str, dict[str, float]]:
    """The share of the evidence that rules keep, that chance keeps, and that who knows it keeps."""
    from keepworth.memory.policy.importance import FEATURES

    draw = np.random.default_rng(0)

    def feature(name: str) -> Any:
        at = FEATURES.index(name)
        return lambda stream: np.array([hand_features(fact.statement)[at] for fact in stream.facts])

    rules: dict[str, Any] = {
        "the latest": lambda stream: np.arange(len(stream.facts), dtype=float),
        "the longest": feature("words"),
        "most digits": feature("digits"),
        "most names": feature("names"),
        "most specific": lambda stream: np.array([specificity(fact.statement) for fact in stream.facts]),
        "oracle": lambda stream: np.array(stream.evidence, dtype=float),
    }
    kept = {name: [each.evidence_kept(best(of(each), budget)) for each in streams] for name, of in rules.items()}
    kept["chance"] = [
        float(np.mean([each.evidence_kept(draw.permutation(len(each.facts))[:budget].tolist()) for _ in range(EVENLY)]))
        for each in streams
    ]
    return {name: interval(values, [each.cluster for each in streams]) for name, values in kept.items()}


def interval(values: Sequence[float], clusters: Sequence[str]) -> dict[str, float]:
    found = pooled_estimate(list(values), list(clusters), within=(0.0, 1.0))
    low, high = max(0.0, found.low), min(1.0, found.high)
    return {"mean": found.mean, "low": low, "high": high, "clusters": found.n, "streams": len(values)}


def measured(run: RunFolder, streams: dict[str, Sequence[FactStream]]) -> dict[str, Any]:
    """Of each test set and arm the measures of the run, and what training added, question by question."""
    found: dict[str, Any] = {}
    for split, own in streams.items():
        clusters = [stream.cluster for stream in own]
        values: dict[tuple[str, str], list[float]] = {}
        for row in run.evals():
            if row["split"] == split and (row["metric"] == "evidence_kept" or split == "test"):
                values[row["arm"], row["metric"]] = [row["values"][stream.key] for stream in own]
        gaps = []
        for (arm, metric), each in values.items():
            for minus in ("warm_start", "most_specific"):
                if arm == "trained" and (minus, metric) in values:
                    differences = [a - b for a, b in zip(each, values[minus, metric], strict=True)]
                    gap = paired_difference(arm, differences, clusters=clusters)
                    gaps.append(
                        {
                            "arm": arm,
                            "minus": minus,
                            "metric": metric,
                            "difference": gap.difference,
                            "low": gap.low,
                            "high": gap.high,
                        }
                    )
        arms = [
            {"arm": arm, "metric": metric, **interval(each, clusters), "values": each}
            for (arm, metric), each in values.items()
        ]
        found[split] = {"arms": arms, "gaps": gaps, "clusters": clusters}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=RECIPES)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--questions", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=Path, default=Path("runs/writing/recipes"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    recipe: Any = RECIPES[options.name]
    ends = {"evaluate_every": options.steps, "checkpoint_every": 2}
    shared = {"steps": options.steps, "questions": options.questions, "seed": options.seed, **ends}
    config = recipe.Config(**SHORT, **shared, **OWN.get(options.name, {}))
    record = json.loads(OUT.read_text()) if OUT.exists() else {}
    seconds = record.get(options.name, {}).get("seconds")
    folder = options.runs / f"{options.name}-{options.seed}"
    with RunFolder.create(folder, {"recipe": options.name, **config.model_dump(mode="json")}) as run:
        if run.result() is None:
            begun, used = time.monotonic(), time.process_time()
            replace(recipe.system(config), reading=Replayed()).learn(config, run, PlainProgress())
            seconds = {"wall": round(time.monotonic() - begun), "cpu": round(time.process_time() - used)}
    held = WriterStreams(config)
    longer = {} if config.longer is None else {f"test of {config.longer}": config.longer}
    lengths = {"test": config.length, **longer}
    streams = {split: held.held_out(split) for split in lengths}
    asked = f"{options.name} --steps {options.steps} --questions {options.questions} --seed {options.seed}"
    record[options.name] = {
        "command": f"python -m benchmarks.writing.recipes {asked}", "seed": options.seed, "seeds": 1, "seconds": seconds,
        "config": config.model_dump(mode="json", exclude_defaults=True), "versions": versions(),
        "headroom": {
            split: headroom(own, -(-config.budget * lengths[split] // config.length)) for split, own in streams.items()
        },
        "measured": measured(run, streams),
        "updates": [
            {key: row[key] for key in row if key in ("step", "gradient_norm") or key.startswith("reward")}
            for row in run.metrics()
        ],
    }  # fmt: skip
    OUT.write_text(json.dumps(dict(sorted(record.items())), indent=1) + "\n")
    print(json.dumps(record[options.name]["measured"], indent=1))


if __name__ == "__main__":
    main()
