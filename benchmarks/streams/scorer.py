"""A language model that scores candidate actions, on a stream: does right memory help it at all, and which memory does?

    python -m benchmarks.streams.scorer --stream near-miss --length 40 --arms none,oracle,exprag,ours

One seed and a short stream by default: a sanity check on one thread, not a result.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

from recollect.agents.scorer import ScoringAgent
from recollect.environments.streams import generated
from recollect.memory.policy.hashed_words import HashedWords
from recollect.models.files import path_of
from recollect.models.inprocess import InProcessModel
from recollect.recipes.experience_methods import method
from recollect.rollouts.stream import CONTROLS, run_stream


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream", default="near-miss")
    parser.add_argument("--arms", default="none,oracle,exprag,ours")
    parser.add_argument("--length", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--split", default="dev")
    parser.add_argument("--k", type=int, default=2, help="items shown; small models read few")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--plain", action="store_true", help="without calibration by the contextual prior")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    agent = ScoringAgent(
        InProcessModel.load(path_of(options.model), name=options.model, precision="fp32"), calibrated=not options.plain
    )
    rows = []
    for arm in options.arms.split(","):
        base, _, shuffled = arm.partition("+")
        control = "shuffled" if shuffled else base if base in CONTROLS else "learn"
        for seed in range(options.seeds):
            stream = replace(
                generated(options.stream, split=options.split, seed=seed, length=options.length), held_out=()
            )
            system = method("exprag" if base in CONTROLS else base, seed=seed, k=options.k)
            started = time.perf_counter()
            run = run_stream(stream, system, agent, HashedWords(), seed=seed, control=control, measure_regret=False)
            half = len(run.success) // 2
            rows.append(
                {
                    "stream": options.stream,
                    "arm": arm,
                    "seed": seed,
                    "n": len(run.success),
                    "success": float(run.success.mean()),
                    "second_half": float(run.success[half:].mean()),
                    "seconds_per_task": (time.perf_counter() - started) / len(run.success),
                }
            )
            print(rows[-1], flush=True)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
