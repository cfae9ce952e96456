"""A tiny encoder for tests: words hashed to directions, so texts with common words are close."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from keepworth.records import EncoderIdentity


class WordEncoder:
    def __init__(self, dimension: int = 64, model: str = "words") -> None:
        self.identity = EncoderIdentity(model, dimension, True)
        self.calls = 0
        self.texts = 0

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.calls += 1
        self.texts += len(texts)
        out = np.zeros((len(texts), self.identity.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                seed = int.from_bytes(
                    hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=4).digest(), "little"
                )
                out[row] += np.random.default_rng(seed).standard_normal(self.identity.dimension, dtype=np.float32)
        norms = np.linalg.norm(out, axis=1, keepdims=True)
        return np.divide(out, norms, out=np.zeros_like(out), where=norms > 0)
