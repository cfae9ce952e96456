"""Means with intervals, and paired statistics for comparisons of arms.

The methods are scipy's and statsmodels'; only the pairing of results is our own. The unit that is resampled is the one that a
result should generalise over, called a cluster: a rule set, a house, a conversation, a composition. Tasks of one cluster share
rules and noise, so clusters are resampled and tasks are not.

Few clusters have a t interval, because the percentile bootstrap is too narrow there: with 5 normal values a 95 % interval holds
the truth in 82.5 % of runs (`benchmarks/statistics/coverage.json`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.base.errors import KeepworthError
from keepworth.base.extras import require

if TYPE_CHECKING:
    from keepworth.base.arrays import Floats

RESAMPLES = 10_000
SCORE = (0.0, 1.0)
"""The range of a share or a score, for `within`; a difference of two lies within (-1, 1)."""
SMALL = 60
"""Fewer clusters than this have a t interval. `benchmarks/statistics/coverage.json` measures the coverage of both."""
LEAST = 3
"""Fewer clusters than this have no reliable interval."""


class TooFewSeeds(KeepworthError):
    """A question cannot be answered with so few seeds, houses or conversations: there are `have`, it needs `need`."""

    def __init__(self, what: str, have: int, need: int) -> None:
        super().__init__(
            f"{what} needs at least {need} seeds (or whatever else the result should carry over to), and there are {have}.",
            f"Run {need - have} more.",
        )
        self.have, self.need = have, need


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval and the method that gave it. `method` is "t", "logit" (t of a bounded mean), "bootstrap" (percentile), "exact"
    (`constant`), or "none" where the values have no spread, and the interval no width."""

    low: float
    high: float
    method: str


def interval(
    values: Sequence[float],
    counts: Sequence[float] | None = None,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    generator: np.random.Generator | None = None,
    within: tuple[float, float] | None = None,
) -> Interval:
    """Returns the interval of a mean over clusters.

    Args:
        values: One mean per cluster, each counts once. With counts: one sum per cluster.
        counts: How many values each cluster holds, for the mean over all values (a ratio of sums).
        level: The share of such intervals that contain the true mean, between 0 and 1.
        resamples: How often the bootstrap draws.
        generator: The source of the bootstrap's draws; None takes seed 0, so that the same values have the same interval.
        within: The least and the greatest possible value, where they are known. The interval then stays inside, and values
            without any spread have an interval too (`constant`).

    Returns:
        From `SMALL` clusters on, the percentile bootstrap, which never leaves the range of the values. Below, Student's t: for a
        share or a score on the logit scale (`logit`); for a difference, whose bounds lie on both sides of 0, clipped to them, so
        that whether it contains 0 does not depend on the bounds.
    """
    sums = np.asarray(values, dtype=np.float64)
    sizes = np.ones(len(sums)) if counts is None else np.asarray(counts, dtype=np.float64)
    many, mean = len(sums), float(sums.sum() / sizes.sum())
    left = sums - mean * sizes
    if float(np.ptp(left)) <= 1e-12:
        return (
            Interval(mean, mean, "none") if within is None else Interval(*constant(mean, many, within, level), "exact")
        )
    if many < SMALL:
        plain = student(sums, sizes, level)
        if within is None:
            return Interval(*plain, "t")
        if within[0] < 0.0 < within[1]:  # a difference
            return Interval(max(within[0], plain[0]), min(within[1], plain[1]), "t")
        return Interval(*logit(mean, plain[1] - mean, within), "logit")
    require("eval", "An interval", "scipy")
    from scipy.stats import bootstrap

    drawn = bootstrap(
        (sums,) if counts is None else (sums, sizes),
        np.mean if counts is None else _ratio,
        paired=counts is not None,
        vectorized=True,
        confidence_level=level,
        n_resamples=resamples,
        batch=1000,
        method="percentile",
        rng=np.random.default_rng(0) if generator is None else generator,
    ).confidence_interval
    return Interval(float(drawn.low), float(drawn.high), "bootstrap")


