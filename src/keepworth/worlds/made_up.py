"""Answers in free words, and the orders and splits of generated worlds."""

from __future__ import annotations

import numpy as np

# Answers in free words: the same action is worded differently every time, as agents that write text do.


STYLES = ("numbered", "framed", "explained", "mixed")
_FRAMES = (
    "I would {}",
    "my answer: {}",
    "the best thing here is to {}",
    "let us {} now",
    "{} would be right",
    "so we should {}, I think",
    "{}",
    "going by what I know, {}",
)
_TURNS = ("surely", "as asked", "this time", "once more", "for this one", "as far as I see", "without delay", "today")


def in_free_words(action: str, style: str, situation: str, generator: np.random.Generator) -> str:
    """Words `action` in another way. "numbered" appends a reference number; "framed" puts it in one of several sentences;
    "explained" adds a reason made of words of the situation; "mixed" does one of these."""
    if style == "mixed":
        style = STYLES[int(generator.integers(3))]
    if style == "numbered":
        return f"{action} (ref {int(generator.integers(10**6)):06x})"
    sentence = _FRAMES[int(generator.integers(len(_FRAMES)))].format(action)
    sentence = f"{sentence}, {_TURNS[int(generator.integers(len(_TURNS)))]}"
    if style == "framed":
        return sentence
    words = situation.split()
    reasons = generator.permutation(len(words))[: int(generator.integers(3, 8))]
    return f"{sentence}: " + " ".join(words[index] for index in reasons)


ORDERS = ("random", "easy-to-hard", "hard-to-easy")
SPLITS = {"dev": 0, "held-out": 1}
