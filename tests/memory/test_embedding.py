"""Vectors of texts: one by one, in batches, beside other work, and after a fork of the process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.memory.by_name import encoder
from keepworth.memory.choose.hashed_words import HashedWords
from keepworth.memory.memory import Memory
from keepworth.memory.search import index
from keepworth.memory.search.background import SENTENCES, USUAL, Background, measured
from keepworth.memory.search.chunks import CHUNK, LONG, PART, WIDE, part_length, parts, spans
from keepworth.memory.search.index import CACHED, MANY, DenseIndex, Embedder, RankedTexts, Within, cosines
from keepworth.memory.store.maintenance import check
from keepworth.records import EncoderIdentity
from tests.memory.helpers import WordEncoder, finds, rows
from tests.memory.test_fork import forked


class SlowEncoder(WordEncoder):
    """Waits until someone else has done something, so that a test can tell whether two things ran side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.waited = False

    def encode(self, texts):
        self.waited = self.go.wait(60)
        return super().encode(texts)


def test_embedder_returns_copies_of_cached_vectors():
    embedder = Embedder(WordEncoder())
    for _ in range(2):
        embedder(["a red cat"])[:] = 0.0
    assert np.linalg.norm(embedder(["a red cat"])) == pytest.approx(1.0)


def test_embedder_cache_is_bounded_and_optional():
    small = Embedder(WordEncoder(), cached=2)
    for text in ("a", "b", "c", "c", "b"):
        small([text])
    assert small.encoder.texts == 3
    small(["a"])
    assert small.encoder.texts == 4
    off = Embedder(WordEncoder(), cached=0)
    off(["a"])
    off(["a"])
    assert off.encoder.texts == 2


def test_a_hybrid_search_reads_words_while_the_query_is_encoded(path, monkeypatch):
    slow, real = SlowEncoder(), RankedTexts.scores
    slow.go.set()
    with Memory(path, encoder=slow) as memory:
        memory.add_many(["ana likes the cat", "bo likes the dog"])
        slow.go.clear()
        # The encoder goes on only once the words were looked up: one after the other would wait for ever.
        monkeypatch.setattr(RankedTexts, "scores", lambda *given: (slow.go.set(), real(*given))[1])
        assert finds(memory, "the cat", top_k=1) == ["ana likes the cat"]
    assert slow.waited


AT_EXIT = """
import atexit, sys
from keepworth import Memory
from keepworth.memory.search import index

index.SHARE = 4
m = Memory(encoder="hashing:16", policy=None)
m.add_many([f"note {n}" for n in range(20)])
atexit.register(lambda: print(m.search("note 7", mode=sys.argv[1], top_k=1)[0].text))
"""


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_a_process_that_ends_can_still_search(mode: str):
    done = subprocess.run([sys.executable, "-c", AT_EXIT, mode], capture_output=True, text=True)
    assert done.stdout == "note 7\n", done.stderr


@pytest.mark.parametrize("mode", ["lexical", "dense", "hybrid"])
def test_a_process_that_may_have_no_more_threads_searches_and_learns(mode, monkeypatch):
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    index.threads.cache_clear()
    monkeypatch.setattr(index, "SHARE", 4)
    with Memory(encoder=WordEncoder()) as m:
        m.add_many([f"note {n}" for n in range(20)])
        monkeypatch.setattr(threading.Thread, "start", refuse)
        (hit,) = hits = m.search("note 7", mode=mode, top_k=1)
        assert hit.text == "note 7"
        assert m.reward(hits.decision, 1.0).applied


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_threads_of_its_own():
    embedder = Embedder(WordEncoder())
    embedder.begin(["a"])()

    def child() -> None:
        done = threading.Event()
        threading.Thread(target=lambda: (embedder.begin(["b"])(), done.set()), daemon=True).start()
        assert done.wait(10.0)

    assert forked(child) == 0


@pytest.mark.parametrize("length", [1e30, 1e19, 1e-17, 1e-30])
def test_vectors_of_any_length_are_compared_by_direction(length: float) -> None:
    class Long:
        identity = EncoderIdentity("long", 2, False)

        def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
            return np.array([[3 * length, 4 * length] if "tea" in text else [length, 0] for text in texts], np.float32)

    with warnings.catch_warnings(), Memory(":memory:", encoder=Long(), policy=None) as memory:
        warnings.simplefilter("error")
        memory.add_many(["tea", "rain"])
        assert [hit.score for hit in memory.search("tea?", mode="dense")] == pytest.approx([1.0, 0.6], abs=1e-6)


