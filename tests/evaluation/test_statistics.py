from __future__ import annotations

import numpy as np
import pytest

from keepworth.episodes.errors import KeepworthError
from keepworth.evaluation.statistics import calibration, family, paired_difference


def test_the_interval_covers_the_true_mean() -> None:
    generator = np.random.default_rng(0)
    hits = 0
    for seed in range(100):
        values = generator.normal(0.05, 0.1, size=30)
        found = paired_difference("x", values.tolist(), resamples=1000, seed=seed)
        hits += found.low <= 0.05 <= found.high
    assert hits >= 85


def test_no_difference_is_rarely_called_one() -> None:
    generator = np.random.default_rng(1)
    called = sum(
        paired_difference("x", generator.normal(0.0, 0.1, size=30).tolist(), resamples=1000, seed=seed).p < 0.05
        for seed in range(100)
    )
    assert called <= 13


def test_holm_is_stricter_than_single_tests_and_keeps_order() -> None:
    generator = np.random.default_rng(2)
    named = [(f"c{place}", generator.normal(shift, 0.1, 20).tolist()) for place, shift in enumerate((0.3, 0.05, 0.0))]
    found = family(named)
    assert [each.name for each in found] == ["c0", "c1", "c2"]
    assert found[0].holds
    assert found[0].level == pytest.approx(1 - 0.05 / 3)
    assert all(each.adjusted >= each.p for each in found)
    assert not found[2].holds


def test_too_few_clusters_are_refused() -> None:
    with pytest.raises(KeepworthError, match="2 clusters"):
        paired_difference("x", [0.1, 0.2])
    with pytest.raises(KeepworthError, match="not finite"):
        paired_difference("x", [0.1, 0.2, float("nan")])


def test_calibration_of_a_perfect_and_a_boastful_forecaster() -> None:
    generator = np.random.default_rng(3)
    p = generator.random(20_000)
    r = (generator.random(20_000) < p).astype(float)
    assert calibration(p.tolist(), r.tolist())["error"] < 0.02
    assert calibration([0.9] * 1000, [0.5, 0.5 - 0.5] * 500)["error"] == pytest.approx(0.65)
