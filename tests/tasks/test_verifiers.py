from __future__ import annotations

import pytest

from keepworth.episodes.episode import Task
from keepworth.episodes.errors import UnknownName
from keepworth.tasks.verifiers import VERIFIERS, verifier, verify


def test_every_verifier_scores_right_and_wrong() -> None:
    right = {"token_f1": "Luna", "exact_match": "Luna", "operation": "UPDATE 1"}
    right |= {"numeric": "12", "expression": "12", "same_words": "red sun"}
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
