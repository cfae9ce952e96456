"""Who decides what stays: rules of thumb, an oracle, a supervised ceiling, and policies that learn from reward.

An arm gives every statement of a stream a score; the highest stay (`keepworth.memory.policy.importance.best`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.writing.setting import Setting
from keepworth.memory.policy.importance import FEATURES, best

Floats = np.ndarray[Any, np.dtype[np.float64]]
Score = Callable[[int], Floats]
"""Of a stream's number: [length], one score a fact."""
HAND = len(FEATURES) + 1
"""Columns of the features that need no encoder."""
TUNED = 200


def column(name: str) -> int:
    return FEATURES.index(name)


def rules(world: Setting) -> dict[str, Score]:
    """Rules of thumb. Ties are broken by length, then by what came later."""
    hand = world.vectors[:, :HAND]
    tie = 0.001 * hand[:, column("words")]
    specific = sum(
        hand[:, column(name)] for name in ("digits", "numbers in words", "names", "times", "money", "quoted")
    )

    def by(values: Floats) -> Score:
        return lambda number: values[world.rows[number]]

    return {
        "latest": lambda number: np.arange(world.length, dtype=np.float64),
        "reservoir": lambda number: np.random.default_rng(number).random(world.length),
        "longest": by(hand[:, column("words")]),
        "most digits": by(hand[:, column("digits")] + tie),
        "most names": by(hand[:, column("names")] + tie),
        "most specific": by(specific + tie),
        "about me": by(hand[:, column("my")] + hand[:, column("starts with I am")] + tie),
    }


def diverse(world: Setting, number: int) -> tuple[int, ...]:
    """The bank from which, each time it is full, one of the two most alike goes (the older)."""
    vectors = world.vectors[world.rows[number], HAND:]
    stay: list[int] = []
    for fact in range(world.length):
        stay.append(fact)
        if len(stay) > world.budget:
            alike = vectors[stay] @ vectors[stay].T - 2.0 * np.eye(len(stay))
            del stay[min(np.unravel_index(int(alike.argmax()), alike.shape))]
    return tuple(stay)


def stays(world: Setting, score: Score, numbers: Sequence[int] | None = None) -> dict[int, tuple[int, ...]]:
    """What stays of each stream."""
    return {
        number: tuple(sorted(best(score(number), world.budget)))
        for number in (range(len(world.streams)) if numbers is None else numbers)
    }


def rule_weights() -> Floats:
    """[TUNED, HAND]"""
    return np.random.default_rng(1).normal(size=(TUNED, HAND))


def weighted(world: Setting, weights: Floats) -> Score:
    """The linear score of the first len(weights) features."""
    return lambda number: np.asarray(world.vectors[world.rows[number], : len(weights)] @ weights)


def tuned_rules(world: Setting, value: Callable[[int, tuple[int, ...]], float]) -> dict[int, tuple[int, ...]]:
    """The best of `TUNED` weighted rules over the hand features, chosen in each fold by `value` (stream, what stayed) on the
    other folds."""
    every = [stays(world, weighted(world, weights)) for weights in rule_weights()]
    values = np.array([[value(n, each[n]) for n in range(len(world.streams))] for each in every])
    chosen: dict[int, tuple[int, ...]] = {}
    for fold in range(int(world.folds.max()) + 1):
        learn, test = world.apart(fold)
        found = every[int(np.nanmean(values[:, learn], axis=1).argmax())]
        chosen |= {number: found[number] for number in test}
    return chosen


def logistic(matrix: Floats, marks: Floats, ridge: float, steps: int = 30) -> Floats:
    """[d]: weights of a logistic regression with both classes weighing the same, by Newton's method."""
    weights = np.zeros(matrix.shape[1])
    share = np.where(marks > 0, 0.5 / marks.mean(), 0.5 / (1.0 - marks.mean()))
    for _ in range(steps):
        p = 1.0 / (1.0 + np.exp(-matrix @ weights))
        slope = matrix.T @ (share * (p - marks)) + ridge * weights
        curve = (matrix.T * (share * p * (1.0 - p))) @ matrix + ridge * np.eye(len(weights))
        weights -= np.linalg.solve(curve, slope)
    return weights


def supervised(world: Setting, columns: slice, ridge: float) -> dict[int, tuple[int, ...]]:
    """What a logistic model of the evidence marks keeps: an upper bound for policies of these features, which see no mark."""
    chosen: dict[int, tuple[int, ...]] = {}
    for fold in range(int(world.folds.max()) + 1):
        learn, test = world.apart(fold)
        matrix = np.concatenate([world.vectors[world.rows[number]][:, columns] for number in learn])
        marks = np.concatenate([np.array(world.streams[number].evidence, dtype=np.float64) for number in learn])
        weights = logistic(matrix, marks, ridge)
        chosen |= stays(world, lambda n, w=weights: world.vectors[world.rows[n]][:, columns] @ w, test)  # type: ignore[misc]
    return chosen


def oracle(world: Setting) -> dict[int, tuple[int, ...]]:
    """All evidence stays, as far as it fits, and the latest besides."""
    return stays(world, lambda number: np.array(world.streams[number].evidence, dtype=np.float64))
