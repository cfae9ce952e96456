"""The manager's two measures, after each of its two rewards, from the same warm start.

    python -m benchmarks.manager.halves --reader NAME [--runs runs] [--seeds 0] [--reward both] [--steps N] [--threads N]

--reader names the finished answerer run whose weights read the banks. A finished manager run is read, an unfinished one
continues. `--reward operation` or `--reward answer` is about that one only, so that two processes can train at once; its
tables are printed, and written where `--output` says. Without it both are trained, and the tables go to `manager.json`.
The tables are of test conversations; what was measured on dev while the managers learned stands under `dev`.

Intervals and differences are by question: the mean over the seeds of each question, bootstrap over questions.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from keepworth.evaluation.statistics import estimate, paired_gain
from keepworth.learning.run_folder import RunFolder, versions
from keepworth.learning.watch.progress import progress_for
from keepworth.methods.recipes import memory_r1
from keepworth.tasks.operations import GENERATOR_VERSION

HERE = Path(__file__).parent
REWARDS = ("operation", "answer")
BEFORE = ("always_add", "untrained", "warm_start", "evidence_only")
"""What is measured before reinforcement: the same in the runs of both rewards, and checked to be."""
ARMS = (*BEFORE, *(f"reinforced on {reward}s" for reward in REWARDS))
MEASURES = {
    "plain operations, test": ("Right memory operations", ("operation_accuracy", "operation_kind", "invalid")),
    "near-miss operations, test": (
        "Right memory operations, near misses",
        ("operation_accuracy", "operation_kind", "invalid"),
    ),
    "banks, test": ("Answers from the bank it kept", ("f1", "evidence_kept", "bank_size", "invalid")),
}
Row = dict[str, Any]


def finished(reward: str, seed: int, options: argparse.Namespace) -> RunFolder:
    """The run of one reward and seed, trained and measured if it is not yet."""
    config = memory_r1.Config(
        role="manager",
        seed=seed,
        threads=options.threads,
        reader=options.reader,
        manager_reward=reward,
        steps=options.steps,
    )
    record = {"recipe": "memory_r1", **config.model_dump(mode="json")}
    with RunFolder.create(options.runs / f"manager-{reward}-{seed}", record) as run:
        if run.result() is None:
            memory_r1.METHOD.make.train(config, run, progress_for())
    return run


def measured(runs: dict[str, RunFolder]) -> dict[tuple[str, str, str], Row]:
    """(split, arm, metric) to its row, for one seed. Stops where the runs disagree on what was before reinforcement."""
    found: dict[tuple[str, str, str], Row] = {}
    for reward, run in runs.items():
        for row in run.evals():
            arm = f"reinforced on {reward}s" if row["arm"] == "reinforced" else str(row["arm"])
            if row.get("role") != "manager" or arm not in ARMS:
                continue
            key = str(row["split"]), arm, str(row["metric"])
            if key in found and any(found[key].get(part) != row.get(part) for part in ("mean", "values", "reader")):
                raise SystemExit(f"the runs of both rewards differ in {key}, which was measured before their rewards")
            found[key] = row
    return found


def by_question(seeds: Sequence[dict[tuple[str, str, str], Row]], arm: str, metric: str) -> dict[str, float]:
    """The mean over the seeds of each question's value on the banks of an arm."""
    values = [seed["banks, test", arm, metric]["values"] for seed in seeds]
    return {task: sum(each[task] for each in values) / len(values) for task in values[0]}


def table(seeds: Sequence[dict[tuple[str, str, str], Row]], split: str) -> list[Row]:
    rows: list[Row] = []
    for arm in ARMS:
        for metric in MEASURES[split][1]:
            of_seeds = [seed[split, arm, metric] for seed in seeds if (split, arm, metric) in seed]
            if not of_seeds:
                continue
            row: Row = {"arm": arm, "metric": metric, "seeds": len(of_seeds)}
            if "values" in of_seeds[0]:
                row |= asdict(estimate(list(by_question(seeds, arm, metric).values())))
            elif len(of_seeds) == 1:
                row |= {part: of_seeds[0][part] for part in ("mean", "low", "high", "n")}
            else:  # the cases are the same for every seed: an interval over them says nothing about seeds
                row |= {"mean": sum(each["mean"] for each in of_seeds) / len(of_seeds), "low": None, "high": None}
                row |= {"n": of_seeds[0]["n"], "of_each_seed": [each["mean"] for each in of_seeds]}
            rows.append(row)
    return rows


