"""An optional judge of answers beside the lexical scores.

A judge is handed in: a function of (question, gold, answer) to a score in [0, 1]. `keepworth.models.chat.judge` makes one of a
chat model behind an OpenAI-compatible URL. A judge may fail, and lexical scores go on without it: what failed is counted.

A judge's number means little without its own error: `python -m benchmarks.statistics.judges` measures it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from keepworth.episodes.errors import KeepworthError

PATIENCE = 5
"""Failures in a row, with no answer before them, after which a judge is not asked again."""


class Judge(Protocol):
    def __call__(self, question: str, gold: str, answer: str, /) -> float:
        """A score in [0, 1]. It may raise."""
        ...


class JudgeFailed(KeepworthError):
    """A judge raised, or gave what is no score in [0, 1]. failed, of: how many answers have no score of it; first: why
    the first has none."""

    def __init__(self, failed: int, of: int, first: str) -> None:
        super().__init__(
            f"The judge failed on {failed} of {of} answers; the first time: {first.rstrip('.')}.",
            "The lexical scores are complete. See that the judge answers with a score in [0, 1], or take another one.",
        )
        self.failed, self.of, self.first = failed, of, first


@dataclass(frozen=True, slots=True)
class Judged:
    """scores: None where the judge failed. failure: what happened, None where nothing did; nobody raises it."""

    scores: tuple[float | None, ...]
    failure: JudgeFailed | None = None

    @property
    def failed(self) -> int:
        return sum(score is None for score in self.scores)


def judged(judge: Judge, answers: Sequence[tuple[str, str, str]]) -> Judged:
    """Scores of (question, gold, answer), in order. A judge that is not there is not waited for again and again."""
    scores: list[float | None] = []
    first = ""
    for question, gold, answer in answers:
        if len(scores) >= PATIENCE and all(score is None for score in scores):
            scores.append(None)
            continue
        try:
            score = float(judge(question, gold, answer))
            if not 0.0 <= score <= 1.0:
                raise ValueError(f"a score of {score}, which is not in [0, 1]")
            scores.append(score)
        except Exception as error:  # whatever it is, it is the judge's
            first = first or f"{type(error).__name__}: {error}"
            scores.append(None)
    failed = sum(score is None for score in scores)
    return Judged(tuple(scores), JudgeFailed(failed, len(scores), first) if failed else None)
