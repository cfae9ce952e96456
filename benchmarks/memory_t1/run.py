"""Does it help date questions to prune by time, and then to choose by what reward taught? The claim of Memory-T1 (arXiv
2512.20092), in small, with its controls.

    python -m benchmarks.memory_t1.run --data DATA [--vectors FILE]
    python -m benchmarks.memory_t1.run --data DATA --folds 5    # training and dev questions alone

Date questions are those in which rules read a window of time (`memory.time_window`), which never see the key. Two sets:

* LongMemEval, 50 sessions of others beside the evidence. As it comes, those sessions are of other years, and time would give
  the evidence away; so each is dated anew, as long before the question as the evidence of some other question of its side is.
  Drawn for each of three seeds. All that is tuned or trained is so on the training side of it.
* LoCoMo, by path: the eight test conversations. Nothing is tuned or trained on it.

Evidence recall@5: share of the turns marked as evidence among the first five. What is asked on test is asked once, by one run of
this command; it leaves memory_t1.json beside this file, with no text of a benchmark in it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from keepworth.evaluation.statistics import family, pooled_estimate
from keepworth.memory.time_window import TimeWindow, window_of
from keepworth.methods.benchmarks.time_ranges import time_ranges
from keepworth.methods.studies.memory_t1 import (
    WEIGHTS,
    DateQuestion,
    by_words,
    features_of,
    of_longmemeval,
    pool_of,
    prepared,
    recall,
    training,
    within,
)
from keepworth.models.encoders import encoder
from keepworth.recipes.slates import (
    EvidencePolicy,
    EvidenceQuestion,
    Widening,
    train_evidence,
)
from keepworth.tasks.benchmark import cluster_of
from keepworth.tasks.locomo import locomo
from keepworth.tasks.splits import draw_order

HERE = Path(__file__).parent
SEEDS = (0, 1, 2)
DISTRACTORS = 50
BEFORE, AFTER = (0.0, 3.0, 14.0, 1e6), (0.0, 3.0, 7.0, 30.0, 90.0, 1e6)
LINEAR = {"meaning": (0.0, 0.5, 1.0, 2.0), "near": (0.0, 0.25, 0.5, 1.0), "days": (3.0, 14.0, 60.0), "new": (0.0, 0.25)}


Task = Any


def of_locomo(split: str, data: str, sample: int) -> list[DateQuestion]:
    """The first `sample` date questions, in an order that says nothing."""
    tasks = [each for each in locomo(split, data=data) if window_of(each.input, each.asked_at) is not None]
    drawn = {each.key for each in sorted(tasks, key=lambda each: draw_order("sample", each.key))[:sample]}
    made = [prepared(each, cluster_of(each)) for each in tasks if each.key in drawn]
    return [each for each in made if each is not None]


# Ways to choose: each ranks the entries of a question.

Ranking = Callable[[DateQuestion], list[int]]


class Vectors:
    """Of texts, made once; kept in a file where one is named."""

    def __init__(self, file: Path | None) -> None:
        self._encoder, self._file = encoder("minilm"), file
        self._made: dict[str, Any] = {}
        if file is not None and file.exists():
            with np.load(file, allow_pickle=False) as stored:
                self._made = dict(zip(stored["texts"].tolist(), stored["vectors"], strict=True))

    def __call__(self, texts: Sequence[str]) -> Any:
        new = [each for each in dict.fromkeys(texts) if each not in self._made]
        if new:
            self._made.update(zip(new, self._encoder.encode(new), strict=True))
        return np.stack([self._made[each] for each in texts])

    def keep(self) -> None:
        if self._file is not None:
            np.savez(self._file, texts=np.array(list(self._made)), vectors=np.stack(list(self._made.values())))


def inputs(question: DateQuestion, pool: Sequence[int], vectors: Vectors) -> Any:
    """Features of the entries of a pool, made once."""
    if tuple(pool) not in question.made:
        question.made[tuple(pool)] = _inputs(question, pool, vectors)
    return question.made[tuple(pool)]


def _inputs(question: DateQuestion, pool: Sequence[int], vectors: Vectors) -> Any:
    near = vectors([question.entries[each].text for each in pool]) @ vectors([question.text])[0]
    return features_of(question, pool, near)


def random_window(question: DateQuestion, seed: int) -> TimeWindow:
    """As wide as the predicted one, anywhere between the first entry and the question."""
    assert question.window is not None
    draws = random.Random(f"{seed}/{question.key}")
    last = max(question.said_at)
    length = min(question.window.end - question.window.start, last - min(question.said_at))
    start = min(question.said_at) + draws.random() * (last - length - min(question.said_at))
    return TimeWindow(start, start + length)


def newest(question: DateQuestion) -> list[int]:
    return sorted(range(len(question.entries)), key=lambda each: question.said_at[each], reverse=True)


def linear(question: DateQuestion, weights: Mapping[str, float], x: Any, pool: Sequence[int]) -> list[int]:
    """The statistician's rival: BM25, cosine, nearness to the window and recency, added up. x: features of the pool."""
    gaps = np.array(
        [0.0 if question.window is None else abs(question.window.gap(question.said_at[each])) for each in pool]
    )
    score = (
        x[:, 0]
        + weights["meaning"] * x[:, 2]
        + weights["near"] * np.exp(-gaps / weights["days"])
        + weights["new"] * x[:, 11]
    )
    return [pool[each] for each in np.argsort(-score, kind="stable")]


