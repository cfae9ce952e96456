"""Vectors: whatever is done to a memory, by whomever, a search by meaning finds what comparing every item finds."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from keepworth.memory.item import ALL, Item
from keepworth.memory.memory import Memory
from keepworth.memory.search import first_pass
from keepworth.memory.store import blocks, derived
from keepworth.memory.store.maintenance import check, compact
from keepworth.records.episode import Operation, OperationKind
from tests.memory.helpers import WordEncoder, behind_its_back

COUNT = 1200
TOPIC = {"where": {"topic": "t3"}}
QUERIES = ("filler 11 thing 4", "filler 900 thing 4", "fresh 3 of 7", "altogether different 20")


class KnownWords(WordEncoder):
    """Each word is drawn once."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        out = np.array([sum(map(_word, text.lower().split())) for text in texts], np.float32)
        return out / np.linalg.norm(out, axis=1, keepdims=True)


@cache
def _word(word: str) -> np.ndarray:
    return WordEncoder().encode([word])[0]


def opened(path: Path) -> Memory:
    return Memory(path, encoder=KnownWords(), policy=None, log="off")


def everything(m: Memory, user: str = "") -> list[Item]:
    return m.get_all(user_id=user or ALL, limit=100_000)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "a.mem"
    with opened(path) as m:
        for user in range(4):
            texts = [f"filler {n} thing {n % 7}" for n in range(COUNT * user // 4, COUNT * (user + 1) // 4)]
            m.add_many(texts, user_id=f"u{user}")
    return path


def compare(m: Memory, user: str = "") -> None:
    """The scores of the ten best, and every item once."""
    items = everything(m, user)
    texts = [item.text for item in items]
    matrix = KnownWords().encode(texts) if texts else np.zeros((0, 64), np.float32)
    for query in QUERIES:
        scores = dict(zip([item.id for item in items], matrix @ KnownWords().encode([query])[0], strict=True))
        hits = m.search(query, mode="dense", top_k=max(1, len(items)), user_id=user or ALL)
        assert sorted(hit.id for hit in hits) == sorted(scores)
        assert np.allclose([hit.score for hit in hits], sorted(scores.values(), reverse=True), atol=1e-5)
        assert np.allclose([hit.score for hit in hits], [scores[hit.id] for hit in hits], atol=1e-5)


Step = tuple[str, int]
STEPS = st.tuples(
    st.sampled_from(["add", "update", "forget", "purge", "erase", "undo", "archive", "reopen", "compare", "compact"]),
    st.integers(0, COUNT - 1),
)


def add(m: Memory, n: int) -> None:
    m.add_many([f"fresh {n} of {k}" for k in range(1 + n % 300)], user_id=f"u{n % 4}", repeat=True)


def update(m: Memory, n: int) -> None:
    for item in everything(m)[n % 50 :: 90]:
        m.update(item.id, f"altogether different {n} of {item.id}")


def undo(m: Memory, n: int) -> None:
    with m.episode(user_id=f"u{n % 4}") as episode:
        for item in everything(m, f"u{n % 4}")[:: 40 + n % 7]:
            episode.apply(Operation(OperationKind.DELETE, (item.id,)))
        episode.remember(f"fresh and undone {n}")
    m.rollback(episode.id)


DO: dict[str, Callable[[Memory, int], object]] = {
    "add": add,
    "update": update,
    "forget": lambda m, n: [m.forget(item.id) for item in everything(m)[n % 30 :: 60]],
    "purge": lambda m, n: [m.forget(item.id, purge_history=True) for item in everything(m)[n % 400 :: 400]],
    "erase": lambda m, n: m.erase(user_id=f"u{n % 4}"),
    "undo": undo,
    "archive": lambda m, n: [m.update(item.id, status="archived") for item in everything(m)[n % 30 :: 60]],
    "compare": lambda m, n: compare(m, f"u{n % 4}"),
    "compact": lambda m, _: compact(m.store),
}


@pytest.fixture(params=[blocks.ITEMS, 50, "by codes"], ids="blocks of {}".format)
def in_blocks(request: pytest.FixtureRequest, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Items in large blocks, or in small ones that one person fills, which are scored as they are read; or with a first pass."""
    if request.param == "by codes":
        monkeypatch.setattr(first_pass, "FROM", 0)
        return filled
    if request.param == blocks.ITEMS:
        return filled
    monkeypatch.setattr(blocks, "ITEMS", request.param)
    monkeypatch.setattr(derived, "FEW", 0)
    small = shutil.copy(filled, tmp_path / "small.mem")
    behind_its_back(small, "DELETE FROM blocks")
    with opened(small) as m:
        compare(m)  # the first search by meaning writes the blocks
    return small


SHORT = (Phase.explicit, Phase.generate)


@settings(max_examples=5, deadline=None, phases=SHORT, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(steps=[("erase", 1), ("compare", 2)])
@given(steps=st.lists(STEPS, min_size=1, max_size=7))
def test_dense_search_equals_brute_force_after_any_steps(in_blocks: Path, tmp_path: Path, steps: list[Step]) -> None:
    path = tmp_path / "b.mem"
    for each in tmp_path.glob("b.mem*"):
        each.unlink()
    shutil.copy(in_blocks, path)
    m = opened(path)
    for what, n in steps:
        if what == "reopen":
            m.close()
            m = opened(path)
        else:
            DO[what](m, n)
    compare(m)
    assert check(m.store) == []
    m.close()
    with opened(path) as m:
        compare(m)
        compare(m, "u1")
        assert check(m.store) == []


WRITER = """
import sys
from tests.memory.test_vectors import opened
with opened(sys.argv[1]) as m:
    print("begun", flush=True)
    for part in range(6):
        items = m.add_many([f"other {part} of {n}" for n in range(100)])
        m.forget(items[part].id)
        m.update(items[50].id, f"altogether different {part}")
"""


def test_two_writing_processes_find_all_items(filled: Path, tmp_path: Path) -> None:
    path = shutil.copy(filled, tmp_path / "b.mem")
    with opened(path) as m:
        compare(m)
        command = [sys.executable, "-c", WRITER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2], text=True) as other:
            assert other.stdout.readline() == "begun\n"
            for part in range(6):
                m.add_many([f"fresh {part} of {n}" for n in range(100)])
                m.search("fresh 3 of 7", mode="dense")
                m.update(f"m{part + 1}", f"altogether different {part}")
        assert other.returncode == 0
        compare(m)
        assert check(m.store) == []
    with opened(path) as m:
        compare(m)


def test_erasure_removes_vectors_from_rows_and_blocks(filled: Path, tmp_path: Path) -> None:
    path = shutil.copy(filled, tmp_path / "b.mem")
    (needle,) = (vector.tobytes()[:64] for vector in KnownWords().encode(["filler 11 thing 4"]))
    assert path.read_bytes().count(needle) == 2  # the row and the block
    with opened(path) as m:
        (hit,) = m.search("filler 11 thing 4", mode="dense", top_k=1)
        m.forget(hit.id, purge_history=True)
    assert path.read_bytes().count(needle) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.mem"]


def test_a_reward_adds_no_vectors(path: Path) -> None:
    with Memory(path, encoder=KnownWords()) as m:
        m.add_many([f"filler {n}" for n in range(20)])
        for _ in range(5):
            m.reward(m.search("filler 3", mode="dense").decision, 1.0)
        m.search("filler 3", mode="dense")
        assert m.store.derived._vectors.index._block.size == 20


@pytest.mark.parametrize("about", [TOPIC, {"user_id": "u1"}, {**TOPIC, "user_id": "u1"}])
def test_first_search_of_a_small_scope_reads_only_its_vectors(path: Path, about: dict) -> None:
    with Memory(path, encoder=KnownWords()) as m:
        for user in ("u1", "u2"):
            topics = [{"topic": f"t{n % 7}"} for n in range(200)]
            m.add_many([f"filler {n} of {user}" for n in range(200)], user_id=user, metadata=topics)
    with Memory(path, encoder=KnownWords()) as m:
        first = m.search("filler 3 of u1", mode="dense", **about)
        assert m.store.derived._vectors.index is None
        later = m.search("filler 3 of u1", mode="dense", **about)
        assert m.store.derived._vectors.index is not None
    assert [(hit.id, hit.score) for hit in first] == [(hit.id, hit.score) for hit in later] != []
