"""The first pass of searches by meaning in a large memory: it names what an exact search finds, and is never believed."""

from __future__ import annotations

import logging
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keepworth.memory import errors
from keepworth.memory.item import Status
from keepworth.memory.memory import Memory
from keepworth.memory.search import first_pass
from keepworth.memory.search.first_pass import FirstPass
from keepworth.memory.search.index import Block
from keepworth.memory.store import blocks, schema
from keepworth.memory.store.maintenance import check, compact, first_pass_recall
from keepworth.records.episode import Operation, OperationKind
from keepworth.records.model import EncoderIdentity
from tests.memory.helpers import behind_its_back, command, finds, largest_file

COUNT, TOPICS, USERS = 4200, 30, 4
WAYS: list[dict[str, Any]] = [
    {},
    {"user_id": "u1"},
    {"where": {"topic": 7}},
    {"user_id": "u1", "where": {"n": {"$lt": 1800}}},
]


class Clusters:
    """Texts "t<topic> n<number>", around the direction of their topic."""

    identity = EncoderIdentity("clusters", 256, True)

    def encode(self, texts: Any) -> np.ndarray:
        return np.stack([_vector(text) for text in texts])


@cache
def _vector(text: str) -> np.ndarray:
    topic = text.split()[0]
    draw = [np.random.default_rng(list(name.encode())).standard_normal(256) for name in (topic, text)]
    vector = (draw[0] + draw[1]).astype(np.float32)
    return vector / np.linalg.norm(vector)


def opened(path: Path | str, **options: Any) -> Memory:
    return Memory(path, encoder=Clusters(), **{"policy": None, "log": "off", **options})


def texts_of(numbers: range) -> list[str]:
    return [f"t{n % TOPICS} n{n}" for n in numbers]


QUERIES = [f"t{n % TOPICS} question {n}" for n in range(40)]


