"""Vectors of texts, made once and kept in a folder, so that several systems, runs and processes are given the same ones."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from filelock import FileLock

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.episodes.model import Encoder, EncoderIdentity

    Vectors = npt.NDArray[np.float32]

PART = 1024
"""Texts encoded between two writes: what a killed run loses at most."""


class KeptVectors:
    """An encoder over another one that never encodes a text twice, not even in another process.

    Two files per encoder: hashes of texts, and their vectors in the same order. Both are only appended to, under a lock.
    """

    def __init__(self, encoder: Encoder, folder: Path) -> None:
        self.identity: EncoderIdentity = encoder.identity
        self._encoder = encoder
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{encoder.identity.model}-{encoder.identity.dimension}".replace("/", "_")
        self._hashes, self._vectors = folder / f"{name}.hashes", folder / f"{name}.vectors"
        self._lock = FileLock(folder / f"{name}.lock")
        self._rows: dict[bytes, int] = {}
        self._matrix: list[Vectors] = []
        self.encoded = 0
        with self._lock:
            self._take_over()

    def encode(self, texts: Sequence[str]) -> Vectors:
        keys = [hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._rows}
        # Texts of one length side by side: an encoder's batches then pad next to nothing.
        listed = sorted(missing.items(), key=lambda pair: len(pair[1]))
        for start in range(0, len(listed), PART):
            self._keep(listed[start : start + PART])
        if len(self._matrix) > 1:
            self._matrix = [np.concatenate(self._matrix)]
        if not keys:
            return np.zeros((0, self.identity.dimension), np.float32)
        return self._matrix[0][[self._rows[key] for key in keys]]

    def _keep(self, part: list[tuple[bytes, str]]) -> None:
        fresh = np.asarray(self._encoder.encode([text for _, text in part]), np.float32)
        self.encoded += len(part)
        with self._lock:
            self._take_over()
            new = [row for row, (key, _) in enumerate(part) if key not in self._rows]
            # Vectors first: a run that dies between the two appends leaves vectors without hashes, which are cut off here.
            with open(self._vectors, "r+b" if self._vectors.exists() else "w+b") as file:
                file.seek(4 * len(self._rows) * self.identity.dimension)
                file.truncate()
                file.write(fresh[new].tobytes())
            # Nor may a hash that was cut short stay before the next one.
            with open(self._hashes, "r+b" if self._hashes.exists() else "w+b") as file:
                file.seek(16 * len(self._rows))
                file.truncate()
                file.write(b"".join(part[row][0] for row in new))
            self._take_over()

    def _take_over(self) -> None:
        """Read what this or another process appended since the last look."""
        if not self._hashes.exists():
            return
        dimension, known = self.identity.dimension, len(self._rows)
        with open(self._hashes, "rb") as file:
            file.seek(16 * known)
            fresh = file.read()
        if not fresh:
            return
        body = np.fromfile(self._vectors, np.float32, offset=4 * known * dimension)
        # What has no vector, or is cut short, is made again.
        count = min(len(fresh) // 16, len(body) // dimension)
        if count:
            self._rows.update((fresh[16 * row : 16 * row + 16], known + row) for row in range(count))
            self._matrix.append(body[: count * dimension].reshape(count, dimension))
