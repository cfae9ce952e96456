from __future__ import annotations

from collections import Counter

import pytest

from keepworth.episodes.errors import UnknownName
from keepworth.methods.benchmarks._arithmetic import SOURCES, arithmetic, problems
from keepworth.tasks.verifiers import verify


def test_counts_are_those_documented() -> None:
    found = {source: Counter(problem.split for problem in problems(source)) for source in SOURCES}
    assert found["gsm8k"] == {"train": 6685, "dev": 788, "test": 1319}
    assert found["svamp"] == {"train": 646, "dev": 95, "test": 259}


@pytest.mark.parametrize("source", SOURCES)
def test_every_answer_verifies_itself_and_a_wrong_one_does_not(source: str) -> None:
    for split in ("dev", "test"):
        for task in arithmetic(source, split):
            assert verify(task, f"So it is {task.answers[0]}.") == 1.0
            assert verify(task, f"{task.answers[0]}1") == 0.0


def test_equations_of_svamp_give_its_answers_but_for_one_of_the_source() -> None:
    wrong = [p.equation for p in problems("svamp") if not verify_equation(p.equation, p.answer)]
    assert wrong == ["( ( 4 - 2 ) + 3 )"]


def verify_equation(equation: str, answer: str) -> bool:
    from keepworth.tasks.verifiers import expression

    return expression(equation, [answer]) == 1.0


def test_variations_of_a_problem_stay_on_one_side() -> None:
    from keepworth.methods.benchmarks._arithmetic import _marks

    side: dict[str, str] = {}
    for problem in problems("svamp"):
        for mark in _marks(problem.question.rsplit(". ", 1)[0]):
            assert side.setdefault(mark, problem.split) == problem.split or len(mark.split()) < 6


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'svamp'"):
        arithmetic("swamp", "train")
    with pytest.raises(UnknownName, match="verifier"):
        arithmetic("svamp", "train", verifier="f1")
