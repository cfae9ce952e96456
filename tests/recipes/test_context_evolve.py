"""ContextEvolve's three roles by hand, and that the search is total, never scores twice and finds a known optimum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.episodes.errors import KeepworthError
from keepworth.methods.studies.context_evolve import EvolveContext, ScoredText, evolve, mean_gains, priorities

FIRST = ScoredText(0, "a", 0.5)
TRIED = (
    FIRST,
    ScoredText(1, "ab", 0.7, 0, "more b", 0.2),
    ScoredText(2, "ac", 0.4, 0, "more c", -0.1),
    ScoredText(3, "abb", 0.8, 1, "more b", 0.1),
)


def test_the_navigator_shrinks_the_mean_gain_of_each_edit() -> None:
    assert mean_gains(TRIED) == pytest.approx({"more b": 0.3 / 3, "more c": -0.1 / 2})


def test_the_sampler_draws_by_change() -> None:
    weights = np.array([0.01**0.6, 0.21**0.6, 0.11**0.6, 0.11**0.6])
    np.testing.assert_allclose(priorities(TRIED), weights / weights.sum())


def climb(context: EvolveContext) -> tuple[str, str]:
    """Goes on with what helped, else tries the first letter that was not tried."""
    gains = context.gains
    letter = next((edit for edit, gain in gains.items() if gain > 0), None)
    letter = letter or next(letter for letter in "xyzb" if letter not in gains)
    return letter, context.parent.text + letter


def test_what_helped_is_gone_on_with() -> None:
    scored: list[str] = []

    def score(text: str) -> float:
        scored.append(text)
        return float(text.count("b"))

    ended = evolve("a", score, climb, rounds=7)
    assert scored == ["a", "ax", "axy", "axyz", "axyzb", "axyzbb", "axyzbbb", "axyzbbbb"]
    assert (ended.best.text, ended.best.score) == ("axyzbbbb", 4.0)
    assert ended.curve == (0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0)
    assert [attempt.parent for attempt in ended.attempts] == [-1, 0, 1, 2, 3, 4, 5, 6]


@settings(max_examples=40)
@given(st.lists(st.one_of(st.none(), st.text("ab", max_size=3)), max_size=20), st.integers(0, 4))
def test_any_proposals_are_taken_and_none_is_scored_twice(proposals: list[str | None], shown: int) -> None:
    scored: list[str] = []

    def score(text: str) -> float:
        scored.append(text)
        return text.count("b") - 0.1 * len(text)

    left = iter(proposals)

    def propose(context: EvolveContext) -> tuple[str, str] | None:
        assert context.parent not in context.shown
        assert len(set(context.shown)) == len(context.shown) <= shown
        text = next(left)
        return None if text is None else ("set", text)

    ended = evolve("a", score, propose, rounds=len(proposals), shown=shown)
    assert len(scored) == len(set(scored)) == len(ended.attempts)
    assert len(ended.curve) == len(proposals)
    assert list(ended.curve) == sorted(ended.curve)
    assert ended.best.score == max(score(attempt.text) for attempt in ended.attempts)


def test_a_score_that_is_no_number_is_named() -> None:
    with pytest.raises(KeepworthError, match="the score of 'a' is nan"):
        evolve("a", lambda text: math.nan, climb, rounds=1)
