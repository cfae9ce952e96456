"""A judge may fail, and its own error is known."""

from __future__ import annotations

from collections import Counter

from benchmarks.statistics.judges import Planted, errors, planted_answers
from keepworth.base.metrics import exact_match, token_f1
from keepworth.base.model_errors import ChatError
from keepworth.evaluation.judge import Judging

ASKED = [("q", "gold", str(number)) for number in range(8)]


def test_a_judge_that_fails_is_counted_and_the_rest_goes_on() -> None:
    def judge(question: str, gold: str, answer: str) -> float:
        if answer == "1":
            raise ChatError("the server is busy.")
        return {"2": 1.5, "3": float("nan")}.get(answer, int(answer) / 10)

    found = Judging(judge)
    assert [found(*each) for each in ASKED] == [0.0, None, None, None, 0.4, 0.5, 0.6, 0.7]
    assert found.failed == 3
    assert found.first == "ChatError: the server is busy."
    without = Judging(judge)
    assert [without(*each) for each in ASKED[4:]] == [0.4, 0.5, 0.6, 0.7]
    assert (without.first, without.failed) == ("", 0)


def test_planted_answers_are_right_or_wrong_by_construction() -> None:
    planted = planted_answers()
    assert len(planted) == 24 * 8
    assert Counter(each.right for each in planted) == {True: 72, False: 120}
    assert len({(each.question, each.answer) for each in planted}) == len(planted)


def test_errors_by_hand() -> None:
    planted = [
        Planted("q", "a", "a", True, "as it is"),
        Planted("q", "a", "an a", True, "in a sentence"),
        Planted("q", "a", "b", False, "another value"),
        Planted("q", "a", "a or b", False, "list of guesses"),
        Planted("q", "a", "?", False, "vague"),
    ]

    def judge(question: str, gold: str, answer: str) -> float:
        if answer == "?":
            raise ValueError("what?")
        return float(answer.startswith("a "))

    found = errors(judge, planted)
    assert [found[name]["mean"] for name in ("precision", "recall", "false accept")] == [0.0, 0.0, 1 / 3]
    assert (found["failed"], found["n"]) == (1, 5)
    assert found["accepted by form"]["list of guesses"]["right"] is False
    assert found["accepted by form"]["list of guesses"]["mean"] == 1.0


def test_shuffled_gold_lowers_lexical_scores() -> None:
    planted = [answer for answer in planted_answers() if answer.right]
    golds = [each.gold for each in planted]
    for metric in (exact_match, token_f1):
        own = sum(metric(each.answer, (each.gold,)) for each in planted)
        others = sum(metric(each.answer, (gold,)) for each, gold in zip(planted, golds[3:] + golds[:3], strict=True))
        assert others < 0.3 * own
