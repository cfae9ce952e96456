"""The arithmetic of the study of serving: arrivals, waits of requests, memory over time. No model is loaded."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="the study shares modules with measurements that load a model")

from benchmarks.serving.accuracy import beside, changed
from benchmarks.serving.load import Clock, Step, arrivals, common, memory, serve
from benchmarks.serving.page import percentiles, pooled
from keepworth.episodes import SamplingParams
from keepworth.models.inprocess import PartialSample


class Scripted(Clock):
    """Time goes on where a server says so."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def skip_to(self, when: float) -> None:
        self.time = max(self.time, when)


class Slots:
    """A token a step for each of the first drafts, in one second and a half for each that is read."""

    def __init__(self, clock: Scripted, slots: int) -> None:
        self.clock, self.slots = clock, slots
        self.live: list[PartialSample] = []
        self.waiting: list[PartialSample] = []

    @property
    def busy(self) -> bool:
        return bool(self.live or self.waiting)

    def add(self, draft: PartialSample) -> None:
        self.waiting.append(draft)

    def step(self) -> list[PartialSample]:
        while self.waiting and len(self.live) < self.slots:
            self.live.append(self.waiting.pop(0))
            self.clock.time += 0.5
        self.clock.time += 1.0
        for draft in self.live:
            draft.ids.append(7)
        ended = [draft for draft in self.live if len(draft.ids) == draft.params.max_tokens]
        self.live = [draft for draft in self.live if draft not in ended]
        return ended


def drafts(*lengths: int) -> list[PartialSample]:
    return [PartialSample((1, 2, 3), SamplingParams(length), (0, 0)) for length in lengths]


@pytest.mark.parametrize("shape", [0.25, 1.0, 4.0])
def test_arrivals_rise_and_have_exactly_the_mean_gap(shape: float) -> None:
    due = arrivals(shape, 2.0, 34, seed=1)
    assert due == sorted(due)
    assert due[-1] == pytest.approx(2.0 * 34)
    assert due == arrivals(shape, 2.0, 34, seed=1)
    assert due != arrivals(shape, 2.0, 34, seed=2)


def test_a_smaller_shape_is_burstier() -> None:
    """The coefficient of variation of Gamma gaps is one over the root of their shape."""
    for shape in (0.25, 1.0, 4.0):
        gaps = np.diff(arrivals(shape, 1.0, 20_000, seed=3))
        assert gaps.std() / gaps.mean() == pytest.approx(shape**-0.5, rel=0.05)


def test_waits_are_counted_from_when_a_request_was_due() -> None:
    clock = Scripted()
    served = serve(Slots(clock, slots=1), drafts(2, 1), [10.0, 10.5], clock)
    # The first is read and drawn from 10 to 11.5, and ends at 12.5. The second waits for its slot: it ends at 14.
    assert served.first == [1.5, 3.5]
    assert served.last == [2.5, 3.5]
    assert [(each.begun, each.seconds, each.live) for each in served.steps] == [
        (10, 1.5, 1),
        (11.5, 1, 1),
        (12.5, 1.5, 1),
    ]


def test_in_two_slots_the_second_begins_while_the_first_goes_on() -> None:
    clock = Scripted()
    served = serve(Slots(clock, slots=2), drafts(3, 1), [0.0, 1.0], clock)
    # Steps end at 1.5, 3 (it reads the second, whose only token it is) and 4.
    assert served.first == [1.5, 2.0]
    assert served.last == [4.0, 2.0]
    assert [(each.live, each.tokens) for each in served.steps] == [(1, 4), (2, 9), (1, 6)]


def test_idle_time_is_skipped_and_counts_as_time() -> None:
    clock = Scripted()
    served = serve(Slots(clock, slots=1), drafts(1, 1), [0.0, 100.0], clock)
    assert served.last == [1.5, 1.5]
    assert served.steps[1].begun == 100.0


def test_memory_is_a_mean_over_all_time() -> None:
    steps = [Step(0.0, 1.0, 1, 10, 0), Step(1.0, 2.0, 2, 20, 640), Step(8.0, 2.0, 1, 5, 320)]
    found = memory(steps, token_bytes=4)
    assert found["busy_seconds"] == 5.0
    assert found["whole_seconds"] == 10.0
    assert found["one_live"] == pytest.approx(3 / 5)
    assert found["live"] == pytest.approx((1 + 4 + 2) / 5)
    assert found["bytes_mean"] == pytest.approx(4 * (10 + 40 + 10) / 10)
    # Mean of squares: (100 + 2 * 400 + 2 * 25) / 10 = 95; of tokens: 6.
    assert found["bytes_deviation"] == pytest.approx(4 * (95 - 36) ** 0.5)
    assert (found["bytes_highest"], found["bytes_reserved"]) == (80, 640)


def test_how_many_first_tokens_are_the_same() -> None:
    assert [common((1, 2, 3), other) for other in ((1, 2, 3), (1, 5, 3), (9,), (1, 2))] == [3, 1, 0, 2]


def test_the_longest_percentile_is_said_of_a_hundred_or_more() -> None:
    assert percentiles([1.0, 2.0, 3.0, 4.0, 5.0], 1) == "3.0 / 4.8"
    assert percentiles([float(each) for each in range(101)], 0) == "50 / 95 / 99"
    assert percentiles([0.04, 0.05, 0.06], 0, unit=1000) == "50 / 59"


def test_a_further_token_takes_the_mean_of_its_answer_and_one_token_has_no_further() -> None:
    rows = [
        {"first": [1.0, 2.0], "last": [2.0, 2.0], "tokens": [5, 1]},
        {"first": [0.5], "last": [1.5], "tokens": [3]},
    ]
    assert pooled(rows, "further") == [0.25, 0.5]
    assert pooled(rows, "last") == [2.0, 2.0, 1.5]


def test_answers_are_compared_with_what_is_given_alone() -> None:
    same = beside([[1, 2, 3], [4, 9], [5]], [[1, 2, 3], [4, 5, 6], [6, 7]])
    assert same == {"answers": 3, "same_answers": 1, "tokens": 8, "same_tokens": 3 + 1 + 0}
    assert changed([True, False, True, True], [True, True, False, True]) == {"right": 3, "gained": 1, "lost": 1}
