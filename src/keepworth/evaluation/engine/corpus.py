"""The texts, vectors and queries that everything measured is given alike.

Texts are drawn from a Zipf vocabulary (12 to 30 words) and vectors around 200 centres; vectors are given, so no encoder is
measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepworth.episodes.encoder import EncoderIdentity

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

DIMENSION = 384
USERS = 100
VOCABULARY = 20_000
QUERIES = 200


@dataclass(frozen=True, slots=True)
class Corpus:
    """texts and their vectors, and queries with theirs. The same is given to everything that is compared."""

    texts: list[str]
    vectors: Vectors
    queries: list[str]
    query_vectors: Vectors


def corpus(size: int, *, queries: int = QUERIES, seed: int = 0) -> Corpus:
    import numpy as np

    draw = np.random.default_rng(seed)
    frequency = 1.0 / np.arange(1, VOCABULARY + 1)
    frequency /= frequency.sum()
    names = np.asarray([f"w{number}" for number in range(VOCABULARY)])
    lengths = draw.integers(12, 31, size)
    drawn = np.split(names[draw.choice(VOCABULARY, int(lengths.sum()), p=frequency)], np.cumsum(lengths)[:-1])
    texts = [f"{' '.join(words)} n{number}" for number, words in enumerate(drawn)]
    asked = [" ".join(names[draw.choice(VOCABULARY, 4, p=frequency)]) for _ in range(queries)]
    centres = draw.standard_normal((200, DIMENSION), dtype=np.float32)
    vectors = centres[draw.integers(0, 200, size + queries)]
    for start in range(0, len(vectors), 50_000):
        part = vectors[start : start + 50_000]
        part += draw.standard_normal(part.shape, dtype=np.float32)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return Corpus(texts, vectors[:size], asked, vectors[size:])


GIVEN = EncoderIdentity("given", DIMENSION, True)


class GivenVectors:
    """An encoder that looks its answers up."""

    identity = GIVEN

    def __init__(self, data: Corpus) -> None:
        self._known = dict(zip(data.texts, data.vectors, strict=True))
        self._known.update(zip(data.queries, data.query_vectors, strict=True))

    def encode(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        if len(texts) == 1:
            row: Vectors = self._known[texts[0]][None, :]
            return row
        return np.stack([self._known[text] for text in texts])
