"""Vectors of recent texts, made once."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def without_lone_surrogates(text: str) -> str:
    """`text` as valid Unicode: surrogate pairs joined, a lone surrogate replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def content_hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class RecentVectors:
    """The vectors of the texts asked for last, by content hash. Safe to use from several threads."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._vectors: OrderedDict[bytes, npt.NDArray[np.float32]] = OrderedDict()
        self._lock = Lock()

    def encode(
        self,
        texts: Sequence[str],
        make: Callable[[Sequence[str]], Iterator[tuple[Sequence[int], npt.NDArray[np.float32]]]],
        dimension: Callable[[], int],
    ) -> npt.NDArray[np.float32]:
        """[texts, dimension]: what is kept, and for each other text once what `make` gives: (which of its texts, their vectors),
        batch by batch."""
        import numpy as np

        if isinstance(texts, str):
            raise TypeError("encode takes a sequence of texts, not one text: write encode([text])")
        keys = [content_hash(text) for text in texts]
        vectors = self.get(keys)
        fresh = {key: text for key, text in zip(keys, texts, strict=True) if key not in vectors}
        names = list(fresh)
        for places, made in make(list(fresh.values())) if fresh else ():
            batch = {names[index]: vector for index, vector in zip(places, made, strict=True)}
            self.put(batch)
            vectors.update(batch)
        return np.stack([vectors[key] for key in keys]) if keys else np.empty((0, dimension()), dtype=np.float32)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, npt.NDArray[np.float32]]:
        with self._lock:
            vectors = {key: self._vectors[key] for key in keys if key in self._vectors}
            for key in vectors:
                self._vectors.move_to_end(key)
            return vectors

    def put(self, vectors: dict[bytes, npt.NDArray[np.float32]]) -> None:
        with self._lock:
            for key, vector in vectors.items():
                self._vectors[key] = vector.copy()  # a row of a batch would keep the whole batch alive
            while len(self._vectors) > self._capacity:
                self._vectors.popitem(last=False)
