"""Streams of each split, rules that learn nothing, and the interface of writers that write by calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from keepworth.memory.importance import specificity
from keepworth.methods.recipes._bank.bounded_bank import BoundedBank
from keepworth.methods.recipes._bank.course import DIGITS, WritingCourse, asked
from keepworth.methods.recipes._bank.rollout import Earned
from keepworth.models.inprocess import InProcessModel
from keepworth.training.collect.curriculum import draw_task, position_of
from keepworth.worlds.fact_streams import FactStream, longmemeval_streams
from keepworth.worlds.splits import draw_order

if TYPE_CHECKING:
    from keepworth.methods.recipes.bounded_bank import Config

Lines = Callable[[FactStream], Sequence[str]]
"""Returns a line for each fact of a stream."""

Leaves = Callable[[Sequence[FactStream]], Sequence[WritingCourse]]
"""Returns a writer's finished courses over several streams."""


@dataclass(frozen=True, slots=True)
class ByCalls:
    """A writer that sees its bank and writes by calls. course: of a stream, into an empty bank; rule: the response to imitate
    first; earned: its reward terms; max_tokens: of a response; turns: of an episode. arms: responses of rules, by their names in
    `ARMS`, which replace the usual ones."""

    course: Callable[[FactStream, BoundedBank, WriterStreams], WritingCourse]
    rule: Callable[[Any], str]
    earned: Earned
    max_tokens: int
    prompt_id: str
    turns: int
    arms: Mapping[str, Callable[[Any, FactStream], str]] = field(default_factory=dict)


class WriterStreams:
    """The streams of each split: those of `length`, and for training those of the horizons as well."""

    def __init__(self, config: Config) -> None:
        self._config = config
        lengths = dict.fromkeys((*(horizon.length for horizon in config.horizons), config.length))
        self._train = {length: longmemeval_streams(length, ("train",), config.streams) for length in lengths}
        self._held_out = {
            split: longmemeval_streams(config.length, (split,), config.streams) for split in ("dev", "test")
        }
        self._by_key = {stream.key: stream for streams in self._train.values() for stream in streams}
        every = (*self._train.values(), *self._held_out.values())
        self._among = {stream.key: streams for streams in every for stream in streams}

    def drawn(self, group: int) -> FactStream:
        """Returns the stream of a group, of its step's length."""
        config = self._config
        length = config.length_at(position_of(group) // config.tasks_per_step)
        return draw_task(self._train[length], None, config.seed, group)

    def held_out(self, split: str) -> list[FactStream]:
        return self._held_out[split][: self._config.questions]

    def of(self, key: str) -> FactStream:
        return self._by_key[key]

    def distract(self, stream: FactStream, count: int) -> list[str]:
        """Returns at most `count` statements of other streams of its split as distractors, the same each time."""
        statements = {fact.statement for fact in stream.facts}
        others = {
            fact.statement
            for other in self._among[stream.key]
            if other.cluster != stream.cluster
            for fact in other.facts
        }
        return sorted(others - statements, key=lambda text: draw_order("beside", stream.key, text))[:count]

    def training(self) -> list[FactStream]:
        """Returns all training streams, of every length."""
        return list(self._by_key.values())

    def statements(self) -> list[str]:
        """Returns the distinct statements of training."""
        return sorted({fact.statement for stream in self._by_key.values() for fact in stream.facts})


def rule_lines(stream: FactStream) -> list[str]:
    return [f"ADD {min(9.0, specificity(fact.statement)):.4f}" for fact in stream.facts]


def rule_digits(statements: Sequence[str]) -> list[int]:
    """Returns [n] digits of the statements by the rule `most specific`: each digit goes to a tenth of them."""
    order = sorted(range(len(statements)), key=lambda number: specificity(statements[number]))
    digits = [0] * len(statements)
    for rank, number in enumerate(order):
        digits[number] = rank * len(DIGITS) // len(statements)
    return digits


def mean_digits(model: InProcessModel, statements: Sequence[str]) -> list[float]:
    """Returns [n]: the mean digit of each statement under the model's distribution over digits."""
    branches = [model.encode_continuation(digit) for digit in DIGITS]
    most = max(map(len, branches))
    scored = model.score([asked(model, statement, most) for statement in statements], [branches] * len(statements))
    means = []
    for answers in scored:
        scores = [sum(digits) for digits in answers]
        weights = [math.exp(score - max(scores)) for score in scores]
        means.append(sum(digit * weight for digit, weight in enumerate(weights)) / sum(weights))
    return means
