"""A plan of seeds agrees with simulated runs, and questions that cannot be answered are refused before they cost anything."""

from __future__ import annotations

import numpy as np
import pytest

from keepworth.episodes.errors import KeepworthError
from keepworth.evaluation.power import (
    PairedSpread,
    detectable,
    fewest,
    half_width,
    over_questions,
    plan,
    require_enough,
    seeds_for_half_width,
    spread,
)
from keepworth.evaluation.statistics import TooFewSeeds


@pytest.mark.parametrize(("comparisons", "seeds"), [(1, 6), (2, 7), (6, 8), (128, 13)])
def test_seeds_that_a_family_needs(comparisons: int, seeds: int) -> None:
    assert fewest(comparisons) == seeds
    assert 2.0 ** (1 - seeds) * comparisons < 0.05 <= 2.0 ** (2 - seeds) * comparisons


def test_half_width_by_hand() -> None:
    assert half_width(0.03, 9) == pytest.approx(2.306004135204166 * 0.01, abs=1e-14)  # t(.975, 8), and sqrt(9) = 3


def test_what_so_many_seeds_find_is_that_of_the_textbook() -> None:
    # Cohen, "Statistical Power Analysis", 1988: half a spread, two-sided, 80 %: 34 pairs.
    assert detectable(0.04, 34) == pytest.approx(0.02, rel=0.02)
    assert detectable(0.04, 34, comparisons=10) > 0.025


def test_so_many_seeds_are_as_narrow_as_planned_four_times_in_five() -> None:
    n = seeds_for_half_width(0.03, 0.01)
    generator = np.random.default_rng(0)
    widths = [half_width(float(each), n) for each in generator.normal(0.0, 0.03, (4000, n)).std(axis=1, ddof=1)]
    assert np.mean(np.array(widths) <= 0.01) == pytest.approx(0.8, abs=0.03)
    assert half_width(0.03, n - 8) > 0.01 > half_width(0.03, n)


def test_a_pilot_plans_with_the_upper_end_of_its_spread() -> None:
    found = spread({"a": [0.01, 0.02, 0.03], "b": [0.0, 0.1, 0.2, 0.3]})
    assert found.sd == pytest.approx(np.std([0.0, 0.1, 0.2, 0.3], ddof=1))
    assert (found.n, found.source) == (4, "pilot, 4 seeds, widest at b")
    assert found.at_most == pytest.approx(found.sd * (3 / 1.0051740130523492) ** 0.5)  # chi-squared(.2, 3)
    assert PairedSpread(0.03).at_most == 0.03


def test_questions_in_clusters_are_planned_from_how_often_two_systems_disagree() -> None:
    # The textbook's 1.96 sqrt(.25 / 600) is 4 points; ten conversations of 60 questions that are alike are worth fewer.
    alone = plan(over_questions(600, 600), 600)
    assert alone.expected == pytest.approx(0.0401, abs=1e-4)
    assert alone.text.splitlines()[1].startswith("600 clusters: expect +-4.0 points.")
    assert over_questions(600, 10).sd == pytest.approx((0.25 * (1 / 60 + 0.05 * 59 / 60)) ** 0.5)
    assert plan(over_questions(600, 10), 10).expected > 2 * alone.expected


def test_what_is_said_before_a_run() -> None:
    planned = plan(PairedSpread(0.028), 12, wanted=0.01, comparisons=1)
    assert not planned.enough
    assert planned.need == seeds_for_half_width(0.028, 0.01)
    assert planned.text.splitlines() == [
        "Spread of a paired difference over seeds: 2.8 points (declared).",
        "12 seeds: expect +-1.8 points. Of one comparison, a difference of 2.5 points is found four times in five.",
        f"For +-1.0 points, {planned.need} seeds are needed: {planned.need - 12} more than there are.",
    ]
    assert planned.record()["need"] == planned.need
    assert "No verdict is possible" in plan(PairedSpread(0.028), 5, comparisons=20).text


def test_a_question_that_cannot_be_answered_is_refused() -> None:
    with pytest.raises(TooFewSeeds, match=r"A verdict on 20 comparisons needs at least 10 .*there are 5. Run 5 more."):
        require_enough(plan(PairedSpread(0.028), 5, comparisons=20))
    require_enough(plan(PairedSpread(0.028), 10, comparisons=20))
    with pytest.raises(TooFewSeeds, match=r"An interval of \+-1.0 points needs at least 39 .*there are 30"):
        require_enough(plan(PairedSpread(0.028), 30, wanted=0.01))
    with pytest.raises(KeepworthError, match=r"half-width of 0.0 cannot be planned"):
        plan(PairedSpread(0.028), 12, wanted=0.0)
    with pytest.raises(KeepworthError, match="more than 1000000 seeds"):
        plan(PairedSpread(0.028), 12, wanted=1e-6)
    with pytest.raises(KeepworthError, match=r"spread of 0.0 \(declared\) plans nothing"):
        PairedSpread(0.0)
    with pytest.raises(TooFewSeeds, match="A pilot needs at least 3"):
        spread({"a": [0.1, 0.2]})
