"""What stands behind a score: where points were lost, whether evidence was found, and whether abstentions were right.

Pure functions of ids, numbers and texts: nothing here knows a system, a benchmark or a model. Scores are in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from keepworth.evaluation.statistics import MeanEstimate, rate

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
