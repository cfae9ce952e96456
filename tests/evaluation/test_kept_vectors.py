"""Vectors that are kept: made once, whoever asks, and never taken for those of another text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from keepworth.evaluation.kept_vectors import KeptVectors
from keepworth.memory.choose.hashed_words import HashedWords

TEXTS = [f"a text about {word}" for word in ("tea", "rain", "trains", "salt", "paper")]


def test_concurrent_requests_encode_a_text_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (KeptVectors(HashedWords(32), tmp_path) for _ in range(2))
    # Both are open at once, as two processes are, and write in turn.
    one.encode(TEXTS[:2])
    other.encode(TEXTS[2:4])
    one.encode(TEXTS[4:])
    expected = HashedWords(32).encode(TEXTS)
    monkeypatch.setattr(HashedWords, "encode", lambda self, texts: pytest.fail("a text was encoded again"))
    found = KeptVectors(HashedWords(32), tmp_path).encode(TEXTS)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(one.encode(TEXTS[::-1]), found[::-1])
    assert one.encode([]).shape == (0, 32)
