"""Vectors of texts: one by one, in batches, beside other work, and after a fork of the process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from keepworth.episodes import EncoderIdentity
from keepworth.memory.memory import Memory
from keepworth.memory.search import scan
from keepworth.memory.search.index import Embedder
from keepworth.memory.store.words import RankedTexts

from .stub_encoder import WordEncoder


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


def test_a_hybrid_search_reads_words_while_the_query_is_encoded(tmp_path, monkeypatch):
    slow = SlowEncoder()
    slow.go.set()
    with Memory(tmp_path / "a.mem", encoder=slow) as memory:
        memory.add_many(["ana likes the cat", "bo likes the dog"])
        slow.go.clear()
        # The encoder goes on only once the words were looked up: one after the other would wait for ever.
        monkeypatch.setattr(RankedTexts, "scores", _setting(slow.go))
        hits = memory.search("the cat", top_k=1)
    assert slow.waited
    assert [hit.text for hit in hits] == ["ana likes the cat"]


def _setting(event):
    real = RankedTexts.scores

    def scores(*arguments):
        event.set()
        return real(*arguments)

    return scores


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
        hits = m.search("note 7", mode=mode, top_k=1)
        assert [hit.text for hit in hits] == ["note 7"]
        assert m.reward(hits.decision, 1.0).applied


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_threads_of_its_own():
    embedder = Embedder(WordEncoder())
    embedder.begin(["a"])()
    child = os.fork()
    if child == 0:
        done = threading.Event()

        def encode() -> None:
            embedder.begin(["b"])()
            done.set()

        threading.Thread(target=encode, daemon=True).start()
        os._exit(0 if done.wait(10.0) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


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
