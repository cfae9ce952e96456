"""What a matrix of arms says: the comparisons fixed in advance, each with its interval and whether it holds.

Clusters are rule sets: intervals resample them and p-values flip their signs, the primary comparisons and the parts are
corrected by Holm, each family for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from recollect.evaluation.statistics import Comparison, family, mcnemar, paired_difference
from recollect.evaluation.stream import Results, Row
from recollect.evaluation.stream_attacks import share

HARD = ("near-miss", "noisy-reward", "drift")
KIND = ("benign", "similarity-mid", "similarity-low")
RIVALS = ("exprag", "memrl")
MARGIN = 0.02

Named = list[tuple[str, list[float]]]


def claims(results: Results, ours: str = "ours") -> dict[str, Any]:
    """The comparisons, with whether each holds. Streams or arms that were not run are left out by name."""
    parts = sorted(arm for arm in results.arms if arm.startswith(f"{ours}-without-") and "+" not in arm)
    return {
        "primary": _family(_against(results, ours, HARD, RIVALS)),
        "not_worse": _margin(_against(results, ours, KIND, RIVALS)),
        "gain_gone_when_shuffled": _gone(results, ours, f"{ours}+shuffled"),
        "gain_gone_when_masked": _gone(results, ours, f"{ours}+masked"),
        "no_lower_than_none": _margin(_against(results, ours, results.families, ("none",))),
        "parts": _family(_against(results, ours, results.families, parts)),
        "held_out": _held_out(results, ours),
    }


def auc(each: Row) -> float:
    return each.auc


def final(each: Row) -> float:
    return each.final


def _against(
    results: Results,
    arm: str,
    names: Sequence[str],
    others: Sequence[str],
    measure: Callable[[Row], float] = auc,
) -> Named:
    return [
        (f"{arm} - {other} on {name}", results.differences(name, arm, other, measure))
        for name in names
        for other in others
        if results.has(name, arm, other)
    ]


def _family(named: Named) -> list[dict[str, Any]]:
    """Corrected together; nothing where a comparison has fewer clusters than an interval takes."""
    if not named or any(len(values) < 3 for _, values in named):
        return []
    return [_record(each) for each in family(named)]


def _margin(named: Named) -> list[dict[str, Any]]:
    """Whether each lies above -MARGIN."""
    kept = [paired_difference(name, values) for name, values in named if len(values) >= 3]
    return [{**_record(each), "holds": each.low > -MARGIN, "margin": MARGIN} for each in kept]


def _gone(results: Results, ours: str, changed: str) -> list[dict[str, Any]]:
    """Whether no gain over a rival is left to an arm whose signal was taken away, and the share of the gain that went."""
    found = []
    for name in HARD:
        for rival in RIVALS:
            if not results.has(name, ours, changed, rival):
                continue
            left, gain = (results.differences(name, arm, rival) for arm in (changed, ours))
            if len(left) >= 3:
                each = paired_difference(f"{changed} - {rival} on {name}", left)
                found.append({**_record(each), "holds": each.low <= 0.0, "gone": share(left, gain)})
    return found


def _held_out(results: Results, ours: str) -> list[dict[str, Any]]:
    """Frozen memories on held-out tasks: McNemar over all pairs, and over rule sets corrected by Holm."""
    named = [
        (name, rival)
        for name in results.families
        for rival in (*RIVALS, "none")
        if results.has(name, ours, rival) and results.held_out(name, ours)
    ]
    clustered = _family([pair for name, rival in named for pair in _against(results, ours, [name], [rival], final)])
    found = []
    for place, (name, rival) in enumerate(named):
        test = mcnemar(results.held_out(name, ours), results.held_out(name, rival))
        record: dict[str, Any] = {
            "name": f"{ours} - {rival} on {name}",
            "difference": test.difference,
            "only_ours": test.only_first,
            "only_rival": test.only_second,
            "pairs": test.pairs,
            "p": test.p,
        }
        if clustered:
            record |= {key: clustered[place][key] for key in ("low", "high", "level", "adjusted", "clusters", "holds")}
        found.append(record)
    return found


def _record(each: Comparison) -> dict[str, Any]:
    return {name: getattr(each, name) for name in Comparison.__slots__} | {"holds": each.holds}
