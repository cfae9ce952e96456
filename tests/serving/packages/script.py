"""Streams, a writer and a reader that every package is given alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from zlib import crc32

from keepworth.episodes.episode import Task
from keepworth.tasks.fact_streams import FactStream
from keepworth.tasks.facts import Fact

BUDGET = 2


def stream(number: int) -> FactStream:
    """Six facts; the second and the third are the same, so that a turn may look like the one before."""
    said = [
        f"I met person{number} in Oslo.",
        "I like tea.",
        "I like tea.",
        f"My cat is called Cat{number}.",
        "I ran.",
        "I slept.",
    ]
    facts = [Fact(text, "s", "2023-05-20", place, 0) for place, text in enumerate(said)]
    task = Task(f"q{number}", "made", "What is my cat called?", (f"Cat{number}",), "token_f1", tags={"split": "train"})
    return FactStream(task, tuple(facts), (False, False, False, True, False, False), task.key)


STREAMS = tuple(map(stream, range(4)))


def operation(text: str) -> str:
    """What the writer says to a bank and a new fact: some facts matter, some pass, and some of it makes no sense."""
    fact = text.strip().splitlines()[-1]
    return ("NOOP", "ADD 2", "ADD 8", "ADD 5", "UPDATE 0", "what?", "ADD")[crc32(fact.encode(), 3) % 7]


def answer(memory: str) -> str:
    """The last cat of the memory, with a word too many."""
    cats = re.findall(r"Cat\d", memory)
    return f"maybe {cats[-1]}" if cats else "nobody knows"


def reader(question: str, memories: Sequence[str]) -> str:
    return answer("\n".join(memories))


def broken(question: str, memories: Sequence[str]) -> str:
    raise OSError("the endpoint is gone")