def differences(seeds: Sequence[dict[tuple[str, str, str], Row]]) -> list[Row]:
    """What each reinforced arm has over the append-only memory, the warm start and the other reward, question by question."""
    reinforced = [arm for arm in ARMS[len(BEFORE) :] if ("banks, test", arm, "f1") in seeds[0]]
    pairs = [(arm, other) for arm in reinforced for other in ("always_add", "warm_start")]
    pairs += [tuple(reversed(reinforced))] if len(reinforced) == 2 else []
    rows: list[Row] = []
    for arm, other in pairs:
        for metric in ("f1", "evidence_kept", "bank_size"):
            ours, theirs = (by_question(seeds, each, metric) for each in (arm, other))
            gain = paired_gain([ours[task] for task in ours], [theirs[task] for task in ours])
            rows.append({"arm": f"{arm} minus {other}", "metric": metric, "seeds": len(seeds), **asdict(gain)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reader", required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--reward", choices=("both", *REWARDS), default="both")
    parser.add_argument("--steps", type=int, help="of reinforcement; the recipe's default where it is not given")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--output", type=Path, help="where the tables go; manager.json for both rewards")
    options = parser.parse_args()
    wanted = REWARDS if options.reward == "both" else (options.reward,)
    runs = {seed: {reward: finished(reward, seed, options) for reward in wanted} for seed in options.seeds}
    seeds = [measured(runs[seed]) for seed in options.seeds]
    (steps,) = {run.config["steps"] for found in runs.values() for run in found.values()}
    said = f"{steps} steps, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, options.seeds))}"
    first = seeds[0]["banks, test", "always_add", "f1"]
    notes = {
        "plain operations, test": f"generated cases as a memory meets them (generator {GENERATOR_VERSION}), held-out "
        f"people and sentences, of the kind imitated first and practised with the reward on operations; {said}.",
        "near-miss operations, test": f"harder cases, not trained on; {said}.",
        "banks, test": f"LongMemEval extractive test questions, 16 facts each, frozen reader {first['reader']}; {said}.",
    }
    tables = []
    for split, (title, _) in MEASURES.items():
        rows = table(seeds, split)
        tables.append({"title": title, "note": f"{rows[0]['n']} {notes[split]}", "rows": rows})
    note = f"Question by question, {first['n']} test questions; {said}."
    tables.append({"title": "Paired difference on those banks", "note": note, "rows": differences(seeds)})
    kinds = [
        {"arm": arm, "metric": metric, "mean": row["mean"], "n": row["n"], "split": split, "seed": seed}
        for seed, found in zip(options.seeds, seeds, strict=True)
        for (split, arm, metric), row in found.items()
        if metric.startswith("accuracy_") and split.endswith("test")
    ]
    dev = [
        {"reward": reward, "seed": seed, **{part: row[part] for part in ("step", "metric", "mean", "low", "high", "n")}}
        for seed in options.seeds
        for reward, run in runs[seed].items()
        for row in run.evals()
        if row.get("split") == "banks, dev"
    ]
    arms = [arm for arm in ARMS if ("banks, test", arm, "f1") in seeds[0]]
    executed = [
        {"arm": arm, "seed": seed, "operations": found["banks, test", arm, "f1"]["operations"]}
        for seed, found in zip(options.seeds, seeds, strict=True)
        for arm in arms
    ]
    found = {
        "seeds": options.seeds,
        "tables": tables,
        "by_operation": kinds,
        "dev": dev,
        "executed_on_banks": executed,
        "of_each_question": {arm: by_question(seeds, arm, "f1") for arm in arms},
        "configurations": {reward: run.config for reward, run in runs[options.seeds[0]].items()},
        "generator": GENERATOR_VERSION,
        "versions": versions(),
    }
    output = options.output or (HERE / "manager.json" if options.reward == "both" else None)
    if output is not None:
        output.write_text(json.dumps(found, indent=2) + "\n")
    for each in tables:
        print(each["title"])
        for row in each["rows"]:
            bounds = "" if row["low"] is None else f" [{row['low']:.3f}, {row['high']:.3f}]"
            print(f"  {row['arm']:55} {row['metric']:20} {row['mean']:.3f}{bounds}")


if __name__ == "__main__":
    main()
