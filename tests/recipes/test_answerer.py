"""The answerer's prompt and its parser."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.episodes.episode import ParseStatus, Shown
from keepworth.episodes.errors import KeepworthError
from keepworth.methods.recipes._answerer import MARKER, Style, fit, parse, render
from tests.models.tiny import tiny_model


def test_memories_stand_one_a_line_before_the_question_and_the_prompt_ends_where_the_answer_begins() -> None:
    prompt = render([Shown("1", 1.0, "I live\nin  Oslo."), Shown("2", 1.0, "Tea.")], "Where do I\nlive?")
    assert prompt.endswith("Memory:\n- I live in Oslo.\n- Tea.\nQuestion: Where do I live?\nAnswer:")
    assert render([], "Who?").endswith("Memory:\n(empty)\nQuestion: Who?\nAnswer:")
    assert render([], "Who?", Style.DISTIL).endswith("Useful:")


@pytest.mark.parametrize(("text", "style", "answer", "status"), [
    (" Oslo\nQuestion: more", Style.DIRECT, "Oslo", ParseStatus.OK),
    ("\n", Style.DIRECT, "", ParseStatus.INVALID),
    (f" I live in Oslo.\n{MARKER} Oslo\n", Style.DISTIL, "Oslo", ParseStatus.OK),
    (" I live in Oslo.", Style.DISTIL, "", ParseStatus.INVALID),
])  # fmt: skip
def test_parse(text: str, style: Style, answer: str, status: ParseStatus) -> None:
    assert parse(text, style) == (answer, status)


@given(st.text(), st.sampled_from(Style))
def test_any_text_parses_to_one_line(text: str, style: Style) -> None:
    answer, status = parse(text, style)
    assert len(answer.splitlines()) <= 1
    assert (answer == "") == (status is ParseStatus.INVALID)


def test_the_lowest_scores_are_left_out_and_the_order_shown_is_kept() -> None:
    model = tiny_model()  # a window of 512 bytes
    scores = [0.9, 0.1, 0.5, 0.7, 0.2, 0.8, 0.3, 0.6, 0.4]
    shown = [Shown(str(i), score, "word " * 12) for i, score in enumerate(scores)]
    prompt, kept = fit(model, shown, "Where?", max_tokens=8)
    assert len(prompt) + 8 <= model.context_limit
    assert 0 < len(kept) < 9
    best = sorted(shown, key=lambda item: -item.score)[: len(kept)]
    assert list(kept) == [item for item in shown if item in best]
    one_more = sorted(shown, key=lambda item: -item.score)[: len(kept) + 1]
    assert len(model.encode(render(one_more, "Where?"))) + 8 > model.context_limit


def test_of_equal_scores_the_oldest_is_left_out() -> None:
    shown = [Shown(str(i), 1.0, "word " * 12) for i in range(9)]
    _, kept = fit(tiny_model(), shown, "Where?", max_tokens=8)
    assert 0 < len(kept) < 9
    assert kept == tuple(shown[-len(kept) :])


def test_ten_times_the_memories_take_a_few_more_encodings(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model()
    encoded: list[int] = []
    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda text: encoded.append(len(text)) or encode(text))
    fit(model, [Shown(str(i), i / 1000, "word") for i in range(1000)], "Where?", max_tokens=8)
    assert len(encoded) <= 12


def test_a_question_or_an_answer_too_long_for_the_window_is_named() -> None:
    model, shown = tiny_model(), [Shown("1", 1.0, "word")]
    with pytest.raises(KeepworthError, match="longer window"):
        fit(model, shown, "Where? " * 100, max_tokens=8)
    with pytest.raises(KeepworthError, match="max_tokens = 100000 is more than the window of 512"):
        fit(model, shown, "Where?", max_tokens=100_000)
