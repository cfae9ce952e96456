"""Made-up words and answers for generated worlds. Splits share no first letter: nothing learned by name carries over."""

from __future__ import annotations

import numpy as np

_ONSETS = {"dev": "bdgklmnp", "held-out": "frstvwzj", "shared": "chqxy"}
_VOWELS = "aeiou"
_CODAS = "lmnrst"


def words(split: str, count: int, generator: np.random.Generator) -> list[str]:
    """`count` different two-syllable words whose first letter belongs to `split`."""
    onsets = _ONSETS[split]
    size = len(onsets) * len(_VOWELS) * len(_CODAS) * len(_VOWELS) * len(_CODAS)
    if count > size:
        raise ValueError(f"split {split!r} has {size} words, {count} were asked for: ask for fewer")
    return [_word(onsets, int(number)) for number in generator.choice(size, size=count, replace=False)]


def _word(onsets: str, number: int) -> str:
    letters = []
    for alphabet in (_CODAS, _VOWELS, _CODAS, _VOWELS, onsets):
        number, index = divmod(number, len(alphabet))
        letters.append(alphabet[index])
    return "".join(reversed(letters))


def phrase(vocabulary: list[str], count: int, generator: np.random.Generator) -> str:
    """`count` words drawn from a vocabulary, with replacement."""
    return " ".join(vocabulary[int(index)] for index in generator.integers(0, len(vocabulary), size=count))


def leanings(actions: int, generator: np.random.Generator, spread: float = 0.3) -> tuple[float, ...]:
    """Log-odds with which a simulated agent leans to each action."""
    return tuple(generator.normal(0.0, spread, size=actions).tolist())


# Answers in free words: the same action said in another way every time, as agents that write text do.


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
    """`action` in words of its own. "numbered": a running reference behind it; "framed": in one of several sentences;
    "explained": with a reason made of words of the situation; "mixed": one of these."""
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


def check_split(split: str, order: str) -> int:
    """The number of the split, for seeds. ValueError for a split or an order that there is not."""
    if split not in SPLITS or order not in ORDERS:
        raise ValueError(
            f"split {split!r} must be one of {', '.join(SPLITS)} and order {order!r} of {', '.join(ORDERS)}"
        )
    return SPLITS[split]