# What is tuned and trained, on training questions alone.


def tuned_widening(train: Sequence[DateQuestion]) -> Widening:
    dated = [each for each in train if each.window is not None]
    grid = [Widening(before, after) for before, after in itertools.product(BEFORE, AFTER)]
    return max(grid, key=lambda own: float(np.mean([recall(q, within(q.window, q, own)) for q in dated])))


def tuned_linear(train: Sequence[DateQuestion], widening: Widening, vectors: Vectors) -> dict[str, float]:
    """Over the candidates that the policy has."""
    dated = [each for each in train if each.window is not None]
    pools = [pool_of(each, widening) for each in dated]
    xs = [inputs(each, pool, vectors) for each, pool in zip(dated, pools, strict=True)]
    grid = [dict(zip(LINEAR, values, strict=True)) for values in itertools.product(*LINEAR.values())]
    return max(
        grid,
        key=lambda own: float(
            np.mean([recall(q, linear(q, own, x, pool)) for q, x, pool in zip(dated, xs, pools, strict=True)])
        ),
    )


def marked(question: DateQuestion, pool: Sequence[int], x: Any) -> EvidenceQuestion:
    """The upper bound: what is paid is recall itself."""
    return EvidenceQuestion(x, lambda slate: recall(question, [pool[each] for each in slate]))


REWARDS: dict[str, Mapping[str, float]] = {
    "learned": WEIGHTS,
    **{f"learned, no {name}": {k: v for k, v in WEIGHTS.items() if k != name} for name in WEIGHTS},
    "learned, answer alone": {"answer": 1.0},
}


def fitted(
    train: Sequence[DateQuestion], widening: Widening, seed: int, vectors: Vectors
) -> dict[str, tuple[EvidencePolicy, Widening]]:
    """Every trained arm, with the widening of its pool."""
    pools = [pool_of(each, widening) for each in train]
    xs = [inputs(each, pool, vectors) for each, pool in zip(train, pools, strict=True)]
    made = {}
    for name, weights in REWARDS.items():
        asked = [training(*each, weights) for each in zip(train, pools, xs, strict=True)]
        made[name] = (train_evidence(asked, seed=seed), widening)
        if name == "learned":
            made["permuted rewards"] = (train_evidence(asked, seed=seed, permuted=True), widening)
    made["paid by recall"] = (
        train_evidence([marked(*each) for each in zip(train, pools, xs, strict=True)], seed=seed),
        widening,
    )
    return made


