from __future__ import annotations

import itertools
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from keepworth.memory.errors import CannotEvaluate
from keepworth.memory.policy.off_policy import LoggedChoice, by_item, snips
from keepworth.methods.policies._slates import Mixture

QUALITY = np.array([0.9, 0.5, 0.1])
RUNNING = Mixture("gumbel", np.array([0.0, 0.5, 0.2]), np.zeros(3), 2)
WANTED = Mixture("gumbel", np.array([1.0, 0.3, -0.5]), np.zeros(3), 2)


def reward_of(slate: tuple[int, ...]) -> float:
    """A slate's true mean reward: the first item counts twice."""
    return float((2 * QUALITY[slate[0]] + QUALITY[slate[1]]) / 3)


def log_of(n: int, running: Mixture, seed: int) -> list[LoggedChoice]:
    generator = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        slate, _ = running.draw(generator)
        reward = float(generator.random() < reward_of(slate))
        rows.append(LoggedChoice(reward, running.probability(slate), WANTED.probability(slate)))
    return rows


def test_estimates_meet_the_brute_force_value_and_intervals_cover_it() -> None:
    truth = sum(WANTED.probability(slate) * reward_of(slate) for slate in permutations(range(3), 2))
    estimate = snips(log_of(20_000, RUNNING, seed=0))
    assert abs(estimate.value - truth) <= 5 * estimate.error < 0.1
    hits = 0
    for seed in range(100):
        low, high = snips(log_of(300, RUNNING, seed=seed)).interval
        hits += low <= truth <= high
    assert hits >= 87  # 95 expected; 87 is more than three standard errors below


def test_worked_numbers() -> None:
    weights = [0.5, 2.0, 1.0]
    rows = [LoggedChoice(1.0, 0.5, 0.25), LoggedChoice(0.0, 0.25, 0.5), LoggedChoice(1.0, 0.5, 0.5)] * 20
    estimate = snips(rows)
    assert estimate.value == pytest.approx(1.5 / 3.5)
    assert estimate.effective == pytest.approx(20 * sum(weights) ** 2 / sum(weight**2 for weight in weights))


def test_refusals_name_their_reason() -> None:
    fixed = Mixture("greedy", np.array([0.0, 0.5, 0.2]), np.zeros(3), 2)
    rare = [LoggedChoice(1.0, 0.9, 0.02)] * 96 + [LoggedChoice(1.0, 0.005, 0.13)] * 4
    item = LoggedChoice(1.0, 1.0, 1.0, ((True, 0.9, 1.0),), 0.5)
    swings = [LoggedChoice(float(n % 2 == 0), 1.0, 1.0, ((n % 20 != 0, 0.999, 0.0),)) for n in range(60)]
    for reason, estimator, rows in (
        ("no support", snips, log_of(200, fixed, seed=0)),
        ("few decisions", snips, log_of(20, RUNNING, seed=0)),
        ("low effective sample size", snips, rare),
        ("few decisions", by_item, [item] * 10),
        ("no support", by_item, [replace(item, unsupported=1.0)] * 60),
        ("low effective sample size", by_item, swings),
    ):
        with pytest.raises(CannotEvaluate) as refusal:
            estimator(rows)
        assert refusal.value.reason == reason


def test_by_item_by_hand_and_without_bias() -> None:
    """Two items with draws of their own, effects that add up: the mean over all draws is what the new policy earns."""
    odds, targets, effects, base = (0.9, 0.6), (0.2, 1.0), (0.3, -0.1), 0.5
    mean = 0.0
    for first, second in itertools.product((True, False), repeat=2):
        reward = base + effects[0] * first + effects[1] * second
        chance = (0.9 if first else 0.1) * (0.6 if second else 0.4)
        tested = ((first, odds[0], targets[0]), (second, odds[1], targets[1]))
        term = reward + sum((t - p) * (a - p) / (p * (1 - p)) * (reward - 0.4) for a, p, t in tested)
        assert by_item([LoggedChoice(reward, 1.0, 1.0, tested, 0.4)] * 50).value == pytest.approx(term)
        mean += chance * term
    assert mean == pytest.approx(base + 0.2 * effects[0] + 1.0 * effects[1], abs=1e-12)
