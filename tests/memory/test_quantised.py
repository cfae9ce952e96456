"""Proposing indexes give what an exact scan gives, follow changes, are kept beside the file, and step aside where they cannot."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.memory.errors import InvalidFilter
from keepworth.memory.memory import Memory
from keepworth.memory.search import beside, quantised
from keepworth.memory.search import index as index_module
from keepworth.memory.search.beside import sidecar_path
from keepworth.memory.search.index import DenseIndex
from keepworth.memory.store import store as store_module
from keepworth.memory.store.maintenance import check, compact

from .stub_encoder import WordEncoder

KINDS = ["int8", "pq"]
CHANGES = st.lists(st.tuples(st.sampled_from(["put", "drop", "again", "pack"]), st.integers(1, 120)), max_size=12)


def clustered(rows: int, dimension: int = 32, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    centres = draw.standard_normal((40, dimension))
    out = (centres[draw.integers(0, 40, rows)] + 0.5 * draw.standard_normal((rows, dimension))).astype(np.float32)
    return out / np.linalg.norm(out, axis=1, keepdims=True)


def overlap(one, other) -> float:
    shares = [
        len({n for n, _ in a} & {n for n, _ in b}) / len(b) if b else 1.0 for a, b in zip(one, other, strict=True)
    ]
    return float(np.mean(shares))


@pytest.fixture
def small(monkeypatch):
    """Indexes from a hundred rows on."""
    pytest.importorskip("faiss")
    pytest.importorskip("simsimd")
    monkeypatch.setattr(quantised, "SMALLEST", 100)
    monkeypatch.setattr(index_module, "LATE", 50)


@pytest.mark.parametrize("kind", KINDS)
def test_a_proposing_index_agrees_with_the_scan(kind, small):
    vectors = clustered(3000)
    plain, quick = DenseIndex(32), DenseIndex(32)
    for index in (plain, quick):
        index.put(range(1, 2501), [n % 4 for n in range(2500)], vectors[:2500])
    assert quick.accelerate(kind)
    assert quick.recall >= quantised.LEAST_RECALL[kind]
    for index in (plain, quick):
        index.put(range(2501, 2901), [n % 4 for n in range(400)], vectors[2500:2900])
        index.drop(range(1, 200))
        index.put([500], [1], vectors[2999:3000])
    queries = clustered(60, seed=1)
    for scope, ids in ((None, None), ("half", [0, 1]), ("one", [3]), ("none", [])):
        exact = plain.search(queries, 10, scope, ids)
        found = quick.search(queries, 10, scope, ids)
        assert overlap(found, exact) >= 0.98
        for line, reference in zip(found, exact, strict=True):
            assert len(line) == len(reference)
            assert all(n >= 200 for n, _ in line)
            assert [s for _, s in line] == sorted((s for _, s in line), reverse=True)
            scores = dict(reference)
            assert all(abs(scores[n] - s) < 1e-5 for n, s in line if n in scores)
    assert quick.search(vectors[2999:3000], 1, None, None)[0][0][0] == 500
    # Several queries at once are the same queries one by one.
    alone = [quick.search(query[None, :], 10, None, None)[0] for query in queries]
    assert [[n for n, _ in line] for line in alone] == [
        [n for n, _ in line] for line in quick.search(queries, 10, None, None)
    ]


@settings(max_examples=15, deadline=None)
@given(CHANGES, st.sampled_from(KINDS))
def test_whatever_happens_to_the_memory_nothing_dead_is_found_and_nothing_close_is_missed(changes, kind):
    pytest.importorskip("faiss")
    pytest.importorskip("simsimd")
    before = quantised.SMALLEST, index_module.LATE
    quantised.SMALLEST, index_module.LATE = 100, 50
    try:
        vectors = clustered(4000)
        plain, quick = DenseIndex(32), DenseIndex(32)
        here, at = 0, 0
        for what, amount in [("put", 120), ("put", 120), *changes]:
            for index in (plain, quick):
                if what == "put":
                    numbers = range(at + 1, at + amount + 1)
                    index.put(numbers, [n % 3 for n in numbers], vectors[here : here + amount])
                elif what == "drop":
                    index.drop(range(1, amount))
                elif what == "again" and at:
                    numbers = range(max(1, at - amount + 1), at + 1)
                    index.put(numbers, [n % 3 for n in numbers], vectors[here : here + len(numbers)])
                elif what == "pack":
                    index.pack()
            here += amount
            at += amount if what == "put" else 0
            quick.accelerate(kind)
            queries = vectors[-5:]
            for scope, ids in ((None, None), ("two", [0, 1])):
                exact, found = plain.search(queries, 10, scope, ids), quick.search(queries, 10, scope, ids)
                assert [len(line) for line in exact] == [len(line) for line in found]
                assert overlap(found, exact) >= 0.9
                assert all(quick.has(n) for line in found for n, _ in line)
    finally:
        quantised.SMALLEST, index_module.LATE = before


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_keeps_up_with_what_is_written(kind, small):
    vectors = clustered(4000)
    index = DenseIndex(32)
    index.put(range(1, 1001), [1] * 1000, vectors[:1000])
    assert index.accelerate(kind)
    assert not index.accelerate(kind)
    index.put(range(1001, 1011), [1] * 10, vectors[1000:1010])
    assert not index.accelerate(kind)
    assert index.proposer.rows == 1000  # ten rows are scanned
    index.put(range(1011, 1201), [1] * 190, vectors[1010:1200])
    assert not index.accelerate(kind)
    assert (index.proposer.rows, index.proposer.measured) == (1200, 1000)
    index.put(range(1201, 1401), [1] * 200, vectors[1200:1400])
    assert index.accelerate(kind)  # measured again, and worth keeping
    assert (index.proposer.rows, index.proposer.measured) == (1400, 1400)
    index.drop(range(1, 501))
    assert index.accelerate(kind)  # more than a quarter is dead: made anew without it
    assert (index.rows, index.proposer.rows, len(index)) == (900, 900, 900)


def test_rows_that_do_not_count_never_crowd_out_those_that_do(small):
    """All of a query's neighbourhood is of another scope: the index proposes nothing that counts, and the scan answers."""
    draw = np.random.default_rng(0)
    near = np.asarray([1.0] + [0.0] * 31, np.float32) + 0.01 * draw.standard_normal((1200, 32)).astype(np.float32)
    far = np.asarray([0.0, 1.0] + [0.0] * 30, np.float32) + 0.01 * draw.standard_normal((1200, 32)).astype(np.float32)
    index = DenseIndex(32)
    rows = np.concatenate([near, far])
    index.put(range(2400), [1] * 1200 + [2] * 1200, rows / np.linalg.norm(rows, axis=1, keepdims=True))
    index.propose_with(quantised.build("int8", [index.arrays()[2]]))
    found = index.search(near[:1], 10, "far", [2])[0]
    assert len(found) == 10
    assert all(n >= 1200 for n, _ in found)


