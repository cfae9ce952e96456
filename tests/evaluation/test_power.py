"""What so many seeds can say, by hand and as the textbook has it."""

from __future__ import annotations

import pytest

from keepworth.base.statistics import TooFewSeeds
from keepworth.evaluation.power import detectable, fewest, half_width, over_questions, plan


@pytest.mark.parametrize(("comparisons", "seeds"), [(1, 6), (2, 7), (6, 8), (128, 13)])
def test_seeds_that_a_family_needs(comparisons: int, seeds: int) -> None:
    assert fewest(comparisons) == seeds
    assert 2.0 ** (1 - seeds) * comparisons < 0.05 <= 2.0 ** (2 - seeds) * comparisons


def test_half_width_by_hand() -> None:
    assert half_width(0.03, 9) == pytest.approx(2.306004135204166 * 0.01, abs=1e-14)  # t(.975, 8), and sqrt(9) = 3


def test_detectable_difference_matches_the_textbook() -> None:
    # Cohen, "Statistical Power Analysis", 1988: half a spread, two-sided, 80 %: 34 pairs.
    assert detectable(0.04, 34) == pytest.approx(0.02, rel=0.02)
    assert detectable(0.04, 34, comparisons=10) > 0.025
    # Here statsmodels takes another solver, which gives an array.
    assert detectable(0.06, 30, 94) < detectable(0.06, 30, 95) < detectable(0.06, 30, 97)
    assert " points is found four times in five" in plan(0.06, 30, comparisons=95).text


def test_questions_in_clusters_are_planned_from_how_often_two_systems_disagree() -> None:
    # The textbook's 1.96 sqrt(.25 / 600) is 4 points; ten conversations of 60 questions that are alike are worth fewer.
    alone = plan(over_questions(600, 600), 600, unit="clusters")
    assert alone.expected == pytest.approx(0.0401, abs=1e-4)
    assert alone.text.splitlines()[1].startswith("600 clusters: expect +-4.0 points.")
    assert over_questions(600, 10) == pytest.approx((0.25 * (1 / 60 + 0.05 * 59 / 60)) ** 0.5)
    assert plan(over_questions(600, 10), 10).expected > 2 * alone.expected


def test_plan_states_the_expected_interval_before_a_run() -> None:
    assert plan(0.028, 12).text.splitlines() == [
        "Spread of a paired difference over seeds: 2.8 points (declared).",
        "12 seeds: expect +-1.8 points. Of one comparison, a difference of 2.5 points is found four times in five.",
    ]
    assert "No verdict is possible" in plan(0.028, 5, comparisons=20).text
    with pytest.raises(TooFewSeeds, match="A plan needs at least 6"):
        plan(0.028, 1)
