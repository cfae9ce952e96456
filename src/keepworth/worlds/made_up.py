"""What generated worlds are made of: words that nobody knows, answers in free words, orders and splits. Splits share no first
letter of a made-up word, so that nothing learned about names transfers."""

from __future__ import annotations

from math import prod

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
    """Words an action in another way.

    Args:
        action: The action as the world knows it.
        style: "numbered" appends a reference number; "framed" puts the action in one of several sentences; "explained" adds a
            reason made of words of the situation; "mixed" does one of these.
        situation: The text that the words of a reason are taken from.
        generator: The source of the random choices.
    """
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


# Made-up words.

_ONSETS = {"dev": "bdgklmnp", "held-out": "frstvwzj", "shared": "chqxy"}
_VOWELS = "aeiou"
_CODAS = "lmnrst"


def words(split: str, count: int, generator: np.random.Generator) -> list[str]:
    """Returns different two-syllable words. Raises ValueError where a split has fewer.

    Args:
        split: The side, which has first letters of its own, so that no word is on two sides.
        count: The number of words.
        generator: The source of the draw.
    """
    alphabets = _ONSETS[split], _VOWELS, _CODAS, _VOWELS, _CODAS
    sizes = tuple(map(len, alphabets))
    if count > prod(sizes):
        raise ValueError(f"split {split!r} has {prod(sizes)} words, {count} were asked for: ask for fewer")
    letters = np.unravel_index(generator.choice(prod(sizes), size=count, replace=False), sizes)
    return ["".join(map(str.__getitem__, alphabets, places)) for places in zip(*letters, strict=True)]


def phrase(vocabulary: list[str], count: int, generator: np.random.Generator) -> str:
    """Returns words drawn from a vocabulary with replacement, as one text.

    Args:
        vocabulary: The words, each of which is as likely.
        count: The number of words.
        generator: The source of the draw.
    """
    return " ".join(vocabulary[int(index)] for index in generator.integers(0, len(vocabulary), size=count))


def leanings(actions: int, generator: np.random.Generator, spread: float = 0.3) -> tuple[float, ...]:
    """Returns a simulated agent's log-odds of each action, drawn from a normal distribution around 0.

    Args:
        actions: The number of actions.
        generator: The source of the draw.
        spread: The standard deviation.
    """
    return tuple(generator.normal(0.0, spread, size=actions).tolist())


def check_split(split: str, order: str) -> int:
    """Returns the number of the split, for seeds. Raises ValueError for an unknown split or order."""
    if split not in SPLITS or order not in ORDERS:
        raise ValueError(
            f"split {split!r} must be one of {', '.join(SPLITS)} and order {order!r} of {', '.join(ORDERS)}"
        )
    return SPLITS[split]
