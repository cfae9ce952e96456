"""Vectors of benchmark texts, made once and kept on disk, so that several runs and systems are given the same ones."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from recollect.episodes import Encoder, EncoderIdentity

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "recollect" / "benchmark_vectors"


class KeptVectors:
    """An encoder over another one that never encodes a text twice, not even in another process.

    Two files per encoder: hashes of texts, and their vectors in the same order. Both are only appended to.
    """

    def __init__(self, encoder: Encoder, folder: Path = CACHE) -> None:
        self.identity: EncoderIdentity = encoder.identity
        self._encoder = encoder
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{encoder.identity.model}-{encoder.identity.dimension}".replace("/", "_")
        self._hashes, self._vectors = folder / f"{name}.hashes", folder / f"{name}.vectors"
        known = self._hashes.read_bytes() if self._hashes.exists() else b""
        count = len(known) // 16
        self._rows = {known[16 * row : 16 * row + 16]: row for row in range(count)}
        size = 4 * count * encoder.identity.dimension
        body = self._vectors.read_bytes()[:size] if count else b""
        self._matrix = [np.frombuffer(body, np.float32).reshape(count, encoder.identity.dimension)]
        self.encoded = 0

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        keys = [hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._rows}
        listed = list(missing.items())
        for start in range(0, len(listed), 256):
            self._keep(listed[start : start + 256])
        matrix = self._whole()
        return matrix[[self._rows[key] for key in keys]]

    def _keep(self, part: list[tuple[bytes, str]]) -> None:
        fresh = np.asarray(self._encoder.encode([text for _, text in part]), np.float32)
        self.encoded += len(part)
        # Vectors first: a run that dies between the two appends leaves vectors without hashes, which are cut off below.
        with open(self._vectors, "r+b" if self._vectors.exists() else "w+b") as file:
            file.seek(4 * len(self._rows) * self.identity.dimension)
            file.truncate()
            file.write(fresh.tobytes())
        with open(self._hashes, "ab") as file:
            file.write(b"".join(key for key, _ in part))
        for key, _ in part:
            self._rows[key] = len(self._rows)
        self._matrix.append(fresh)

    def _whole(self) -> np.ndarray:
        if len(self._matrix) > 1:
            self._matrix = [np.concatenate(self._matrix)]
        return self._matrix[0]
