"""Vectors of benchmark texts, made once and kept on disk, so that several runs and systems are given the same ones.

    python -m benchmarks.memory.vectors --data DATA --size 100000

makes those that the other benchmarks of this folder will ask for, which they otherwise make when they first run.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from filelock import FileLock

from keepworth.episodes import Encoder, EncoderIdentity

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "keepworth" / "benchmark_vectors"
PART = 1024
"""Texts encoded between two writes: what a killed run loses at most."""


class KeptVectors:
    """An encoder over another one that never encodes a text twice, not even in another process.

    Two files per encoder: hashes of texts, and their vectors in the same order. Both are only appended to, under a lock.
    """

    def __init__(self, encoder: Encoder, folder: Path = CACHE) -> None:
        self.identity: EncoderIdentity = encoder.identity
        self._encoder = encoder
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{encoder.identity.model}-{encoder.identity.dimension}".replace("/", "_")
        self._hashes, self._vectors = folder / f"{name}.hashes", folder / f"{name}.vectors"
        self._lock = FileLock(folder / f"{name}.lock")
        self._rows: dict[bytes, int] = {}
        self._matrix: list[np.ndarray] = []
        self.encoded = 0
        with self._lock:
            self._take_over()

    def encode(self, texts: Sequence[str]) -> np.ndarray:
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
            with open(self._hashes, "ab") as file:
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
        count = len(fresh) // 16
        if not count:
            return
        for row in range(count):
            self._rows[fresh[16 * row : 16 * row + 16]] = known + row
        body = np.fromfile(self._vectors, np.float32, count * dimension, offset=4 * known * dimension)
        self._matrix.append(body.reshape(count, dimension))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--encoder", default="minilm")
    arguments = parser.parse_args()
    from benchmarks.memory.real_sentences import sentences
    from benchmarks.memory.retrieval import turns_of
    from keepworth.models.encoders import encoder as named

    kept = KeptVectors(named(arguments.encoder))
    texts, questions = sentences(arguments.data, arguments.size)
    for name, group in (("turns", turns_of(arguments.data)), ("questions", questions), ("sentences", texts)):
        before, start = kept.encoded, time.perf_counter()
        kept.encode(group)
        made, seconds = kept.encoded - before, time.perf_counter() - start
        print(f"{name}: {len(group):,} texts, {made:,} encoded in {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
