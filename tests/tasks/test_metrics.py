"""Text metrics against a table worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.base.metrics import abstains, bleu1, exact_match, normalise, token_f1

E = math.exp

# prediction, golds, exact match, token F1, BLEU-1
TABLE = [
    ("Paris", ["Paris"], 1, 1.0, 1.0),
    ("paris.", ["Paris"], 1, 1.0, 1.0),
    ("The Paris", ["paris"], 1, 1.0, 1.0),
    ("London", ["Paris"], 0, 0.0, 0.0),
    ("", ["Paris"], 0, 0.0, 0.0),
    ("the", ["Paris"], 0, 0.0, 0.0),
    ("blue car", ["red car"], 0, 0.5, 0.5),
    ("a blue car", ["the red car"], 0, 0.5, 0.5),
    ("car", ["red car"], 0, 2 / 3, E(-1)),
    ("big red car", ["red car"], 0, 0.8, 2 / 3),
    ("red red red", ["red car"], 0, 0.4, 1 / 3),
    ("car red", ["red car"], 0, 1.0, 1.0),
    ("it is in Paris, France", ["Paris"], 0, 1 / 3, 0.2),
    ("Paris", ["it is in Paris, France"], 0, 1 / 3, E(-4)),
    ("yes", ["yes"], 1, 1.0, 1.0),
    ("yes", ["no"], 0, 0.0, 0.0),
    ("Yes, it is", ["yes"], 0, 0.0, 1 / 3),
    ("no", ["no way"], 0, 0.0, E(-1)),
    ("noanswer", ["noanswer"], 1, 1.0, 1.0),
    ("No.", ["no", "yes"], 1, 1.0, 1.0),
    ("$400,000", ["400000"], 1, 1.0, 1.0),
    ("45 minutes", ["45 minutes each way"], 0, 2 / 3, E(-1)),
    ("8 days", ["7 days", "8 days"], 1, 1.0, 1.0),
    ("7 8", ["7 days", "8 days"], 0, 0.5, 1.0),
    ("Trader Joes", ["Trader Joe's"], 1, 1.0, 1.0),
    ("half-time", ["half time"], 0, 0.0, 0.0),
    ("one two three", ["one two three four five"], 0, 0.75, E(1 - 5 / 3)),
    ("one two three four", ["one two"], 0, 2 / 3, 0.5),
    ("one two three", ["one two", "one two three four"], 0, 6 / 7, 1.0),
    ("an apple a day", ["apple day"], 1, 1.0, 1.0),
]


@pytest.mark.parametrize(("prediction", "golds", "exact", "f1", "bleu"), TABLE)
def test_table(prediction: str, golds: list[str], exact: float, f1: float, bleu: float) -> None:
    assert exact_match(prediction, golds) == exact
    assert token_f1(prediction, golds) == pytest.approx(f1, abs=1e-12)
    assert bleu1(prediction, golds) == pytest.approx(bleu, abs=1e-12)


@pytest.mark.parametrize(("text", "wanted"), [
    ("  The  Cat's a  hat! ", "cats hat"),
    ("Theatre an-other", "theatre another"),
    ("A", ""),
    ("5-2", "52"),
    ("Disney+", "disney"),
])  # fmt: skip
def test_normalise(text: str, wanted: str) -> None:
    assert normalise(text) == wanted


@given(st.text(), st.lists(st.text(), min_size=1, max_size=3))
def test_bounds_and_order_of_strictness(prediction: str, golds: list[str]) -> None:
    scores = [metric(prediction, golds) for metric in (exact_match, token_f1, bleu1)]
    assert all(0.0 <= score <= 1.0 for score in scores)
    if scores[0] and normalise(prediction):
        assert scores[1:] == [1.0, 1.0]


@given(st.text(alphabet="ab cd", min_size=1), st.text(alphabet="ab cd", min_size=1))
def test_f1_is_symmetric(one: str, other: str) -> None:
    assert token_f1(one, [other]) == pytest.approx(token_f1(other, [one]))


@pytest.mark.parametrize("metric", [exact_match, token_f1, bleu1])
def test_no_golds_and_a_bare_string_are_errors(metric: object) -> None:
    with pytest.raises(ValueError, match="no gold answers"):
        metric("x", [])  # type: ignore[operator]
    with pytest.raises(TypeError, match="not the string"):
        metric("x", "gold")  # type: ignore[operator]


@pytest.mark.parametrize(
    "answer", ["I don't know.", "That was not mentioned", "No information available", "", "unknown", "I cannot tell"]
)
def test_answers_that_abstain(answer: str) -> None:
    assert abstains(answer)


@pytest.mark.parametrize("answer", ["In May", "He was not in Rome", "Notting Hill", "She knows Tom"])
def test_answers_that_do_not(answer: str) -> None:
    assert not abstains(answer)