def student(sums: Floats, sizes: Floats, level: float = 0.95) -> tuple[float, float]:
    """Returns the t interval of sums over sizes, with one degree of freedom less than clusters. Sizes of 1 give the textbook's
    interval of a mean; for others the ratio is linearised (Cochran, "Sampling Techniques", 1977, equation 6.13).

    Args:
        sums: [clusters] The sum of the values of each cluster.
        sizes: [clusters] The number of values in each cluster.
        level: The share of such intervals that contain the true mean, between 0 and 1.
    """
    require("eval", "An interval", "scipy")
    from scipy.special import stdtrit  # quantiles of t, without the second that all of scipy.stats takes to load

    many, mean = len(sums), float(sums.sum() / sizes.sum())
    left = sums - mean * sizes
    error = float(np.sqrt((left @ left) / (many * (many - 1)))) / float(sizes.mean())
    half = float(stdtrit(many - 1, 0.5 + level / 2.0)) * error
    return mean - half, mean + half


def logit(mean: float, half: float, within: tuple[float, float]) -> tuple[float, float]:
    """Returns the interval `mean` +- `half`, computed on the logit scale and transformed back, so that it stays within the
    bounds.

    The delta method gives the half-width there: half / (p (1 - p)), where p is the mean's place between the bounds. Surveys use
    it for shares of few clusters (Dean and Pagano, "Evaluating Confidence Interval Methods for Binomial Proportions in Clustered
    Surveys", 2015). Far from the bounds it equals `student`'s.

    Args:
        mean: The mean, strictly between the bounds. Otherwise ValueError is raised.
        half: Half the width of the interval on the plain scale, such as `student` gives it.
        within: The least and the greatest possible value.
    """
    least, most = within
    p = (mean - least) / (most - least)
    if not 0.0 < p < 1.0:
        raise ValueError(f"logit: the mean {mean:.4g} is not between {least:g} and {most:g}")
    centre, wide = np.log(p / (1.0 - p)), half / (most - least) / (p * (1.0 - p))
    low, high = (least + (most - least) / (1.0 + float(np.exp(-end))) for end in (centre - wide, centre + wide))
    return low, high


def score_range(values: Sequence[float]) -> tuple[float, float] | None:
    """Returns (0, 1) where all values of a metric lie there, so that it is taken for a share or a score; None for others."""
    return SCORE if all(0.0 <= value <= 1.0 for value in values) else None


def constant(value: float, many: int, within: tuple[float, float], level: float = 0.95) -> tuple[float, float]:
    """Returns the exact interval of a mean where all of `many` clusters had one value, which does not prove that all clusters do.

    By Clopper and Pearson (1934) a share of at least ((1 - level) / 2)^(1 / many) of all clusters has this value; the others lie
    anywhere within the bounds. Where all answers are right, this is the interval of `rate`.

    Args:
        value: The one value that all clusters had.
        many: The number of clusters.
        within: The least and the greatest possible value.
        level: The share of such intervals that contain the true mean, between 0 and 1.
    """
    share = ((1.0 - level) / 2.0) ** (1.0 / many)
    return share * value + (1.0 - share) * within[0], share * value + (1.0 - share) * within[1]


def _ratio(sums: Floats, sizes: Floats, axis: int = -1) -> Any:
    return sums.sum(axis=axis) / sizes.sum(axis=axis)


@dataclass(frozen=True, slots=True)
class MeanEstimate:
    """A mean over `n` questions, or clusters of them, with its 95 % interval (see `interval`) over these."""

    mean: float
    low: float
    high: float
    n: int


def estimate(
    values: Sequence[float], *, clusters: Sequence[str] | None = None, within: tuple[float, float] | None = None
) -> MeanEstimate:
    """Returns the mean of one value per question with its interval. Raises ValueError where there is no value.

    Args:
        values: One value for each question.
        clusters: The cluster of each question (its composition, its text), where questions of one cluster are alike. Each cluster
            counts once and is resampled as a whole: ten questions about one composition are not ten compositions.
        within: As for `interval`, for example `SCORE`.
    """
    if not values:
        raise ValueError("estimate: no values were given, so there is no mean")
    if clusters is not None:
        sums, counts = cluster_sums(values, clusters)
        return estimate([total / count for total, count in zip(sums, counts, strict=True)], within=within)
    mean = sum(values) / len(values)
    bounds = interval(values, within=within)
    return MeanEstimate(mean, bounds.low, bounds.high, len(values))


