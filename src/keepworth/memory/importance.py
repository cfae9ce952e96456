"""Features of a statement's text that predict, before any question, how likely a question is to be about it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from keepworth.base.arrays import Floats

_TIME = re.compile(r"\b(?:yesterday|today|last|ago|weeks?|months?|years?|monday|friday|recently|just|since|now)\b")
_WANTING = re.compile(r"\b(?:need|want|looking|thinking|interested|planning|consider|hoping|curious)\b")
_DONE = re.compile(
    r"\b(?:bought|got|went|attended|visited|finished|started|moved|took|met|received|graduated|work|live|have been|completed)\b"
)
_KIN = re.compile(
    r"\bmy (?:sister|brother|mother|mom|father|dad|wife|husband|friend|cousin|son|daughter|cat|dog|niece|nephew)\b"
)
_I, _DIGIT = re.compile(r"I\b"), re.compile(r"\d")
_NUMBER_WORD = re.compile(r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|dozen|twice|half)\b")

FEATURES = (
    *("words", "digits", "numbers in words", "names", "quoted", "times", "money"),
    *("starts with I am", "my", "kin", "wanting", "done"),
)


def hand_features(statement: str) -> Floats:
    """Returns [len(FEATURES)]: counts and flags of one statement that need no model, each of order 1."""
    low, spoken = statement.lower(), statement.split()
    return np.array(
        [
            len(spoken) / 20,
            min(4, sum(letter.isdigit() for letter in statement)) / 2,
            float(bool(_NUMBER_WORD.search(low))),
            min(6, sum(word[:1].isupper() and word not in ("I", "I'm", "I've", "I'd", "I'll") for word in spoken[1:]))
            / 3,
            float('"' in statement),
            float(bool(_TIME.search(low))),
            float("$" in statement),
            float(low.startswith(("i'm", "i am"))),
            float(" my " in f" {low}"),
            float(bool(_KIN.search(low))),
            float(bool(_WANTING.search(low))),
            float(bool(_DONE.search(low))),
        ]
    )


MARKS = ("length", "very long", "digits", "a name", "asks", "a time", "a number in words", "my", "done")
"""The features of `Keeper`. The first five depend on no language; the others know English words."""
WORDY, LONG = 30, 60
"""The probability of a question grows with length up to `WORDY` words, and falls from `LONG` words on."""
PRIOR = (1.03, -1.09, 0.97, 0.44, -0.5, 0.67, 0.39, 0.46, 0.55)
"""The weight of each mark in the log-odds that a fact is asked for: a conditional logistic regression on the evidence of
LongMemEval and of BFCL's memory tasks, shrunk towards "has digits; of equals the longer, but nothing very long" (see
`benchmarks/writing/keeping.json`)."""
_ASKS = ("?", "\uff1f", "\u061f")


def marks(texts: Sequence[str]) -> Floats:
    """Returns [n, len(MARKS)], each of order 1. "length" is half of log(1 + words), "very long" the logarithm of words over
    `LONG`; a name is a capital inside a sentence."""
    return np.array([_marks(text) for text in texts], dtype=np.float64).reshape(len(texts), len(MARKS))


@lru_cache(maxsize=20_000)
def _marks(text: str) -> tuple[float, ...]:
    low, words = text.lower(), text.split()
    name = any(
        word[0].isupper() and before[-1] not in ".!?:" and not _I.match(word) for before, word in pairwise(words)
    )
    return (
        math.log1p(min(len(words), WORDY)) / 2,
        math.log(max(len(words), LONG) / LONG),
        bool(_DIGIT.search(text)),
        name,
        text.rstrip().endswith(_ASKS),
        bool(_TIME.search(low)),
        bool(_NUMBER_WORD.search(low)),
        " my " in f" {low}",
        bool(_DONE.search(low)),
    )


_SPECIFIC = ("digits", "numbers in words", "names", "times", "money", "quoted")


def specificity(statement: str) -> float:
    """Scores a statement by the rule `most specific`: its numbers, names, times and quoted words; of equals, the longer."""
    hand = hand_features(statement)
    return float(sum(hand[FEATURES.index(name)] for name in _SPECIFIC) + 0.001 * hand[FEATURES.index("words")])
