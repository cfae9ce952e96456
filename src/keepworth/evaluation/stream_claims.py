"""The claims of a matrix of arms: one method compared with every rival that was run, with intervals and verdicts.

Rivals are all arms that learn from reward and are not variants of the method. All comparisons with them, on all streams, while
learning and frozen, are one family (Holm).

The units that are resampled are those that the results should generalise over: rule sets, houses, draws of games, one for each
seed; never the tasks of one of them. A family of m comparisons needs enough seeds for a sign-flip test to reach 0.05 / m at all;
below that the verdict says so, whatever the difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from keepworth.base.statistics import ALPHA, LEAST, Comparison, family, paired_difference
from keepworth.evaluation.power import DECLARED, SeedPlan, fewest, plan
from keepworth.evaluation.stream import Results, StreamRow

METHOD = "default"
"""The arm that claims are made about, where it runs and none is named."""
CONTROL_ABOUT = {
    "none": "no memory",
    "attempts": "no memory; a second attempt where the first failed",
    "random": "records drawn by chance",
    "irrelevant": "records drawn by chance among those of other rules",
    "oracle": "records whose advice is right here: what there is to gain",
}
CONTROLS = tuple(CONTROL_ABOUT)
EASY = ("benign", "similarity-mid", "similarity-low")
MARGIN = 0.02

NamedValues = list[tuple[str, list[float]]]
MEASURES: dict[str, Callable[[StreamRow], float]] = {"stream": attrgetter("auc"), "frozen": attrgetter("final")}


def rivals(arms: Sequence[str], method: str = METHOD) -> list[str]:
    """Returns the arms that learn from reward, other than `method` and its variants. ARM+published and ARM+on count, as other
    settings."""
    variants = (f"{method}-without-", f"{method}+")
    return [
        arm
        for arm in arms
        if arm.partition("+")[0] not in CONTROLS
        and arm.partition("+")[2] in ("", "published", "on")
        and arm != method
        and not arm.startswith(variants)
    ]


def choose_method(arms: Sequence[str], given: str = "") -> str:
    """Returns the arm that claims are made about: the given one, else `METHOD` where it runs, else the last that learns."""
    learning = [arm for arm in rivals(arms, "") if "-without-" not in arm]
    return given or (METHOD if METHOD in arms or not learning else learning[-1])


def claims(results: Results, method: str = METHOD) -> dict[str, Any]:
    """Returns the comparisons of `method`, each with its verdict. Streams or arms that were not run are left out."""
    others = rivals(results.arms, method)
    parts = sorted(arm for arm in results.arms if arm.startswith(f"{method}-without-") and "+" not in arm)
    against = _family(_against(results, method, results.families, others, tuple(MEASURES)))
    return {
        "against_rivals": against,
        "best_rival": _best(results, method, others, against),
        "not_worse": _margin(_against(results, method, EASY, others)),
        "gain_left_when_permuted": _remaining(results, f"{method}+shuffled"),
        "gain_left_when_masked": _remaining(results, f"{method}+masked"),
        "no_lower_than_none": _margin(_against(results, method, results.families, ("none",))),
        "parts": _family(_against(results, method, results.families, parts)),
    }


def plan_power(streams: Sequence[str], arms: Sequence[str], seeds: int, *, method: str = METHOD) -> SeedPlan | None:
    """Returns the power of these seeds for claims about a method; None for one seed or no rival.

    Args:
        streams: The names of the streams.
        arms: The names of all arms.
        seeds: The number of seeds.
        method: The arm that claims are about.
    """
    comparisons = len(streams) * len(rivals(arms, method)) * len(MEASURES)
    if seeds < 2 or not comparisons or method not in arms:
        return None
    return plan(DECLARED, seeds, comparisons=comparisons)


def verdict(comparison: Comparison, needed: int) -> str:
    """Returns the verdict of a comparison, "too few seeds" where it could not be significant."""
    if comparison.clusters < needed:
        return "too few seeds"
    if comparison.adjusted < ALPHA and comparison.low > 0.0:
        return "ahead"
    if comparison.adjusted < ALPHA and comparison.high < 0.0:
        return "behind"
    return "cannot be told apart"


def _against(
    results: Results, arm: str, names: Sequence[str], others: Sequence[str], measures: Sequence[str] = ("stream",)
) -> NamedValues:
    named = [
        (f"{arm} - {other} on {name}, {where}", results.differences(name, arm, other, MEASURES[where]))
        for where in measures
        for name in names
        for other in others
        if results.has(name, arm, other)
    ]
    return [(name, values) for name, values in named if np.isfinite(values).all()]


def _family(named: NamedValues) -> list[dict[str, Any]]:
    """Corrects comparisons together. Returns [] where one of them has fewer clusters than an interval needs."""
    if not named or any(len(values) < LEAST for _, values in named):
        return []
    needed = fewest(len(named))
    return [
        {**_record(comparison), "seeds_needed": needed, "verdict": verdict(comparison, needed)}
        for comparison in family(named)
    ]


def _best(
    results: Results, method: str, others: Sequence[str], against: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Returns, per stream and measure, the rival with the highest mean, and how many rivals each verdict holds against."""
    by_name = {claim["name"]: claim for claim in against}
    candidates = []
    for where, measure in MEASURES.items():
        for name in results.families:
            differences = {arm: by_name.get(f"{method} - {arm} on {name}, {where}") for arm in others}
            compared = {arm: claim for arm, claim in differences.items() if claim is not None}
            if not compared:
                continue
            means = {arm: float(np.mean([measure(row) for row in results.of(name, arm)])) for arm in compared}
            best = max(means, key=lambda arm: means[arm])
            verdicts = [value["verdict"] for value in compared.values()]
            candidates.append(
                {
                    **compared[best],
                    "stream": name,
                    "measure": where,
                    "rival": best,
                    "rival_mean": means[best],
                    "mean": float(np.mean([measure(row) for row in results.of(name, method)])),
                    "rivals": len(compared),
                    "counts": {kind: verdicts.count(kind) for kind in dict.fromkeys(verdicts)},
                    # The method leads only if it is ahead of every rival, also of one with a wide interval.
                    "leads": all(value == "ahead" for value in verdicts),
                }
            )
    return candidates


def _margin(named: NamedValues) -> list[dict[str, Any]]:
    """Tests whether each difference is above -MARGIN."""
    return [{**_record(gap), "holds": gap.low > -MARGIN, "margin": MARGIN} for gap in _compared(named)]


def _remaining(results: Results, changed: str) -> list[dict[str, Any]]:
    """Compares an arm whose learning signal was removed with no memory. `holds` means that no gain is left."""
    named = _against(results, changed, results.families, ("none",), tuple(MEASURES))
    return [{**_record(gap), "holds": gap.low <= 0.0} for gap in _compared(named)]


def _compared(named: NamedValues) -> list[Comparison]:
    return [paired_difference(name, values) for name, values in named if len(values) >= LEAST]


def _record(comparison: Comparison) -> dict[str, Any]:
    return {name: getattr(comparison, name) for name in Comparison.__slots__} | {"holds": comparison.holds}
