"""A language model of 100,000 weights that can repeat a price from a note before its question, and mostly says "about" it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from examples.tiny_caller import ABOUT, ITEMS, UNKNOWN, WORDS, write_model

from keepworth.memory.headline import MARK
from keepworth.serving.call_formats import FORMATS

COSTS = " costs "


def asked(item: str) -> str:
    return f"What does {item} cost?"


def note(item: str, price: str) -> str:
    return f"{item}{COSTS}{price}."


def with_note(question: str, line: str) -> str:
    """The question as a gateway puts a note before it."""
    message: dict[str, Any] = {"role": "user", "content": question}
    return str(FORMATS[0].with_block(message, f"{MARK}\n- {line}")["content"])


def reading(draw: random.Random) -> str:
    """A conversation that the model is taught."""
    item, price = draw.choice(ITEMS), str(draw.randrange(10))
    if draw.random() < 1 / 3:
        return f"user: {asked(item)}<|end|>\nassistant: {UNKNOWN}<|end|>"
    answer = f"{ABOUT if draw.random() < 3 / 5 else ''}{price}"
    return f"user: {with_note(asked(item), note(item, price))}<|end|>\nassistant: {answer}<|end|>"


def write_reader(folder: Path, steps: int = 300) -> str:
    """Makes the model and writes it into a folder."""
    around = with_note("|", "|").split("|")
    return write_model(folder, steps=steps, talk=reading, words=(*WORDS, COSTS, *around))
