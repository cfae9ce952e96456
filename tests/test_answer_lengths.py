"""What the study of answer lengths stands on: decoding steps are counted as the batch makes them."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("torch", reason="the batch needs the extra llm")

from benchmarks.asynchrony.orders import Answer, decoding_steps, least_steps
from keepworth.episodes import SamplingParams
from keepworth.learning.collect.pipeline import ExpectedLengths
from keepworth.models.inprocess import ContinuousBatch, PartialSample
from tests.models.tiny import tiny_model


@pytest.mark.parametrize("slots", [1, 3, 8])
@pytest.mark.parametrize("rule", ["as they came", "longest first", "learned on the way"])
def test_steps_are_counted_as_the_batch_makes_them(slots: int, rule: str) -> None:
    generator = random.Random(slots)
    answers = [Answer(place, f"task {place // 4}", generator.randint(1, 20)) for place in range(24)]

    def expectation(learned: ExpectedLengths):  # type: ignore[no-untyped-def]
        of = {
            "as they came": lambda a: 0,
            "longest first": lambda a: a.tokens,
            "learned on the way": lambda a: learned.of(a.task),
        }
        return of[rule]

    counting, real = ExpectedLengths(), ExpectedLengths()
    counted = decoding_steps(
        answers, slots, expectation(counting), lambda answer: counting.learn(answer.task, answer.tokens)
    )
    batch = ContinuousBatch(tiny_model(), slots, order=lambda draft: -expectation(real)(answers[draft.stream[0]]))
    for answer in answers:
        batch.add(PartialSample((1, 2, answer.place // 4), SamplingParams(answer.tokens), (answer.place,)))
    while batch.busy:
        for draft in sorted(batch.step(), key=lambda each: each.stream):
            real.learn(answers[draft.stream[0]].task, len(draft.ids))
    assert batch.steps == counted
    assert counted >= least_steps(answers, slots)


def test_no_order_beats_the_least_number_of_steps() -> None:
    answers = [Answer(0, "a", 10), Answer(1, "b", 2), Answer(2, "c", 2)]
    assert least_steps(answers, 2) == decoding_steps(answers, 2, lambda answer: answer.tokens) == 10
    assert decoding_steps(answers, 2, lambda answer: -answer.tokens) == 12
