from __future__ import annotations

import math
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr as scipy_ndtr

from keepworth.memory.choose.propensity import Independent
from keepworth.memory.choose.slates import Mixture, gumbel_top_k, ndtr, plackett_luce, thompson, thompson_slate
from keepworth.memory.errors import InvalidPolicy

DRAWS = 100_000


def agrees(count: int, probability: float) -> bool:
    """Within five standard errors of a binomial: false alarms at about one in two million."""
    return abs(count / DRAWS - probability) <= 5 * np.sqrt(max(probability * (1 - probability), 1e-5) / DRAWS)


def test_plackett_luce_matches_values_by_hand() -> None:
    # Weights 1, 2, 3: P(third, first) = 3/6 * 1/3.
    assert plackett_luce(np.log([1.0, 2.0, 3.0]), (2, 0)) == pytest.approx(1 / 6)


def test_gumbel_top_k_has_its_stated_probability_in_100000_draws() -> None:
    scores = np.array([0.3, -1.0, 1.2, 0.0])
    noisy = scores + np.random.default_rng(1).gumbel(size=(DRAWS, 4))
    seen = Counter(map(tuple, np.argsort(-noisy, axis=1)[:, :3].tolist()))
    for slate in permutations(range(4), 3):
        assert agrees(seen[slate], plackett_luce(scores, slate)), slate
    # The sampler draws as the vectorised line above does.
    again = np.random.default_rng(5)
    few = [gumbel_top_k(scores, 3, again) for _ in range(3)]
    same = np.random.default_rng(5)
    assert few == [tuple(np.argsort(-(scores + same.gumbel(size=4)))[:3].tolist()) for _ in range(3)]


@pytest.mark.parametrize("floor", [-np.inf, 0.1])
def test_thompson_slates_have_their_stated_probability_in_100000_draws(floor: float) -> None:
    means, deviations = np.array([0.3, 0.1, -0.2]), np.array([0.2, 0.5, 0.05])
    generator = np.random.default_rng(2)
    seen = Counter(thompson_slate(means, deviations, 2, generator, floor) for _ in range(DRAWS))
    slates = [slate for size in range(3) for slate in permutations(range(3), size)]
    assert set(seen) <= set(slates)
    for slate in slates:
        assert agrees(seen[slate], thompson(means, deviations, slate, 2, floor)), slate


@pytest.mark.parametrize("ratio", [1.0, 1e3, 5e3, 1e5])
def test_thompson_probabilities_sum_to_one_for_any_deviations(ratio: float) -> None:
    """With at most 256 even panels the sum was off by 1e-4 at a ratio of 5,000."""
    generator = np.random.default_rng(0)
    for _ in range(10):
        means, deviations = generator.normal(0.0, 0.3, 6), np.full(6, 0.5)
        deviations[::2] /= ratio
        slates = [(), *((place,) for place in range(6))]
        chances = [thompson(means, deviations, slate, 1, 0.0) for slate in slates]
        assert sum(chances) == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("kind", ["thompson", "gumbel", "greedy"])
def test_a_mixture_sums_to_one_and_matches_its_draws(kind: str) -> None:
    conflicts = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=bool) if kind != "gumbel" else None
    mixture = Mixture(kind, np.array([0.3, 0.1, -0.2]), np.array([0.2, 0.5, 0.1]), 2, explore=0.2, conflicts=conflicts)
    slates = [slate for size in range(3) for slate in permutations(range(3), size)]
    assert sum(mixture.probability(slate) for slate in slates) == pytest.approx(1.0, abs=1e-7)
    generator = np.random.default_rng(3)
    seen = Counter(mixture.draw(generator)[0] for _ in range(20_000))
    for slate in slates:
        expected = mixture.probability(slate)
        assert abs(seen[slate] / 20_000 - expected) <= 5 * np.sqrt(max(expected, 1e-4) / 20_000), slate


def test_impossible_input_is_refused() -> None:
    with pytest.raises(InvalidPolicy, match="positive"):
        thompson(np.zeros(2), np.array([0.0, 1.0]), (0,), 1)
    with pytest.raises(InvalidPolicy, match="distinct"):
        plackett_luce(np.zeros(2), (0, 0))


@st.composite
def independent(draw: st.DrawFn) -> Independent:
    order = tuple(draw(st.permutations(range(6))))
    rates = st.floats(0.01, 0.99)
    known = tuple((place, draw(rates)) for place in draw(st.permutations(range(6)))[: draw(st.integers(0, 4))])
    earlier = draw(st.sets(st.integers(0, 5), max_size=2))
    drawn = {place: (draw(rates), draw(st.booleans())) for place in sorted(earlier)}
    drawn |= dict.fromkeys(draw(st.sets(st.integers(0, 5), max_size=2)), (1.0, True))  # seen without a draw
    return Independent(order, draw(st.integers(1, 7)), known, draw(st.integers(1, 4)), drawn)


