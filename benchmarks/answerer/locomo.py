"""The LoCoMo protocol of Memory-R1 with a 135M answerer: conversation 0 trains, 1 validates, 2 to 9 test.

    python -m benchmarks.answerer.locomo --data FOLDER [--runs runs] [--threads N] [--memories 10]

The data (CC BY-NC 4.0) is read from FOLDER and never shipped. Every turn of a conversation is remembered with its date
and speaker; `memories` of them are retrieved per question. The same answers are scored against the published key and
against the corrected one. The published numbers beside ours are of models of 3B to 8B parameters with another
retriever and 60 memories per question: they say where the field stands, not what was compared.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from keepworth.agents.recall import Recall, evidence_share
from keepworth.episodes import Task
from keepworth.evaluation.manager import METRICS, Answers, answers
from keepworth.evaluation.statistics import estimate, paired_gain
from keepworth.learning.run_folder import RunFolder, versions
from keepworth.learning.watch.progress import progress_for
from keepworth.recipes import memory_r1
from keepworth.recipes.memory_r1_answerer import recall_for
from keepworth.recipes.training import kept_weights, settled_model, with_weights
from keepworth.tasks.locomo import locomo

HERE = Path(__file__).parent
PUBLISHED = {
    "Memory-R1 GRPO, LLaMA-3.1-8B": {"f1": 45.02, "bleu1": 37.51},
    "Memory-R1 GRPO, Qwen-2.5-7B": {"f1": 43.14, "bleu1": 36.44},
    "Memory-R1 GRPO, Qwen-2.5-3B": {"f1": 40.45, "bleu1": 32.48},
    "Qwen-2.5-3B, untrained": {"f1": 24.18, "bleu1": 19.46},
    "LoCoMo RAG, LLaMA-3.1-8B": {"f1": 11.41, "bleu1": 8.71},
}
"""Overall percentages on the same 1,307 questions, as printed in arXiv 2508.19828."""


def table_of(found: Answers, tasks: Sequence[Task]) -> dict[str, dict[str, Any]]:
    """Mean and interval of F1 and BLEU-1, overall and by category, against the key of `tasks`."""
    groups = {"overall": list(range(len(tasks)))}
    for index, task in enumerate(tasks):
        groups.setdefault(task.tags["type"], []).append(index)
    result: dict[str, dict[str, Any]] = {}
    for group, members in groups.items():
        result[group] = {"n": len(members)}
        for name in ("f1", "bleu1"):
            value = estimate([METRICS[name](found.episodes[i].answer, tasks[i].answers) for i in members])
            result[group][name] = {"mean": value.mean, "low": value.low, "high": value.high}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--memories", type=int, default=10)
    parser.add_argument("--questions", type=int, default=None, help="only so many test questions: to try it out")
    parser.add_argument("--output", type=Path, default=HERE / "locomo.json")
    options = parser.parse_args()
    config = memory_r1.Config(
        source="locomo",
        data=options.data,
        recall="retrieved",
        memories=options.memories,
        dates=True,
        threads=options.threads,
        questions=24,  # the curve and the controls of the run; the table below is over all 1,307
    )
    record = {"recipe": "memory_r1", **config.model_dump(mode="json")}
    progress = progress_for()
    with RunFolder.create(options.runs / "answerer-locomo-0", record) as run:
        if run.result() is None:
            memory_r1.train(config, run, progress)
        model = settled_model(config, run, progress)
    tasks = locomo("test", data=options.data)[: options.questions]
    corrected = locomo("test", data=options.data, corrected=True)[: options.questions]
    recall = recall_for(config)
    found = {"untrained": answered(model, tasks, recall, config)}
    found["trained"] = answered(with_weights(model, kept_weights(run, "answerer")), tasks, recall, config)
    gain = paired_gain(found["trained"].values["f1"], found["untrained"].values["f1"])
    result = {
        "what": "LoCoMo test conversations 2 to 9 without adversarial questions, SmolLM2-135M-Instruct, one seed",
        "published_key": {arm: table_of(each, tasks) for arm, each in found.items()},
        "corrected_key": {arm: table_of(each, corrected) for arm, each in found.items()},
        "gain_f1": {"mean": gain.mean, "low": gain.low, "high": gain.high, "n": gain.n},
        "evidence_recall": estimate([evidence_share(task, recall(task)) for task in tasks]).mean,
        "published_results_percent": PUBLISHED,
        "configuration": config.model_dump(mode="json"),
        "versions": versions(),
    }
    options.output.write_text(json.dumps(result, indent=2) + "\n")
    show(result)


def answered(model: Any, tasks: Sequence[Task], recall: Recall, config: memory_r1.Config) -> Answers:
    return answers(model, tasks, recall, config.max_tokens)


def show(result: dict[str, Any]) -> None:
    table = Table(title=result["what"], box=None)
    for column in ("category", "n", "untrained F1", "trained F1", "untrained BLEU-1", "trained BLEU-1", "corrected F1"):
        table.add_column(column, justify="left" if column == "category" else "right")
    keys = result["published_key"]
    for category, row in keys["trained"].items():
        cells = [
            keys["untrained"][category]["f1"],
            row["f1"],
            keys["untrained"][category]["bleu1"],
            row["bleu1"],
            result["corrected_key"]["trained"][category]["f1"],
        ]
        table.add_row(category, str(row["n"]), *(f"{100 * cell['mean']:.1f}" for cell in cells))
    for name, row in PUBLISHED.items():
        table.add_row(f"[dim]published: {name}[/dim]", "1307", "", f"{row['f1']:.1f}", "", f"{row['bleu1']:.1f}", "")
    Console().print(table)


if __name__ == "__main__":
    main()
