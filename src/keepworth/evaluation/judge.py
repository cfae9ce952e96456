"""An optional judge of answers, besides the lexical scores.

A judge is a function of (question, gold, answer) to a score in [0, 1]. `judge` makes one of a chat model behind an
OpenAI-compatible URL. Where a judge fails, lexical scores go on without it, and failures are counted.

A judge's scores mean little without its own error, which `python -m benchmarks.statistics.judges` measures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from keepworth.base.model_errors import ChatError

if TYPE_CHECKING:
    from keepworth.base.chat import ChatModel

PATIENCE = 5
"""Failures in a row after which a judge is not asked again."""


Judge = Callable[[str, str, str], float]
"""Maps (question, gold, answer) to a score in [0, 1]. It may raise."""


class Judging:
    """Scores answers by a judge that may fail. A judge that fails `PATIENCE` times in a row is not asked again.

    Attributes:
        failed: The number of answers without a score.
        first: The reason for the first failure, "" where there was none.
        last: The same for the last.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge, self._in_a_row = judge, 0
        self.failed, self.first, self.last = 0, "", ""

    def __call__(self, question: str, gold: str, answer: str) -> float | None:
        """Returns the score of an answer, or None where the judge failed."""
        if self._in_a_row < PATIENCE:
            try:
                score = float(self._judge(question, gold, answer))
                if not 0.0 <= score <= 1.0:
                    raise ValueError(f"a score of {score}, which is not in [0, 1]")
            except Exception as error:  # a judge may raise anything
                self.last = f"{type(error).__name__}: {error}"
                self.first = self.first or self.last
                self._in_a_row += 1
            else:
                self._in_a_row = 0
                return score
        self.failed += 1
        return None


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
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise ChatError(f"{chat.model} judged with {value!r} instead of a number from 0 to 1.")
        return float(value)

    return score
