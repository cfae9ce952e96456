"""A cache of vectors of recent texts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import TYPE_CHECKING

from keepworth.base.recent import Recent

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def without_lone_surrogates(text: str) -> str:
    """Returns `text` as valid Unicode: surrogate pairs joined, a lone surrogate replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def content_hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


Make = Callable[[Sequence[str]], Iterable[tuple[Sequence[int], "npt.NDArray[np.float32]"]]]
"""Maps texts to batches of (indices of texts, their vectors)."""


class RecentVectors:
    """Caches the vectors of the last `capacity` texts, by content hash. Safe to use from several threads."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._vectors: Recent[bytes, npt.NDArray[np.float32]] = Recent(capacity)
        self._lock = Lock()

    def encode(self, texts: Sequence[str], make: Make, dimension: Callable[[], int]) -> npt.NDArray[np.float32]:
        """Returns [texts, dimension]: cached vectors, and for other texts those that one call of `make` gives.

        Args:
            texts: The texts, of which some may be equal. A single string raises TypeError.
            make: The encoder. It is called once, with the texts without a cached vector, and not at all where there are none.
            dimension: It returns the length of a vector, and is asked only where there is no text.
        """
        import numpy as np

        if isinstance(texts, str):
            raise TypeError("encode takes a sequence of texts, not one text: write encode([text])")
        keys = [content_hash(text) for text in texts]
        with self._lock:
            vectors = {key: self._vectors[key] for key in keys if key in self._vectors}
            for key in vectors:
                self._vectors.move_to_end(key)
        fresh = {key: text for key, text in zip(keys, texts, strict=True) if key not in vectors}
        names = list(fresh)
        for places, made in make(list(fresh.values())) if fresh else ():
            batch = {names[index]: vector for index, vector in zip(places, made, strict=True)}
            vectors |= batch
            if self._capacity:
                with self._lock:
                    for key, vector in batch.items():
                        self._vectors[key] = vector.copy()  # a row of a batch would keep the whole batch alive
        return np.stack([vectors[key] for key in keys]) if keys else np.empty((0, dimension()), dtype=np.float32)

    def has(self, texts: Sequence[str]) -> bool:
        """Whether the vectors of all texts are cached."""
        with self._lock:
            return all(content_hash(text) in self._vectors for text in texts)

    def forget(self, text: str) -> None:
        with self._lock:
            self._vectors.pop(content_hash(text), None)
