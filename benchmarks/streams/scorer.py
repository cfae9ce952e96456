"""A language model that scores candidate actions, on streams: does right memory help it at all, and which memory does?

    python -m benchmarks.streams.scorer --streams near-miss --split dev --arms none,oracle --length 60 --out runs/scorer-dev
    python -m benchmarks.streams.scorer --split held-out --seeds 5 --precision bf16 --out runs/scorer

First the oracle check on dev rules: where right items from the store do not help the model, no memory can, and the stream is
left out. Failed cases are not kept by any arm unless --failures: on dev rules every arm but ExpRAG lost nine points and more
with them.
A matrix that was stopped continues; rows of several runs (--first) can be joined in one rows.jsonl. One order, no held-out
tasks: every decision is a forward pass.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from keepworth.agents.simulated import ScoringAgent
from keepworth.cli.eval_stream import method_for
from keepworth.environments.streams import generated, kind_of
from keepworth.evaluation.statistics import paired_difference
from keepworth.evaluation.stream import Job, Results, StreamRow, row, run_matrix, table
from keepworth.evaluation.stream_claims import CONTROLS, METHOD, claims
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.models.files import path_of
from keepworth.models.inprocess import InProcessModel
from keepworth.rollouts.stream import run_stream

ARMS = f"none,oracle,exprag,memrl,kernel-mean,{METHOD},{METHOD}+shuffled"


@lru_cache(maxsize=1)
def agent(model: str, precision: str) -> ScoringAgent:
    return ScoringAgent(InProcessModel.load(path_of(model), name=model, precision=precision))  # type: ignore[arg-type]


def run_job(
    job: Job,
    *,
    arms: tuple[str, ...],
    split: str,
    length: int,
    k: int,
    model: str,
    precision: str,
    failures: bool,
    tuned: dict[str, Any],
) -> list[StreamRow]:
    name, order, seed = job
    stream = replace(generated(name, split=split, seed=seed, order=order, length=length), held_out=())
    cache: dict[str, Any] = {}
    found = []
    for arm in arms:
        base, _, changed = arm.partition("+")
        control = changed or (base if base in CONTROLS else "learn")
        learner = "exprag" if base in CONTROLS else base
        settings = {**tuned.get(kind_of(name), {}).get(learner, {}), "k": k, "failures": failures}
        system = method_for(learner, {learner: settings}, seed)
        scorer = agent(model, precision)
        run = run_stream(
            stream, system, scorer, HashedWords(), seed=seed, control=control, cache=cache, measure_regret=False
        )
        found.append(row(name, order, seed, arm, run))
        print(name, seed, arm, f"{found[-1].auc:.3f} in {found[-1].seconds:.0f} s", flush=True)
    return found


def summary(results: Results) -> dict[str, Any]:
    """Per stream, what right memory adds to none, over rule sets where there are three; and the claims of every matrix."""
    right = [
        (f"oracle - none on {name}", results.differences(name, "oracle", "none"))
        for name in results.families
        if results.has(name, "oracle", "none")
    ]
    compared = [paired_difference(name, values) for name, values in right if len(values) >= 3]
    added = [
        {"name": each.name, "difference": each.difference, "low": each.low, "high": each.high} for each in compared
    ]
    return {"right_memory_helps": added, **claims(results)}


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", default="near-miss,drift,t-maze")
    parser.add_argument("--arms", default=ARMS)
    parser.add_argument("--length", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--failures", action="store_true", help="keep and show failed cases too")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--k", type=int, default=2, help="items shown; small models read few")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--tuned", type=Path, default=Path("benchmarks/streams/tuned.json"))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tuned = {
        kind: {name: found["settings"] for name, found in methods.items()}
        for kind, methods in json.loads(options.tuned.read_text()).items()
    }
    seeds = range(options.first, options.first + options.seeds)
    jobs = [(name, "random", seed) for seed in seeds for name in options.streams.split(",")]
    options.out.mkdir(parents=True, exist_ok=True)
    job = partial(
        run_job,
        arms=tuple(options.arms.split(",")),
        split=options.split,
        length=options.length,
        k=options.k,
        failures=options.failures,
        model=options.model,
        precision=options.precision,
        tuned=tuned,
    )
    results = Results(run_matrix(jobs, job, options.out / "rows.jsonl"))
    plan = {name: str(value) for name, value in vars(options).items() if name != "out"}
    plan["arms"] = results.arms
    kept = {"plan": plan, "seeds": options.seeds, "table": table(results), "claims": summary(results)}
    (options.out / "summary.json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
