"""Filters: which groups enter an optimiser step. Plain numbers; what is rejected is returned with its reason."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.parts import Mixed, Spread


def kept_groups(scores: Mapping[int, Sequence[float]], objective: Objective) -> tuple[tuple[int, ...], dict[int, str]]:
    """(kept group ids, rejected group id -> reason), from each group's unshaped scores, one a finished episode.

    Use the raw metric, not the shaped reward: a length penalty makes every group look mixed.
    mixed: not all equal (dynamic sampling, DAPO, arXiv 2503.14476). spread: sample std above a number (UI-S1,
    arXiv 2509.11543). Whatever the rule, an objective that compares within groups drops a group of one.
    """
    kept: list[int] = []
    rejected: dict[int, str] = {}
    for group, values in scores.items():
        reason = _rejection(values, objective)
        if reason is None:
            kept.append(group)
        else:
            rejected[group] = reason
    return tuple(kept), rejected


def _rejection(values: Sequence[float], objective: Objective) -> str | None:
    if not values:
        return "no finished episode"
    if len(values) < 2 and objective.compares:
        return "one episode, nothing to compare it with"
    if isinstance(objective.group_filter, Mixed) and min(values) == max(values):
        return f"all {len(values)} scores are {values[0]:g}"
    if isinstance(objective.group_filter, Spread):
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        if spread <= objective.group_filter.above:
            return f"standard deviation {spread:.3g} is not above {objective.group_filter.above:g}"
    return None
