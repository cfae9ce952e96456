from __future__ import annotations

import numpy as np
import pytest

from keepworth.base.errors import KeepworthError
from keepworth.base.statistics import (
    SMALL,
    Interval,
    TooFewSeeds,
    cluster_sums,
    compare,
    estimate,
    family,
    interval,
    paired_difference,
    pooled_estimate,
    rate,
)


def test_too_few_clusters_are_refused() -> None:
    with pytest.raises(TooFewSeeds, match=r"at least 3 seeds .* there are 2. Run 1 more.") as error:
        paired_difference("x", [0.1, 0.2])
    assert (error.value.have, error.value.need) == (2, 3)
    with pytest.raises(KeepworthError, match="not finite"):
        paired_difference("x", [0.1, 0.2, float("nan")])


# By hand: mean 2, spread 1, error 1 / sqrt(3). With two degrees of freedom the quantile p of t is (2 p - 1) / sqrt(2 p (1 - p)).
QUANTILE = 0.95 / (2 * 0.975 * 0.025) ** 0.5
HALF = QUANTILE / 3**0.5


def test_few_clusters_have_a_t_interval() -> None:
    found = paired_difference("x", [1.0, 2.0, 3.0])
    assert (found.low, found.high) == (pytest.approx(2.0 - HALF, abs=1e-12), pytest.approx(2.0 + HALF, abs=1e-12))
    assert found.method == "t"
    assert found.p == 0.25  # of 8 ways to flip signs, all and none reach the sum of 6
    assert paired_difference("x", list(np.linspace(-1.0, 3.0, SMALL))).method == "bootstrap"
    alike = estimate([1.0, 2.0, 3.0])
    assert (alike.mean, alike.low, alike.high) == (2.0, found.low, found.high)


def test_constant_values_give_a_zero_width_interval() -> None:
    assert interval([0.5] * 10) == Interval(0.5, 0.5, "none")
    assert interval([1.0, 2.0, 3.0], [2, 4, 6]) == Interval(0.5, 0.5, "none")  # sums and counts: each mean is 1/2
    assert paired_difference("x", [0.0] * 8).p == 1.0
    assert paired_difference("x", [0.25] * 8).p == 2.0**-7


def test_bounded_scores_always_have_an_interval_width() -> None:
    share = 0.025**0.1
    assert interval([1.0] * 10, within=(0.0, 1.0)) == Interval(pytest.approx(share), 1.0, "exact")  # type: ignore[arg-type]
    assert interval([1.0] * 10, within=(0.0, 1.0)).low == pytest.approx(rate(10, 10).low, abs=1e-12)
    assert interval([0.0] * 10, within=(0.0, 1.0)).high == pytest.approx(rate(0, 10).high, abs=1e-12)
    level = interval([0.0] * 10, within=(-1.0, 1.0))
    assert (level.low, level.high) == (pytest.approx(share - 1.0), pytest.approx(1.0 - share))


def test_interval_stays_within_the_score_range() -> None:
    values = [0.0] * 9 + [0.2, 0.2, 1.0]
    assert interval(values).low < 0.0
    found = interval(values, within=(0.0, 1.0))
    assert 0.0 < found.low < sum(values) / 12 < found.high < 1.0
    assert found.method == "logit"
    assert interval([0.9, 1.0, 0.2], within=(-1.0, 1.0)).high == 1.0  # a difference is clipped


def test_the_logit_interval_by_hand() -> None:
    # Mean 1/2 and error 1/6 of ten: the logit is 0, its half-width 4 times t(0.975, 9) / 6.
    found = interval([1.0, 0.0] * 5, within=(0.0, 1.0))
    assert found.high == pytest.approx(1.0 / (1.0 + np.exp(-4.0 * 2.2621571628 / 6.0)), abs=1e-9)
    assert found.low == pytest.approx(1.0 - found.high)


def test_logit_intervals_of_clusters_hold_the_truth() -> None:
    """Twelve clusters of eight answers each, right in a tenth of cases, with a correlation within clusters of 0.1."""
    generator, held = np.random.default_rng(8), 0
    for _ in range(400):
        levels = generator.beta(0.9, 8.1, 12)
        values = generator.binomial(8, levels) / 8
        found = interval(values.tolist(), within=(0.0, 1.0))
        held += found.low <= 0.1 <= found.high
    assert held / 400 > 0.92


def test_a_share_is_never_sure_of_itself() -> None:
    # Clopper and Pearson by hand: n right of n, low = (alpha / 2)^(1 / n).
    whole = rate(20, 20)
    assert (whole.mean, whole.low, whole.high) == (1.0, pytest.approx(0.025 ** (1 / 20), abs=1e-12), 1.0)
    assert rate(0, 20).high == pytest.approx(1.0 - 0.025 ** (1 / 20), abs=1e-12)
    with pytest.raises(ValueError, match="0 of 0"):
        rate(0, 0)


VALUES, OF = [1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0], ["a", "a", "a", "b", "b", "c", "c"]


