"""Made-up words for generated worlds. Splits share no first letter, so that nothing learned about names transfers."""

from __future__ import annotations

from math import prod

import numpy as np

from keepworth.worlds.made_up import ORDERS, SPLITS

_ONSETS = {"dev": "bdgklmnp", "held-out": "frstvwzj", "shared": "chqxy"}
_VOWELS = "aeiou"
_CODAS = "lmnrst"


def words(split: str, count: int, generator: np.random.Generator) -> list[str]:
    """Returns `count` different two-syllable words whose first letter belongs to `split`."""
    alphabets = _ONSETS[split], _VOWELS, _CODAS, _VOWELS, _CODAS
    sizes = tuple(map(len, alphabets))
    if count > prod(sizes):
        raise ValueError(f"split {split!r} has {prod(sizes)} words, {count} were asked for: ask for fewer")
    letters = np.unravel_index(generator.choice(prod(sizes), size=count, replace=False), sizes)
    return ["".join(map(str.__getitem__, alphabets, places)) for places in zip(*letters, strict=True)]


def phrase(vocabulary: list[str], count: int, generator: np.random.Generator) -> str:
    """Returns `count` words drawn from a vocabulary with replacement, as one text."""
    return " ".join(vocabulary[int(index)] for index in generator.integers(0, len(vocabulary), size=count))


def leanings(actions: int, generator: np.random.Generator, spread: float = 0.3) -> tuple[float, ...]:
    """Returns a simulated agent's log-odds of each action."""
    return tuple(generator.normal(0.0, spread, size=actions).tolist())


def check_split(split: str, order: str) -> int:
    """Returns the number of the split, for seeds. Raises ValueError for an unknown split or order."""
    if split not in SPLITS or order not in ORDERS:
        raise ValueError(
            f"split {split!r} must be one of {', '.join(SPLITS)} and order {order!r} of {', '.join(ORDERS)}"
        )
    return SPLITS[split]
