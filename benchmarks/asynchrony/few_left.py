"""How often are few sequences left in training? What a drafter that makes such steps faster could save of all decoding.

From recorded answers (`benchmarks.asynchrony.answers`), groups of 8: whole calls of two prompts, and 8 or 16 slots that are
filled again until the update's 8 groups are drawn. A group of 8 is drawn, with replacement, from the six answers of a prompt;
`groups_of_6` are the six themselves, in whole calls.
Counted like `benchmarks.asynchrony.orders`. A step costs what `lengths_135m.json` has for as many sequences; with one or two left
it is as many times as fast as `drafter.json` says of the best drafter. Log-normal lengths are those of
`benchmarks.asynchrony.lengths`.
Writes few_left.json.

    python -m benchmarks.asynchrony.few_left
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.asynchrony.answers import recorded
from benchmarks.asynchrony.lengths import LONGEST, MEDIAN
from benchmarks.asynchrony.orders import Answer, steps_by_live
from benchmarks.asynchrony.setting import HERE, lognormal, write
from benchmarks.speed.setting import machine

MEMBERS, GROUPS, CALL, UPDATES, RESAMPLES = 8, 8, 2, 6, 200
WAYS = {"whole calls, 2 prompts": None, "8 slots, refilled": 8, "16 slots, refilled": 16}
"""Slots; None where every two prompts are a call of their own."""
Lengths = Sequence[Sequence[int]]


def live(groups: Lengths, slots: int | None) -> Counter[int]:
    """Steps of one update by how many sequences are live. groups: the lengths of each group's answers."""
    found = Counter[int]()
    each = len(groups) if slots is not None else CALL
    for first in range(0, len(groups), each):
        answers = [
            Answer(place, "", n) for place, n in enumerate(n for own in groups[first : first + each] for n in own)
        ]
        found += steps_by_live(answers, slots or len(answers), lambda answer: 0)
    return found


def saved(steps: Mapping[int, int], cost: Callable[[int], float], faster: Mapping[int, float]) -> float:
    """The share of decoding time that is saved where steps with n sequences left are faster[n] times as fast."""
    whole = sum(count * cost(n) for n, count in steps.items())
    return sum(steps.get(n, 0) * cost(n) * (1 - 1 / times) for n, times in faster.items()) / whole


def step_cost() -> Callable[[int], float]:
    """Seconds of a decoding step by sequences, between those that were measured by a straight line."""
    measured = json.loads((HERE / "lengths_135m.json").read_text())["decoding_step_cpu_seconds"]
    counts = sorted(int(each) for each in measured)
    seconds = [measured[str(each)]["step"] for each in counts]
    return lambda n: float(np.interp(n, counts, seconds))


def best_of_drafters() -> dict[int, float]:
    """By sequences left: how many times as fast with the best drafter and number of proposals, mean over the kinds of answers."""
    gain = json.loads((HERE / "drafter.json").read_text())["gain"]["1"]
    counts = next(iter(next(iter(gain.values())).values()))
    return {
        int(count): statistics.fmean(max(max(by[count]) for by in kind.values()) for kind in gain.values())
        for count in counts
    }


def study(update: Callable[[random.Random], Lengths], slots: int | None) -> dict[str, Any]:
    """update: makes the groups of one. Each resample is `UPDATES` of them."""
    generator, cost, faster = random.Random(0), step_cost(), best_of_drafters()
    few = {n: faster[n] for n in (1, 2)}
    to_four = few | {3: faster[4], 4: faster[4]}
    rows: dict[str, list[float]] = {}
    for _ in range(RESAMPLES):
        steps = Counter[int]()
        for _ in range(UPDATES):
            steps += live(update(generator), slots)
        whole = steps.total()
        row = {
            "at_most_1": steps[1] / whole,
            "at_most_2": (steps[1] + steps[2]) / whole,
            "at_most_4": sum(steps[n] for n in range(1, 5)) / whole,
            "saved": saved(steps, cost, few),
            "saved_with_4": saved(steps, cost, to_four),
            "saved_if_free": saved(steps, cost, dict.fromkeys(few, float("inf"))),
        }
        for name, value in row.items():
            rows.setdefault(name, []).append(value)
    return {
        name: dict(
            zip(("mean", "low", "high"), (statistics.fmean(own), *np.quantile(own, (0.025, 0.975))), strict=True)
        )
        for name, own in rows.items()
    }


def of_tasks(answers: Lengths) -> Callable[[random.Random], Lengths]:
    return lambda generator: [generator.choices(own, k=MEMBERS) for own in generator.choices(answers, k=GROUPS)]


def as_recorded(answers: Lengths) -> Callable[[random.Random], Lengths]:
    return lambda generator: generator.choices(answers, k=GROUPS)


def log_normal(generator: random.Random) -> Lengths:
    lengths = lognormal(MEDIAN, 1.0, generator.randrange(1 << 30), 1, LONGEST)
    return [[round(lengths(group, member)) for member in range(MEMBERS)] for group in range(GROUPS)]


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    kinds = {kind: list(own.values()) for kind, own in recorded().items()}
    updates = {kind: of_tasks(own) for kind, own in kinds.items()}
    updates["all kinds mixed"] = of_tasks([each for own in kinds.values() for each in own])
    updates["log-normal lengths"] = log_normal
    result = {
        "machine": machine(1),
        "tasks": {kind: len(own) for kind, own in kinds.items()},
        "groups": GROUPS,
        "members": MEMBERS,
        "updates": UPDATES,
        "resamples": RESAMPLES,
        "times_as_fast": best_of_drafters(),
        "groups_of_6": {kind: study(as_recorded(own), None) for kind, own in kinds.items()},
        "rows": {name: {way: study(update, slots) for way, slots in WAYS.items()} for name, update in updates.items()},
    }
    write("few_left.json", result)
    for name, ways in result["rows"].items():
        for way, own in ways.items():
            print(f"{name:20} {way:24}", *(f"{key} {100 * each['mean']:.1f}" for key, each in own.items()))


if __name__ == "__main__":
    main()
