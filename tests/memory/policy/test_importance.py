"""What a statement is worth: draws with known probabilities, gradients, and a worth learned from reward alone."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.memory.policy.importance import (
    FEATURES,
    LoggedBank,
    best,
    drawn,
    features,
    fitted_worth,
    gradient,
    hand_features,
    log_probability,
)
from keepworth.models.encoders import encoder

SCORES = st.lists(st.floats(-3, 3), min_size=2, max_size=6)


@given(SCORES, st.data())
def test_probabilities_of_all_orders_sum_to_one(scores: list[float], data: st.DataObject) -> None:
    budget = data.draw(st.integers(1, len(scores)))
    orders = itertools.permutations(range(len(scores)), budget)
    total = sum(math.exp(log_probability(np.array(scores), order)) for order in orders)
    assert total == pytest.approx(1.0)


def test_the_probability_by_hand() -> None:
    # Worths 1, 2, 3 (scores are their logarithms): 3 of 6 first, then 1 of the 3 that are left.
    scores = np.log(np.array([1.0, 2.0, 3.0]))
    assert math.exp(log_probability(scores, (2, 0))) == pytest.approx(3 / 6 * 1 / 3)


@given(SCORES, st.data())
def test_the_gradient_is_that_of_the_probability(scores: list[float], data: st.DataObject) -> None:
    budget = data.draw(st.integers(1, len(scores)))
    order = tuple(data.draw(st.permutations(range(len(scores)))))[:budget]
    values, step = np.array(scores), 1e-5
    found = gradient(values, order)
    for place in range(len(values)):
        nudge = np.eye(len(values))[place] * step
        slope = (log_probability(values + nudge, order) - log_probability(values - nudge, order)) / (2 * step)
        assert found[place] == pytest.approx(slope, abs=1e-6)
    assert found.sum() == pytest.approx(0.0, abs=1e-9)


def test_draws_come_as_often_as_their_probability_says() -> None:
    scores, generator, many = np.array([0.0, 1.0, -0.5]), np.random.default_rng(0), 4000
    counted = dict.fromkeys(itertools.permutations(range(3), 2), 0)
    for _ in range(many):
        counted[drawn(scores, 2, generator)] += 1  # type: ignore[index]
    for order, times in counted.items():
        share = math.exp(log_probability(scores, order))
        assert times / many == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / many))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(1, 8))
def test_the_best_stay_and_of_equals_the_latest(scores: list[int], budget: int) -> None:
    stay = set(best(np.array(scores, dtype=float), budget))
    assert len(stay) == min(budget, len(scores))
    for gone in set(range(len(scores))) - stay:
        assert all(scores[kept] > scores[gone] or (scores[kept] == scores[gone] and kept > gone) for kept in stay)


def test_hand_features_of_a_statement() -> None:
    found = dict(zip(FEATURES, hand_features('I bought "Dune" for $12 from my sister Nora last week.'), strict=True))
    assert found["digits"] == 1.0  # two digits
    assert found["names"] == pytest.approx(1 / 3)  # Nora; "Dune" begins with its quotation mark
    assert [found[name] for name in ("quoted", "money", "times", "kin", "done", "my")] == [1.0] * 6
    assert [found[name] for name in ("wanting", "starts with I am", "numbers in words")] == [0.0] * 3
    assert found["words"] == pytest.approx(11 / 20)


def test_features_have_a_constant_and_the_vectors_of_the_encoder() -> None:
    hashing = encoder("hashing:64")
    statements = ["I moved to Oslo.", "I like tea."]
    assert features(statements).shape == (2, len(FEATURES) + 1)
    with_vectors = features(statements, hashing)
    assert with_vectors.shape == (2, len(FEATURES) + 1 + 64)
    assert (with_vectors[:, len(FEATURES)] == 1.0).all()
    assert with_vectors[:, len(FEATURES) + 1 :] == pytest.approx(hashing.encode(statements))
    assert features([], hashing).shape == (0, len(FEATURES) + 1 + 64)


def planted(generator: np.random.Generator, groups: int, banks: int, permuted: bool = False) -> list[LoggedBank]:
    """Banks of 2 of 8 statements with 5 features, of which the first is worth 0.4 and the others nothing."""
    log = []
    for group in range(groups):
        matrix, ease = generator.normal(size=(8, 5)), generator.uniform()
        for _ in range(banks):
            stay = tuple(generator.choice(8, size=2, replace=False).tolist())
            reward = ease + 0.4 * matrix[list(stay), 0].sum() + 0.1 * generator.normal()
            log.append(LoggedBank(matrix, stay, reward, str(group)))
    if not permuted:
        return log
    rewards = generator.permutation([bank.reward for bank in log])
    return [
        LoggedBank(bank.features, bank.stayed, float(reward), bank.group)
        for bank, reward in zip(log, rewards, strict=True)
    ]


def test_the_worth_that_was_planted_is_found_from_rewards_alone() -> None:
    weights = fitted_worth(planted(np.random.default_rng(0), 60, 8), ridge=1.0)
    assert weights == pytest.approx([0.4, 0.0, 0.0, 0.0, 0.0], abs=0.03)


def test_permuted_rewards_give_no_worth() -> None:
    weights = fitted_worth(planted(np.random.default_rng(0), 60, 8, permuted=True), ridge=1.0)
    assert np.abs(weights).max() < 0.1


def test_the_worth_by_hand() -> None:
    # One group, one feature: banks with sums 0 and 2 earn 0 and 1; centred that is -1, 1 and -0.5, 0.5: 1 / (2 + 2).
    matrix = np.array([[0.0], [2.0]])
    log = [LoggedBank(matrix, (0,), 0.0, "a"), LoggedBank(matrix, (1,), 1.0, "a")]
    assert fitted_worth(log, ridge=2.0) == pytest.approx([1.0 / 4.0])
    assert fitted_worth([*log, LoggedBank(matrix, (1,), 5.0, "alone")], ridge=2.0) == pytest.approx([1.0 / 4.0])
