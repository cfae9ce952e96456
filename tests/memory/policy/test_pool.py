"""The pool: which of its items are compared, and that the ones nearest are those of a plain look at all of them."""

from __future__ import annotations

import numpy as np
import pytest

from keepworth import policy
from keepworth.memory.item import OWN, Status
from keepworth.memory.policy.experience import Experience
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.policy.pool import Advice, Pool
from keepworth.memory.policy.retrievers import top

ENCODER = HashedWords(256)


def test_the_most_similar_among_many_are_those_of_a_plain_sort() -> None:
    generator = np.random.default_rng(4)
    for n, k in ((9_000, 12), (9_001, 36), (5_000, 3), (40, 4), (3, 4)):
        similarities = generator.integers(0, 60, size=n) / 60.0  # Many ties: the newer row wins.
        rows = np.sort(generator.permutation(2 * n)[:n])
        expected = rows[np.lexsort((-rows, -similarities))[:k]]
        assert top(similarities, rows, k).rows.tolist() == expected.tolist()


def test_a_scan_that_serves_twice_follows_items_and_order() -> None:
    experience = Experience(policy("advantage"), ENCODER)
    for number in range(6):
        experience.observe(Advice(f"alpha w{number}", "t", do=("left",), source=OWN))
    pool = experience.pool
    vector = pool.encode("alpha w3")
    whole = pool.vectors[:6] @ vector
    assert np.allclose(pool.similarities(vector, pool.active()), whole)
    backwards = np.arange(6)[::-1].copy()
    assert np.allclose(pool.similarities(vector, backwards), whole[::-1])
    experience.observe(Advice("alpha w3", "t", do=("left",), source=OWN))
    assert np.allclose(pool.similarities(vector, np.array([6, 3])), 1.0)


def test_where_most_items_are_archived_the_others_are_compared_and_those_that_came_since() -> None:
    pool = Pool(lambda text: ENCODER.encode([text])[0], ENCODER.identity.dimension)
    for number in range(30):
        status = Status.ARCHIVED if number % 3 else Status.ACTIVE
        pool.add(Advice(f"word{number % 4}", "text", do=("a",)), status=status, time=0)
    asked = ENCODER.encode(["word1 word2"])[0]
    for key in ("word2", "word9", "word1 word2"):
        assert pool.scan(asked, pool.active()) == pytest.approx(pool.vectors[pool.active()] @ asked, abs=1e-6)
        row = pool.add(Advice(key, "text", do=("a",)), status=Status.ACTIVE, time=1)
        assert pool.scan(asked, pool.active()) == pytest.approx(pool.vectors[pool.active()] @ asked, abs=1e-6)
        pool.set_status(row, Status.ARCHIVED, time=2, why="test")


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
