"""Explains a score: at which stage points were lost, and whether evidence was found.

Pure functions of ids, numbers and texts, which depend on no system, benchmark or model. Scores are in [0, 1]."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

# A loss of points is explained by the stage at which the evidence of a question was lost on its way into the answer.

NEVER_WRITTEN, LOST, NOT_RETRIEVED = "never written", "lost", "not retrieved"
NOT_SELECTED, NOT_USED = "not selected", "not used"
NOT_SHOWN = "not shown"
"""Replaces the two stages before it, for a system that does not report its candidates."""
UNMARKED = "no evidence marked"
STAGES = (NEVER_WRITTEN, LOST, NOT_RETRIEVED, NOT_SELECTED, NOT_SHOWN, NOT_USED, UNMARKED)


def stage(
    evidence: Iterable[str],
    *,
    shown: Iterable[str],
    candidates: Iterable[str] | None = None,
    kept_items: Iterable[str] | None = None,
    written: Iterable[str] | None = None,
) -> str:
    """Returns the first stage at which some of the evidence was lost, or `NOT_USED` where all of it was shown.

    All arguments are ids of turns or sessions. None means that the system does not report them; no loss is assigned to that stage
    then.

    Args:
        evidence: What holds the answer.
        shown: What the reader was shown.
        candidates: What was retrieved, before it was cut to the budget.
        kept_items: What the memory holds when the question is asked.
        written: What was ever stored.
    """
    wanted = set(evidence)
    if not wanted:
        return UNMARKED
    for name, reached in ((NEVER_WRITTEN, written), (LOST, kept_items), (NOT_RETRIEVED, candidates)):
        if reached is not None and not wanted <= set(reached):
            return name
    if not wanted <= set(shown):
        return NOT_SHOWN if candidates is None else NOT_SELECTED
    return NOT_USED


def where_points_go(stages: Sequence[str], scores: Sequence[float]) -> dict[str, float]:
    """Returns the mean score as "scored", and by stage the mean of the points lost there; together they are 1. Raises ValueError
    for a score outside [0, 1], and where there is no question."""
    if not scores or len(stages) != len(scores):
        raise ValueError(f"where_points_go: {len(stages)} stages for {len(scores)} scores")
    if outside := [value for value in scores if not 0.0 <= value <= 1.0]:
        raise ValueError(f"where_points_go: a score of {outside[0]} is not in [0, 1]")
    n = len(scores)
    pairs = list(zip(stages, scores, strict=True))
    lost = {name: math.fsum(1.0 - score for stage, score in pairs if stage == name) / n for name in STAGES}
    return {"scored": math.fsum(scores) / n, **{name: value for name, value in lost.items() if value}}


# Evidence found.


def recall_at(
    ranked: Sequence[str], evidence: Iterable[str], k: int, of: Callable[[str], str] | None = None
) -> float | None:
    """Returns the share of the evidence among the first ids; None where no evidence is marked.

    Args:
        ranked: The ids, the best first.
        evidence: The ids that hold the answer.
        k: How many of the first count.
        of: It maps an id to what counts instead, such as its session: each session then counts once, at its best place, and k
            counts sessions.
    """
    named = of or str
    wanted = {named(id) for id in evidence}
    if not wanted:
        return None
    return len(wanted.intersection(list(dict.fromkeys(map(named, ranked)))[:k])) / len(wanted)
