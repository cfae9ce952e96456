"""What is derived from the journal is never believed: it fits, or it is made again, and `check` says what differs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keepworth.memory.errors import NotAMemoryFile
from keepworth.memory.item import Status
from keepworth.memory.memory import Memory
from keepworth.memory.store import journal_checks, rows
from keepworth.memory.store.maintenance import check, compact, reembed
from tests.memory.helpers import WordEncoder, behind_its_back, finds, texts

FILLER = 30


def memory(path: Path, **options: object) -> Memory:
    options.setdefault("encoder", WordEncoder())
    return Memory(path, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def blocked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory with one block of vectors, and 76 that are in none."""
    path = tmp_path_factory.mktemp("blocked") / "a.mem"
    with memory(path) as m:
        m.add_many([f"filler {n} thing {n % 7}" for n in range(1100)])
    assert blocks_of(path) == [1024]
    return path


@pytest.fixture
def in_blocks(blocked: Path, tmp_path: Path) -> Path:
    return shutil.copy(blocked, tmp_path / "a.mem")


def blocks_of(path: Path) -> list[int]:
    return [last for (last,) in behind_its_back(path, "SELECT last FROM blocks ORDER BY last")]


def best(m: Memory, query: str) -> tuple[str, float]:
    hit = m.search(query, mode="dense", top_k=1)[0]
    return hit.text, round(hit.score, 3)


# Another state of the memory.


def test_open_handle_follows_reembedding(path: Path):
    with memory(path) as reader:
        reader.add("a dog")
        with memory(path, encoder=None) as writer:
            writer.add("a cat in the sun")
            assert best(reader, "a cat in the sun")[0] == "a dog"  # no vector yet
            list(reembed(writer.store, WordEncoder()))
        assert best(reader, "a cat in the sun") == ("a cat in the sun", 1.0)


def test_a_file_with_a_name_of_earlier_rules_opens(path: Path):
    with memory(path) as m:
        m.add("a cat", user_id="jean dupont")
        m.add("a dog", user_id="ana")
    for table, column in (("scopes", '"user"'), ("names", "name")):
        old = f"UPDATE {table} SET {column} = ? WHERE {column} = 'jean dupont'"
        behind_its_back(path, old, ("jean\u00a0dupont",))
    with memory(path) as m:
        assert set(texts(m)) == {"a cat", "a dog"}
        assert best(m, "a cat") == ("a cat", 1.0)
        assert len(m.erase(user_id="ana").ids) == 1
        m.forget("m1")
        assert m.get_all() == []


# Damage.


def _bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        ((body,),) = behind_its_back(path, "SELECT body FROM blocks")
        behind_its_back(path, "UPDATE blocks SET body = ?", (change(body),))

    return damage