def test_an_index_that_misses_too_much_is_not_used(monkeypatch, caplog, small):
    monkeypatch.setitem(quantised.LEAST_RECALL, "int8", 1.01)
    index = DenseIndex(32)
    index.put(range(500), [1] * 500, clustered(500))
    assert not index.accelerate("int8")
    assert "searching exactly instead" in caplog.text
    assert len(index.search(clustered(1), 10, None, None)[0]) == 10
    caplog.clear()
    assert not index.accelerate("int8")  # not tried again before the memory has grown
    assert caplog.text == ""
    index.put(range(500, 800), [1] * 300, clustered(300, seed=2))
    index.accelerate("int8")
    assert "searching exactly instead" in caplog.text


def test_as_much_is_proposed_as_the_recall_needs(small):
    """Isotropic rows are the hardest: four bits for two of 32 dimensions need more proposals than clustered rows do."""
    draw = np.random.default_rng(3).standard_normal((4000, 32)).astype(np.float32)
    hard = quantised.build("pq", [draw / np.linalg.norm(draw, axis=1, keepdims=True)])
    easy = quantised.build("pq", [clustered(4000)])
    assert hard is not None
    assert easy is not None
    assert hard.recall >= 0.95
    assert easy.reach <= hard.reach


def test_unknown_kinds_are_refused():
    with pytest.raises(InvalidFilter, match="exact, int8, pq"):
        Memory(":memory:", encoder=None, index="magic")


def filled(path: Path, kind: str, rows: int = 400) -> Memory:
    memory = Memory(path, encoder=WordEncoder(32), index=kind)
    known = len(memory)
    memory.add_many([f"text number {n} of {n % 7} and {n % 11}" for n in range(known, rows)])
    return memory


def built(monkeypatch) -> list[str]:
    """Notes of which indexes are made, as they are."""
    made: list[str] = []
    build = quantised.build

    def noted(kind, parts, **options):
        made.append(kind)
        return build(kind, parts, **options)

    monkeypatch.setattr(quantised, "build", noted)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_is_kept_beside_the_file_and_read_again(kind, small, monkeypatch, tmp_path: Path):
    made = built(monkeypatch)
    path = tmp_path / "a.mem"
    with filled(path, kind) as memory:
        expected = [(hit.id, round(hit.score, 5)) for hit in memory.search("text number 17 of 3", mode="dense")]
        assert made == [kind]
        assert beside.index_path(path, kind).is_file()
        assert sidecar_path(path).is_file()
    with filled(path, kind) as memory:
        assert [(hit.id, round(hit.score, 5)) for hit in memory.search("text number 17 of 3", mode="dense")] == expected
        assert memory.store.dense_index()[0].proposer.recall >= quantised.LEAST_RECALL[kind]
        memory.update("m5", "something altogether new")
        memory.add("and an addition")
        assert memory.search("something altogether new", top_k=1, mode="dense")[0].id == "m5"
    with filled(path, kind) as memory:
        assert memory.search("and an addition", top_k=1, mode="dense")[0].text == "and an addition"
        assert memory.search("something altogether new", top_k=1, mode="dense")[0].id == "m5"
        assert made == [kind]  # read, not made, and what came since is followed
        memory.search("text", mode="dense")
        compact(memory.store)
        assert check(memory.store) == []


