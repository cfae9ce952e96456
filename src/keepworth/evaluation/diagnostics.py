"""What stands behind a score: where points were lost, and whether evidence was found.

Pure functions of ids, numbers and texts: nothing here knows a system, a benchmark or a model. Scores are in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

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
    for name, reached in ((NEVER_WRITTEN, written), (LOST, kept_items), (NOT_RETRIEVED, candidates)):
        if reached is not None and not wanted <= set(reached):
            return name
    if not wanted <= set(shown):
        return NOT_SHOWN if candidates is None else NOT_SELECTED
    return NOT_USED


@dataclass(frozen=True, slots=True)
class Points:
    """scored: the mean score; lost: by stage, the mean of what was not scored (they add up to 1 with `scored`). n: questions."""

    scored: float
    lost: Mapping[str, float]
    n: int


def where_points_go(stages: Sequence[str], scores: Sequence[float]) -> Points:
    """stages: of each question, by `stage`. ValueError for a score outside [0, 1], and where there is no question."""
    if not scores or len(stages) != len(scores):
        raise ValueError(f"where_points_go: {len(stages)} stages for {len(scores)} scores")
    if outside := [value for value in scores if not 0.0 <= value <= 1.0]:
        raise ValueError(f"where_points_go: a score of {outside[0]} is not in [0, 1]")
    n = len(scores)
    pairs = list(zip(stages, scores, strict=True))
    lost = {name: math.fsum(1.0 - score for stage, score in pairs if stage == name) / n for name in STAGES}
    return Points(math.fsum(scores) / n, {name: value for name, value in lost.items() if value}, n)


# Evidence found.


def recall_at(
    ranked: Sequence[str], evidence: Iterable[str], k: int, of: Callable[[str], str] | None = None
) -> float | None:
    """The share of the evidence among the first k; None where a question has no evidence marked. ranked: ids, the best first.

    of: what counts in place of an id, such as its session: each counts once, at its best place, and k counts sessions then."""
    named = of or str
    wanted = {named(id) for id in evidence}
    if not wanted:
        return None
    return len(wanted.intersection(list(dict.fromkeys(map(named, ranked)))[:k])) / len(wanted)
