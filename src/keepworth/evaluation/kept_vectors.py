"""A cache of text vectors in a folder, shared by all runs and processes that measure there."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from keepworth.base.vectors import content_hash

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from keepworth.records.model import Encoder

PART = 1024
"""Texts encoded between two writes: the most that a killed run loses."""


class KeptVectors:
    """Wraps an encoder so that no text is encoded twice, not even in another process. The cache is an SQLite table in
    `folder`."""

    def __init__(self, encoder: Encoder, folder: Path) -> None:
        self.identity, self._encoder = encoder.identity, encoder
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.identity.model}-{self.identity.dimension}".replace("/", "_")
        self._file = sqlite3.connect(folder / f"{name}.sqlite", timeout=60.0, check_same_thread=False)
        self._file.execute("CREATE TABLE IF NOT EXISTS vectors (hash BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
        self._lock = Lock()

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Returns the vectors, [texts, dimension], float32."""
        import numpy as np

        keys, find = [content_hash(text) for text in texts], "SELECT vector FROM vectors WHERE hash = ?"
        with self._lock:
            vectors = {
                key: row[0] for key in dict.fromkeys(keys) if (row := self._file.execute(find, (key,)).fetchone())
            }
            missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in vectors}
            # Texts are sorted by length, so that the encoder's batches need little padding.
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
