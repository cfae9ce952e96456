"""What stands behind a score: where points were lost, whether evidence was found, and how far what was learned carries.

Pure functions of ids, numbers and texts: nothing here knows a system, a benchmark or a model. Scores are in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.extras import require
from keepworth.evaluation.statistics import (
    SCORE,
    Comparison,
    MeanEstimate,
    bootstrapped,
    estimate,
    paired_difference,
    rate,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

# Where points go: how far the evidence of a question came on its way into the answer.

NEVER_WRITTEN, LOST, NOT_RETRIEVED, NOT_SELECTED, NOT_USED = (
    "never written",
    "lost",
    "not retrieved",
    "not selected",
    "not used",
)
NOT_SHOWN = "not shown"
"""In place of the two before it, for a system that does not say what it chose from."""
UNMARKED = "no evidence marked"
STAGES = (NEVER_WRITTEN, LOST, NOT_RETRIEVED, NOT_SELECTED, NOT_SHOWN, NOT_USED, UNMARKED)
RIGHT = 0.5
"""A score from which an answer counts as right where answers are counted."""


def stage(
    evidence: Iterable[str],
    *,
    shown: Iterable[str],
    candidates: Iterable[str] | None = None,
    kept_items: Iterable[str] | None = None,
    written: Iterable[str] | None = None,
) -> str:
    """The first place where some of the evidence went missing; `NOT_USED` where all of it was shown, which is where the points of
    a wrong answer went then. Ids of turns or sessions throughout.

    written: of what something was ever stored; kept_items: of what the memory holds when it is asked; candidates: of what was
    retrieved, before anything was cut off. None where the system does not say: nothing is put down to that stage then."""
    wanted = set(evidence)
    if not wanted:
        return UNMARKED
    for name, met in ((NEVER_WRITTEN, written), (LOST, kept_items), (NOT_RETRIEVED, candidates)):
        if met is not None and not wanted <= set(met):
            return name
    if not wanted <= set(shown):
        return NOT_SHOWN if candidates is None else NOT_SELECTED
    return NOT_USED


@dataclass(frozen=True, slots=True)
class Points:
    """scored: the mean score; lost: by stage, the mean of what was not scored (they add up to 1 with `scored`); lucky: the share
    of all questions that were answered rightly though some of their evidence was not shown. n: questions."""

    scored: float
    lost: Mapping[str, float]
    lucky: float
    n: int


def where_points_go(stages: Sequence[str], scores: Sequence[float]) -> Points:
    """stages: of each question, by `stage`. ValueError for a score outside [0, 1], and where there is no question."""
    if not scores or len(stages) != len(scores):
        raise ValueError(f"where_points_go: {len(stages)} stages for {len(scores)} scores")
    if outside := [value for value in scores if not 0.0 <= value <= 1.0]:
        raise ValueError(f"where_points_go: a score of {outside[0]} is not in [0, 1]")
    n = len(scores)
    pairs = list(zip(stages, scores, strict=True))
    lost = {name: math.fsum(1.0 - score for own, score in pairs if own == name) / n for name in STAGES}
    lucky = sum(score >= RIGHT and own not in (NOT_USED, UNMARKED) for own, score in pairs) / n
    return Points(math.fsum(scores) / n, {name: value for name, value in lost.items() if value}, lucky, n)


# Evidence found.


@dataclass(frozen=True, slots=True)
class Recall:
    """Among the first k: share of the evidence, whether any of it, whether all of it is there (LongMemEval, arXiv 2410.10813, has
    the last two), and the discounted gain with gains of 0 and 1."""

    share: float
    any: float
    all: float
    ndcg: float


def recall_at(
    ranked: Sequence[str], evidence: Iterable[str], k: int, of: Callable[[str], str] | None = None
) -> Recall | None:
    """None where a question has no evidence marked. ranked: ids, the best first.

    of: what counts in place of an id, such as its session: each counts once, at its best place, and k counts sessions then."""
    named = of or str
    wanted = {named(each) for each in evidence}
    if not wanted:
        return None
    first = list(dict.fromkeys(map(named, ranked)))[:k]
    met = wanted.intersection(first)
    gain = math.fsum(1.0 / math.log2(place + 2) for place, each in enumerate(first) if each in wanted)
    best = math.fsum(1.0 / math.log2(place + 2) for place in range(min(k, len(wanted))))
    return Recall(len(met) / len(wanted), float(bool(met)), float(met == wanted), gain / best if best else 0.0)


# Abstention: questions that the memory cannot answer, and answers that say so (`tasks.metrics.abstains`).


@dataclass(frozen=True, slots=True)
class Abstention:
    """precision: of the answers that abstain, those on questions without an answer; recall: of those questions, the ones it
    abstained on (the others were made up); refused: answerable questions that it abstained on; answered_score: mean score on
    answerable questions where it answered, and score: with a right abstention as 1 and a wrong one as 0. None where there is
    nothing to take it of."""

    precision: MeanEstimate | None
    recall: MeanEstimate | None
    refused: MeanEstimate | None
    answered_score: float | None
    score: float
    n: int


def abstention(abstained: Sequence[bool], answerable: Sequence[bool], scores: Sequence[float]) -> Abstention:
    """Of one system: whether it abstained, whether there was an answer, and the score of the answer, question by question."""
    if not len(abstained) == len(answerable) == len(scores) or not scores:
        raise ValueError(f"abstention: {len(abstained)}, {len(answerable)} and {len(scores)} of the same questions")
    rows = list(zip(abstained, answerable, scores, strict=True))

    def share(hits: Sequence[bool]) -> MeanEstimate | None:
        return rate(sum(hits), len(hits)) if hits else None

    answered = [score for gave_up, can, score in rows if can and not gave_up]
    counted = [(0.0 if gave_up else score) if can else float(gave_up) for gave_up, can, score in rows]
    return Abstention(
        share([not can for gave_up, can, _ in rows if gave_up]),
        share([gave_up for gave_up, can, _ in rows if not can]),
        share([gave_up for gave_up, can, _ in rows if can]),
        math.fsum(answered) / len(answered) if answered else None,
        math.fsum(counted) / len(rows),
        len(rows),
    )


# pass@k, and where the curves of two models cross.


def pass_at(n: int, correct: int, k: int) -> float:
    """The chance that one of k samples is right, without bias, from n samples of which `correct` were.

    1 - C(n - c, k) / C(n, k), exactly, then rounded (Chen et al., "Evaluating Large Language Models Trained on Code",
    arXiv 2107.03374, equation 1). ValueError unless 0 <= correct <= n and 1 <= k <= n."""
    if not (0 <= correct <= n and 1 <= k <= n):
        raise ValueError(f"pass_at: n={n}, correct={correct}, k={k}")
    return float(1 - Fraction(math.comb(n - correct, k), math.comb(n, k)))


@dataclass(frozen=True, slots=True)
class PassCurve:
    """mean, low, high: of pass@k over problems, for k = 1 to n; the interval resamples problems. coverage: share of problems with
    one right sample."""

    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    problems: int

    @property
    def coverage(self) -> float:
        return self.mean[-1]


def pass_curve(correct: Sequence[int], n: int, *, seed: int = 0) -> PassCurve:
    """correct: of each problem, how many of its n samples were right. k near n has a wide spread: n of at least 2 k is usual."""
    curves = _curves(correct, n)
    mean, low, high = curves.mean(axis=0), [], []
    for column in curves.T:
        ends = (float(column[0]),) * 2
        if column.min() < column.max():
            ends = bootstrapped((column,), np.mean, np.random.default_rng(seed), resamples=2000)
        low.append(ends[0])
        high.append(ends[1])
    return PassCurve(tuple(mean.tolist()), tuple(low), tuple(high), len(correct))


@dataclass(frozen=True, slots=True)
class Crossing:
    """k: the fewest samples with which the model that is behind at k = 1 is ahead, None where it never is. share: of resamples in
    which the curves cross at all; low, high: of the middle 95 % of resamples, inf where they do not cross. first_ahead: the
    model that is ahead at k = 1, "" for neither. only_first, only_second: problems that one model alone ever solves."""

    k: int | None
    share: float
    low: float
    high: float
    first_ahead: str
    only_first: int
    only_second: int


def crossing(first: Sequence[int], second: Sequence[int], n: int, *, resamples: int = 2000, seed: int = 0) -> Crossing:
    """Where two models' pass@k over the same problems cross, each with n samples a problem under the same sampler.

    A tuned model that is ahead at k = 1 and overtaken at a larger k has sharpened what the base could do already ("Does
    Reinforcement Learning Really Incentivize Reasoning Capacity", arXiv 2504.13837). Problems are resampled, in pairs."""
    if len(first) != len(second) or not first:
        raise ValueError(f"crossing: {len(first)} and {len(second)} problems: they must be the same")
    gaps = _curves(first, n) - _curves(second, n)
    mean = gaps.mean(axis=0)
    drawn = np.random.default_rng(seed).integers(len(first), size=(resamples, len(first)))
    met = np.array([_crosses(gaps[rows].mean(axis=0)) for rows in drawn])
    # Order statistics, not interpolated: half way to "never" is no number of samples.
    low, high = np.quantile(met, [0.025, 0.975], method="inverted_cdf")
    at = _crosses(mean)
    ahead = "" if abs(mean[0]) < 1e-12 else "first" if mean[0] > 0 else "second"
    return Crossing(
        None if math.isinf(at) else int(at),
        float(np.isfinite(met).mean()),
        float(low),
        float(high),
        ahead,
        sum(a > 0 and b == 0 for a, b in zip(first, second, strict=True)),
        sum(b > 0 and a == 0 for a, b in zip(first, second, strict=True)),
    )


def _curves(correct: Sequence[int], n: int) -> Floats:
    """pass@k (problems, n): k = 1 in the first column."""
    by_count = {c: [pass_at(n, c, k) for k in range(1, n + 1)] for c in set(correct)}
    return np.array([by_count[c] for c in correct])


def _crosses(gap: Floats) -> float:
    """The first k whose gap has the other sign than the gap at k = 1; inf where there is none."""
    if abs(gap[0]) < 1e-12:
        return math.inf
    other = np.flatnonzero(gap * np.sign(gap[0]) < -1e-12)
    return float(other[0] + 1) if len(other) else math.inf


# How far it carries: to the same instance, to its template, to its family.

TIERS = ("instance", "template", "family", "new")
"""Seen in practice: this very instance; its template with other values; another template of its family; nothing of the kind."""


def tier(instance: str, template: str, family: str, practised: Iterable[tuple[str, str, str]]) -> str:
    """How near a test case is to what was practised. practised: (instance, template, family) of each case of practice."""
    met = list(practised)
    own = (instance, template, family)
    return next((name for place, name in enumerate(TIERS[:3]) if any(case[place] == own[place] for case in met)), "new")


def by_tier(
    cases: Sequence[tuple[str, str, str]], tiers: Sequence[str], scores: Sequence[float]
) -> dict[str, MeanEstimate]:
    """The mean score of each tier, with an interval over what that tier carries over to: instances where the instance was seen,
    templates where the template was, families elsewhere. Each of those counts once."""
    found = {}
    for place, name in ((0, "instance"), (1, "template"), (2, "family"), (2, "new")):
        own = [(score, case[place]) for case, at, score in zip(cases, tiers, scores, strict=True) if at == name]
        if own:
            found[name] = estimate([score for score, _ in own], clusters=[unit for _, unit in own], within=SCORE)
    return found


# From one domain to another.


def cross_domain(
    scores: Mapping[tuple[str, str], Sequence[float]], base: Mapping[str, Sequence[float]]
) -> dict[str, dict[str, Comparison]]:
    """The gain over `base` on each domain after practice on each: rows are what was practised ("a" or "a+b"), columns what was
    tested. The diagonal is in-domain ("Can One Domain Help Others?", arXiv 2507.17512).

    scores: of (practised, tested), one for each question, in the order of `base[tested]`. KeepworthError where they differ."""
    found: dict[str, dict[str, Comparison]] = {}
    for (practised, tested), values in scores.items():
        without = base.get(tested)
        if without is None or len(without) != len(values):
            raise KeepworthError(
                f"{practised} was tested on {len(values)} questions of {tested}, and the base on {len(without or ())}.",
                "Measure both on the same questions.",
            )
        gains = [value - other for value, other in zip(values, without, strict=True)]
        found.setdefault(practised, {})[tested] = paired_difference(f"{practised} on {tested}", gains)
    return found


def transfer(matrix: Mapping[str, Mapping[str, Comparison]]) -> tuple[float, float]:
    """The mean gain in the domains that were practised, and in those that were not; nan where there are none."""
    gains: dict[bool, list[float]] = {True: [], False: []}
    for practised, row in matrix.items():
        for tested, each in row.items():
            gains[tested in practised.split("+")].append(each.difference)
    inside, outside = (math.fsum(own) / len(own) if own else math.nan for own in gains.values())
    return inside, outside


# Few-shot memories in weights and in a store: recognised, recalled, retained.


@dataclass(frozen=True, slots=True)
class Retention:
    """One probe of one item. arm: "weights", "store" ...; exposures: how often it was met; delay: further items written, or
    updates made, since; score: exact recall from a partial cue, or a recognition that was right."""

    arm: str
    item: str
    exposures: int
    delay: int
    score: float


def retention(rows: Sequence[Retention]) -> dict[tuple[str, int, int], MeanEstimate]:
    """By (arm, exposures, delay): mean score over items. "Recognition, recall, and retention of few-shot memories in large
    language models" (arXiv 2303.17557) has the design: exposures times delay."""
    cells: dict[tuple[str, int, int], dict[str, list[float]]] = {}
    for row in rows:
        cells.setdefault((row.arm, row.exposures, row.delay), {}).setdefault(row.item, []).append(row.score)
    return {
        cell: estimate([sum(own) / len(own) for own in items.values()], within=SCORE)
        for cell, items in sorted(cells.items())
    }


def retained(rows: Sequence[Retention], first: str, second: str) -> dict[tuple[int, int], Comparison]:
    """By (exposures, delay): how much more of the same items one arm kept than the other. Items that one arm lacks are left out;
    TooFewSeeds where fewer than 3 are left."""
    means: dict[tuple[str, int, int], dict[str, list[float]]] = {}
    for row in rows:
        means.setdefault((row.arm, row.exposures, row.delay), {}).setdefault(row.item, []).append(row.score)
    found = {}
    for (arm, exposures, delay), own in sorted(means.items()):
        other = means.get((second, exposures, delay), {})
        both = [item for item in own if item in other]
        if arm == first and both:
            gaps = [sum(own[item]) / len(own[item]) - sum(other[item]) / len(other[item]) for item in both]
            name = f"{first} - {second}, {exposures} exposures, after {delay}"
            found[exposures, delay] = paired_difference(name, gaps)
    return found


def recognition(stored: Sequence[float], lures: Sequence[float]) -> float:
    """The chance that a stored item scores higher than a lure, ties as half (the area under the ROC curve; Mann and Whitney)."""
    if not stored or not lures:
        raise ValueError(f"recognition: {len(stored)} stored items against {len(lures)} lures")
    require("eval", "Recognition", "scipy")
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(stored, lures, method="asymptotic").statistic) / (len(stored) * len(lures))
