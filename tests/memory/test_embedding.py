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

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.episodes import EncoderIdentity
from keepworth.memory.memory import Memory
from keepworth.memory.search import scan
from keepworth.memory.search.chunks import CHUNK, LONG, WIDE, part_length, parts, spans
from keepworth.memory.search.index import DenseIndex, Embedder
from keepworth.memory.store.maintenance import check
from keepworth.memory.store.words import RankedTexts
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


def test_what_is_handed_out_is_not_what_is_remembered():
    embedder = Embedder(WordEncoder())
    for _ in range(2):
        embedder(["a red cat"])[:] = 0.0
    assert np.linalg.norm(embedder(["a red cat"])) == pytest.approx(1.0)


def test_the_cache_has_a_size_and_may_be_off():
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
from keepworth.memory.search import scan

scan.SHARE = 4
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

    scan.threads.cache_clear()
    monkeypatch.setattr(scan, "SHARE", 4)
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
def test_the_parts_of_a_text_are_the_text_and_none_is_too_long(text: str):
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


def test_a_text_is_cut_where_sentences_end_and_a_long_sentence_between_words():
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


def test_the_end_of_a_long_note_is_found_and_its_place_is_told():
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


def test_a_bank_and_its_forks_find_the_parts_of_what_they_write_and_of_what_is_under_them():
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
def test_an_item_counts_with_the_best_of_its_vectors_whatever_happened(steps, seed, count):
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
        (found,) = index.search(query, count, "a scope", scope_ids)
        assert [number for number, _ in found] == [number for _, number in wanted[:count]]
        assert np.allclose([score for _, score in found], [score for score, _ in wanted[:count]], atol=1e-6)
    assert {number for number in range(1, 7) if index.has(number)} == set(known)
