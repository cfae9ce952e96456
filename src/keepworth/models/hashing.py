"""An encoder of nothing but arithmetic: for tests, and for machines where no weights can be fetched.

It knows spelling, not meaning: texts are near where they share words, word pairs or parts of words.

Sources: signed feature hashing (Weinberger et al., arXiv 0902.2206); character n-grams of bounded words (Bojanowski et al.,
arXiv 1607.04606).
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from keepworth.episodes.encoder import EncoderIdentity
from keepworth.models.errors import InvalidEncoder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# A word, or one sign of punctuation.
_WORDS = re.compile(r"\w+|[^\w\s]")
_CHARACTERS = range(3, 6)
# Each word brings several n-grams of its own: their weights keep the word itself in the lead.
_WORD, _PAIR, _PART = 1.0, 0.7, 0.3
MOST_DIMENSIONS = 65_536


class HashingEncoder:
    """Vectors of signed hashed counts, unit length, the same in every process and on every machine.

    dimension: 2 to MOST_DIMENSIONS, else InvalidEncoder. A text without any feature (empty, or only white space) gets one
    fixed vector of its own.
    """

    def __init__(self, dimension: int = 256) -> None:
        if not 2 <= dimension <= MOST_DIMENSIONS:
            raise InvalidEncoder(
                f"A hashing encoder has between 2 and {MOST_DIMENSIONS:,} dimensions, not {dimension}.", "Try 256."
            )
        self._identity = EncoderIdentity(model="hashing-v1", dimension=dimension, normalised=True)

    @property
    def identity(self) -> EncoderIdentity:
        return self._identity

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Shape (len(texts), dimension), float32, rows of unit length. Lone surrogates count as U+FFFD."""
        import numpy as np

        if isinstance(texts, str):
            raise TypeError("encode takes a sequence of texts, not one text: write encode([text])")
        vectors = np.zeros((len(texts), self._identity.dimension), dtype=np.float64)
        for row, text in zip(vectors, texts, strict=True):
            for feature, weight in features(text).items():
                index, sign = _place(feature, self._identity.dimension)
                row[index] += sign * weight
            length = math.sqrt(float(row @ row))
            if length < 1e-9:  # nothing there, or everything cancelled
                row[:] = 0.0
                row[_place("", self._identity.dimension)[0]] = length = 1.0
            row /= length
        return vectors.astype(np.float32)


def features(text: str) -> dict[str, float]:
    """Words, pairs of neighbours and parts of words, each with its weight: its kind's times the square root of its count."""
    words = _WORDS.findall(unicodedata.normalize("NFKC", without_lone_surrogates(text)).casefold())
    counts: Counter[tuple[float, str]] = Counter((_WORD, f"w {word}") for word in words)
    counts.update((_PAIR, f"p {left} {right}") for left, right in pairwise(words))
    for word in words:
        bounded = f"<{word}>"
        counts.update((_PART, f"c {bounded[i : i + n]}") for n in _CHARACTERS for i in range(len(bounded) - n + 1))
    return {feature: weight * math.sqrt(count) for (weight, feature), count in counts.items()}


def without_lone_surrogates(text: str) -> str:
    """`text` as valid Unicode: surrogate pairs joined, a lone surrogate replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _place(feature: str, dimension: int) -> tuple[int, float]:
    digest = int.from_bytes(hashlib.blake2b(feature.encode(), digest_size=8).digest(), "little")
    return (digest >> 1) % dimension, 1.0 if digest & 1 else -1.0
