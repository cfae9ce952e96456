"""Vectors of texts, made once: those of recent texts in memory, and all of them in a folder for other runs and processes."""

from __future__ import annotations

import hashlib
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from keepworth.episodes.model import Encoder


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
            batch = {names[place]: vector for place, vector in zip(places, made, strict=True)}
            self.put(batch)
            vectors.update(batch)
        return np.stack([vectors[key] for key in keys]) if keys else np.empty((0, dimension()), dtype=np.float32)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, npt.NDArray[np.float32]]:
        with self._lock:
            found = {key: self._vectors[key] for key in keys if key in self._vectors}
            for key in found:
                self._vectors.move_to_end(key)
            return found

    def put(self, vectors: dict[bytes, npt.NDArray[np.float32]]) -> None:
        with self._lock:
            for key, vector in vectors.items():
                self._vectors[key] = vector.copy()  # a row of a batch would keep the whole batch alive
            while len(self._vectors) > self._capacity:
                self._vectors.popitem(last=False)


PART = 1024
"""Texts encoded between two writes: what a killed run loses at most."""


class KeptVectors:
    """An encoder over another one that never encodes a text twice, not even in another process: a table of SQLite in `folder`."""

    def __init__(self, encoder: Encoder, folder: Path) -> None:
        self.identity, self._encoder = encoder.identity, encoder
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.identity.model}-{self.identity.dimension}".replace("/", "_")
        self._file = sqlite3.connect(folder / f"{name}.sqlite", timeout=60.0, check_same_thread=False)
        self._file.execute("CREATE TABLE IF NOT EXISTS vectors (hash BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
        self._lock = Lock()

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """[texts, dimension], float32."""
        import numpy as np

        keys = [content_hash(text) for text in texts]
        with self._lock:
            vectors = {key: row[0] for key in dict.fromkeys(keys) if (row := self._read(key))}
            missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in vectors}
            # Texts of one length side by side: an encoder's batches then pad next to nothing.
            ordered = sorted(missing.items(), key=lambda pair: len(pair[1]))
            for start in range(0, len(ordered), PART):
                names, fresh = zip(*ordered[start : start + PART], strict=True)
                made = np.asarray(self._encoder.encode(fresh), np.float32)
                rows = [(key, vector.tobytes()) for key, vector in zip(names, made, strict=True)]
                with self._file:
                    self._file.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
                vectors.update(rows)
        return np.frombuffer(bytearray().join(vectors[key] for key in keys), np.float32).reshape(
            -1, self.identity.dimension
        )

    def _read(self, key: bytes) -> tuple[bytes] | None:
        found: tuple[bytes] | None = self._file.execute("SELECT vector FROM vectors WHERE hash = ?", (key,)).fetchone()
        return found
