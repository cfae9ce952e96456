"""Made-up words: rules of different splits share none of them, so nothing learned by name carries over."""

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
        number, place = divmod(number, len(alphabet))
        letters.append(alphabet[place])
    return "".join(reversed(letters))