def arms(
    widening: Widening,
    weights: Mapping[str, float],
    policies: Mapping[str, tuple[EvidencePolicy, Widening]],
    seed: int,
    vectors: Vectors,
) -> dict[str, Ranking]:
    def chosen(policy: EvidencePolicy, own: Widening) -> Ranking:
        def rank(question: DateQuestion) -> list[int]:
            pool = pool_of(question, own)
            return [pool[each] for each in policy.ranked(inputs(question, pool, vectors))]

        return rank

    def rival(question: DateQuestion) -> list[int]:
        pool = pool_of(question, widening)
        return linear(question, weights, inputs(question, pool, vectors), pool)

    exact = Widening(0.0, 0.0)
    return {
        "newest": newest,
        "no pruning": by_words,
        "random window": lambda question: within(random_window(question, seed), question, exact),
        "predicted window": lambda question: within(question.window, question, exact),
        "predicted window, widened": lambda question: within(question.window, question, widening),
        "gold window": lambda question: within(question.range, question, exact),
        "tuned linear": rival,
        **{name: chosen(*each) for name, each in policies.items()},
    }


# The run.

PAIRS = (
    ("gold window", "no pruning"),
    ("predicted window", "no pruning"),
    ("predicted window, widened", "no pruning"),
    ("predicted window", "random window"),
    ("learned", "no pruning"),
    ("learned", "predicted window, widened"),
    ("learned", "tuned linear"),
    ("learned", "permuted rewards"),
    *(("learned", name) for name in REWARDS if name != "learned"),
)
Scores = dict[str, dict[str, list[float]]]


def summed(scores: Scores, clusters: Mapping[str, str], seeds: Sequence[int]) -> dict[str, Any]:
    """scores: by arm and question, one per seed. Intervals are over clusters; each question is averaged over seeds first."""
    means = {arm: {key: float(np.mean(values)) for key, values in own.items()} for arm, own in scores.items()}
    keys = list(clusters)
    record: dict[str, Any] = {
        "questions": len(keys),
        "clusters": len(set(clusters.values())),
        "seeds": list(seeds),
        "arms": {},
    }
    for arm, own in means.items():
        found = pooled_estimate([own[key] for key in keys], [clusters[key] for key in keys], within=(0.0, 1.0))
        each = [float(np.mean([scores[arm][key][n] for key in keys])) for n in range(len(seeds))]
        record["arms"][arm] = {"mean": found.mean, "low": found.low, "high": found.high, "each": each}
    named = [
        (f"{a} - {b}", [means[a][key] - means[b][key] for key in keys]) for a, b in PAIRS if a in means and b in means
    ]
    compared = family(named, [[clusters[key] for key in keys]] * len(named), within=(-1.0, 1.0))
    record["pairs"] = [
        {"name": each.name, "difference": each.difference, "low": each.low, "high": each.high, "p": each.adjusted}
        for each in compared
    ]
    return record


def ranges(data: str) -> dict[str, Any]:
    """How well rules find the window that Time-Dialog's annotation gives."""
    record = {}
    for split in ("dev", "test"):
        overlaps, exact, silent = [], 0, 0
        for task in time_ranges(split, data=data):
            window = window_of(task.input.split("? Which interval of time")[0])
            start, end = map(datetime.fromisoformat, task.answers[0].split("/"))
            overlaps.append(0.0 if window is None else window.overlap(TimeWindow(start, end)))
            exact, silent = exact + (str(window) == task.answers[0]), silent + (window is None)
        met = pooled_estimate(overlaps, [str(n) for n in range(len(overlaps))], within=(0.0, 1.0))
        record[split] = {
            "questions": len(overlaps), "overlap": met.mean, "low": met.low, "high": met.high,
            "exact": exact / len(overlaps), "no window": silent / len(overlaps),
        }  # fmt: skip
    return record


