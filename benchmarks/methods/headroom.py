"""Asks of each benchmark whether it needs a memory, whether it can be guessed, and whether words alone find all of it.

python -m benchmarks.methods.headroom --data FOLDER [NAME ...] [--questions 100]

No language model answers. Guessing is judged by the benchmark's own verifier: the key, a random option (or the answer to another
question), and rules that remember nothing. Finding is the share of marked evidence among what is shown, of a budget of 512 words:
the evidence alone, entries at random, the newest, and BM25. Means are over clusters (conversations, books, questions). What a
benchmark claims, and of which of these numbers, stands in `rules.py`.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.methods.rules import ANOTHER
from benchmarks.methods.worlds import alike
from benchmarks.methods.write import arm, begin, gap, measuring, write
from benchmarks.record import arguments
from keepworth.base.errors import KeepworthError
from keepworth.evaluation.harness import Conditions, Measurement, Row
from keepworth.evaluation.named_systems import maker
from keepworth.records.episode import Task
from keepworth.worlds.benchmark import Benchmark, benchmarks, cluster_of
from keepworth.worlds.data_files import MissingData
from keepworth.worlds.splits import draw_order
from keepworth.worlds.verifiers import verify

KEY, CHANCE, EVIDENCE, RANDOM, NEWEST, WORDS = "the key", "chance", "evidence alone", "random", "latest", "bm25"


def main() -> None:
    parser = measuring(arguments(__doc__, json=False), smallest="5 questions that evidence is looked for")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--data", type=Path, help="the folder that holds published sets")
    parser.add_argument("--questions", type=int, default=100, help="that evidence is looked for")
    options = parser.parse_args()
    begin(options)
    options.questions = 5 if options.smallest else options.questions
    for name in options.names or benchmarks():
        command = f"python -m benchmarks.methods.headroom {name} --data DATA --questions {options.questions}"
        made = benchmarks()[name]
        data = None if made.shipped else options.data
        try:
            train, test = made("train", data=data), made("test", data=data)
        except MissingData:
            write(name, command, "Its data is not on our machines; its loader was tested only on made-up files.")
            continue
        try:
            write(name, command, **judge(made, train, test, options.questions))
        except KeepworthError as error:
            write(name, command, f"Not tried: {error.message}")


def judge(made: Benchmark, train: Sequence[Task], test: Sequence[Task], questions: int) -> dict[str, Any]:
    """The fields of the evidence, by the rule at the top of this file."""
    guesses = {name: by_cluster((cluster_of(task), score) for task, score in zip(test, scores, strict=True))
               for name, scores in guess(train, test).items()}  # fmt: skip
    marked = [task for task in test if any(turn.evidence for session in task.sessions for turn in session.turns)]
    drawn = sorted(marked, key=lambda task: draw_order("headroom", task.key))[:questions]
    shown = {name: find(name, drawn) for name in (EVIDENCE, "none", RANDOM, NEWEST, WORDS)} if drawn else {}
    means = {name: float(np.mean(values)) for name, values in (guesses | shown).items()}
    arms = {name: arm(f"answer: {name}", values) for name, values in guesses.items()}
    arms |= {name: arm(f"evidence shown: {name}", values) for name, values in shown.items()}
    rule = max((name for name in guesses if name != KEY), key=means.__getitem__)
    sentence = f"Without memory {means[rule]:.2f} ({rule}), chance {means[CHANCE]:.2f}, the key {means[KEY]:.3f}"
    comparisons = []
    if shown:
        plain = max((RANDOM, NEWEST), key=means.__getitem__)
        comparisons = [gap(f"{plain}: {WORDS}", shown[WORDS], shown[plain])]
        sentence += (
            f"; evidence in 512 words: random {means[RANDOM]:.2f}, newest {means[NEWEST]:.2f}, BM25 {means[WORDS]:.2f}, "
            f"known {means[EVIDENCE]:.2f}."
        )
    else:
        sentence += ". No evidence is marked: what solved examples bring is a question for a model."
    return {
        "model": "none: rules answer, and evidence is counted",
        "n": len(test),
        "seeds": 1,
        "unit": f"score of an answer over {len(test)} questions; share of evidence shown over {len(drawn)}; mean over clusters",
        "arms": list(arms.values()),
        "comparisons": comparisons,
        "controls": [name for name in arms if name not in (KEY, EVIDENCE, WORDS)],
        "sentence": " ".join(filter(None, (sentence, ANOTHER.get(made.name)))),
    }


def guess(train: Sequence[Task], test: Sequence[Task]) -> dict[str, list[float]]:
    """Scores of answers that no memory is needed for."""
    draw = random.Random(0)
    usual = Counter(answer for task in train for answer in task.answers[:1]).most_common(1)[0][0]
    rules: dict[str, Callable[[Task], str]] = {
        KEY: lambda task: task.answers[0],
        CHANCE: lambda task: draw.choice(sorted(task.options)) if task.options else draw.choice(test).answers[0],
        "the commonest answer of train": lambda task: usual,
    }
    if any(task.options for task in test):
        rules["most words of the question"] = lambda task: max(
            task.options, key=lambda one: alike(task.input, one), default=""
        )
        rules["the longest option"] = lambda task: max(task.options, key=len, default="")
    return {name: [verify(task, rule(task)) for task in test] for name, rule in rules.items()}


def find(name: str, tasks: Sequence[Task]) -> list[float]:
    """The share of evidence that a system shows, by cluster."""
    rows: list[Row] = []
    setting = "oracle" if name == EVIDENCE else "frozen"
    system = "none" if name == EVIDENCE else name
    conditions = Conditions(setting=setting)
    Measurement(system, maker(system, no_encoder), tasks, conditions, None, keep=rows.append).ask_all()
    return by_cluster((row.cluster, row.recall.get("shown", 0.0)) for row in rows)


def by_cluster(scores: Iterable[tuple[str, float]]) -> list[float]:
    """The mean of each cluster, in order of their names."""
    clusters: defaultdict[str, list[float]] = defaultdict(list)
    for cluster, score in scores:
        clusters[cluster].append(score)
    return [float(np.mean(clusters[cluster])) for cluster in sorted(clusters)]


def no_encoder() -> Any:
    raise AssertionError("words alone are compared")


if __name__ == "__main__":
    main()
