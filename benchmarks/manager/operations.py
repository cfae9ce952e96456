"""What reinforcement adds to the manager's warm start, over seeds: right operations, and the banks it keeps.

    python -m benchmarks.manager.operations [--runs runs] [--reader NAME] [--seeds 0 1 2] [--threads N] [--set key=value]

Each seed is a run of `keepworth train memory_r1 --role manager --set maintained=false`; finished runs are read, unfinished
ones continue. Test cases are read before the warm start, after it, and after reinforcement. Then the manager of each seed
builds banks out of test conversations, which a frozen reader answers from: beside the append-only memory that says whether
what it learned harms. --reader names a finished answerer run; without it the untrained model reads.

Intervals and differences are case by case: the mean over the seeds of each case, bootstrap over cases.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keepworth.agents.manager import Choose
from keepworth.evaluation.manager import always, answer_rows, chosen_by, maintained_answers
from keepworth.evaluation.statistics import estimate
from keepworth.learning.run_folder import RunFolder, versions
from keepworth.learning.watch.progress import Progress, progress_for
from keepworth.methods.recipes import memory_r1
from keepworth.methods.recipes._memory_r1.manager import Measures, reading_of
from keepworth.recipes.configuration import resolve
from keepworth.recipes.training import kept_weights, settled_model, with_weights
from keepworth.tasks.longmemeval import longmemeval

HERE = Path(__file__).parent
ARMS = ("untrained", "warm_start", "reinforced")
SETS = ("plain operations, test", "near-miss operations, test")
BANKS = "banks.json"
"""In a run's folder: what was answered from the banks of its manager."""


def finished(seed: int, options: argparse.Namespace, progress: Progress) -> RunFolder:
    config = resolve(
        memory_r1.Config,
        base={"role": "manager", "maintained": False, "seed": seed, "threads": options.threads},
        assignments=options.set,
    )
    assert isinstance(config, memory_r1.Config)
    record = {"recipe": "memory_r1", **config.model_dump(mode="json")}
    with RunFolder.create(options.runs / f"operations-{seed}", record) as run:
        if run.result() is None:
            memory_r1.METHOD.make.train(config, run, progress)
    return run


def banks(name: str, run: RunFolder, reader: str | None, choose: Choose | None, progress: Progress) -> dict[str, Any]:
    """Rows of the real measure on test conversations, kept in the run's folder. choose: None is the run's manager."""
    kept = run.path / f"{name}.{BANKS}"
    if kept.is_file():
        found: dict[str, Any] = json.loads(kept.read_text())
        return found
    own = {key: value for key, value in run.config.items() if key not in ("recipe", "maintained", "reader")}
    config = memory_r1.Config(**own, maintained=True, reader=reader)
    reading = reading_of(config, run)
    if choose is None:
        choose = chosen_by(with_weights(settled_model(config, run, progress), kept_weights(run, "manager")))
    frozen = Measures(config, run, None, progress, reading).reader  # type: ignore[arg-type]
    tasks = longmemeval("test", distractors=config.distractors, extractive=True, abstention=False)
    progress.phase(f"building banks: {name}")
    answered = maintained_answers(choose, tasks, frozen, reading.root)
    rows = {row["metric"]: row for row in answer_rows(name, answered)}
    found = {"reader": answered.reader, "operations": dict(answered.operations), "rows": rows}
    kept.write_text(json.dumps(found, indent=2, default=str) + "\n")
    return found


def averaged(values: list[Mapping[str, float]]) -> dict[str, float]:
    return {key: sum(each[key] for each in values) / len(values) for key in values[0]}


def row(values: list[float], **more: Any) -> dict[str, Any]:
    found = estimate(values)
    return {**more, "mean": found.mean, "low": found.low, "high": found.high, "n": found.n}


def operations_of(runs: list[RunFolder]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Levels of every arm on every set, and what reinforcement adds to the arms before it."""
    levels, gains = [], []
    for split in SETS:
        exact: dict[str, dict[str, float]] = {}
        for arm in ARMS:
            found = [
                next(
                    each
                    for each in run.evals()
                    if (each["split"], each["arm"], each["metric"]) == (split, arm, "operation_accuracy")
                )
                for run in runs
            ]
            exact[arm] = averaged([each["values"] for each in found])
            by_seed = [each["mean"] for each in found]
            levels.append(row(list(exact[arm].values()), test=split, arm=arm, seeds=len(runs), by_seed=by_seed))
        for arm in ARMS[:-1]:
            differences = [exact["reinforced"][case] - exact[arm][case] for case in exact[arm]]
            gains.append(row(differences, test=split, over=arm, seeds=len(runs)))
    return levels, gains


def banks_of(
    runs: list[RunFolder], reader: str | None, progress: Progress
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The real measure beside the append-only memory, question by question; and who read, and what was executed."""
    kept = [banks("reinforced", run, reader, None, progress) for run in runs]
    appended = banks("always_add", runs[0], reader, always("ADD"), progress)
    real = []
    for metric in ("f1", "evidence_kept", "bank_size"):
        ours = averaged([each["rows"][metric]["values"] for each in kept])
        theirs = appended["rows"][metric]["values"]
        by_seed = [each["rows"][metric]["mean"] for each in kept]
        real.append(row(list(theirs.values()), arm="always_add", metric=metric, seeds=1))
        real.append(row(list(ours.values()), arm="reinforced", metric=metric, seeds=len(runs), by_seed=by_seed))
        difference = [ours[task] - theirs[task] for task in theirs]
        real.append(row(difference, arm="reinforced minus always_add", metric=metric, seeds=len(runs)))
    executed = [each["operations"] for each in kept]
    return real, {"reader": appended["reader"], "executed_on_banks": executed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--reader")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="key=value")
    parser.add_argument("--no-banks", action="store_true", help="operations alone: no banks are built (minutes a seed)")
    parser.add_argument("--output", type=Path, default=HERE / "operations.json")
    options = parser.parse_args()
    progress = progress_for()
    runs = [finished(seed, options, progress) for seed in options.seeds]
    levels, gains = operations_of(runs)
    real, built = ([], {}) if options.no_banks else banks_of(runs, options.reader, progress)
    dev = [
        [{part: each[part] for part in ("step", "arm", "split", "metric", "mean")} for each in run.evals()
         if each["split"].endswith("dev") and each["metric"] == "operation_accuracy"]
        for run in runs
    ]  # fmt: skip
    record = {
        "what": "right memory operations, greedy, test cases read before, between and after; then banks of test conversations",
        "levels": levels,
        "gains": gains,
        "banks": real,
        **built,
        "dev_by_seed": dev,
        "reward_by_step": [[each["reward"] for each in run.metrics()] for run in runs],
        "sampled_by_step": [[each.get("curriculum/reward_sampled") for each in run.metrics()] for run in runs],
        "versions": versions(),
        "configuration": runs[0].config,
        "environment": runs[0].environment,
    }
    options.output.write_text(json.dumps(record, indent=2) + "\n")
    for each in (*levels, *gains, *real):
        print(*(each.get(key, "") for key in ("test", "arm", "over", "metric")), f"{each['mean']:.3f}",
              f"[{each['low']:.3f}, {each['high']:.3f}]", each["n"])  # fmt: skip


if __name__ == "__main__":
    main()