def folds(count: int, vectors: Vectors) -> dict[str, Any]:
    """Training and dev questions, each asked by what the others taught. Tied questions are in one fold."""
    scores: Scores = {}
    clusters: dict[str, str] = {}
    for seed in SEEDS:
        every = [each for split in ("train", "dev") for each in of_longmemeval(split, seed, undated=True)]
        for fold in range(count):
            mine = [int(draw_order("fold", each.cluster), 16) % count == fold for each in every]
            train = [each for each, own in zip(every, mine, strict=True) if not own]
            asked = [each for each, own in zip(every, mine, strict=True) if own and each.window is not None]
            widening = tuned_widening(train)
            weights = tuned_linear(train, widening, vectors)
            print(seed, fold, len(train), len(asked), widening, weights, flush=True)
            ranked = arms(widening, weights, fitted(train, widening, seed, vectors), seed, vectors)
            _score(scores, clusters, asked, ranked)
    return summed(scores, clusters, SEEDS)


def _score(
    scores: Scores, clusters: dict[str, str], asked: Sequence[DateQuestion], ranked: Mapping[str, Ranking]
) -> None:
    for question in asked:
        clusters[question.key] = question.cluster
        for arm, rank in ranked.items():
            scores.setdefault(arm, {}).setdefault(question.key, []).append(recall(question, rank(question)))


def show(record: Mapping[str, Any]) -> None:
    for arm, own in record["arms"].items():
        print(
            f"{arm:28} {own['mean']:.3f} [{own['low']:.3f}, {own['high']:.3f}]",
            [round(each, 3) for each in own["each"]],
        )
    for own in record["pairs"]:
        print(f"{own['name']:56} {own['difference']:+.3f} [{own['low']:+.3f}, {own['high']:+.3f}] p {own['p']:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--folds", type=int, default=0)
    parser.add_argument("--vectors", type=Path, help="a file in which vectors are kept, to go on sooner")
    parser.add_argument("--save", type=Path, help="a file for the policy of the first seed: the system memory-t1:FILE")
    parser.add_argument("--sample", type=int, default=104, help="how many of LoCoMo's date questions")
    options = parser.parse_args()
    vectors, began = Vectors(options.vectors), time.perf_counter()
    if options.folds:
        show(folds(options.folds, vectors))
        vectors.keep()
        return
    found: dict[str, Scores] = {}
    clusters: dict[str, dict[str, str]] = {}
    record: dict[str, Any] = {"tuned": [], "time ranges": ranges(options.data)}
    seconds = []
    for seed in SEEDS:
        train = of_longmemeval("train", seed, undated=True)
        widening = tuned_widening(train)
        weights = tuned_linear(train, widening, vectors)
        for each in train:
            inputs(each, pool_of(each, widening), vectors)
        start = time.perf_counter()
        policies = fitted(train, widening, seed, vectors)
        seconds.append((time.perf_counter() - start) / len(policies))
        record["tuned"].append(
            {
                "questions": len(train),
                "before": widening.before,
                "after": widening.after,
                "linear": weights,
                "parameters": policies["learned"][0].size,
            }
        )
        if options.save is not None and seed == SEEDS[0]:
            policies["learned"][0].save(options.save)
        ranked = arms(widening, weights, policies, seed, vectors)
        sets = {
            "longmemeval": of_longmemeval("test", seed),
            "locomo": of_locomo("test", options.data, options.sample),
        }
        for name, asked in sets.items():
            print(seed, name, len(asked), widening, weights, f"{time.perf_counter() - began:.0f} s", flush=True)
            _score(found.setdefault(name, {}), clusters.setdefault(name, {}), asked, ranked)
    vectors.keep()
    record["recall@5"] = {name: summed(own, clusters[name], SEEDS) for name, own in found.items()}
    for name, own in record["recall@5"].items():
        print(name)
        show(own)
    record["seconds"] = {"of training a policy": float(np.mean(seconds)), "of all": time.perf_counter() - began}
    record["versions"] = {name: version(name) for name in ("numpy", "scipy", "statsmodels")}
    (HERE / "memory_t1.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
