from __future__ import annotations

import itertools
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from keepworth.memory.errors import CannotEvaluate, InvalidPolicy
from keepworth.memory.policy.off_policy import (
    LoggedItems,
    LoggedSlate,
    by_item,
    doubly_robust,
    effective_sample_size,
    evaluate,
    importance_weights,
    ips,
    snips,
)
from keepworth.memory.policy.propensity import Mixture

QUALITY = np.array([0.9, 0.5, 0.1])


def reward_of(slate: tuple[int, ...]) -> float:
    """A slate's true mean reward: the first item counts twice."""
    return float((2 * QUALITY[slate[0]] + QUALITY[slate[1]]) / 3)


def log_of(n: int, running: Mixture, wanted: Mixture, seed: int, model_error: float = 0.0) -> list[LoggedSlate]:
    generator = np.random.default_rng(seed)
    slates = list(permutations(range(3), 2))
    expected = sum(wanted.probability(s) * (reward_of(s) + model_error) for s in slates)
    rows = []
    for _ in range(n):
        slate, _ = running.draw(generator)
        mean = reward_of(slate)
        rows.append(
            LoggedSlate(
                float(generator.random() < mean),
                running.probability(slate),
                wanted.probability(slate),
                mean + model_error,
                expected,
            )
        )
    return rows


RUNNING = Mixture("gumbel", np.array([0.0, 0.5, 0.2]), np.zeros(3), 2)
WANTED = Mixture("gumbel", np.array([1.0, 0.3, -0.5]), np.zeros(3), 2)


def test_estimates_meet_the_brute_force_value() -> None:
    truth = sum(WANTED.probability(s) * reward_of(s) for s in permutations(range(3), 2))
    rows = log_of(20_000, RUNNING, WANTED, seed=0)
    for method in ("ips", "snips", "dr"):
        found = evaluate(rows, method)
        assert abs(found.value - truth) <= 5 * found.error, method
        assert found.error < 0.02


def test_doubly_robust_survives_a_wrong_model_and_gains_from_a_right_one() -> None:
    truth = sum(WANTED.probability(s) * reward_of(s) for s in permutations(range(3), 2))
    wrong = doubly_robust(log_of(20_000, RUNNING, WANTED, seed=1, model_error=0.3))
    assert abs(wrong.value - truth) <= 5 * wrong.error
    right = log_of(5_000, RUNNING, WANTED, seed=2)
    assert doubly_robust(right).error < ips(right).error


def test_intervals_cover() -> None:
    truth = sum(WANTED.probability(s) * reward_of(s) for s in permutations(range(3), 2))
    hits = 0
    for seed in range(100):
        low, high = snips(log_of(300, RUNNING, WANTED, seed=seed)).interval
        hits += low <= truth <= high
    assert hits >= 87  # 95 expected; 87 is more than three standard errors below


def test_worked_numbers() -> None:
    rows = [LoggedSlate(1.0, 0.5, 0.25), LoggedSlate(0.0, 0.25, 0.5), LoggedSlate(1.0, 0.5, 0.5)]
    assert importance_weights(rows) == pytest.approx([0.5, 2.0, 1.0])
    assert ips(rows).value == pytest.approx(0.5)
    assert snips(rows).value == pytest.approx(1.5 / 3.5)
    assert effective_sample_size(np.array([0.5, 2.0, 1.0])) == pytest.approx(3.5**2 / 5.25)


def test_refusals_name_their_reason() -> None:
    fixed = Mixture("greedy", np.array([0.0, 0.5, 0.2]), np.zeros(3), 2)
    with pytest.raises(CannotEvaluate) as refusal:
        evaluate(log_of(200, fixed, WANTED, seed=0))
    assert refusal.value.reason == "no support"
    with pytest.raises(CannotEvaluate) as refusal:
        evaluate(log_of(20, RUNNING, WANTED, seed=0))
    assert refusal.value.reason == "few decisions"
    rare = [LoggedSlate(1.0, 0.9, 0.02)] * 96 + [LoggedSlate(1.0, 0.005, 0.13)] * 4
    with pytest.raises(CannotEvaluate) as refusal:
        evaluate(rare)
    assert refusal.value.reason == "low effective sample size"
    with pytest.raises(InvalidPolicy, match="row 0"):
        evaluate([LoggedSlate(1.0, 0.0, 0.5)] * 60)


def test_by_item_by_hand_and_without_bias() -> None:
    """Two items with draws of their own, effects that add up: the mean over all draws is what the new policy earns."""
    odds, targets, effects, base = (0.9, 0.6), (0.2, 1.0), (0.3, -0.1), 0.5
    mean = 0.0
    for first, second in itertools.product((True, False), repeat=2):
        reward = base + effects[0] * first + effects[1] * second
        chance = (0.9 if first else 0.1) * (0.6 if second else 0.4)
        tested = ((first, odds[0], targets[0]), (second, odds[1], targets[1]))
        rows = [LoggedItems(reward, tested, 0.4, 0.0)]
        term = reward + sum((t - p) * (a - p) / (p * (1 - p)) * (reward - 0.4) for a, p, t in tested)
        assert by_item(rows * 50).value == pytest.approx(term)
        mean += chance * term
    assert mean == pytest.approx(base + 0.2 * effects[0] + 1.0 * effects[1], abs=1e-12)


def test_by_item_refuses_what_the_log_cannot_say() -> None:
    row = LoggedItems(1.0, ((True, 0.9, 1.0),), 0.5, 0.0)
    with pytest.raises(CannotEvaluate, match="few decisions"):
        by_item([row] * 10)
    with pytest.raises(CannotEvaluate, match="no support"):
        by_item([replace(row, unsupported=1.0)] * 60)
    swings = [LoggedItems(float(n % 2 == 0), ((n % 20 != 0, 0.999, 0.0),), 0.0, 0.0) for n in range(60)]
    with pytest.raises(CannotEvaluate, match="effective"):
        by_item(swings)
