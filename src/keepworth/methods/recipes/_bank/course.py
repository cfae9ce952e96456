"""Courses: what is written into a bounded bank in one episode, turn by turn.

What a turn is belongs to a `WritingCourse`: here a digit for each fact, which says how much it matters (`DigitWriting`); in
`parted` and `staged` a chunk of facts, written by calls. What an episode earns besides its answer belongs to the recipe.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from keepworth.episodes.episode import (
    Task,
)
from keepworth.episodes.model import Model, Tokens
from keepworth.episodes.text import as_line
from keepworth.methods.recipes._bank.bounded_bank import BankEntry, BoundedBank
from keepworth.methods.recipes._bank.fact_streams import FactStream
from keepworth.methods.recipes._bank.parted import CallOutcome, ChunkTurn

ROLE = "writer"
PROMPT_ID = "worth_keeping/1"
PROMPT = "Fact: {}\nWorth keeping, 0 to 9:"
DIGITS = tuple("0123456789")

_DIGIT = re.compile(r"^\s*([0-9])(?![0-9])")

MOST_WORDS = 256
"""Of one fact in a prompt of a chunk; fewer where the prompt does not fit into the model's window."""


def task_of(stream: FactStream) -> Task:
    """Its question, under the key of the stream and without the conversations that it was made of."""
    task = stream.task
    return Task(stream.key, task.source, task.input, task.answers, task.verifier, tags=task.tags)


def asked(model: Model, statement: str, answer: int) -> Tokens:
    """The prompt for one fact. A fact that leaves no room for `answer` tokens in the model's window is cut short."""
    text = as_line(statement)
    while len(prompt := model.encode(PROMPT.format(text))) + answer > model.context_limit and text:
        text = text[: len(text) * 3 // 4]
    return prompt


def digit_tokens(model: Model) -> int:
    """The most tokens that a digit takes behind the prompt."""
    return max(len(model.encode_continuation(digit)) for digit in DIGITS)


def line_of(text: str) -> str:
    """What the bank is told: a digit says how much the fact matters, any other text is carried out as it stands."""
    digit = _DIGIT.match(text)
    return f"ADD {digit[1]}" if digit else text


class WritingCourse(Protocol):
    """One stream written into a bank.

    Attributes:
        turns: Those that are over.
        state: Of every segment: for an objective that compares turns of one state.
        stop: The text that ends a response; "" where its length does.
    """

    turns: list[ChunkTurn]
    state: str
    stop: str

    @property
    def shown(self) -> Sequence[BankEntry]:
        """What the reader is given after the last turn."""
        ...

    @property
    def stored(self) -> Sequence[int]:
        """Numbers of the stream's facts that are in the bank."""
        ...

    def prompt(self, most: int) -> str | None:
        """What the writer sees, each fact in at most `most` words; None after the last turn."""
        ...

    def act(self, text: str) -> ChunkTurn:
        """Carry out a response. Any text is legal."""
        ...


class DigitWriting:
    """One stream, of which the writer says of each fact how much it matters.

    What it is asked about one fact does not depend on the others: all facts are sampled at once, and one write can be drawn again
    with all that comes after it unchanged."""

    state = stop = ""

    def __init__(self, facts: Sequence[str], bank: BoundedBank) -> None:
        self.facts, self.bank = tuple(facts), bank
        self.turns: list[ChunkTurn] = []

    @property
    def waiting(self) -> tuple[str, ...]:
        """Facts of which nothing was said yet."""
        return self.facts[len(self.turns) :]

    @property
    def shown(self) -> tuple[BankEntry, ...]:
        return tuple(self.bank.entries)

    @property
    def stored(self) -> tuple[int, ...]:
        return self.bank.numbers

    def prompt(self, most: int) -> str | None:
        return PROMPT.format(as_line(self.waiting[0])) if self.waiting else None

    def act(self, text: str) -> ChunkTurn:
        number, fact, before = len(self.turns), self.waiting[0], self.shown
        outcome = CallOutcome(None, self.bank.write(line_of(text), fact), fact, number)
        self.turns.append(ChunkTurn((fact,), (outcome,), before, self.shown, (number, number + 1)))
        return self.turns[-1]


def prompts_of(model: Model, course: WritingCourse, answer: int) -> list[Tokens]:
    """All prompts that can be sampled now, each with room for `answer` tokens; none after the last turn."""
    if isinstance(course, DigitWriting):
        return [asked(model, fact, answer) for fact in course.waiting]
    prompt = fitted(model, course, answer)
    return [] if prompt is None else [prompt]


def fitted(model: Model, course: WritingCourse, answer: int) -> Tokens | None:
    """The next prompt, cut short where it would leave no room for `answer` tokens; None where none is left."""
    most = MOST_WORDS
    while (text := course.prompt(most)) is not None:
        prompt = model.encode(text)
        if len(prompt) + answer <= model.context_limit:
            return prompt
        if most == 1:
            return prompt[len(prompt) + answer - model.context_limit :]
        most //= 2
    return None