MATRIX = 4 * 64 * 1024
DAMAGES: dict[str, Callable[[Path], None] | str] = {
    "random vectors": _bytes(lambda body: np.random.default_rng(0).bytes(MATRIX) + body[MATRIX:]),
    "one bit": _bytes(lambda body: body[:999] + bytes([body[999] ^ 4]) + body[1000:]),
    "two rows exchanged": _bytes(lambda body: body[256:512] + body[:256] + body[512:]),
    "zeroed row numbers": _bytes(lambda body: body[:MATRIX] + bytes(8 * 1024) + body[MATRIX + 8 * 1024 :]),
    "cut": _bytes(lambda body: body[:-100]),
    "text": "body = 'text'",
    "a negative size": "size = -1",
    "another beginning": "first = 500",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_block_is_ignored_and_rewritten(damage: str, in_blocks: Path):
    sound, how = behind_its_back(in_blocks, "SELECT * FROM blocks"), DAMAGES[damage]
    if isinstance(how, str):
        behind_its_back(in_blocks, f"UPDATE blocks SET {how}")
    else:
        how(in_blocks)
    for read_only in (True, False):
        with memory(in_blocks, read_only=read_only) as m:
            if read_only:
                assert any("table blocks" in problem for problem in check(m.store))
            assert best(m, "filler 11 thing 4") == ("filler 11 thing 4", 1.0)
            assert best(m, "filler 1090 thing 5") == ("filler 1090 thing 5", 1.0)
            assert len(m.search("filler thing", mode="dense", top_k=2000)) == 1100
    with memory(in_blocks) as m:
        assert check(m.store) == []
    if damage != "another beginning":
        assert behind_its_back(in_blocks, "SELECT * FROM blocks") == sound


def test_block_that_lost_a_write_is_named_and_mended(in_blocks: Path):
    """The block is sound, and as it was when an item was deleted that has come back since."""
    with memory(in_blocks) as m:
        before = m.snapshot()
        m.delete("m12")
        compact(m.store)
        m.rollback(since=before)
        assert check(m.store) == []
    behind_its_back(in_blocks, "DELETE FROM outdated")
    with memory(in_blocks) as m:
        (problem,) = check(m.store)
        assert re.match(
            "table blocks: m[0-9]+: it does not hold the current items: `keepworth memory compact`", problem
        )
        compact(m.store)
        assert check(m.store) == []
    with memory(in_blocks) as m:
        assert best(m, "filler 11 thing 4") == ("filler 11 thing 4", 1.0)


MENDED: dict[str, Callable[[Memory], object]] = {
    "UPDATE words_data SET block = randomblob(9) WHERE id > 10": lambda m: m.search("filler 11", mode="lexical"),
    "UPDATE words_data SET block = randomblob(8) WHERE id > 10": lambda m: compact(m.store),
    "DELETE FROM words_data": lambda m: m.update("m12", "an otter"),
}


@pytest.mark.parametrize("damage", MENDED)
def test_damaged_word_index_is_rebuilt(damage: str, in_blocks: Path):
    behind_its_back(in_blocks, damage)
    with memory(in_blocks, read_only=True) as m, pytest.raises(NotAMemoryFile, match=r"full-text index .* compact"):
        m.search("filler 11", mode="lexical")
    with memory(in_blocks) as m:
        assert MENDED[damage](m)
        assert check(m.store) == []


def test_a_damaged_vector_is_left_out(in_blocks: Path):
    behind_its_back(in_blocks, "UPDATE vectors_1 SET vector = randomblob(256) WHERE n > 1090")
    with memory(in_blocks) as m:
        assert best(m, "filler 1085 thing 0") == ("filler 1085 thing 0", 1.0)
        assert not {f"m{n}" for n in range(1091, 1101)}.intersection(hit.id for hit in m.search("filler", mode="dense"))


def test_outdated_block_entries_are_read_from_rows(in_blocks: Path):
    with memory(in_blocks) as m:
        m.update("m8", "an altogether different thing")
        m.forget("m9")
        m.update("m10", status=Status.ARCHIVED)
        m.add("filler 7 thing 0 or so")
    assert behind_its_back(in_blocks, "SELECT n FROM outdated") == [(8,), (9,), (10,)]
    with memory(in_blocks) as m:
        found = {hit.id: hit for hit in m.search("filler 7 thing 0", mode="dense", top_k=2000)}
        assert len(found) == 1099
        assert found["m8"].text == "an altogether different thing"
        assert not {"m9", "m10"} & set(found)
        assert best(m, "filler 7 thing 0 or so")[1] == 1.0
        m.update("m10", status=Status.ACTIVE)
        assert best(m, "filler 9 thing 2") == ("filler 9 thing 2", 1.0)
        compact(m.store)
        assert behind_its_back(in_blocks, "SELECT n FROM outdated") == []
        assert check(m.store) == []
    with memory(in_blocks) as m:
        assert best(m, "an altogether different thing") == ("an altogether different thing", 1.0)
        assert len(m.search("filler thing", mode="dense", top_k=2000)) == 1100


ASKED = [{}, {"user_id": "ana"}, {"where": {"topic": 1}}, {"user_id": "ben", "where": {"topic": 2}}]


@pytest.mark.parametrize("options", ASKED)
def test_first_search_of_a_process_equals_later_ones(options: dict[str, Any], path: Path, monkeypatch):
    monkeypatch.setattr("keepworth.memory.store.derived.FEW", 0)  # so that it scores blocks as it reads them
    with memory(path) as m:
        for user in ("ana", "ben"):
            topics = [{"topic": n % 3} for n in range(1100)]
            m.add_many([f"{user}'s filler {n} thing {n % 7}" for n in range(1100)], user_id=user, metadata=topics)
        m.update("m8", "ana's altogether different thing")
        m.forget("m9")
    with memory(path, policy=None) as m:
        first, later = (m.search("filler thing 5", mode="dense", top_k=900, **options) for _ in range(2))
        assert [(hit.id, hit.dense) for hit in first] == [(hit.id, hit.dense) for hit in later]
        assert len(first) >= 366


GONE: dict[str, Callable[[Memory], object]] = {
    "erased": lambda m: m.erase(user_id="bo"),
    "deleted": lambda m: m.delete_all(user_id="bo"),
    "undone": lambda m: (m.rollback(source="import"), compact(m.store)),
}


@pytest.mark.parametrize("how", GONE)
def test_block_of_deleted_items_is_read_as_empty(how: str, path: Path):
    with memory(path) as m:
        m.add_many([f"filler {n}" for n in range(1024)], user_id="bo", source="import")
        m.add("green tea", user_id="ana")
        GONE[how](m)
        assert best(m, "green tea") == ("green tea", 1.0)
    with memory(path) as m:
        for _ in range(2):  # the first search of a process reads blocks in another way than the second
            assert finds(m, "green tea", mode="dense", top_k=2000) == ["green tea"]
        assert check(m.store) == []


def test_blocks_that_are_missing_are_written_by_the_first_search(path: Path):
    with memory(path) as m:
        m.add_many([f"filler {n} thing {n % 7}" for n in range(2100)])
    behind_its_back(path, "DELETE FROM blocks")
    with memory(path) as m:
        assert best(m, "filler 2099 thing 6") == ("filler 2099 thing 6", 1.0)
        assert check(m.store) == []
    assert blocks_of(path) == [1024, 2048]


# What check compares.


def test_check_sees_the_full_text_index_as_it_is_now(tmp_path: Path):
    with memory(tmp_path / "a.mem", encoder=None) as m:
        for number in range(10):  # long texts are indexed at once, and every few writes segments are merged
            m.add(f"earlier {number} " + "word " * 500)
            m.search("earlier")
            m.add(f"later {number} " + "word " * 500)
            assert check(m.store) == []


@pytest.fixture(scope="module")
def whole_life(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """At least one row in every table."""
    path = tmp_path_factory.mktemp("lived") / "a.mem"
    with memory(path) as m:
        m.add_many([f"filler {n} thing {n % 7}" for n in range(FILLER)], user_id="ana")
        m.update("m2", "filler two in other words")
        m.supersede("m3", "filler three as it is now")
        m.update("m4", status=Status.ARCHIVED)
        m.add("filler 7 thing 0", user_id="ana")  # is there: an entry that looks at another item alone
        with m.episode(user_id="ana", task="dinner") as episode:
            episode.search("filler thing", top_k=3)
            episode.reward(1.0)
        m.reward(m.search("filler 5", user_id="ana", top_k=2).decision, 0.5)
        with m.episode(user_id="ana") as episode:
            episode.remember("never was")
        m.rollback(episode.id)
        m.forget("m9", purge_history=True)
        compact(m.store)
        assert check(m.store) == []
    return path


@pytest.fixture
def lived_in(whole_life: Path, tmp_path: Path) -> Path:
    return shutil.copy(whole_life, tmp_path / "a.mem")


TAMPERED = {
    "UPDATE scopes SET count = count + 1 WHERE user = 'ana'": "scopes: the count of items .*ana",
    "UPDATE scopes SET words = words + 1 WHERE user = 'ana'": "scopes: the count of words .*ana",
    "UPDATE scopes SET total = zeroblob(32) WHERE user = 'ana'": "scopes: the content hash .*ana",
    "UPDATE scopes SET tokens = 'u7' WHERE user = 'ana'": "scopes: the search tokens .*ana",
    "UPDATE items SET total = total + 1 WHERE shown > 0": "items: the journal does not lead",
    "UPDATE items SET content = content + 1 WHERE n = 1": "items: the number by which duplicates.*m1",
    "UPDATE items SET text = 'something else' WHERE n = 7": "m7|content hash",
    "UPDATE items SET trust = 0.5 WHERE n = 7": "m7|content hash",
    "DELETE FROM words WHERE rowid = 7": "index words: missing are m7",
    "INSERT INTO words(rowid, scope, text) VALUES(9, '', 'filler')": "index words: rows that belong to no item.*m9",
    "DELETE FROM words WHERE rowid = 7; INSERT INTO words(rowid, scope, text) VALUES(7, 'u1', 'filler 6 thing 7')": (
        "index words: it does not hold the words of m7"
    ),
    "UPDATE indexed SET through = 10000": "indexed: it says 10000",
    "UPDATE vectors_1 SET vector = zeroblob(8) WHERE n = 5": "vectors_1: not vectors of length one: m5",
    "UPDATE vectors_1 SET hash = 5 WHERE n = 5": "vectors_1: vectors of another wording of m5",
    "INSERT INTO vectors_1 SELECT 9, hash, vector FROM vectors_1 WHERE n = 5": "vectors_1: vectors of what is no item: m9",
    "UPDATE former_vectors SET vector = zeroblob(256 + 4)": "former_vectors: .*m2",
    "UPDATE events SET payload = replace(payload, 'filler 0', 'filler 9') WHERE seq = 1": "journal: .*chain: entry 1$",
    "UPDATE events SET payload = replace(payload, 'never', 'always')": "journal: .*chain: entry ",
    "UPDATE events SET source = 'web' WHERE seq = 2": "journal: .*chain: entry 2",
    "UPDATE events SET chain = zeroblob(24) WHERE seq = 2": "journal: .*chain: entry 2, entry 3",
    "DELETE FROM events WHERE seq = 12": "events: entries are missing",
    "UPDATE decisions SET chosen = '[\"m5\"]' WHERE episode = ''": "decisions: not what was rewarded",
    "UPDATE decisions SET propensity = 7 WHERE episode = ''": "decisions: not what a search leaves",
    "UPDATE decisions SET candidates = '{' WHERE episode = ''": "decisions: not what a search leaves",
    "UPDATE decisions SET candidates = substr(candidates, 2) WHERE episode = ''": "decisions: not what a search leaves",
    "UPDATE decisions SET scope = 77": "decisions: 2 rows are of a scope that does not exist",
    "INSERT INTO tombstones VALUES(1, 1, 1)": "tombstones: erased, and still there: m1",
    "DELETE FROM tombstones": "tombstones: erased, and not in it: m9",
    "UPDATE tombstones SET seq = 7": "tombstones: erased by no entry that erases: m9",
    "UPDATE events SET body = 7 WHERE seq = 2": "journal: .*chain: entry 2",
    "UPDATE words_config SET v = 77 WHERE k = 'version'": "full-text index .* is damaged",
}


@pytest.mark.parametrize("statement", TAMPERED)
def test_check_names_the_table_that_differs(statement: str, lived_in: Path):
    behind_its_back(lived_in, statement)
    with memory(lived_in) as m:
        problems = check(m.store)
    assert any(re.search(TAMPERED[statement], problem) for problem in problems), problems


OF_LONE_ENTRIES = [
    "UPDATE items SET shown = 3 WHERE n = 12",
    "UPDATE items SET written_at = '2020-01-01T00:00:00' WHERE n = 12",
    "UPDATE events SET content = content + 1 WHERE seq = 12",
    "UPDATE events SET content = NULL WHERE seq = 12",
    "UPDATE events SET applied = 1 WHERE seq = 12",
    "UPDATE events SET payload = replace(payload, 'filler 11', 'filler 12') WHERE seq = 12",
    "INSERT INTO touches VALUES(20, 12, 1, NULL)",
    "DELETE FROM touches WHERE n = 2",
    "DELETE FROM former_contents",
]


@pytest.mark.parametrize("statement", OF_LONE_ENTRIES)
def test_entries_carried_out_alone_are_reported_as_all_together(
    statement: str, lived_in: Path, monkeypatch: pytest.MonkeyPatch
):
    behind_its_back(lived_in, statement)
    with memory(lived_in) as m:
        problems = check(m.store)
        assert problems
        monkeypatch.setattr(journal_checks, "_candidates", lambda *_: np.zeros(1000, bool))
        assert check(m.store) == problems


# The chain.


def chains(path: Path) -> list[bytes | None]:
    return [link for (link,) in behind_its_back(path, "SELECT chain FROM events ORDER BY seq")]


def test_journal_chain_survives_erasure_without_confirming_guesses(path: Path):
    with memory(path) as m:
        m.add_many(["one", "the code is 1234", "three"])
    before = chains(path)
    with memory(path) as m:
        m.forget("m2", purge_history=True)
        assert check(m.store) == []
    after = chains(path)
    assert after[0] == before[0]
    assert after[1] == before[1][: rows.DIGEST]  # no salt, so no guess can be tried
    assert after[2] == before[2]
