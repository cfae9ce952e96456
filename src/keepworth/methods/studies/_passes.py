"""Computes pass@k of two systems over the same questions, where their curves cross, and what only one of them solves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from keepworth.base.arrays import Floats
from keepworth.evaluation.study import Rows, differences, rows_of, wrap_names

RESAMPLES = 2000


def pass_at(n: int, right: int, k: int) -> float:
    """Returns the unbiased probability that one of k answers is right, from n answers of which `right` were.

    1 - C(n - c, k) / C(n, k), exactly, then rounded (Chen et al., "Evaluating Large Language Models Trained on Code", arXiv
    2107.03374, equation 1). ValueError unless 0 <= right <= n and 1 <= k <= n.
    """
    if not (0 <= right <= n and 1 <= k <= n):
        raise ValueError(f"pass_at: n={n}, right={right}, k={k}")
    return float(1 - Fraction(math.comb(n - right, k), math.comb(n, k)))


def pass_curves(right: Sequence[int], n: int) -> Floats:
    """Returns [questions, n]: pass@k of each question, k = 1 in the first column."""
    by_count = {count: [pass_at(n, count, k) for k in range(1, n + 1)] for count in set(right)}
    return np.array([by_count[count] for count in right])


def crossing(gap: Floats, ahead: float = 0.0) -> float:
    """Returns the first k at which a gap of two curves has the other sign than at k = 1; infinite where there is none.

    ahead: The sign at k = 1 where it is known, as for a resample of a larger sample.
    """
    ahead = ahead or (float(np.sign(gap[0])) if abs(gap[0]) >= 1e-12 else 0.0)
    if not ahead:
        return math.inf
    other = np.flatnonzero(gap * ahead < -1e-12)
    return float(other[0] + 1) if len(other) else math.inf


def resampled_crossings(gaps: Floats, clusters: Sequence[str], seed: int = 0) -> Floats:
    """Returns where the mean gap crosses in each of `RESAMPLES` bootstrap samples of whole clusters, relative to the sign at k =
    1 of the full sample. gaps: [questions, k]."""
    names = list(dict.fromkeys(clusters))
    of = np.array([names.index(cluster) for cluster in clusters])
    sums = np.stack([gaps[of == index].sum(0) for index in range(len(names))])
    drawn = np.random.default_rng(seed).integers(len(names), size=(RESAMPLES, len(names)))
    ahead = float(np.sign(gaps.mean(0)[0])) if abs(gaps.mean(0)[0]) >= 1e-12 else 0.0
    return np.array([crossing(sums[places].sum(0), ahead) for places in drawn])


def shown_ks(n: int) -> list[int]:
    """Returns 1, 2, 4 ... and n."""
    return sorted({n, *(2**power for power in range(n.bit_length()) if 2**power <= n)})


def compare_passes(right: Mapping[str, Sequence[int]], n: int, clusters: Sequence[str]) -> Rows:
    """Returns the rows of two systems: pass@k of both and the first minus the second, the crossing, and what only one solves.

    Args:
        right: By system, for each question how many of its n answers were right; the first is compared with the second.
        n: Answers to each question, from the same sampler for both.
        clusters: The cluster of each question, which is resampled.
    """
    first, second = right
    curves = {name: pass_curves(counts, n) for name, counts in right.items()}
    gaps = curves[first] - curves[second]
    rows: Rows = []
    for k in shown_ks(n):
        at = {name: curve[:, k - 1].tolist() for name, curve in curves.items()}
        rows += wrap_names(rows_of(at, clusters) + differences(at, [(first, second)], clusters), after=f", pass@{k}")
    solved = {name: np.array(counts) > 0 for name, counts in right.items()}
    for one, other in ((first, second), (second, first)):
        alone = (solved[one] & ~solved[other]).astype(float).tolist()
        rows += rows_of({f"solved by {one} alone, in {n}": alone}, clusters)
    crossed = resampled_crossings(gaps, clusters)
    counted = {"n": len(clusters), "clusters": len(set(clusters))}
    # Order statistics without interpolation, since "never" is infinite.
    ends = np.quantile(crossed, [0.025, 0.975], method="inverted_cdf")
    mean, low, high = (min(value, n + 1.0) for value in (crossing(gaps.mean(0)), *map(float, ends)))
    spread = {"mean": mean, "low": min(low, mean), "high": max(high, mean)}
    rows.append({"arm": f"k from which the other is ahead, {n + 1} for never", **spread, **counted})
    return rows