def test_clusters_are_resampled_whole() -> None:
    assert cluster_sums(VALUES, OF) == ([2.0, 1.0, 1.0], [3, 2, 2])
    assert estimate(VALUES, clusters=OF).mean == pytest.approx((2 / 3 + 1 / 2 + 1 / 2) / 3)
    pooled = pooled_estimate(VALUES, OF)
    assert (pooled.mean, pooled.n) == (4 / 7, 3)
    # By hand: sums less 4/7 of the counts are 2/7, -1/7, -1/7; their squares are 6/49; the error sqrt(6/49 / 6) / (7/3) = 3/49.
    assert pooled.high - pooled.mean == pytest.approx(QUANTILE * 3 / 49, abs=1e-12)


def test_the_error_of_a_pooled_mean_is_that_of_statsmodels() -> None:
    from statsmodels.api import OLS

    generator = np.random.default_rng(5)
    groups = np.repeat(np.arange(12), generator.integers(1, 9, 12))
    values = generator.normal(size=len(groups)) + generator.normal(size=12)[groups]
    fit = OLS(values, np.ones(len(values))).fit(cov_type="cluster", cov_kwds={"groups": groups}, use_t=True)
    found = pooled_estimate(values.tolist(), [str(group) for group in groups])
    # Its correction for small samples is G / (G - 1) * (N - 1) / (N - 1): the same for a mean alone.
    assert (found.low, found.high) == pytest.approx(tuple(fit.conf_int()[0]), abs=1e-12)


def test_many_clusters_of_unlike_size_have_the_bootstrap_of_a_ratio() -> None:
    generator = np.random.default_rng(6)
    of = [str(each) for each in np.repeat(np.arange(60), generator.integers(1, 9, 60))]
    values = generator.normal(0.3, 1.0, len(of)).tolist()
    found = pooled_estimate(values, of)
    assert found.mean == pytest.approx(float(np.mean(values)))
    assert found.low < found.mean < found.high
    compared_ = paired_difference("x", values, clusters=of)
    assert (compared_.clusters, compared_.method) == (60, "bootstrap")
    assert compared_.difference == pytest.approx(found.mean)


def test_p_is_uniform_where_there_is_no_difference() -> None:
    from scipy.stats import kstest

    generator = np.random.default_rng(7)
    draws = (generator.normal(0.0, 1.0, 12).tolist() for _ in range(200))
    ps = [paired_difference("x", values, resamples=200, seed=seed).p for seed, values in enumerate(draws)]
    assert kstest(ps, "uniform").pvalue > 0.01


def test_holm_by_hand_and_as_statsmodels_has_it() -> None:
    from statsmodels.stats.multitest import multipletests

    # Twelve clusters, so p is exact: 2 (1 + flips that reach the sum) / 4096.
    named = [
        ("all up", [0.5, 0.4, 0.3, 0.6, 0.2, 0.5, 0.4, 0.3, 0.6, 0.2, 0.1, 0.7]),
        ("nearly", [0.5, 0.4, 0.3, 0.6, 0.2, 0.5, 0.4, 0.3, 0.6, 0.2, -0.1, 0.7]),
        ("none", [0.5, -0.4, 0.3, -0.6, 0.2, -0.5, 0.4, -0.3, 0.6, -0.2, 0.1, -0.7]),
    ]
    found = family(named)
    assert found[0].p == 2 / 4096
    assert found[1].p == 4 / 4096
    assert [each.adjusted for each in found[:2]] == [3 * 2 / 4096, 2 * 4 / 4096]
    assert [each.adjusted for each in found] == multipletests([each.p for each in found], method="holm")[1].tolist()
    assert [each.level for each in found] == pytest.approx([1 - 0.05 / 3, 1 - 0.05 / 2, 0.95])


SCORES = {
    "ours": {"q1": 1.0, "q2": 0.0, "q3": 1.0, "q4": 1.0},
    "theirs": {"q1": 0.0, "q2": 0.0, "q3": 1.0, "q4": 0.5},
    "none": {"q1": 0.0, "q2": 0.0, "q3": 0.0, "q4": 0.0},
}


def test_any_arm_against_any_arm() -> None:
    found = compare(SCORES)
    assert [each.name for each in found] == ["ours - theirs", "ours - none", "theirs - none"]
    assert [each.difference for each in found] == [0.375, 0.75, 0.375]
    (alone,) = compare(SCORES, [("none", "ours")])
    assert (alone.difference, alone.clusters) == (-0.75, 4)
    (whole,) = compare(SCORES, [("ours", "none")], {"q1": "a", "q2": "b", "q3": "b", "q4": "c"})
    assert (whole.difference, whole.clusters) == (0.75, 3)
    with pytest.raises(KeepworthError, match=r"no results of the arm 'other'. There are: ours"):
        compare(SCORES, [("ours", "other")])
    with pytest.raises(KeepworthError, match="ours and theirs were not asked the same: 1 keys are of one alone, 'q4'"):
        compare({"ours": SCORES["ours"], "theirs": {"q1": 0.0, "q2": 0.0, "q3": 1.0}})