@settings(max_examples=200, deadline=None)
@given(independent())
def test_independent_draws_give_each_slate_the_product_of_their_probabilities(choice: Independent) -> None:
    """Every way in which the draws can fall is another slate, of as many places as there are, and shows just what was drawn."""
    odds = choice.odds
    total, slates = 0.0, set()
    for bits in range(2 ** len(odds)):
        shown = {place: bool(bits >> number & 1) for number, place in enumerate(odds)}
        slate = choice.slate(shown)
        assert len(set(slate)) == len(slate) <= choice.k
        assert {place: place in slate for place in odds} == shown
        assert not any(p < 1.0 and place in slate for place, (p, _) in choice.drawn.items() if place not in odds)
        product = float(np.prod([p if shown[place] else 1.0 - p for place, p in odds.items()]))
        assert choice.probability(slate) == pytest.approx(product, rel=1e-12)
        slates.add(slate)
        total += product
    assert len(slates) == 2 ** len(odds)
    assert total == pytest.approx(1.0)
    fresh = [place for place in odds if place not in choice.drawn]
    assert not any(choice.drawn[place][0] == 1.0 for place in odds if place in choice.drawn)
    assert not fresh or len(odds) <= max(choice.together, 1)
    drawn, _ = choice.draw(np.random.default_rng(1))
    assert drawn in slates
    assert all((place in drawn) == choice.drawn[place][1] for place in odds if place in choice.drawn)
    assert choice.certain().probability(choice.order[: choice.k]) == 1.0


def test_next_candidate_fills_the_place_of_a_withheld_one() -> None:
    choice = Independent((0, 1, 2, 3, 4), 2, ((0, 0.1), (1, 0.2)), together=2)
    assert choice.odds == {0: 0.9, 1: 0.8}
    assert choice.slate({0: True, 1: True}) == (0, 1)
    assert choice.slate({0: False, 1: True}) == (1, 2)
    assert choice.slate({0: False, 1: False}) == (2, 3)
    assert choice.at_most(1).odds == {0: 0.9}  # with one place there is room for one test
    assert Independent((0, 1), 2, ((0, 0.0), (1, 0.5))).odds == {1: 0.5}


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_challengers_and_tests_are_drawn_with_their_stated_probability(data: st.DataObject) -> None:
    """One candidate at a time comes before all others; if none does, the first one may be withheld. The slates that can be drawn
    have all of the probability."""
    n = data.draw(st.integers(2, 6))
    order = tuple(data.draw(st.permutations(range(n))))
    k = data.draw(st.integers(1, n + 1))
    total = data.draw(st.sampled_from([0.04, 0.7]))
    shares = data.draw(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=n - 1))
    challengers = tuple((place, total * share / sum(shares)) for place, share in zip(order[1:], shares, strict=False))
    choice = Independent(order, k, ((order[0], 0.5),), challengers=challengers)
    generator = np.random.default_rng(data.draw(st.integers(0, 9)))
    draws = [choice.draw(generator) for _ in range(400)]
    drawn = Counter(slate for slate, _ in draws)
    slates = {order[:k]} | {(place, *(other for other in order if other != place))[:k] for place, _ in challengers}
    slates.add(order[1 : k + 1])
    assert sum(choice.probability(slate) for slate in slates) == pytest.approx(1.0)
    assert set(drawn) <= slates
    for slate in slates:
        p = choice.probability(slate)
        assert abs(drawn[slate] - 400 * p) < 5.0 * math.sqrt(400 * p * (1.0 - p)) + 1.0
    for place, p in choice.odds.items():
        decided = [slate for slate, way in draws if place in choice.odds_of(way)]
        seen = sum(place in slate for slate in decided)
        assert abs(seen - len(decided) * p) < 5.0 * math.sqrt(len(decided) * p * (1.0 - p)) + 1.0
    assert choice.given({order[0]: (1.0, True)}).challengers == (() if k == 1 else challengers)
    assert choice.given({challengers[0][0]: (1.0, True)}).challengers == ()
    assert choice.given({order[0]: (0.5, False)}).challengers == (), "what was withheld would be shown"
    assert choice.given({order[0]: (0.5, True)}).challengers == (), (
        "only the episodes that show it would have challenges"
    )


def test_normal_distribution_function_matches_scipy() -> None:
    generator = np.random.default_rng(0)
    x = np.concatenate([generator.normal(size=2_000) * scale for scale in (0.1, 1.0, 3.0, 10.0)])
    x = np.concatenate([x, [0.0, 37.0, -37.0, 1e9, -1e9, np.inf, -np.inf, np.nan]])
    np.testing.assert_allclose(ndtr(x), scipy_ndtr(x), rtol=1e-13, atol=0.0)
    assert ndtr(0.0) == 0.5
    assert ndtr(np.zeros((2, 3))).shape == (2, 3)
    assert ndtr(np.zeros(0)).shape == (0,)
