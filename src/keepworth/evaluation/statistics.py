"""Means with intervals, and paired statistics for comparisons of arms: cluster bootstrap, sign-flip permutation, Holm.

All from scipy and statsmodels; what is ours is only how results are paired. A cluster is one rule set with its seed: tasks
of one cluster share rules and noise, so clusters are resampled and tasks are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.extras import require

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

RESAMPLES = 10_000


def bootstrapped(
    samples: tuple[Floats, ...],
    statistic: Callable[..., Any],
    generator: np.random.Generator,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    batch: int | None = None,
) -> tuple[float, float]:
    """The percentile interval of a statistic over samples that are resampled together. batch: resamples computed at once."""
    require("train", "An interval", "scipy")
    from scipy.stats import bootstrap

    interval = bootstrap(
        samples,
        statistic,
        paired=len(samples) > 1,
        vectorized=True,
        confidence_level=level,
        n_resamples=resamples,
        batch=batch,
        method="percentile",
        rng=generator,
    ).confidence_interval
    return float(interval.low), float(interval.high)


@dataclass(frozen=True, slots=True)
class MeanEstimate:
    """A mean over `n` questions, or clusters of them, with its 95 % interval (percentile bootstrap over what `n` counts)."""

    mean: float
    low: float
    high: float
    n: int


def estimate(values: Sequence[float], *, seed: int = 0, clusters: Sequence[str] | None = None) -> MeanEstimate:
    """The mean of one value per question. Raises ValueError where there is none.

    clusters: of each question, what is to be generalised over, where questions are alike within it (the composition, the
    text). Each counts once, and resampled are clusters: ten questions of one composition are no ten compositions."""
    if not values:
        raise ValueError("estimate: no values were given, so there is no mean")
    if clusters is not None:
        of_each: dict[str, list[float]] = {}
        for value, cluster in zip(values, clusters, strict=True):
            of_each.setdefault(cluster, []).append(value)
        return estimate([sum(own) / len(own) for own in of_each.values()], seed=seed)
    mean = sum(values) / len(values)
    if min(values) == max(values):
        # Every resample is the same; scipy warns and returns nan.
        return MeanEstimate(mean, mean, mean, len(values))
    low, high = bootstrapped((np.asarray(values, dtype=float),), np.mean, np.random.default_rng(seed), batch=1000)
    return MeanEstimate(mean, low, high, len(values))


def paired_gain(values: Sequence[float], baseline: Sequence[float]) -> MeanEstimate:
    """The mean of value - baseline, question by question. Raises ValueError where the lists are not of one length."""
    if len(values) != len(baseline):
        raise ValueError(
            f"paired_gain: {len(values)} values against {len(baseline)}: they must be of the same questions"
        )
    return estimate([value - other for value, other in zip(values, baseline, strict=True)])


@dataclass(frozen=True, slots=True)
class Comparison:
    """Mean paired difference over clusters with its interval at `level`; p: two-sided, sign-flip permutation.

    adjusted: p after Holm over the family; holds: whether the corrected interval lies above 0. Where a comparison was not
    part of a family, adjusted equals p and level is 0.95."""

    name: str
    difference: float
    low: float
    high: float
    p: float
    adjusted: float
    level: float
    clusters: int

    @property
    def holds(self) -> bool:
        return self.low > 0.0 and self.adjusted < 0.05


def paired_difference(
    name: str, differences: Sequence[float], *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Comparison:
    """differences: one mean paired difference per cluster. Fewer than 3 clusters are refused: no interval is honest."""
    require("train", "A test of signs", "scipy")
    from scipy.stats import permutation_test

    values = np.asarray(differences, dtype=np.float64)
    if len(values) < 3 or not np.isfinite(values).all():
        raise KeepworthError(
            f"the comparison {name!r} has {len(values)} clusters{'' if np.isfinite(values).all() else ', some not finite'}.",
            "Run at least 3 seeds, and compare arms on streams that both have run.",
        )
    mean = float(values.mean())
    if float(np.ptp(values)) == 0.0:
        p = 1.0 if mean == 0.0 else 2.0 ** (1 - len(values))
        return Comparison(name, mean, mean, mean, p, p, level, len(values))
    generator = np.random.default_rng(seed)
    low, high = bootstrapped((values,), np.mean, generator, level=level, resamples=resamples)
    test = permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=resamples, vectorized=True, rng=generator
    )
    p = float(test.pvalue)
    return Comparison(name, mean, low, high, p, p, level, len(values))


ALPHA = 0.05


def family(named: Sequence[tuple[str, Sequence[float]]]) -> list[Comparison]:
    """Comparisons corrected together by Holm: adjusted p, and intervals at each one's own Holm level."""
    require("train", "Holm's correction", "statsmodels")
    from statsmodels.stats.multitest import multipletests

    if not named:
        return []
    plain = [paired_difference(name, values) for name, values in named]
    adjusted = multipletests([each.p for each in plain], alpha=ALPHA, method="holm")[1]
    ranks = np.argsort(np.argsort([each.p for each in plain], kind="stable"), kind="stable")
    found = []
    for (name, values), each, corrected, rank in zip(named, plain, adjusted, ranks, strict=True):
        level = 1.0 - ALPHA / (len(plain) - int(rank))
        wide = paired_difference(name, values, level=level)
        found.append(
            Comparison(name, each.difference, wide.low, wide.high, each.p, float(corrected), level, each.clusters)
        )
    return found


BINS = 10


def calibration(predicted: Sequence[float], realised: Sequence[float]) -> dict[str, object]:
    """Expected calibration error, correlation, and the reliability curve of value estimates clipped to [0, 1]."""
    p, r = np.clip(np.asarray(predicted, dtype=np.float64), 0.0, 1.0), np.asarray(realised, dtype=np.float64)
    if len(p) < 10:
        return {"n": len(p), "error": None, "correlation": None, "curve": []}
    place = np.minimum((p * BINS).astype(int), BINS - 1)
    curve, error = [], 0.0
    for each in range(BINS):
        inside = place == each
        if inside.any():
            mean_p, mean_r, count = float(p[inside].mean()), float(r[inside].mean()), int(inside.sum())
            curve.append([mean_p, mean_r, count])
            error += count / len(p) * abs(mean_p - mean_r)
    varied = float(p.std()) > 1e-9 and float(r.std()) > 1e-9
    return {
        "n": len(p),
        "error": error,
        "correlation": float(np.corrcoef(p, r)[0, 1]) if varied else None,
        "curve": curve,
    }
