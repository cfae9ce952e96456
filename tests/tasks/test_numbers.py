from __future__ import annotations

from fractions import Fraction
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.base.extras import MissingExtra
from keepworth.worlds.verifiers import evaluate_expression, expression, format_number, math_verify, numeric

RIGHT = (
    "51",
    "$51.00",
    "The answer is 51.",
    "51 dollars",
    "51%",
    "102/2",
    "\\boxed{51}",
    "#### 51",
    "I think 51 dollars",
)
WRONG = "51 or 52", "51.5", "1,051", "-51", "7 apples", "fifty", ""
CASES = dict.fromkeys(RIGHT, True) | dict.fromkeys(WRONG, False)


@pytest.mark.parametrize(("text", "right"), CASES.items())
def test_a_number_is_read_strictly(text: str, right: bool) -> None:
    assert numeric(text, ["51"]) == float(right)


def test_of_several_numbers_the_marked_one_counts() -> None:
    assert numeric("76 - 25 = 51 dollars", ["51"]) == 1.0
    assert numeric("He had 76.\nHe has 51.", ["51"]) == 1.0
    assert numeric("Answer: 51, or 50", ["51"]) == 0.0
    assert numeric("x1 51", ["51"]) == 1.0
    assert numeric("5kg", ["5"]) == 1.0
    assert numeric("1,234.50", ["1234.5"]) == 1.0
    assert numeric("1/3", ["2/6"]) == 1.0
    with pytest.raises(ValueError, match="not one number"):
        numeric("3", ["three"])


@pytest.mark.skipif(find_spec("math_verify") is None, reason="needs the extra math")
def test_math_verify_agrees() -> None:
    assert {text: bool(math_verify(text, ["51"])) for text in CASES} == CASES
    assert math_verify("$\\frac{102}{2}$", ["51"]) == 1.0


@pytest.mark.skipif(find_spec("math_verify") is not None, reason="the extra math is installed")
def test_missing_math_extra_is_named() -> None:
    with pytest.raises(MissingExtra, match=r"pip install \"keepworth\[math\]\""):
        math_verify("1", ["1"])


def test_an_expression_is_computed_exactly() -> None:
    assert evaluate_expression("(1,200 + 0.1) * 2 / 3") == Fraction(24002, 30)
    assert evaluate_expression("2 × 3 ÷ 4 − 1") == Fraction(1, 2)
    assert expression("76 - 25 = 50", ["51"]) == 1.0  # what is asked for is what to reckon
    assert expression("51", ["51"]) == 1.0
    assert expression("76 - 26\n51", ["51"]) == 0.0


@pytest.mark.parametrize(
    "text",
    ["1/0", "2**9", "x+1", "__import__('os')", "1 +", "9" * 300, "(" * 150 + "1", "1 if 1 else 2", "True", "1e9999"],
)
def test_non_arithmetic_text_is_no_answer(text: str) -> None:
    assert evaluate_expression(text) is None
    assert expression(text, ["1"]) == 0.0


@given(st.text())
def test_no_text_raises(text: str) -> None:
    assert numeric(text, ["1"]) in (0.0, 1.0)
    assert expression(text, ["1"]) in (0.0, 1.0)


@given(st.fractions(max_denominator=1000))
def test_a_number_that_is_shown_is_read_back(value: Fraction) -> None:
    assert numeric(format_number(value), [format_number(value)]) == 1.0
    assert evaluate_expression(format_number(value)) == value