def fill(memory: Memory) -> None:
    for user in range(USERS):
        numbers = range(COUNT * user // USERS, COUNT * (user + 1) // USERS)
        metadata = [{"topic": n % TOPICS, "n": n} for n in numbers]
        memory.add_many(texts_of(numbers), user_id=f"u{user}", metadata=metadata)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "a.mem"
    with pytest.MonkeyPatch.context() as patch, opened(path) as memory:
        patch.setattr(first_pass, "FROM", 1000)
        fill(memory)
        assert blocks_without_codes(memory) == []
    return path


@pytest.fixture
def large(filled: Path, tmp_path: Path) -> Path:
    return shutil.copy(filled, tmp_path / "a.mem")


@pytest.fixture(autouse=True)
def small_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory is large from 1,000 items on, of which a pass takes as small a share as of a million."""
    for name, number in (("FROM", 1000), ("ROUGH", 300), ("SCORED", 60)):
        monkeypatch.setattr(first_pass, name, number)


@pytest.fixture
def no_first_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a first pass")

    monkeypatch.setattr(FirstPass, "candidates", refuse)


def nearest(memory: Memory, query: str, **options: Any) -> list[str]:
    return [hit.id for hit in memory.search(query, mode="dense", **options)]


def recall(memory: Memory, **options: Any) -> float:
    pairs = [(nearest(memory, q, **options), nearest(memory, q, exact=True, **options)) for q in QUERIES]
    return float(np.mean([len(set(some) & set(all_)) / len(all_) for some, all_ in pairs]))


def uses_codes(memory: Memory) -> bool:
    return memory.store.derived._codes.index is not None


# What it finds.


def test_counts_of_spellings_are_found_as_by_an_exact_search(path: Path) -> None:
    draw = np.random.default_rng(0)
    texts = [" ".join(f"word{n}" for n in draw.zipf(1.3, 14) % 5000) + f" n{number}" for number in range(3000)]
    with Memory(path, encoder="hashing", policy=None, log="off") as memory:
        memory.add_many(texts)
        queries = [" ".join(text.split()[2:6]) for text in texts[:30]]
        memory.search(queries[0], mode="dense")
        pairs = [(nearest(memory, query), nearest(memory, query, exact=True)) for query in queries]
        assert uses_codes(memory)
    assert np.mean([len({*some} & {*right}) / len(right) for some, right in pairs]) >= 0.99


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("top_k", [10, 50])
def test_recall_is_99_percent_of_an_exact_search(large: Path, options: dict[str, Any], top_k: int) -> None:
    with opened(large) as memory:
        assert recall(memory, top_k=top_k, **options) >= 0.99
        assert uses_codes(memory)


def test_the_first_search_asks_for_no_room_for_all_vectors(large: Path) -> None:
    # Ten million vectors are more than the memory of the machine, and a system may refuse room that is never used.
    with opened(large) as memory:
        tracemalloc.start()
        try:
            memory.search(QUERIES[0], mode="dense")
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert uses_codes(memory)
    assert most < COUNT * 256 * 4


def test_scores_are_those_of_the_vectors(large: Path) -> None:
    with opened(large) as memory:
        for query in QUERIES[:5]:
            for hit in memory.search(query, mode="dense"):
                assert hit.score == pytest.approx(float(_vector(query) @ _vector(hit.text)), abs=1e-5)


def test_all_items_are_listed_if_all_are_wanted(large: Path) -> None:
    with opened(large) as memory:
        memory.search(QUERIES[0], mode="dense")
        assert len(nearest(memory, QUERIES[0], top_k=COUNT)) == COUNT
        assert len(nearest(memory, QUERIES[0], top_k=2000)) == 2000
        assert len(nearest(memory, QUERIES[0], top_k=3000, where={"topic": 7})) == COUNT // TOPICS


def test_a_function_that_filters_gets_enough_items(large: Path) -> None:
    with opened(large) as memory:
        found = memory.search(QUERIES[3], mode="dense", where=lambda item: item.text.endswith("77"))
        assert len(found) == 10
        assert all(hit.text.endswith("77") for hit in found)


def test_changes_are_seen_by_the_next_search(large: Path) -> None:
    with opened(large) as memory:
        first, second, third, *_ = nearest(memory, QUERIES[3])
        memory.forget(first)
        memory.update(second, status=Status.ARCHIVED)
        memory.update(third, "t9 moved away")
        memory.add(QUERIES[3], user_id="u9")
        hits = memory.search(QUERIES[3], mode="dense")
        assert (hits[0].text, round(hits[0].score, 4)) == (QUERIES[3], 1.0)
        assert not {first, second, third} & {hit.id for hit in hits}
        assert finds(memory, "t9 moved away", mode="dense", top_k=1) == ["t9 moved away"]
        assert nearest(memory, QUERIES[3], user_id="u9") == [hits[0].id]
        memory.update(second, status=Status.ACTIVE)
        assert second in nearest(memory, QUERIES[3])
    with opened(large) as memory:  # a new process reads codes that are out of date, and rows beside them
        assert nearest(memory, QUERIES[3]) == nearest(memory, QUERIES[3], exact=True)
        assert recall(memory) >= 0.99
        assert check(memory.store) == []


def test_the_past_is_found(large: Path) -> None:
    with opened(large) as memory:
        best = nearest(memory, QUERIES[5])
        newer = memory.supersede(best[0], "t20 something else").id
        held = memory.get(best[0])
        assert best[0] not in nearest(memory, QUERIES[5])
        past = nearest(memory, QUERIES[5], as_of=held.written_at)
        assert best[0] in past
        assert newer not in past


def test_two_processes_that_write_find_all_items(large: Path) -> None:
    with opened(large) as memory, opened(large) as other:
        for number in range(5):
            text = f"t{number} written elsewhere {number}"
            other.add(text)
            assert finds(memory, text, mode="dense", top_k=1) == [text]
            assert finds(other, text, mode="dense", top_k=1) == [text]


def test_memory_without_a_file() -> None:
    with opened(":memory:") as memory:
        fill(memory)
        assert recall(memory) >= 0.99
        assert uses_codes(memory)
        memory.add("t1 new", user_id="u1")
        assert finds(memory, "t1 new", mode="dense", top_k=1, user_id="u1") == ["t1 new"]


def test_texts_in_parts_are_found_by_each_part(path: Path) -> None:
    with opened(path) as memory:
        memory.add_many([f"t{n % TOPICS} begin {n}. " + f"t{(n + 9) % TOPICS} " * 400 for n in range(1100)])
        assert len(nearest(memory, "t3 question")) == 10
        assert recall(memory) >= 0.99


def test_a_learned_policy_decides_as_with_exact_searches(large: Path) -> None:
    with opened(large, policy="default", log="background", seed=0) as memory:
        for number in range(30):
            hits = memory.search(QUERIES[number % 3], mode="dense", top_k=3)
            memory.reward(hits.decision, float("n2" in hits[0].text))
    listed = []
    for exact in (False, True):
        with opened(large, policy="default", log="off", seed=0, exact=exact) as memory:
            listed.append([nearest(memory, query, explore=False) for query in QUERIES])
    assert listed[0] == listed[1]


# An exact search, and the setting.


@pytest.mark.usefixtures("no_first_pass")
def test_exact_searches_score_all_items(large: Path) -> None:
    with opened(large) as memory:
        for options in WAYS:
            assert len(nearest(memory, QUERIES[0], exact=True, **options)) == 10
        assert memory.search(QUERIES[0], exact=True)
        with pytest.raises(AssertionError, match="a first pass"):
            memory.search(QUERIES[0], mode="dense")
    with opened(large, exact=True) as memory:
        assert len(nearest(memory, QUERIES[0])) == 10
        assert first_pass_recall(memory.store) is None


def test_vectors_that_do_not_fit_into_memory_are_scored_as_they_are_read(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Block._make

    def make_in_little_room(block: Block, room: int) -> None:
        if room > COUNT // 2:
            raise MemoryError
        make(block, room)

    with opened(large) as memory:
        wanted = [nearest(memory, query, exact=True) for query in QUERIES[:3]]
    monkeypatch.setattr(Block, "_make", make_in_little_room)
    with opened(large) as memory:
        assert [nearest(memory, query, exact=True) for query in QUERIES[:3]] == wanted


@pytest.mark.usefixtures("no_first_pass")
def test_a_small_memory_has_no_first_pass(path: Path) -> None:
    with opened(path) as memory:
        memory.add_many(texts_of(range(900)))
        assert len(nearest(memory, QUERIES[0])) == 10
        compact(memory.store)
    assert version_of(path) == schema.VERSION


def test_an_exact_search_is_refused_by_words_alone(large: Path) -> None:
    with opened(large) as memory:
        with pytest.raises(errors.InvalidFilter, match="exact has no effect with mode='lexical'"):
            memory.search("t1", mode="lexical", exact=True)
        with pytest.raises(errors.InvalidFilter, match="exact must be True or False"):
            memory.search("t1", exact="no")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidFilter, match="exact must be True or False"):
        opened(large, exact="no")


def test_check_measures_the_recall_of_the_first_pass(large: Path) -> None:
    with opened(large, policy="default", log="at once") as memory:
        for query in QUERIES:
            memory.search(query, mode="dense")
        measured = first_pass_recall(memory.store)
        assert measured is not None
        assert (measured.questions, measured.logged) == (100, 40)
        assert 0.99 <= measured.share <= 1.0
    result = command("check", "--file", large)
    assert result.exit_code == 0, result.output
    assert "first pass: it finds " in result.output


# Where the vectors lie.


def copies(path: Path) -> set[int]:
    """How often the vectors of some items stand in a file."""
    content = path.read_bytes()
    listed = behind_its_back(path, "SELECT vector FROM vectors_1 WHERE n % 50 = 0 AND n < 4000")
    return {content.count(vector) for (vector,) in listed}


def with_vectors_in_blocks(path: Path) -> None:
    """Make a file one of format 12, in which blocks with codes hold vectors too."""
    for last, since, size in behind_its_back(path, "SELECT last, first, size FROM blocks"):
        rows = "SELECT vector, n, scope FROM vectors_1 JOIN items USING(n) WHERE n > ? AND n <= ? ORDER BY n"
        vectors, numbers, scopes = zip(*behind_its_back(path, rows, (since, last)), strict=True)
        assert len(vectors) == size
        body = b"".join(vectors) + np.array(numbers, "<i8").tobytes() + np.array(scopes, "<i4").tobytes()
        behind_its_back(path, "UPDATE blocks SET body = ? WHERE last = ?", (body, last))
    behind_its_back(path, "PRAGMA user_version = 12")


def test_a_vector_lies_in_a_large_file_once(large: Path) -> None:
    assert copies(large) == {1}
    with opened(large) as memory:
        assert recall(memory) >= 0.99
        memory.update("m8", "t9 of other words")
        compact(memory.store)
        memory.update("m9", "t9 of still other words")
        assert memory.erase(user_id="u3").log_emptied
        assert check(memory.store) == []
    assert copies(large) == {1}
    with opened(large) as memory:
        assert recall(memory) >= 0.99
        with memory.episode() as episode:
            episode.apply(Operation(OperationKind.UPDATE, ("m11",), "t9 of words that go again"))
        memory.rollback(episode.id)
        assert finds(memory, "t10 n10", mode="dense", top_k=1) == ["t10 n10"]


def test_compact_takes_the_vectors_out_of_the_blocks_of_an_earlier_format(large: Path) -> None:
    with_vectors_in_blocks(large)
    assert copies(large) == {2}
    with opened(large, read_only=True) as memory:
        assert check(memory.store) == []
        assert recall(memory) >= 0.99
    with opened(large) as memory:
        memory.update("m8", "t9 of other words")
        assert recall(memory) >= 0.99
        before, after = compact(memory.store)
        assert before - after > 0.9 * 4 * 256 * 4096
        assert recall(memory) >= 0.99
        assert check(memory.store) == []
    assert copies(large) == {1}
    assert version_of(large) == schema.CODED_VERSION


def test_a_large_memory_that_became_small_is_searched_exactly(large: Path) -> None:
    with opened(large) as memory:
        for user in range(1, USERS):
            memory.erase(user_id=f"u{user}")
        for number in range(1, 101):
            memory.forget(f"m{number}")
    for _ in range(2):
        with opened(large) as memory:
            for _ in range(2):
                assert nearest(memory, "t3 n303", top_k=1) == ["m304"]
                assert len(nearest(memory, QUERIES[3], top_k=2000)) == COUNT // USERS - 100
            assert not uses_codes(memory)
            assert check(memory.store) == []


# Files that are damaged, of an earlier version, or without room.


def _flip(place: int) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        for last, body in behind_its_back(path, "SELECT last, body FROM codes WHERE last > 0"):
            at = place % len(body)
            wrong = body[:at] + bytes([body[at] ^ 4]) + body[at + 1 :]
            behind_its_back(path, "UPDATE codes SET body = ? WHERE last = ?", (wrong, last))

    return damage


DAMAGES: dict[str, Callable[[Path], object] | str] = {
    "a sign": _flip(99),
    "an item number": _flip(32 * 1024 + 80),
    "a level": _flip(-1),
    "cut": "UPDATE codes SET body = substr(body, 1, 1000) WHERE last > 0",
    "text": "UPDATE codes SET body = 'text'",
    "the codes of another block": "UPDATE codes SET body = (SELECT body FROM codes WHERE last = 2048) WHERE last = 1024",
    "another centre": "UPDATE codes SET body = zeroblob(1024) WHERE last = 0",
    "no centre": "DELETE FROM codes WHERE last = 0",
    "none of some blocks": "DELETE FROM codes WHERE last > 3000",
    "none": "DELETE FROM codes",
    "no table": f"DROP TABLE codes; PRAGMA user_version = {schema.VERSION}",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_codes_that_do_not_fit_are_not_believed_and_made_again(damage: str, large: Path) -> None:
    how = DAMAGES[damage]
    if isinstance(how, str):
        behind_its_back(large, how)
    else:
        how(large)
    with opened(large, read_only=True) as memory:
        if not damage.startswith("no"):
            assert any("table codes: m1024" in problem for problem in check(memory.store))
        assert recall(memory) >= 0.99
    with opened(large) as memory:
        assert recall(memory) >= 0.99
        assert check(memory.store) == []
    with opened(large) as memory:
        assert recall(memory) >= 0.99
        assert behind_its_back(large, "SELECT count(*) FROM codes") == [(1 + COUNT // blocks.ITEMS,)]


@pytest.fixture
def earlier(large: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of an earlier version, all whose blocks lack codes."""
    behind_its_back(large, f"DROP TABLE codes; PRAGMA user_version = {schema.VERSION}")
    monkeypatch.setattr("keepworth.memory.store.derived.LACKING", 0)
    monkeypatch.setattr(blocks, "TOGETHER", 1)
    return large


def wait_for_codes(memory: Memory) -> None:
    end = time.monotonic() + 20
    while not memory.store.derived.has_codes():
        assert time.monotonic() < end
        time.sleep(0.01)


def version_of(path: Path) -> int:
    return int(behind_its_back(path, "PRAGMA user_version")[0][0])


def test_a_file_of_an_earlier_version_is_searched_exactly_until_it_has_codes(earlier: Path) -> None:
    with opened(earlier) as memory:
        exact = [nearest(memory, query, exact=True) for query in QUERIES]
        assert [nearest(memory, query) for query in QUERIES[:1]] == exact[:1]
        for query, right in zip(QUERIES, exact, strict=True):
            assert len(set(nearest(memory, query)) & set(right)) >= 9
            memory.add(f"{query} meanwhile", user_id="u0")
            memory.forget(memory.search(f"{query} meanwhile", mode="dense", top_k=1)[0].id)
        wait_for_codes(memory)
        assert recall(memory) >= 0.99
        assert check(memory.store) == []
    assert version_of(earlier) == schema.CODED_VERSION


def test_a_read_only_file_of_an_earlier_version_stays_as_it_is(earlier: Path) -> None:
    content = earlier.read_bytes()
    with opened(earlier, read_only=True) as memory:
        assert recall(memory) >= 0.99
    assert earlier.read_bytes() == content


def test_compact_makes_the_codes_that_are_missing(earlier: Path) -> None:
    with opened(earlier) as memory:
        compact(memory.store)
        assert memory.store.derived.has_codes()
        assert recall(memory) >= 0.99


KILLED = """
import os, signal, sys, time
from tests.memory.test_first_pass import QUERIES, first_pass, nearest, opened
from keepworth.memory.store import blocks, derived
first_pass.FROM, derived.LACKING, blocks.TOGETHER = 1000, 0, 1
write, calls = blocks.write_codes, []
def write_or_die(*rest):
    write(*rest)
    calls.append(1)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
blocks.write_codes = write_or_die
with opened(sys.argv[1]) as memory:
    while True:
        nearest(memory, QUERIES[0])
"""


def test_a_process_killed_while_codes_are_made_leaves_a_sound_file(earlier: Path) -> None:
    root = Path(__file__).parents[2]
    killed = subprocess.run([sys.executable, "-c", KILLED, str(earlier)], cwd=root, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    with opened(earlier) as memory:
        assert 0 < len(blocks_without_codes(memory)) < COUNT // blocks.ITEMS
        assert check(memory.store) == []
        for _ in range(2):
            assert nearest(memory, QUERIES[0]) == nearest(memory, QUERIES[0], exact=True)
        wait_for_codes(memory)
        assert recall(memory) >= 0.99


def blocks_without_codes(memory: Memory) -> list[int]:
    with memory.store.database.reading() as connection:
        return blocks.uncoded(connection)


def test_a_full_disk_while_codes_are_made_leaves_searches_exact(
    earlier: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(earlier) as memory:
        with caplog.at_level(logging.WARNING), largest_file(2 * blocks.ITEMS):
            for _ in range(3):
                assert len(nearest(memory, QUERIES[0])) == 10
            coding = memory.store.derived._coding
            assert coding is not None
            coding.join(20)
        assert "codes of vectors could not be written" in caplog.text
        assert nearest(memory, QUERIES[1]) == nearest(memory, QUERIES[1], exact=True)
        assert not uses_codes(memory)
    with opened(earlier) as memory:
        nearest(memory, QUERIES[0])
        nearest(memory, QUERIES[0])
        wait_for_codes(memory)
        assert check(memory.store) == []


def levels_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """The number of each item, and its code of four bits a number."""
    words, half = 4, 128
    for (body,) in behind_its_back(path, "SELECT body FROM codes WHERE last > 0"):
        size = len(body) // (8 * words + 16 + half)
        numbers = np.frombuffer(body, "<i8", size, size * 8 * words)
        levels = body[-size * half :]
        for row, number in enumerate(numbers.tolist()):
            yield number, levels[row * half : (row + 1) * half]


def test_erased_items_leave_no_codes(large: Path) -> None:
    before = dict(levels_of(large))
    with closing(opened(large)) as memory:
        nearest(memory, QUERIES[0])
        erased = memory.erase(user_id="u1").ids
        assert recall(memory) >= 0.99
        assert nearest(memory, QUERIES[0], user_id="u1") == []
    numbers = {int(id[1:]) for id in erased}
    assert not numbers & set(dict(levels_of(large)))
    content = large.read_bytes()
    assert len(numbers) == COUNT // USERS
    assert not [number for number in numbers if number in before and before[number] in content]
    with opened(large) as memory:
        assert check(memory.store) == []
        assert recall(memory) >= 0.99


@pytest.mark.parametrize("first", [True, False], ids=["with codes", "without codes"])
def test_check_names_an_index_of_an_earlier_state_and_compact_mends_it(
    *, first: bool, large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as where a copy of an open file took its pages at different moments."""
    if not first:
        monkeypatch.setattr(first_pass, "FROM", 10**6)
        behind_its_back(large, "DROP TABLE codes")
        behind_its_back(large, "DELETE FROM blocks")
        with opened(large) as memory:
            memory.search(QUERIES[0], mode="dense")
            memory.search(QUERIES[0], mode="dense")
    tables = ("blocks", "codes") if first else ("blocks",)
    earlier = {table: behind_its_back(large, f"SELECT * FROM {table}") for table in tables}
    with opened(large) as memory:
        for number in range(5, 15):
            memory.update(f"m{number}", text=f"t{number % TOPICS} changed {number}")
        compact(memory.store)
        assert check(memory.store) == []
    for table, listed in earlier.items():
        behind_its_back(large, f"DELETE FROM {table}")
        for row in listed:
            behind_its_back(large, f"INSERT INTO {table} VALUES({','.join('?' * len(row))})", row)
    with opened(large) as memory:
        messages = check(memory.store)
        assert [
            f"table {tables[-1]}: " in message and "other vectors than those of m5 and others" in message
            for message in messages
        ] == [True]
        compact(memory.store)
        assert check(memory.store) == []
        assert nearest(memory, f"t{9 % TOPICS} changed 9", top_k=1) == ["m9"]