def rate(hits: int, of: int) -> MeanEstimate:
    """Returns a share of independent cases with its exact 95 % interval (Clopper and Pearson, 1934). So 20 right of 20 do not
    give an interval of width 0. Raises ValueError where there are no cases."""
    if not 0 <= hits <= of or of < 1:
        raise ValueError(f"rate: {hits} of {of} is no share")
    require("eval", "An interval", "statsmodels")
    from statsmodels.stats.proportion import proportion_confint

    low, high = proportion_confint(hits, of, method="beta")
    return MeanEstimate(hits / of, float(low), float(high), of)


def pooled_estimate(
    values: Sequence[float], clusters: Sequence[str], *, within: tuple[float, float] | None = None
) -> MeanEstimate:
    """Returns the mean over all questions, as benchmarks report it, with its interval over clusters of different size.
    `estimate(clusters=...)` counts each cluster once instead.

    Args:
        values: One value for each question.
        clusters: The cluster that each question belongs to, in the same order. The `n` of the estimate counts clusters.
        within: The least and the greatest possible value, as for `interval`; None where they are not known.
    """
    sums, counts = cluster_sums(values, clusters)
    bounds = interval(sums, counts, within=within)
    return MeanEstimate(sum(values) / len(values), bounds.low, bounds.high, len(sums))


