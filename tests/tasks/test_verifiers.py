from __future__ import annotations

import pytest

from keepworth.base.errors import UnknownName
from keepworth.records.episode import Task
from keepworth.worlds.verifiers import VERIFIERS, verifier, verify


def test_every_verifier_scores_right_and_wrong() -> None:
    right = {"token_f1": "Luna", "exact_match": "Luna", "operation": "UPDATE 1"}
    right |= {"numeric": "12", "expression": "12", "same_words": "red sun"}
    right |= {"contains_answer": "red sun", "latex": r"\frac{1}{2}", "set_f1": "sun; moon", "in_order": "sun; moon"}
    right |= dict.fromkeys(("interval_iou", "interval_match"), "2020-04-01/2020-04-02")
    assert set(VERIFIERS) == {*right, "math_verify"}  # the last needs an extra: see test_numbers
    for name in right:
        function = VERIFIERS[name]
        assert function(right[name], (right[name],)) == 1.0
        assert function("NOOP", (right[name],)) == 0.0
    assert verifier("token_f1")("my cat Luna", ("Luna",)) == 0.5
    assert verifier("exact_match")("my cat Luna", ("Luna",)) == 0.0


def test_a_task_is_scored_by_the_verifier_it_names() -> None:
    assert verify(Task("k", "s", "cat?", ("Luna",), "token_f1"), "my cat Luna") == 0.5
    assert verify(Task("k", "s", "cat?", ("Luna",), "exact_match"), "my cat Luna") == 0.0


def test_unknown_verifier_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"no verifier 'tokenf1'\. Did you mean 'token_f1'"):
        verifier("tokenf1")


# Answers of other forms, by hand.


@pytest.mark.parametrize(("said", "gold", "right"), [
    ("It was on April 1, 2024.", "april 1 2024", 1.0),
    ("The total is $45.50!", "$45.50", 1.0),
    ("thirty-five", "Thirty Five", 0.0),  # a dash is taken out, not made a blank: theirs does so too
    ("Michaela", "Michael", 0.0),
    ("", "x", 0.0),
])  # fmt: skip
def test_an_accepted_string_occurs_as_whole_words(said: str, gold: str, right: float) -> None:
    assert verifier("contains_answer")(said, ("nothing of this", gold)) == right


@pytest.mark.parametrize(("said", "gold", "right"), [
    (r"So it is $\boxed{\dfrac{14}{3}}$.", r"\frac{14}{3}", 1.0),
    (r"The answer is \frac143.", r"\frac{14}{3}", 0.0),
    (r"\boxed{\left( 3, \frac{\pi}{2} \right)}", r"(3,\frac{\pi}{2})", 1.0),
    (r"\boxed{90}", r"90^\circ", 1.0),
    ("Therefore\n#### 2,220", "2220", 1.0),
    ("x = 5", "5", 1.0),
    ("0.50", r"\frac{1}{2}", 1.0),
    (r"\boxed{Evelyn}", r"\text{Evelyn}", 1.0),
    (r"\boxed{p + q}", "p - q", 0.0),
    (r"5 or 6", "5", 0.0),
    ("", "5", 0.0),
    (r"\boxed{", "5", 0.0),
])  # fmt: skip
def test_latex_is_compared_once_it_is_normalised(said: str, gold: str, right: float) -> None:
    assert verifier("latex")(said, (gold,)) == right


@pytest.mark.parametrize(("said", "share"), [
    ("2020-04-01T00:00/2020-04-02T23:59", 1.0),
    ("from 2020-04-01 to 2020-04-02", 1.0),
    ("2020-04-02T00:00 until 2020-04-03T23:59", 1 / 3),  # one day of three
    ("2020-04-01T00:00/2020-04-01T11:59", 0.25),
    ("2020-05-01/2020-05-02", 0.0),
    ("2020-04-01", 0.0),
    ("2020-04-02/2020-04-01", 0.0),
    ("2020-02-30/2020-04-01", 0.0),
    ("I do not know.", 0.0),
])  # fmt: skip
def test_intervals_overlap_by_minutes(said: str, share: float) -> None:
    gold = ("2020-04-01T00:00/2020-04-02T23:59",)
    assert verifier("interval_iou")(said, gold) == pytest.approx(share)
    assert verifier("interval_match")(said, gold) == float(share == 1.0)


@pytest.mark.parametrize(("said", "gold", "f1", "tau"), [
    ("The Old Mill; north pier", "North Pier; Old Mill", 1.0, 0.0),  # all, in the other order: tau -1 counts 0
    ("1. a1\n2. b1\n3. c1", "a1; b1; c1", 1.0, 1.0),
    ("a1, c1, b1", "a1; b1; c1", 1.0, 1 / 3),  # two pairs of three in order
    ("a1; d1", "a1; b1; c1", 0.4, 0.0),
    ("none", "none", 1.0, 1.0),
    ("a1", "none", 0.0, 0.0),
    ("", "a1", 0.0, 0.0),
])  # fmt: skip
def test_sets_and_lists(said: str, gold: str, f1: float, tau: float) -> None:
    assert verifier("set_f1")(said, (gold,)) == pytest.approx(f1)
    assert verifier("in_order")(said, (gold,)) == pytest.approx(tau)
