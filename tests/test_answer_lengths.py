"""What the study of answer lengths stands on: decoding steps are counted as the batch makes them, numbers written as digits come
back as they were, and what is said of a task was not learned from it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

pytest.importorskip("torch", reason="the batch needs the extra llm")

from benchmarks.asynchrony import predictors
from benchmarks.asynchrony.digits import PLACES, decoded, encoded
from benchmarks.asynchrony.orders import Answer, decoding_steps, least_steps
from benchmarks.asynchrony.predictors import (
    CEILING,
    KIND,
    OWN,
    PREDICTORS,
    Asked,
    Digits,
    between,
    ceiling,
    closed,
    correlation,
    folds,
    planned_steps,
    ridge,
    spearman,
    steps_of,
    unseen,
)
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


def test_every_number_of_four_digits_comes_back_and_others_to_four_digits() -> None:
    assert all(decoded(encoded(sign * number)) == sign * number for number in range(10_000) for sign in (1, -1))
    generator = random.Random(0)
    for _ in range(1000):
        value = generator.uniform(-10, 10) * 10 ** generator.uniform(-5, 12)
        assert decoded(encoded(value)) == pytest.approx(value, rel=5.1e-4)
    assert encoded(256.0) == (0, 2, 5, 6, 0, 9)
    assert decoded((1, 0, 0, 1, 2, 12)) == -1200


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e15, 1e-9])
def test_what_cannot_be_written_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"finite number|power of ten"):
        encoded(value)


@pytest.mark.parametrize("symbols", [(0, 1), (2, 0, 0, 0, 0, 0), (0, 10, 0, 0, 0, 0), (*[0] * (len(PLACES) - 1), 21)])
def test_what_is_no_number_is_refused(symbols: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="is no number"):
        decoded(symbols)


def tasks_of(lengths: Sequence[tuple[str, tuple[int, ...]]]) -> list[Asked]:
    """Each prompt's first token is its number; its hidden state is noise."""
    noise = np.random.default_rng(0).standard_normal((len(lengths), 4))
    return [
        Asked(f"t{at}", kind, f"word {at}", (at, 1, 2), noise[at], noise[at], own)
        for at, (kind, own) in enumerate(lengths)
    ]


def test_what_is_said_of_a_task_was_learned_from_the_other_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = tasks_of([("a", (10, 20))] * 23)
    learned: list[set[str]] = []

    class Remembers:
        def __init__(self) -> None:
            learned.append(set())
            self._own = learned[-1]

        def learn(self, task: Asked) -> None:
            self._own.add(task.key)

        def expect(self, asked: Sequence[Asked]) -> list[float]:
            assert not self._own & {task.key for task in asked}
            return [float(len(self._own))] * len(asked)

    monkeypatch.setitem(PREDICTORS, "remembers", lambda seed: Remembers())
    told, _ = unseen(tasks, "remembers")
    assert told == {task.key: 23.0 - len(part) for part in folds(tasks) for task in part}
    assert len(learned) == 5


def test_every_predictor_learns_what_its_features_say() -> None:
    generator = np.random.default_rng(1)
    tasks = []
    for at in range(40):
        long = at % 2
        sign = np.array([2.0 * long - 1, *generator.normal(0, 0.1, 3)])
        text = "many words and still more of them" if long else "few words"
        lengths = tuple(int(each) for each in generator.integers(*((150, 200) if long else (10, 30)), 3))
        tasks.append(Asked(f"t{at}", "ab"[long], text, (long, 7), sign, sign, lengths))
    for name, make in PREDICTORS.items():
        if make is Digits:  # so few groups are too few for it; the next test is about it
            continue
        predictor = make(0)
        for task in tasks[:30]:
            predictor.learn(task)
        told = np.array(predictor.expect(tasks[30:]))
        if name == predictors.TASK:
            assert np.ptp(told) == 0
        else:
            assert told[1::2].min() > told[::2].max(), name


def test_the_digit_decoder_learns_two_prompts_apart() -> None:
    predictor = Digits(0)
    long, short = tasks_of([("a", (200, 210, 205)), ("a", (11, 12, 13))])
    for _ in range(10):
        predictor.learn(long)
        predictor.learn(short)
    told = predictor.expect([long, short])
    assert told[0] > 100 > 20 > told[1] > 0


def test_the_error_without_a_row_is_that_of_a_fit_without_it() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((12, 5)), generator.standard_normal(12)
    x -= x.mean(0)
    _, errors = ridge(x, y, 3.0)
    for out in range(12):
        rows = np.arange(12) != out
        columns = np.column_stack([np.ones(11), x[rows]])
        weights = np.linalg.solve(columns.T @ columns + np.diag([0, *[3.0] * 5]), columns.T @ y[rows])
        assert errors[out] == pytest.approx(y[out] - np.array([1, *x[out]]) @ weights)


def test_rank_correlation_and_variance_between_prompts() -> None:
    assert correlation(np.array([1.0, 2, 3, 4]), np.array([10.0, 40, 20, 30])) == pytest.approx(0.4)
    assert correlation(np.array([5.0, 5]), np.array([1.0, 2])) == 0
    apart, alike = np.array([[10.0, 10], [20, 20], [40, 40]]), np.array([[10.0, 20, 40], [40, 10, 20], [20, 40, 10]])
    assert between(apart) == ceiling(apart) == 1
    assert between(alike) == ceiling(alike) == 0
    generator = np.random.default_rng(0)
    means = generator.standard_normal((2000, 1))
    lengths = means + 2 * generator.standard_normal(
        (2000, 6)
    )  # a fifth between prompts: the true mean reaches about sqrt(1 / 5)
    assert ceiling(lengths) == pytest.approx(correlation(np.repeat(means, 6), lengths.ravel()), abs=0.02)


def test_what_is_known_of_kinds_counts_for_mixed_kinds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictors, "RESAMPLES", 20)
    generator = random.Random(0)
    tasks = tasks_of(
        [
            (kind, tuple(generator.randint(low, low + 50) for _ in range(3)))
            for kind, low in (("a", 10), ("b", 100)) * 15
        ]
    )
    kind = np.array([[1.0 if task.kind == "b" else 0.0] * 3 for task in tasks])
    own = np.array([task.lengths for task in tasks], dtype=np.float64)
    found = spearman(tasks, {KIND: kind, "all": own})
    assert found[KIND]["one kind at a time"] == {"mean": 0, "low": 0, "high": 0}
    assert found[KIND]["mixed, above the mean of the kind"]["mean"] == 0
    assert 0.8 < found[KIND]["mixed"]["mean"] < 1
    assert 0.8 < found[CEILING]["mixed"]["mean"] < 1
    assert found["all"]["one kind at a time"]["low"] == pytest.approx(1)


def test_shares_of_the_gap_by_hand() -> None:
    assert planned_steps([Answer(at, "", n) for at, n in enumerate((1, 1, 4, 2))], 2, lambda a: a.tokens) == 4
    assert planned_steps([Answer(at, "", n) for at, n in enumerate((1, 1, 4, 2))], 2, lambda a: 1) == 5
    steps = steps_of([(2, 2), (2, 6)], 2, {OWN: (2.0, 4.0)})
    assert steps == {
        "as they came": 8,
        "lengths known": 6,
        "running mean per task": 8,
        "lengths known, planned": 6,
        OWN: 6,
        f"{OWN}, planned": 8,
    }
    found = closed([steps], [steps])
    assert found[OWN] == {"steps": 0.75, "closed": 1, "low": 1, "high": 1}
    assert found["running mean per task"]["closed"] == 0
