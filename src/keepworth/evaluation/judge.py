"""An optional judge of answers, besides the lexical scores.

A judge is a function of (question, gold, answer) to a score in [0, 1]. `judge` makes one of a chat model behind an
OpenAI-compatible URL. Where a judge fails, lexical scores go on without it, and failures are counted.

A judge's scores mean little without its own error, which `python -m benchmarks.statistics.judges` measures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from keepworth.models.errors import ChatError

if TYPE_CHECKING:
    from keepworth.models.chat import ChatModel

PATIENCE = 5
"""Failures at the start after which a judge is not asked again."""


class Judge(Protocol):
    def __call__(self, question: str, gold: str, answer: str, /) -> float:
        """Returns a score in [0, 1]. It may raise."""
        ...


@dataclass(frozen=True, slots=True)
class Judged:
    """Scores, None where the judge failed. `first` is the reason for the first failure, "" where there was none."""

    scores: tuple[float | None, ...]
    first: str = ""

    @property
    def failed(self) -> int:
        return sum(score is None for score in self.scores)


def judged(judge: Judge, answers: Sequence[tuple[str, str, str]]) -> Judged:
    """Returns the scores of (question, gold, answer), in order. A judge that only fails is not asked again after `PATIENCE`
    failures."""
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
        except Exception as error:  # a judge may raise anything
            first = first or f"{type(error).__name__}: {error}"
            scores.append(None)
    return Judged(tuple(scores), first)


_JUDGE = """Question: {question}
Right answer: {expected}
Answer to judge: {answer}

Does the answer say what the right answer says? Other words and more detail are fine, a contradiction or a missing part is not. \
Answer with JSON: {{"score": 1}} if it does, {{"score": 0}} if it does not."""


def judge(chat: ChatModel) -> Judge:
    """Makes a judge that calls the chat model once for each answer."""

    def score(question: str, expected: str, answer: str) -> float:
        prompt = _JUDGE.format(question=question, expected=expected, answer=answer)
        value = chat.complete_json([{"role": "user", "content": prompt}]).get("score")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ChatError(f"{chat.model} judged with {value!r} instead of a number.")
        if not 0 <= value <= 1:
            raise ChatError(f"{chat.model} judged with {value!r}, which is not from 0 to 1.")
        return float(value)

    return score
