"""The pool: which of its items are compared, and that the ones nearest are those of a plain look at all of them."""

from __future__ import annotations

import numpy as np

from keepworth.memory.item import Status
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.policy.pool import Advice, Pool
from keepworth.methods.policies._parts import top


def test_the_most_similar_among_many_are_those_of_a_plain_sort() -> None:
    generator = np.random.default_rng(4)
    for n, k in ((9_000, 12), (9_001, 36), (5_000, 3), (40, 4), (3, 4)):
        similarities = generator.integers(0, 60, size=n) / 60.0  # Many ties: the newer row wins.
        rows = np.sort(generator.permutation(2 * n)[:n])
        expected = rows[np.lexsort((-rows, -similarities))[:k]]
        assert top(similarities, rows, k).rows.tolist() == expected.tolist()


def test_active_rows_are_those_of_a_plain_look_whatever_happened() -> None:
    encoder = HashedWords(32)
    pool = Pool(lambda text: encoder.encode([text])[0], 32, 64)
    generator = np.random.default_rng(3)
    given: list[tuple[np.ndarray, list[int]]] = []
    for number in range(300):
        status = (Status.ACTIVE, Status.ACTIVE, Status.CANDIDATE)[int(generator.integers(3))]
        pool.add(Advice(f"key {number}", "text", do=("a",)), status=status, time=number)
        if generator.random() < 0.1:
            changed = (Status.ARCHIVED, Status.ACTIVE)[int(generator.integers(2))]
            pool.set_status(int(generator.integers(len(pool))), changed, time=number, why="test")
        if len(pool.active()) and generator.random() < 0.3:
            pool.set_status(int(pool.active()[-int(generator.integers(2))]), Status.ARCHIVED, time=number, why="an end")
        rows = pool.active()
        assert rows.tolist() == np.flatnonzero(pool.status[: len(pool)] == 0).tolist()
        given.append((rows, rows.tolist()))
        query = encoder.encode([f"key {number}"])[0]
        for some in (rows, rows[::-1], rows[-12:]):
            assert np.allclose(pool.similarities(query, some), pool.vectors[some] @ query)
    assert all(rows.tolist() == before for rows, before in given)
