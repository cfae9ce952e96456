"""Train a recipe over its seeds, and put its test questions side by side, with intervals.

    python -m benchmarks.learning.recipes strings|overwrite_reading|arithmetic [--runs runs] [--threads N] [--seeds 0,1,2]

Runs that are finished are read, not repeated; unfinished ones continue. The numbers go to `<recipe>.json` beside this
file. A level is the mean over questions of each question's value averaged over seeds; a gain is the paired difference of
two arms on the same questions; intervals are 95 % bootstrap intervals over questions.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from recollect.cli.catalogue import find_recipe
from recollect.evaluation.manager import estimate
from recollect.learning.progress import progress_for
from recollect.learning.run_folder import RunFolder, versions
from recollect.tasks.metrics import tokens

HERE = Path(__file__).parent
TERMS = {"strings": "same_words", "overwrite_reading": "token_f1", "arithmetic": "expression"}
"""The reward term whose value is reported."""
METRICS = {"strings": "accuracy", "overwrite_reading": "f1", "arithmetic": "accuracy"}
"""What that term is called among a run's measurements."""
BEFORE = {"strings": ("untrained", "imitated"), "overwrite_reading": ("untrained", "imitated")}
"""Arms that the trained one is compared with; the untrained model elsewhere."""


def finished(recipe: str, seed: int, runs: Path, threads: int) -> RunFolder:
    """The run of one seed with the recipe's defaults, trained now if it is not there."""
    module = find_recipe(recipe)
    config = module.Config(seed=seed, threads=threads)
    record = {"recipe": recipe, **config.model_dump(mode="json")}
    with RunFolder.create(runs / f"{recipe}-{seed}", record) as run:
        if run.result() is None:
            module.train(config, run, progress_for())
    return run


def measured_arms(run: RunFolder) -> list[tuple[str, str]]:
    """(test set, arm) of everything measured on test questions, in order."""
    return list(dict.fromkeys((str(row["split"]), str(row["arm"])) for row in run.evals() if row["split"] != "dev"))


def scores(run: RunFolder, split: str, arm: str, term: str) -> dict[str, float]:
    """The value of every question in the last measurement of an arm."""
    found: dict[str, float] = {}
    for stored in run.episodes(arm=f"{split}-{arm}".replace(" ", "_")):
        episode = stored.episode
        found[episode.task] = sum(each.value for each in episode.rewards if each.name == term)
    return found


def averaged(runs: list[RunFolder], split: str, arm: str, term: str) -> dict[str, float]:
    """Each question's value, averaged over seeds. Raises ValueError where seeds were asked different questions."""
    every = [scores(run, split, arm, term) for run in runs]
    if any(found.keys() != every[0].keys() for found in every):
        raise ValueError(f"the seeds were asked different questions: {split}, {arm}")
    return {task: sum(found[task] for found in every) / len(every) for task in every[0]}


def written_of(runs: list[RunFolder]) -> dict[str, Any]:
    """Whether the memory that an answer was given from held the answer: what reward has done to the writing itself."""
    held: dict[str, dict[str, float]] = {}
    for arm in (*BEFORE["overwrite_reading"], "trained"):
        of_runs = []
        for run in runs:
            found = {}
            for stored in run.episodes(arm=f"test questions-{arm}".replace(" ", "_")):
                episode = stored.episode
                memory = " ".join(tokens(episode.segments[-2].text))
                gold = " ".join(tokens(episode.expected[0]))
                found[episode.task] = float(f" {gold} " in f" {memory} ")
            of_runs.append(found)
        held[arm] = {task: sum(each[task] for each in of_runs) / len(of_runs) for task in of_runs[0]}
    gains = [
        row([held["trained"][task] - held[before][task] for task in held[before]], over=before)
        for before in BEFORE["overwrite_reading"]
    ]
    return {"written": [row(list(values.values()), arm=arm) for arm, values in held.items()], "written_gains": gains}


def row(values: list[float], **more: Any) -> dict[str, Any]:
    found = estimate(values)
    return {**more, "mean": found.mean, "low": found.low, "high": found.high, "n": found.n}


def record_of(recipe: str, runs: list[RunFolder]) -> dict[str, Any]:
    """Levels of every arm on every test set, gains over the arms before, and what a step cost."""
    term = TERMS[recipe]
    levels, gains = [], []
    for split, arm in measured_arms(runs[0]):
        values = averaged(runs, split, arm, term)
        each = [sum(found.values()) / len(found) for found in (scores(run, split, arm, term) for run in runs)]
        levels.append(row(list(values.values()), test=split, arm=arm, seeds=len(runs), by_seed=each))
    for split in dict.fromkeys(split for split, _ in measured_arms(runs[0])):
        after = averaged(runs, split, "trained", term)
        for before in BEFORE.get(recipe, ("untrained",)):
            base = averaged(runs, split, before, term)
            gains.append(row([after[task] - base[task] for task in after], test=split, over=before, seeds=len(runs)))
    metric = METRICS[recipe]
    dev = [
        [(line["step"], line["mean"]) for line in run.evals() if line["split"] == "dev" and line["metric"] == metric]
        for run in runs
    ]
    written = written_of(runs) if recipe == "overwrite_reading" else {}
    return {
        "what": f"{term} of the recipe {recipe}, greedy, test questions read once before and once after",
        "levels": levels,
        "gains": gains,
        "dev_by_seed": dev,
        **written,
        "reward_by_step": [[line["reward"] for line in run.metrics()] for run in runs],
        "sampled_by_step": [
            [line.get("curriculum/reward_sampled", line["reward"]) for line in run.metrics()] for run in runs
        ],
        "versions": versions(),
        "configuration": runs[0].config,
        "environment": runs[0].environment,
    }


def show(record: dict[str, Any]) -> None:
    console = Console()
    for title, key, name in (("Levels", "levels", "arm"), ("Gains", "gains", "over")):
        table = Table(title=title, box=None)
        for column in ("test", name, "mean", "95 % interval", "questions", "seeds"):
            table.add_column(column, justify="left" if column in ("test", name) else "right")
        for each in record[key]:
            interval = f"[{each['low']:.2f}, {each['high']:.2f}]"
            table.add_row(each["test"], each[name], f"{each['mean']:.3f}", interval, str(each["n"]), str(each["seeds"]))
        console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", choices=sorted(TERMS))
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--threads", type=int, default=0, help="0 measures which count is fastest")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    seeds = [int(each) for each in options.seeds.split(",")]
    runs = [finished(options.recipe, seed, options.runs, options.threads) for seed in seeds]
    record = record_of(options.recipe, runs)
    (options.output or HERE / f"{options.recipe}.json").write_text(json.dumps(record, indent=2) + "\n")
    show(record)


if __name__ == "__main__":
    main()
