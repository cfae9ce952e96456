"""Texts as hashed bags of words: an encoder that needs no model, and the word sets that pair features are made of."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keepworth.records.model import EncoderIdentity

if TYPE_CHECKING:
    from keepworth.base.arrays import Vectors

WORD = re.compile(r"[^\W_]+")


def word_slots(text: str, dimension: int) -> list[int]:
    """Return the slot of each word of `text`, in order, with repetition."""
    words = WORD.findall(text.lower())
    return [zlib.crc32(word.encode("utf-8", "surrogatepass")) % dimension for word in words]


class HashedWords:
    """Unit vectors of square-rooted word counts. An empty text gets the first axis, so that cosines stay defined."""

    __slots__ = ("_dimension",)

    def __init__(self, dimension: int = 512) -> None:
        self._dimension = dimension

    @property
    def identity(self) -> EncoderIdentity:
        return EncoderIdentity("hashed-words", self._dimension, True)

    def encode(self, texts: Sequence[str]) -> Vectors:
        vectors = np.zeros((len(texts), self._dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            np.add.at(vectors[row], word_slots(text, self._dimension), 1.0)
            if not vectors[row].any():
                vectors[row, 0] = 1.0
        vectors = np.sqrt(vectors)
        scaled: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return scaled
