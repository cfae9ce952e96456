"""Vectors for texts: an encoder handed in, its answers checked, scaled to unit length and cached by content."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from keepworth.episodes.encoder import Encoder, EncoderIdentity
from keepworth.memory.errors import InvalidVector

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

DEFAULT_CACHE = 20_000


class Embedder:
    """Thread-safe. `cached` texts are remembered, least recently used out first; 0 turns the cache off."""

    __slots__ = ("_cache", "_lock", "_size", "encoder")

    def __init__(self, encoder: Encoder, cached: int = DEFAULT_CACHE) -> None:
        self.encoder = encoder
        self._size = cached
        self._cache: OrderedDict[bytes, Vectors] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def identity(self) -> EncoderIdentity:
        return self.encoder.identity

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """Shape (len(texts), dimension), float32, unit rows. Each distinct unknown text is encoded once, in one batch."""
        import numpy as np

        if len(texts) == 1:
            return self._one(texts[0])
        keys = [_content(text) for text in texts]
        found: dict[bytes, Vectors] = {}
        with self._lock:
            for key in keys:
                vector = self._cache.get(key)
                if vector is not None:
                    self._cache.move_to_end(key)
                    found[key] = vector
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if missing:
            fresh = unit_rows(self.encoder.encode(list(missing.values())), len(missing), self.identity)
            found.update(zip(missing, fresh, strict=True))
            if self._size:
                with self._lock:
                    self._cache.update((key, found[key]) for key in missing)
                    while len(self._cache) > self._size:
                        self._cache.popitem(last=False)
            if len(missing) == len(keys):
                out: Vectors = fresh.copy()
                return out
        if not keys:
            return np.zeros((0, self.identity.dimension), dtype=np.float32)
        return np.stack([found[key] for key in keys])

    def begin(self, texts: Sequence[str]) -> Callable[[], Vectors]:
        """Start encoding on a thread beside the caller's; the returned function waits for the vectors. At once where all
        are in the cache."""
        with self._lock:
            known = all(_content(text) in self._cache for text in texts)
        if known:
            return lambda: self(texts)
        return _beside().submit(self, texts).result

    def _one(self, text: str) -> Vectors:
        """The same for one text, as agents write and ask, without the bookkeeping of a batch."""
        key = _content(text)
        with self._lock:
            known = self._cache.get(key)
            if known is not None:
                self._cache.move_to_end(key)
        if known is not None:
            row: Vectors = known[None, :].copy()
            return row
        fresh = unit_rows(self.encoder.encode([text]), 1, self.identity)
        if self._size:
            with self._lock:
                self._cache[key] = fresh[0]
                if len(self._cache) > self._size:
                    self._cache.popitem(last=False)
        single: Vectors = fresh.copy()
        return single

    def unlocked(self) -> None:
        """In a forked child: whoever held the lock is not here."""
        self._lock = threading.Lock()

    def forget(self, text: str) -> None:
        """Drop one text's vector from the cache."""
        with self._lock:
            self._cache.pop(_content(text), None)


def _content(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


_POOL: list[ThreadPoolExecutor] = []


def _beside() -> ThreadPoolExecutor:
    """Threads that outlive one search: some libraries start a team of their own for every thread that calls them."""
    from concurrent.futures import ThreadPoolExecutor

    if not _POOL:
        _POOL.append(ThreadPoolExecutor(4, "keepworth-encode"))
    return _POOL[0]


if hasattr(os, "register_at_fork"):
    # The threads of a pool do not come along into a forked process.
    os.register_at_fork(after_in_child=_POOL.clear)


def unit_rows(vectors: object, rows: int, identity: EncoderIdentity) -> Vectors:
    """`vectors` as float32 of shape (rows, dimension) with unit rows; a zero row stays zero and matches nothing."""
    import numpy as np

    try:
        array = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidVector(
            f"encoder {identity.model!r} gave what is no array of numbers ({error}): check the encoder; nothing was done"
        ) from error
    if array.shape != (rows, identity.dimension):
        raise InvalidVector(
            f"encoder {identity.model!r} gave shape {array.shape} for {rows} texts, "
            f"expected ({rows}, {identity.dimension}): check the encoder and its stated dimension; nothing was done"
        )
    norms = np.sqrt(np.add.reduce(array * array, axis=1, keepdims=True))
    # NaN compares false with everything, so the usual case needs no look at every number.
    if 0.0 < norms[0, 0] < np.inf if rows == 1 else norms.min(initial=1.0) > 0.0 and norms.max(initial=1.0) < np.inf:
        quick: Vectors = np.divide(array, norms, dtype=np.float32)
        return quick
    if not np.isfinite(array).all():
        row = int(np.argmin(np.isfinite(array).all(axis=1)))
        raise InvalidVector(
            f"encoder {identity.model!r} gave NaN or infinity for text number {row}: check the encoder; nothing was done"
        )
    unit: Vectors = np.divide(array, norms, out=np.zeros_like(array), where=norms > 0)
    return unit
