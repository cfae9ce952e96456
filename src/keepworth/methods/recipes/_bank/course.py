"""Courses: the interface of an episode in which a writer fills a bounded bank turn by turn.

A `WritingCourse` defines what a turn is: here a digit of importance for each fact (`DigitWriting`); in `parted` and `staged` a
chunk of facts, written by calls. The recipe defines rewards other than the answer's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from keepworth.base.text import as_line
from keepworth.methods.recipes._bank.bounded_bank import BankEntry, BoundedBank
from keepworth.methods.recipes._bank.parted import CallOutcome, ChunkTurn
from keepworth.records.episode import Task
from keepworth.records.model import Model, Tokens
from keepworth.worlds.fact_streams import FactStream

ROLE = "writer"
PROMPT_ID = "worth_keeping/1"
PROMPT = "Fact: {}\nWorth keeping, 0 to 9:"
DIGITS = tuple("0123456789")

_DIGIT = re.compile(r"^\s*([0-9])(?![0-9])")

MOST_WORDS = 256
"""Most words of one fact in a prompt of a chunk; halved until the prompt fits the model's window."""


def task_of(stream: FactStream) -> Task:
    """Returns the question of a stream as a task, under the stream's key and without the conversations."""
    task = stream.task
    return Task(stream.key, task.source, task.input, task.answers, task.verifier, tags=task.tags)


def asked(model: Model, statement: str, answer: int) -> Tokens:
    """Returns the prompt for one fact. A fact that leaves no room for `answer` tokens in the model's window is cut."""
    text = as_line(statement)
    while len(prompt := model.encode(PROMPT.format(text))) + answer > model.context_limit and text:
        text = text[: len(text) * 3 // 4]
    return prompt


def digit_tokens(model: Model) -> int:
    """Returns the most tokens that a digit takes after the prompt."""
    return max(len(model.encode_continuation(digit)) for digit in DIGITS)


def line_of(text: str) -> str:
    """Converts a response to a line for the bank: a digit becomes the fact's importance, any other text is passed on."""
    digit = _DIGIT.match(text)
    return f"ADD {digit[1]}" if digit else text


class WritingCourse(Protocol):
    """One stream written into a bank.

    Attributes:
        turns: The finished turns.
        state: The state of every segment, for an objective that compares turns of one state.
        stop: The text that ends a response; "" where only its length does.
    """

    turns: list[ChunkTurn]
    state: str
    stop: str

    @property
    def shown(self) -> Sequence[BankEntry]:
        """Returns the entries that the reader gets after the last turn."""
        ...

    @property
    def stored(self) -> Sequence[int]:
        """Returns the numbers of the stream's facts that are in the bank."""
        ...

    def prompt(self, most: int) -> str | None:
        """Returns the writer's prompt, with each fact cut to `most` words; None after the last turn."""
        ...

    def act(self, text: str) -> ChunkTurn:
        """Executes a response. Any text is legal."""
        ...


class DigitWriting:
    """One stream whose writer gives a digit of importance for each fact.

    The prompt for one fact does not depend on the others: all facts are sampled at once, and one write can be resampled with all
    later ones unchanged.
    """

    state = stop = ""

    def __init__(self, facts: Sequence[str], bank: BoundedBank) -> None:
        self.facts, self.bank = tuple(facts), bank
        self.turns: list[ChunkTurn] = []

    @property
    def waiting(self) -> tuple[str, ...]:
        """Returns the facts without a response so far."""
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
    """Returns all prompts that can be sampled now, each with room for `answer` tokens; none after the last turn."""
    if isinstance(course, DigitWriting):
        return [asked(model, fact, answer) for fact in course.waiting]
    prompt = fitted(model, course, answer)
    return [] if prompt is None else [prompt]


def fitted(model: Model, course: WritingCourse, answer: int) -> Tokens | None:
    """Returns the next prompt, cut to leave room for `answer` tokens; None after the last turn."""
    most = MOST_WORDS
    while (text := course.prompt(most)) is not None:
        prompt = model.encode(text)
        if len(prompt) + answer <= model.context_limit:
            return prompt
        if most == 1:
            return prompt[len(prompt) + answer - model.context_limit :]
        most //= 2
    return None