# Long texts: cut into parts, each with a vector of its own, and still one item.


FILLER = " ".join(f"Word{n} was said to word{n + 1} about nothing." for n in range(60))
FACT = "zebra zebra zebra zebra zebra zebra."
NOTE = f"{FILLER} {FACT}"


def memory(path: Path | str = ":memory:") -> Memory:
    return Memory(path, encoder=WordEncoder())


@settings(max_examples=200)
@given(st.text(st.sampled_from("ab .!?\n猫犬。é"), max_size=3000))
def test_spans_cover_the_text_and_respect_the_length_limit(text: str):
    found = spans(text)
    size = len(text) + (WIDE - 1) * sum(letter in "猫犬" for letter in text)
    assert bool(found) == (size > LONG)
    if found:
        assert found[0][0] == 0
        assert found[-1][1] == len(text)
        assert all(one[1] == next_[0] for one, next_ in pairwise(found))
        for start, end in found:
            inside = text[start:end]
            assert 0 < len(inside) + (WIDE - 1) * sum(letter in "猫犬" for letter in inside) <= CHUNK + WIDE


def test_text_is_cut_at_sentence_ends_or_between_words():
    sentence = "The cat sat on the mat and looked at the moon. "
    ends = {text[-2:] for text in parts(sentence * 40)[1:-1]}
    assert ends == {". "}
    assert all(text.endswith(" ") for text in parts("word " * 400)[1:-1])
    assert max(len(text) for text in parts("x" * 5000)[1:]) == CHUNK


def test_a_line_after_enough_others_is_a_part_of_its_own():
    lines = ["x" * 300, *["short line"] * 60, "y" * 800, "The key lies under the pot."]
    found = parts("\n".join(lines))[1:]
    assert found[0] == "x" * 300 + "\n"
    assert {text.count("short line") for text in found[1:3]} == {23}  # the first from which on 250 letters are reached
    assert found[-1] == lines[-1]


def test_end_of_a_long_note_is_found_with_its_passage():
    m = memory()
    for n in range(30):
        m.add(f"A short note number {n} about nothing of interest.")
    note = m.add(NOTE)
    hit = m.search("zebra zebra", mode="dense")[0]
    assert hit.id == note.id
    assert hit.passage == NOTE[slice(*hit.span)]
    assert "zebra" in hit.passage
    assert len(hit.passage) <= CHUNK
    cosine = float(WordEncoder().encode([hit.passage, "zebra zebra"]).prod(axis=0).sum())
    assert hit.dense == pytest.approx(part_length(m.store.embedder.background) * cosine)


def test_update_rollback_and_purge_take_the_parts_along(path: Path):
    m = memory(path)
    m.add("Something else.")
    note = m.add(NOTE)
    with m.episode(task="t") as episode:
        m.update(note.id, "Short now.", episode=episode.id)
    assert m.search("zebra", mode="dense")[0].span is None
    m.close()
    m = memory(path)
    m.rollback(episode.id)
    hit = m.search("zebra", mode="dense")[0]
    assert (hit.id, "zebra" in hit.passage) == (note.id, True)
    assert m.store.embedder.encoder.texts == 1  # the question: the parts came back from the file
    assert check(m.store) == []
    m.forget(note.id, purge_history=True)
    assert finds(m, "zebra", mode="dense") == ["Something else."]
    assert [len(vector) for (vector,) in rows(m, f"SELECT vector FROM vectors_{m.store.set_id}")] == [4 * 64]
    assert check(m.store) == []


def test_banks_and_forks_search_parts_of_their_own_and_base_items():
    m = memory()
    m.add("Something else.")
    under = m.add(NOTE)
    bank = m.bank()
    assert bank.search("zebra zebra", mode="dense")[0].id == under.id
    above = bank.add(NOTE.replace("zebra", "walrus"))
    hit = bank.search("walrus walrus", mode="dense")[0]
    assert (hit.id, "walrus" in hit.passage) == (above.id, True)
    fork = bank.fork()
    assert fork.search("walrus walrus", mode="dense")[0].passage == hit.passage
    m.update(under.id, "It was short.")
    assert "zebra" in bank.search("zebra zebra", mode="dense")[0].passage


PUT = st.tuples(st.just("put"), st.integers(1, 6), st.integers(1, 4))
DROP = st.tuples(st.just("drop"), st.integers(1, 6), st.just(0))


