"""Vectors that are kept: made once, whoever asks, and never taken for those of another text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keepworth.episodes.model import EncoderIdentity
from keepworth.evaluation.kept_vectors import KeptVectors
from keepworth.memory.policy.hashed_words import HashedWords


class Counted:
    """An encoder that knows which texts it encoded."""

    def __init__(self) -> None:
        self.inner, self.met = HashedWords(32), list[str]()

    @property
    def identity(self) -> EncoderIdentity:
        return self.inner.identity

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.met += texts
        return np.asarray(self.inner.encode(list(texts)), dtype=np.float32)


TEXTS = [f"a text about {word}" for word in ("tea", "rain", "trains", "salt", "paper")]


def test_a_text_is_encoded_once_whoever_asks(tmp_path: Path) -> None:
    first, second = Counted(), Counted()
    one, other = KeptVectors(first, tmp_path), KeptVectors(second, tmp_path)
    # Both are open at once, as two processes are, and write in turn.
    one.encode(TEXTS[:2])
    other.encode(TEXTS[2:4])
    one.encode(TEXTS[4:])
    again = Counted()
    found = KeptVectors(again, tmp_path).encode(TEXTS)
    assert again.met == []
    np.testing.assert_array_equal(found, HashedWords(32).encode(TEXTS))
    np.testing.assert_array_equal(one.encode(TEXTS[::-1]), found[::-1])
    assert KeptVectors(again, tmp_path).encode([]).shape == (0, 32)