def cluster_sums(values: Sequence[float], clusters: Sequence[str]) -> tuple[list[float], list[int]]:
    """Returns each cluster's sum and number of values, in order of appearance. Raises ValueError where there are no values."""
    if not values:
        raise ValueError("no values were given, so there is no mean")
    of_each: dict[str, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        of_each.setdefault(cluster, []).append(value)
    return [sum(members) for members in of_each.values()], [len(members) for members in of_each.values()]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A mean paired difference with its interval over clusters.

    Attributes:
        low, high: The interval at `level`.
        p: The p-value of a two-sided sign-flip permutation test.
        adjusted: p after Holm's correction over the family; equal to p without a family, where `level` is 0.95.
        holds: Whether the corrected interval lies above 0 and `adjusted` is below 0.05.
        method: The method of the interval, see `Interval`.
    """

    name: str
    difference: float
    low: float
    high: float
    p: float
    adjusted: float
    level: float
    clusters: int
    method: str = ""

    @property
    def holds(self) -> bool:
        return self.low > 0.0 and self.adjusted < 0.05


def paired_difference(
    name: str,
    differences: Sequence[float],
    *,
    clusters: Sequence[str] | None = None,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
    within: tuple[float, float] | None = None,
) -> Comparison:
    """Returns the mean paired difference with its interval, and a test that flips the signs of whole clusters.

    The test's null hypothesis is that either arm could have had either result.

    Args:
        name: What the comparison is called in tables.
        differences: One mean paired difference per cluster; with `clusters`, one per question, for the mean over all questions.
        clusters: The cluster of each question.
        level: The share of such intervals that contain the true mean, between 0 and 1.
        resamples: How often the bootstrap draws, and the test flips signs.
        seed: The seed of both.
        within: As for `interval`.

    Raises:
        TooFewSeeds: There are fewer than 3 clusters.
    """
    require("eval", "A test of signs", "scipy")
    from scipy.stats import permutation_test

    if not np.isfinite(np.asarray(differences, dtype=np.float64)).all():
        raise KeepworthError(
            f"the comparison {name!r} has values that are not finite.", "Compare arms on streams that both have run."
        )
    sums, counts = (list(differences), None) if clusters is None else cluster_sums(differences, clusters)
    if len(sums) < LEAST:
        raise TooFewSeeds(f"The comparison {name!r}, which has {len(sums)} clusters,", len(sums), LEAST)
    values = np.asarray(sums, dtype=np.float64)
    generator = np.random.default_rng(seed)
    mean = float(values.sum() / (len(values) if counts is None else sum(counts)))
    if float(np.ptp(values)) == 0.0 and (counts is None or len(set(counts)) == 1):
        p = 1.0 if mean == 0.0 else 2.0 ** (1 - len(values))
        flat = interval(sums, counts, level=level, within=within)
        return Comparison(name, mean, flat.low, flat.high, p, p, level, len(values), flat.method)
    bounds = interval(sums, counts, level=level, resamples=resamples, generator=generator, within=within)
    test = permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=resamples, vectorized=True, rng=generator
    )
    p = float(test.pvalue)
    return Comparison(name, mean, bounds.low, bounds.high, p, p, level, len(values), bounds.method)


ALPHA = 0.05


def family(
    named: Sequence[tuple[str, Sequence[float]]],
    clusters: Sequence[Sequence[str]] | None = None,
    *,
    within: tuple[float, float] | None = None,
) -> list[Comparison]:
    """Compares several pairs with Holm's correction: adjusted p, and intervals at each one's own Holm level.

    Args:
        named: The name of each comparison, and its paired differences.
        clusters: The cluster of each difference, by comparison; None where each difference is a cluster of its own.
        within: The least and the greatest possible difference, as for `interval`; None where they are not known.
    """
    require("eval", "Holm's correction", "statsmodels")
    from statsmodels.stats.multitest import multipletests

    if not named:
        return []
    of = [None] * len(named) if clusters is None else clusters
    plain = [paired_difference(name, values, clusters=groups) for (name, values), groups in zip(named, of, strict=True)]
    adjusted = multipletests([comparison.p for comparison in plain], alpha=ALPHA, method="holm")[1]
    ranks = np.argsort(np.argsort([comparison.p for comparison in plain], kind="stable"), kind="stable")
    rows = []
    for (name, values), groups, single, corrected, rank in zip(named, of, plain, adjusted, ranks, strict=True):
        level = 1.0 - ALPHA / (len(plain) - int(rank))
        wide = paired_difference(name, values, clusters=groups, level=level, within=within)
        rows.append(replace(wide, p=single.p, adjusted=float(corrected)))
    return rows


Scores = Mapping[str, Mapping[str, float]]
"""Scores by arm, then by the key of a question or a seed."""


def compare(
    scores: Scores,
    pairs: Sequence[tuple[str, str]] | None = None,
    clusters: Mapping[str, str] | None = None,
    *,
    within: tuple[float, float] | None = None,
) -> list[Comparison]:
    """Compares pairs of arms, key by key, with Holm's correction over all of them.

    Args:
        scores: The score of each question, by arm and by the question's key.
        pairs: (first, second) for first minus second; all pairs if None.
        clusters: The cluster of each key, which is resampled; each key by itself if None.
        within: As for `interval`, for a difference.

    Raises:
        KeepworthError: An arm is missing, or two arms were not asked the same questions.
    """
    wanted = list(combinations(scores, 2)) if pairs is None else list(pairs)
    if unknown := [arm for pair in wanted for arm in pair if arm not in scores]:
        raise KeepworthError(f"there are no results of the arm {unknown[0]!r}.", f"There are: {', '.join(scores)}.")
    if not wanted:
        return []
    keys = list(scores[wanted[0][0]])
    for arm in dict.fromkeys(arm for pair in wanted for arm in pair):
        apart = set(keys) ^ set(scores[arm])
        if apart:
            raise KeepworthError(
                f"{wanted[0][0]} and {arm} were not asked the same: {len(apart)} keys are of one alone, {min(apart)!r} for one.",
                "Run what is missing, or compare on the keys that both have.",
            )
    named = [
        (f"{first} - {second}", [scores[first][key] - scores[second][key] for key in keys]) for first, second in wanted
    ]
    return family(named, None if clusters is None else [[clusters[key] for key in keys]] * len(named), within=within)
