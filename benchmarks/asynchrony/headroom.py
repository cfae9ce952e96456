"""Could an order made from prompts alone save decoding steps? What the mean length of each prompt's answers, known, would save.

From recorded answers (`benchmarks.asynchrony.answers`): the share of the variance of log length that lies between prompts; the
rank correlation (Spearman) of an answer with the mean of its prompt's other answers; and the counted decoding steps of updates
of 8 groups, longest first by the running mean per task, by the prompt's own mean, and by the lengths themselves.
Writes headroom.json.

    python -m benchmarks.asynchrony.headroom
"""

from __future__ import annotations

import argparse
import random
import statistics
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from benchmarks.asynchrony.answers import recorded
from benchmarks.asynchrony.orders import Answer, decoding_steps
from benchmarks.asynchrony.setting import write
from benchmarks.speed.setting import machine
from keepworth.learning.collect.pipeline import ExpectedLengths

GROUPS, SLOTS, PASSES, RESAMPLES = 8, (8, 16, 32), 40, 300


def of_kind(answers: list[list[int]]) -> dict[str, float]:
    lengths = np.array(answers, dtype=np.float64)
    logs, members = np.log(lengths), lengths.shape[1]
    within = float(logs.var(1, ddof=1).mean())
    among = max(0.0, float(logs.mean(1).var(ddof=1)) - within / members)
    others = (lengths.sum(1, keepdims=True) - lengths) / (members - 1)
    generator = np.random.default_rng(0)
    drawn = [generator.integers(len(lengths), size=len(lengths)) for _ in range(RESAMPLES)]
    low, high = np.quantile([spearmanr(others[r].ravel(), lengths[r].ravel())[0] for r in drawn], (0.025, 0.975))
    return {
        "tasks": len(lengths),
        "median": float(np.median(lengths)),
        "cut": float((lengths == lengths.max()).mean()),
        "between_prompts": among / (among + within),
        "others_mean": float(spearmanr(others.ravel(), lengths.ravel())[0]),
        "low": float(low),
        "high": float(high),
    }


def steps(pools: list[list[list[int]]], slots: int) -> dict[str, Any]:
    """Counted over resampled passes, as shares of those as they came."""
    generator, totals = random.Random(0), dict[str, list[int]]()
    for _ in range(PASSES):
        own: dict[str, int] = {}
        for pool in pools:
            drawn = generator.choices(pool, k=len(pool))
            for first in range(0, len(drawn) - GROUPS + 1, GROUPS):
                chosen = drawn[first : first + GROUPS]
                pairs = [(str(group), length) for group, each in enumerate(chosen) for length in each]
                answers = [Answer(place, task, length) for place, (task, length) in enumerate(pairs)]
                mean = {str(group): statistics.fmean(each) for group, each in enumerate(chosen)}
                running = ExpectedLengths()
                running.load({"": statistics.fmean(mean.values())})

                def learn(answer: Answer, running: ExpectedLengths = running) -> None:
                    running.learn(answer.task, answer.tokens)

                made = {
                    "as they came": decoding_steps(answers, slots, lambda a: 0),
                    "running mean per task": decoding_steps(answers, slots, lambda a, r=running: r.of(a.task), learn),
                    "mean of the prompt known": decoding_steps(answers, slots, lambda a, m=mean: m[a.task]),
                    "lengths known": decoding_steps(answers, slots, lambda a: a.tokens),
                }
                own = {name: own.get(name, 0) + count for name, count in made.items()}
        for name, count in own.items():
            totals.setdefault(name, []).append(count)
    came = totals["as they came"]
    found = {}
    for name, each in totals.items():
        low, high = np.quantile([a / b for a, b in zip(each, came, strict=True)], (0.025, 0.975))
        found[name] = {"mean": sum(each) / sum(came), "low": float(low), "high": float(high)}
    return found


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    kinds = {kind: list(own.values()) for kind, own in recorded().items()}
    mixed = [each for own in kinds.values() for each in own]
    result = {
        "machine": machine(1),
        "kinds": {**{kind: of_kind(own) for kind, own in kinds.items()}, "all kinds mixed": of_kind(mixed)},
        "steps": {
            "all kinds mixed": {slots: steps([mixed], slots) for slots in SLOTS},
            "one kind at a time": {slots: steps(list(kinds.values()), slots) for slots in SLOTS},
        },
    }
    write("headroom.json", result)
    print(result["steps"])


if __name__ == "__main__":
    main()
