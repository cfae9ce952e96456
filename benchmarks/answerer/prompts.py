"""Choose the answerer's prompt: with dates before the memories or without. Test questions are not read.

    python -m benchmarks.answerer.prompts [--threads N]

The rule, fixed before it was run: the prompt in which the *untrained* model answers the training and dev questions best.
That gives the baseline its best prompt, so a gain over it cannot come from a prompt that handicapped it. Numbers go to
`prompts.json`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from rich.console import Console

from keepworth.evaluation.manager import answers
from keepworth.evaluation.statistics import MeanEstimate, estimate
from keepworth.learning.run_folder import versions
from keepworth.methods.recipes._memory_r1.answerer import recall_for, task_sets
from keepworth.methods.recipes.memory_r1 import Config
from keepworth.models.files import ModelKind, path_of
from keepworth.models.inprocess import InProcessModel

HERE = Path(__file__).parent


def as_row(value: MeanEstimate) -> dict[str, float]:
    return {"mean": value.mean, "low": value.low, "high": value.high, "n": value.n}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = Config()
    model = InProcessModel.load(path_of(config.model, kind=ModelKind.LANGUAGE), name=config.model)
    sets = task_sets(config)
    tasks = [*sets["train"], *sets["dev"]]
    rows = {}
    for name, dates in (("without dates", False), ("with dates", True)):
        f1 = answers(model, tasks, recall_for(Config(dates=dates)), config.max_tokens).values["f1"]
        found = {"train and dev": f1, "dev": f1[len(sets["train"]) :]}
        rows[name] = {split: as_row(estimate(values)) for split, values in found.items()}
        row = rows[name]["train and dev"]
        Console().print(
            f"{name}: {row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}], n = {row['n']}", highlight=False
        )
    chosen = max(rows, key=lambda name: rows[name]["train and dev"]["mean"])
    record = {"what": "token F1 of the untrained model", "prompts": rows, "chosen": chosen, "versions": versions()}
    (HERE / "prompts.json").write_text(json.dumps(record, indent=2) + "\n")
    Console().print(f"chosen: {chosen}")


if __name__ == "__main__":
    main()
