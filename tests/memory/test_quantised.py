"""Proposing indexes give what an exact scan gives, follow changes, and step aside where they cannot."""

from __future__ import annotations

import numpy as np
import pytest

from recollect.memory import quantised
from recollect.memory.dense import DenseIndex
from recollect.memory.errors import InvalidFilter
from recollect.memory.memory import Memory


def clustered(rows: int, dimension: int = 32, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    centres = draw.standard_normal((40, dimension))
    out = (centres[draw.integers(0, 40, rows)] + 0.5 * draw.standard_normal((rows, dimension))).astype(np.float32)
    return out / np.linalg.norm(out, axis=1, keepdims=True)


@pytest.mark.parametrize("kind", ["int8", "graph"])
def test_a_proposing_index_agrees_with_the_scan(kind, monkeypatch):
    pytest.importorskip("faiss")
    monkeypatch.setattr(quantised, "SMALLEST", 100)
    vectors = clustered(3000)
    plain, quick = DenseIndex(32), DenseIndex(32)
    for index in (plain, quick):
        index.put(range(1, 2501), [n % 4 for n in range(2500)], vectors[:2500])
    quick.accelerate(kind)
    assert quick.recall >= quantised.LEAST_RECALL[kind]
    for index in (plain, quick):
        index.put(range(2501, 2901), [n % 4 for n in range(400)], vectors[2500:2900])
        index.drop(range(1, 200))
        index.put([500], [1], vectors[2999:3000])
    queries = clustered(60, seed=1)
    for scope, ids in ((None, None), ("half", [0, 1]), ("one", [3])):
        exact = plain.search(queries, 10, scope, ids)
        found = quick.search(queries, 10, scope, ids)
        overlap = [len({n for n, _ in a} & {n for n, _ in b}) / 10 for a, b in zip(exact, found, strict=True)]
        assert np.mean(overlap) >= 0.9
        for line in found:
            assert all(n >= 200 for n, _ in line)
            assert [s for _, s in line] == sorted((s for _, s in line), reverse=True)
    assert quick.search(vectors[2999:3000], 1, None, None)[0][0][0] == 500


def test_an_index_that_misses_too_much_is_not_used(monkeypatch, caplog):
    pytest.importorskip("faiss")
    monkeypatch.setitem(quantised.LEAST_RECALL, "int8", 1.01)
    assert quantised.build("int8", clustered(500)) is None
    assert "searching exactly instead" in caplog.text


def test_unknown_kinds_are_refused():
    with pytest.raises(InvalidFilter, match="exact, int8, graph"):
        Memory(":memory:", encoder=None, index="magic")
