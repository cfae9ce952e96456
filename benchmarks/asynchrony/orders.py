"""How many decoding steps a batch of answers of known lengths takes in slots, by the order in which they are begun.

Counted, not simulated with a clock: a `ContinuousBatch` with refill 1 fills every free slot before a step, and a step draws one
token for each live answer, so the number of its steps follows from lengths and order alone. `tests/test_answer_lengths.py`
holds the count against the batch itself.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer that has to be drawn: where it stands among those that came, its task, and its tokens."""

    place: int
    task: str
    tokens: int


Order = Callable[[Answer], float]
"""What an answer is expected to take: the largest goes first, ties as they came."""


def decoding_steps(
    answers: Sequence[Answer], slots: int, order: Order, ended: Callable[[Answer], None] = lambda answer: None
) -> int:
    """Steps until the last of `answers` has ended. ended: told of each when it ends, before the next slot is filled."""
    return steps_by_live(answers, slots, order, ended).total()


def steps_by_live(
    answers: Sequence[Answer], slots: int, order: Order, ended: Callable[[Answer], None] = lambda answer: None
) -> Counter[int]:
    """The same, as how many steps are made with so many live sequences."""
    waiting, live, now = list(answers), list[tuple[int, int, Answer]](), 0
    found = Counter[int]()
    while waiting or live:
        if waiting and len(live) < slots:
            waiting.sort(key=lambda each: (-order(each), each.place))
            begun, waiting = waiting[: slots - len(live)], waiting[slots - len(live) :]
            for each in begun:
                heapq.heappush(live, (now + each.tokens, each.place, each))
        found[len(live)] += live[0][0] - now
        now = live[0][0]
        while live and live[0][0] == now:
            ended(heapq.heappop(live)[2])
    return found


def least_steps(answers: Sequence[Answer], slots: int) -> int:
    """Fewer are impossible: the longest answer, or every slot always full."""
    return max(max(each.tokens for each in answers), -(-sum(each.tokens for each in answers) // slots))
