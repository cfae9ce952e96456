"""Runs a whole evaluation: opens the questions, lists the arms, and measures all of them into a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from keepworth.base.errors import KeepworthError
from keepworth.evaluation.evaluation_page import write_page
from keepworth.evaluation.harness import MOST, BenchmarkReader, Conditions, EvaluationFolder, Measurement, Row
from keepworth.evaluation.judge import Judge
from keepworth.evaluation.power import fewest, over_questions, plan
from keepworth.evaluation.reading import ChatReader, KeptAnswers
from keepworth.evaluation.summary import sum_up
from keepworth.evaluation.system import LIVE, Maker, NeverAnswered
from keepworth.records.episode import Task
from keepworth.registry import methods
from keepworth.training.run_folder import versions
from keepworth.worlds.benchmark import (
    Benchmark,
    cluster_of,
    digest,
    find_benchmark,
    read_settings,
    refuse_leaks,
    scoring,
)
from keepworth.worlds.data_files import VARIABLE
from keepworth.worlds.json_lines import json_lines
from keepworth.worlds.splits import SPLITS, draw_order

AT_ONCE = 4
"""Answers of a model in this process that are stored together."""


def evaluate(
    tasks: Sequence[Task],
    arms: Sequence[tuple[str, str]],
    makers: Mapping[str, Maker],
    folder: Path,
    identity: Mapping[str, Any],
    *,
    prepare: Callable[[BenchmarkReader], Sequence[Task]] | None = None,
    reader: BenchmarkReader | None = None,
    judge: Judge | None = None,
    seeds: int = 1,
    tokens: int = 512,
    words: int = 60,
    announce: Callable[[str], None] = lambda text: None,
    progress: Callable[[str, int, int], None] = lambda arm, done, total: None,
) -> tuple[dict[str, Any], dict[str, NeverAnswered]]:
    """Asks every arm every question, once for each seed, and writes rows, summary and page into the folder.

    A second call continues with what is missing.

    Args:
        tasks: The questions.
        arms: (system, setting) pairs, see `arms_of`.
        makers: The function that makes each system, by its name.
        folder: Where rows, summary and page are written.
        identity: What the evaluation measures, see `open_questions`; it must be the same when the evaluation is continued.
        prepare: Returns the tasks as they are asked, once the reader is ready; None for `tasks` as they are.
        reader: Answers the questions; None to measure only what is found.
        judge: A model that judges answers, beside the metrics; None for no judge.
        seeds: How often each question is asked.
        tokens: The budget of what a memory may show for a question.
        words: The most words of a stored window.
        announce: Receives the statistical power of the questions, before any is asked.
        progress: Receives the arm, how many questions are done, and of how many.

    Returns:
        The content of `summary.json`, and the systems that never answered, with the reasons; they are left out.

    Raises:
        KeepworthError: A setting needs a reader, or the folder holds another evaluation.
    """
    if reader is None and (unpaid := [setting for _, setting in arms if setting in LIVE]):
        raise KeepworthError(
            "without a reader no answer earns anything.",
            f"Leave --setting {','.join(dict.fromkeys(unpaid))} out, or name a reader.",
        )
    identity = {
        **identity,
        "tokens": tokens,
        "words": words,
        "most": MOST,
        "reader": reader.identity if reader is not None else "none",
    }
    planned = describe_plan(tasks, len(arms) - 1)
    if reader is not None:
        reader = KeptAnswers(reader, folder.parent / "answers", 1 if isinstance(reader, ChatReader) else AT_ONCE)
    record = EvaluationFolder(folder, {**identity, "versions": versions()})
    announce(planned)
    if prepare is not None and reader is not None:
        tasks = prepare(reader)
    jobs = [(name, Conditions(setting, seed, tokens, words)) for seed in range(seeds) for name, setting in arms]
    answered = {job: record.done(*job) for job in jobs}
    left_out: dict[str, NeverAnswered] = {}
    finished, total = sum(map(len, answered.values())), len(jobs) * len(tasks)
    for name, conditions in jobs:
        if name in left_out:
            continue
        arm = f"{name} {conditions.setting}"
        progress(arm, finished, total)

        def keep(row: Row, arm: str = arm) -> None:
            nonlocal finished
            record.keep(row)
            finished += 1
            progress(arm, finished, total)

        try:
            measurement = Measurement(
                name, makers[name], tasks, conditions, reader, keep=keep, note=record.note, judge=judge
            )
            measurement.ask_all(answered[name, conditions])
        except NeverAnswered as reason:  # the others are measured all the same
            left_out[name] = reason
    conditions_asked = {(name, conditions.setting, conditions.seed) for name, conditions in jobs}
    rows = [row for row in record.read() if (row.system, row.setting, row.seed) in conditions_asked]
    summary = {**identity, "versions": versions(), "planned": planned, **sum_up(rows, record.costs())}
    (folder / "summary.json").write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_page(folder, summary, rows, tasks)
    return summary, left_out


def open_questions(
    name: str, split: str, data: Path | None, assign: Sequence[str], limit: int
) -> tuple[Benchmark, list[Task], dict[str, Any]]:
    """Opens a benchmark, and returns it, its questions, and the identity that records which they are. Raises KeepworthError for
    an option that has no effect on this benchmark.

    Args:
        name: The name of a benchmark, or a file of JSON lines.
        split: The side whose questions are asked.
        data: The folder of its data; None for what the package ships.
        assign: Settings of the benchmark, as words of the form NAME=VALUE.
        limit: The most questions; 0 for all.
    """
    # A folder from the environment variable serves all benchmarks; only one that was given here has to have an effect.
    folder = os.environ.get(VARIABLE)
    meant = data is not None and not (folder and data == Path(folder))
    if name.endswith((".jsonl", ".jsonl.gz")):
        for option in (["--data"] if meant else []) + (["--set"] if assign else []):
            raise KeepworthError(f"{option} has no effect on {name}, a file of questions of your own.", "Leave it out.")
        file = Path(name)
        benchmark = Benchmark(file.name.removesuffix(".gz").removesuffix(".jsonl"), json_lines)
        tasks = benchmark(split, data=file)
        refuse_leaks({side: [t for t in benchmark.load(side, data=file) if t.tags["split"] == side] for side in SPLITS})
        dials: dict[str, Any] = {}
    elif name in methods("world"):
        raise KeepworthError(f"{name} is a stream of tasks.", f"keepworth eval stream --streams {name}")
    else:
        benchmark = find_benchmark(name)
        if meant and benchmark.shipped:
            raise KeepworthError(f"--data has no effect on {name}, which comes with the package.", "Leave it out.")
        dials = read_settings(benchmark.settings(), assign, f"benchmark {benchmark.name!r}")
        tasks = benchmark(split, data=None if benchmark.shipped else data, **dials)
    whole = len(tasks)
    if limit and limit < whole:
        limited = set(sorted((task.key for task in tasks), key=lambda key: draw_order("limit", key))[:limit])
        tasks = [task for task in tasks if task.key in limited]
    identity = {
        "benchmark": benchmark.name,
        "split": split,
        "dials": {**benchmark.dials, **dials},
        "questions": len(tasks),
        "of": whole,
        "data": digest(tasks),
        "scoring": scoring(tasks),
    }
    return benchmark, tasks, identity


def many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def describe_plan(tasks: Sequence[Task], comparisons: int) -> str:
    """Describes the statistical power of the questions, before they are asked."""
    clusters, unit = len({cluster_of(task) for task in tasks}), "clusters"
    needed = fewest(comparisons)
    if clusters == 1 and len(tasks) > 1:  # one memory: its questions are the units, and the verdict is for it alone
        clusters, unit = len(tasks), "questions of this one memory"
    if clusters < needed and unit != "clusters":
        return (
            f"{many(clusters, 'question')} of one memory, too few for a verdict: {needed} are needed. What follows says how it "
            "went, not what holds."
        )
    if clusters < needed:
        among = f" of {comparisons} comparisons" if comparisons > 1 else ""
        return (
            f"{many(len(tasks), 'question')} in {many(clusters, 'cluster')}, too few for a verdict{among}: {needed} clusters are "
            "needed. What follows says how it went, not what holds."
        )
    return plan(
        over_questions(len(tasks), clusters),
        clusters,
        comparisons=max(1, comparisons),
        source="declared: one in 4 questions is answered by one alone",
        unit=unit,
    ).text


def arms_of(names: Sequence[str], settings: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs systems with settings. No memory is the same under all settings and is asked once, and the oracle is the same for all
    systems."""
    alone = [("none", "frozen")] if "none" in names and "frozen" not in settings else []
    for setting in dict.fromkeys(settings):
        if setting == "oracle":
            alone.append(("none", setting))
        else:
            alone += [(name, setting) for name in names if name != "none" or setting == "frozen"]
    return alone