@settings(max_examples=60, deadline=None)
@given(st.lists(PUT | DROP, max_size=12), st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_item_scores_by_its_best_part_after_any_history(steps, seed, count):
    generator = np.random.default_rng(seed)
    index, known = DenseIndex(8), {}
    for what, number, several in steps:
        if what == "put":
            drawn = generator.standard_normal((several, 8)).astype(np.float32)
            known[number] = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
            index.put([number] * several, [1] * several, known[number])
        else:
            index.drop([number])
            known.pop(number, None)
    query = generator.standard_normal((1, 8)).astype(np.float32)
    wanted = sorted(((float((each @ query[0]).max()), number) for number, each in known.items()), reverse=True)
    for scope_ids in (None, {1}):
        (found,) = index.search(query, count, Within(scope_ids, scope="a scope"))
        assert [number for number, _ in found] == [number for _, number in wanted[:count]]
        assert np.allclose([score for _, score in found], [score for score, _ in wanted[:count]], atol=1e-6)
    (found,) = index.search(query, 6, Within())
    assert {number for number, _ in found} == set(known)


# Cosines of any encoder are read on one scale.


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


def test_usual_background_is_measured_on_the_default_encoder():
    assert measured(Embedder(encoder("minilm"))).unrelated == pytest.approx(USUAL.unrelated, abs=1e-4)
    assert Embedder(encoder("minilm")).background is USUAL
    assert USUAL.usual([("a", 0.3)]) == {"a": 0.3}
    assert part_length(USUAL) == PART


def test_lookup_encoder_keeps_the_usual_background():
    known = dict(zip(TEXTS, Embedder(HashedWords())(TEXTS), strict=True))
    assert measured(lambda texts: np.stack([known[text] for text in texts])) == USUAL


def test_constant_encoder_keeps_the_usual_background():
    assert measured(lambda texts: np.ones((len(texts), 1), np.float32)) == USUAL


@pytest.mark.parametrize("near", [0.5, 0.7, 0.9])
def test_narrow_encoder_gives_the_same_hits_and_scores(near: float):
    """As many encoders do, for which unrelated texts have a cosine of 0.7 and more."""
    found = []
    for made in (HashedWords(), Narrow(HashedWords(), near)):
        memory = Memory(encoder=made, policy=None)
        memory.add_many(TEXTS)
        found.append([{hit.id: hit.score for hit in memory.search(question)} for question in QUESTIONS])
    for usual, narrow in zip(*found, strict=True):
        assert narrow == pytest.approx(usual, abs=2e-4)


def test_background_is_measured_once_for_hybrid_searches():
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


def test_part_lengths_are_scaled_for_narrow_encoders(path: Path):
    """Of an encoder that finds everything alike, a vector of three quarters would be farther than any whole text."""
    narrow = Background(0.75)
    assert narrow.usual([("a", part_length(narrow) * narrow.native(0.5))])["a"] == pytest.approx(PART * 0.5)
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
def test_cosines_equal_a_matrix_product(rows, queries, dimension, share, seed):
    draw = np.random.default_rng(seed)
    # Sixteenths: every sum of products is exact, so there is one right answer whatever the order of adding.
    matrix = draw.integers(-16, 17, (rows, dimension)).astype(np.float32) / 16
    asked = draw.integers(-16, 17, (queries, dimension)).astype(np.float32) / 16
    exact = asked.astype(np.float64) @ matrix.T.astype(np.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "SHARE", share)
        patch.setattr(index, "READERS", 4)
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
def test_dense_index_matches_a_plain_sort_with_stable_ties(count, queries, kept, seed):
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
        assert index.search(asked, count, Within(ids, rule, str(ids))) == plain


@pytest.mark.parametrize("readers", [1, 3])
@pytest.mark.parametrize("queries", [1, 3])
def test_equal_rows_score_equally_in_any_block(queries, readers, monkeypatch):
    monkeypatch.setattr(index, "CACHED", 7)
    monkeypatch.setattr(index, "SHARE", 20)
    monkeypatch.setattr(index, "READERS", readers)
    draw = np.random.default_rng(0)
    row = draw.standard_normal(385).astype(np.float32)
    asked = draw.standard_normal((queries, 385)).astype(np.float32)
    matrix = draw.standard_normal((100, 385)).astype(np.float32)
    matrix[[0, 5, 6, 13, 50, 99]] = row
    found = cosines(asked, matrix)[:, [0, 5, 6, 13, 50, 99]]
    assert (found == found[:, :1]).all()
    assert np.array_equal(cosines(asked, row[None, :])[:, 0], found[:, 0])