@pytest.mark.parametrize("damage", ["head", "body", "cut", "other rows", "gone", "fewer", "of another library"])
def test_an_index_that_does_not_fit_is_made_again(damage, small, monkeypatch, tmp_path: Path):
    made = built(monkeypatch)
    path = tmp_path / "a.mem"
    with filled(path, "int8") as memory:
        expected = [hit.id for hit in memory.search("text number 17 of 3", mode="dense")]
    kept = beside.index_path(path, "int8")
    content = bytearray(kept.read_bytes())
    if damage == "head":
        content[3] ^= 1
    elif damage == "body":
        content[-100] ^= 1
    elif damage == "cut":
        content = content[:-1000]
    elif damage == "other rows":
        content = content.replace(b'"rows": 400', b'"rows": 399')
    elif damage == "fewer":
        content = bytearray(content.replace(b'"recall": 1.0', b'"recall": 0.5'))
    kept.write_bytes(bytes(content))
    if damage == "of another library":
        # As versions before kept it: the rows, and around them what the library they used adds.
        said, body = beside.read_index_file(path, "int8")
        whole = b"IxSQ" + body.tobytes()
        said["bytes"] = len(whole)
        head = beside.INDEX_MAGIC + json.dumps({**said, "checksum": beside._index_checksum(said, whole)}).encode()
        kept.write_bytes(head.ljust(beside.INDEX_HEADER, b"\n") + whole)
    if damage == "gone":
        kept.unlink()
    with filled(path, "int8") as memory:
        assert [hit.id for hit in memory.search("text number 17 of 3", mode="dense")] == expected
    assert made == ["int8", "int8"]
    with filled(path, "int8") as memory:
        memory.search("text", mode="dense")
    assert made == ["int8", "int8"]


def test_what_is_purged_leaves_no_index_behind(small, tmp_path: Path):
    path = tmp_path / "a.mem"
    with filled(path, "pq") as memory:
        memory.search("text", mode="dense")
        assert beside.index_path(path, "pq").is_file()
        memory.forget("m7", purge_history=True)
        assert not beside.index_path(path, "pq").exists()
        assert not sidecar_path(path).exists()


def test_a_folder_that_cannot_be_written_costs_the_index_file_only(small, monkeypatch, tmp_path: Path, caplog):

    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    with filled(tmp_path / "a.mem", "int8") as memory:
        monkeypatch.setattr(beside, "write_index", full)
        assert len(memory.search("text number 17", mode="dense")) == 10
    assert "could not be kept" in caplog.text


def test_a_memory_that_outgrew_its_kept_vectors_is_read_anew(small, monkeypatch, tmp_path: Path):

    monkeypatch.setattr(store_module, "SIDECAR_LATE", 10)
    path = tmp_path / "a.mem"
    with filled(path, "exact", 40) as memory:
        from keepworth.memory.store.maintenance import lay_out

        lay_out(memory.store, least=1)
    with filled(path, "exact", 200) as memory:
        expected = [hit.id for hit in memory.search("text number 17 of 3", mode="dense")]
    with filled(path, "exact", 200) as memory:
        followed: list[int] = []
        monkeypatch.setattr(memory.store, "_follow", lambda _, since: followed.append(since))
        assert [hit.id for hit in memory.search("text number 17 of 3", mode="dense")] == expected
        assert followed == []


def test_bytes_propose_the_rows_with_the_largest_products_of_bytes(small):
    """Beside the plain way: rows and queries rounded to bytes, all products, sorted."""
    vectors = clustered(2000, 33)
    proposer = quantised.build("int8", [vectors[:700], vectors[700:1500]]).extended(vectors[1500:])
    assert proposer.rows == 2000
    scale = 127.0 / np.abs(vectors[:1500]).max()
    coded = np.clip(np.rint(vectors * np.float32(scale)), -127, 127).astype(np.int64)
    queries = clustered(5, 33, seed=1)
    asked = np.rint(queries * (127.0 / np.abs(queries).max(axis=1, keepdims=True))).astype(np.int64)
    products = asked @ coded.T
    found = proposer.propose(queries, 10)
    assert found.shape == (5, proposer.reach)
    for line, rows in zip(products, found, strict=True):
        assert rows.tolist() == np.argsort(-line, kind="stable")[: proposer.reach].tolist()
