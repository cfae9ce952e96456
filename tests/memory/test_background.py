"""Cosines of any encoder are read on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.episodes.model import EncoderIdentity
from keepworth.memory.by_name import encoder
from keepworth.memory.memory import Memory
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.search import scan
from keepworth.memory.search.background import SENTENCES, USUAL, Background, measured
from keepworth.memory.search.chunks import PART, part_length
from keepworth.memory.search.index import DenseIndex, Embedder
from keepworth.memory.search.scan import CACHED, MANY, cosines
from keepworth.memory.store.checks import check

Array = np.ndarray[Any, np.dtype[np.float32]]


class Narrow:
    """An encoder whose every two texts are alike: that of `inner`, with the same direction added to all. A cosine c becomes
    near + (1 - near) * c."""

    def __init__(self, inner: Any, near: float) -> None:
        self.inner, self.near = inner, near
        self.identity = EncoderIdentity(f"narrow-{near:g}", inner.identity.dimension + 1, True)
        self.encoded: list[str] = []

    def encode(self, texts: Sequence[str]) -> Array:
        self.encoded += texts
        vectors = np.asarray(self.inner.encode(list(texts)), np.float32)
        common = np.full((len(vectors), 1), np.sqrt(self.near), np.float32)
        return np.hstack([np.sqrt(1.0 - self.near, dtype=np.float32) * vectors, common])


TEXTS = [
    "Ana likes a quiet room",
    "The red car is parked behind the house",
    "For a refund send form A to the desk",
    "Bo is allergic to peanuts",
    "The meeting was moved to Friday",
    "A refund takes three days",
]
QUESTIONS = [
    "what kind of room does Ana like?",
    "where is the car?",
    "refund",
    "who may not eat peanuts?",
    "zebra xylophone",
]


def test_the_usual_background_is_that_of_the_default_encoder():
    assert measured(Embedder(encoder("minilm"))).unrelated == pytest.approx(USUAL.unrelated, abs=1e-4)
    assert Embedder(encoder("minilm")).background is USUAL
    assert USUAL.usual(0.3) == 0.3
    assert part_length(USUAL) == PART


def test_an_encoder_that_only_looks_vectors_up_is_left_as_it_is():
    known = dict(zip(TEXTS, Embedder(HashedWords())(TEXTS), strict=True))
    assert measured(lambda texts: np.stack([known[text] for text in texts])) == USUAL


def test_an_encoder_that_tells_nothing_apart_is_left_as_it_is():
    assert measured(lambda texts: np.ones((len(texts), 1), np.float32)) == USUAL


@pytest.mark.parametrize("near", [0.5, 0.7, 0.9])
def test_an_encoder_that_finds_everything_alike_finds_the_same_with_the_same_scores(near: float):
    """As many encoders do, for which unrelated texts have a cosine of 0.7 and more."""
    found = []
    for made in (HashedWords(), Narrow(HashedWords(), near)):
        memory = Memory(encoder=made, policy=None)
        memory.add_many(TEXTS)
        found.append([{hit.id: hit.score for hit in memory.search(question)} for question in QUESTIONS])
    for usual, narrow in zip(*found, strict=True):
        assert narrow == pytest.approx(usual, abs=2e-4)


def test_it_is_measured_once_and_only_where_words_and_meaning_are_added_up():
    made = Narrow(HashedWords(), 0.7)
    memory = Memory(encoder=made, policy=None)
    memory.add_many(TEXTS)
    memory.search("refund", mode="dense")
    memory.search("refund", mode="lexical")
    assert not set(SENTENCES) & set(made.encoded)
    for again in (memory, Memory(encoder=made, policy=None)):
        again.add_many(TEXTS)
        for question in QUESTIONS:
            again.search(question)
    assert [made.encoded.count(sentence) for sentence in SENTENCES] == [1] * len(SENTENCES)


def test_parts_count_as_they_do_by_the_default_encoder(path: Path):
    """Of an encoder that finds everything alike, a vector of three quarters would be farther than any whole text."""
    narrow = Background(0.75)
    assert narrow.usual(part_length(narrow) * narrow.native(0.5)) == pytest.approx(PART * 0.5)
    long = " ".join(f"Room {number} is for storage of chairs." for number in range(60))
    long += "\n\nThe spare key is under the blue pot."
    with Memory(path, encoder=Narrow(encoder("minilm"), 0.7), policy=None) as memory:
        memory.add_many([long, *(f"Note {number}: chairs were counted in room {number}." for number in range(60))])
        (first, *_) = memory.search("where is the key?", mode="dense")
        assert first.text == long
        assert first.passage.strip().endswith("blue pot.")
        assert check(memory.store) == []


# How the cosines of queries with all rows are computed changes nothing of what is found.


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(0, 3 * CACHED + 1),
    queries=st.integers(1, MANY + 2),
    dimension=st.integers(1, 40),
    share=st.integers(1, 4 * CACHED),
    seed=st.integers(0, 2**32 - 1),
)
def test_they_are_those_of_a_matrix_product(rows, queries, dimension, share, seed):
    draw = np.random.default_rng(seed)
    # Sixteenths: every sum of products is exact, so there is one right answer whatever the order of adding.
    matrix = draw.integers(-16, 17, (rows, dimension)).astype(np.float32) / 16
    asked = draw.integers(-16, 17, (queries, dimension)).astype(np.float32) / 16
    exact = asked.astype(np.float64) @ matrix.T.astype(np.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "SHARE", share)
        patch.setattr(scan, "READERS", 4)
        found = cosines(asked, matrix)
    assert found.dtype == np.float32
    assert np.array_equal(found, exact)


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 30),
    queries=st.sampled_from([1, 2, MANY - 1, MANY]),
    kept=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_same_items_are_found_ties_in_order_of_arrival(count, queries, kept, seed):
    """Beside the plain way: all scores by one product, sorted, and of equal ones the first first."""
    draw = np.random.default_rng(seed)
    different = draw.integers(-4, 5, (60, 8)).astype(np.float32) / 4
    matrix = different[draw.integers(0, 60, 700)]  # most rows are there several times
    asked = draw.integers(-4, 5, (queries, 8)).astype(np.float32) / 4
    scopes = draw.integers(0, 3, 700)
    index = DenseIndex(8)
    index.put(range(1, 701), scopes.tolist(), matrix)
    gone = draw.choice(np.arange(1, 701), 50, replace=False).tolist()
    index.drop(gone)
    mask = np.append(False, draw.random(700) < kept)
    scores = asked @ matrix.T
    for ids, rule in ((None, None), ([1], None), (None, mask), ([0, 2], mask)):
        counts = np.ones(700, bool) if ids is None else np.isin(scopes, ids)
        counts[np.array(gone) - 1] = False
        if rule is not None:
            counts &= rule[1:]
        rows = np.flatnonzero(counts)
        plain = [
            [(int(row) + 1, float(line[row])) for row in rows[np.argsort(-line[rows], kind="stable")][:count]]
            for line in scores
        ]
        assert index.search(asked, count, str(ids), ids, rule) == plain


@pytest.mark.parametrize("readers", [1, 3])
@pytest.mark.parametrize("queries", [1, 3])
def test_equal_rows_have_equal_scores_wherever_they_stand(queries, readers, monkeypatch):
    monkeypatch.setattr(scan, "CACHED", 7)
    monkeypatch.setattr(scan, "SHARE", 20)
    monkeypatch.setattr(scan, "READERS", readers)
    draw = np.random.default_rng(0)
    row = draw.standard_normal(385).astype(np.float32)
    asked = draw.standard_normal((queries, 385)).astype(np.float32)
    matrix = draw.standard_normal((100, 385)).astype(np.float32)
    matrix[[0, 5, 6, 13, 50, 99]] = row
    found = cosines(asked, matrix)[:, [0, 5, 6, 13, 50, 99]]
    assert (found == found[:, :1]).all()
    assert np.array_equal(cosines(asked, row[None, :])[:, 0], found[:, 0])
