"""What is derived from the journal is never believed: it fits, or it is made again, and `check` says what differs."""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import apsw
import numpy as np
import pytest

from keepworth.memory.item import Status
from keepworth.memory.memory import Memory
from keepworth.memory.search import beside
from keepworth.memory.search.beside import HEADER, MAGIC, read_sidecar, sidecar_path, write_sidecar
from keepworth.memory.store.maintenance import backup, check, compact, lay_out, reembed
from tests.memory.stub_encoder import WordEncoder
from tests.memory.test_migration import as_in_format_3

FILLER = 30


def memory(path: Path, **options: object) -> Memory:
    options.setdefault("encoder", WordEncoder())
    return Memory(path, **options)  # type: ignore[arg-type]


def laid_out(path: Path) -> None:
    with memory(path) as m:
        m.add_many([f"filler {n} thing {n % 7}" for n in range(FILLER)])
        lay_out(m.store, least=1)


def best(m: Memory, query: str) -> tuple[str, float]:
    hit = m.search(query, mode="dense", top_k=1)[0]
    return hit.text, round(hit.score, 3)


# Another state of the memory.


@pytest.mark.parametrize("more", [3, 60], ids="{} writes later".format)
@pytest.mark.parametrize("how", ["copy", "backup"])
def test_vectors_of_a_timeline_that_was_given_up_are_not_used(how: str, more: int, tmp_path: Path):
    path, earlier = tmp_path / "a.mem", tmp_path / "earlier.mem"
    with memory(path) as m:
        m.add_many([f"filler {n} thing {n % 7}" for n in range(FILLER)])
        compact(m.store)
        if how == "copy":
            shutil.copy(path, earlier)  # the very same memory, as after a power cut
        else:
            backup(m.store, earlier)
        m.add_many([f"lost {n} of the other time" for n in range(20)])
        lay_out(m.store, least=1)
    shutil.copy(earlier, path)
    with memory(path) as m:
        m.add_many([f"Ana is allergic to peanuts, case {n}" for n in range(more)])
        assert any("of an earlier state" in problem for problem in check(m.store))
        assert best(m, "Ana is allergic to peanuts, case 2") == ("Ana is allergic to peanuts, case 2", 1.0)
        assert "lost" not in best(m, "lost 7 of the other time")[0]
        assert check(m.store) == []
    with memory(path) as m:
        made = read_sidecar(path)
        assert made is not None  # again, of this state
        assert made.stamp.store == m.store.store_id()
        assert best(m, "Ana is allergic to peanuts, case 1")[1] == 1.0


def test_a_backup_is_another_memory(tmp_path: Path):
    with memory(tmp_path / "a.mem") as m:
        m.add("a cat")
        backup(m.store, tmp_path / "b.mem")
        with memory(tmp_path / "b.mem") as twin:
            assert twin.store.store_id() != m.store.store_id()
            assert twin.bank().content_hash() == m.bank().content_hash()


def test_a_handle_that_is_open_follows_vectors_made_without_a_journal_entry(tmp_path: Path):
    path = tmp_path / "a.mem"
    with memory(path) as reader:
        reader.add("a dog")
        with memory(path, encoder=None) as writer:
            writer.add("a cat in the sun")
            assert best(reader, "a cat in the sun")[0] == "a dog"  # no vector yet
            list(reembed(writer.store, WordEncoder()))
        assert best(reader, "a cat in the sun") == ("a cat in the sun", 1.0)


def test_what_is_erased_while_vectors_are_laid_out_is_not_left_beside_the_file(tmp_path: Path):
    path = tmp_path / "a.mem"
    laid_out(path)
    with memory(path) as m:
        index, stamp = m.store.dense_index(packed=True)
        m.forget("m3", purge_history=True)
        m.store.lay_out(index, stamp)
        assert not sidecar_path(path).exists()


def test_an_erasure_beside_takes_what_was_half_laid_out_and_nothing_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    laid_out(tmp_path / "a.mem")
    with memory(tmp_path / "a.mem") as m, memory(tmp_path / "a.mem") as other:
        m.add("what ana said", user_id="ana")
        replace = os.replace

        def erased_first(part: str, target: str) -> None:
            monkeypatch.setattr(os, "replace", replace)
            other.erase(user_id="ana")
            replace(part, target)

        monkeypatch.setattr(os, "replace", erased_first)
        assert lay_out(m.store, least=1) is None
        assert os.replace is replace, "the erasure came in between"
        assert check(m.store) == []


def test_a_symlink_leads_to_the_vectors_beside_the_file(tmp_path: Path):
    path, link = tmp_path / "a.mem", tmp_path / "elsewhere" / "link.mem"
    laid_out(path)
    link.parent.mkdir()
    link.symlink_to(path)
    with memory(link) as m:
        m.forget("m3", purge_history=True)
    assert not sidecar_path(path).exists()


# Damage.


def rewritten(content: bytes, change: Callable[[dict[str, object]], None]) -> bytes:
    """The header changed, under a checksum that is right."""
    header = json.loads(content[len(MAGIC) : HEADER])
    change(header)
    header.pop("checksum", None)
    rows, chunk = header.get("rows"), header.get("chunk")
    arrays = b""
    if isinstance(rows, int) and isinstance(chunk, int) and rows > 0 and chunk > 0:
        arrays = content[HEADER : HEADER + 12 * rows + 4 * -(-rows // chunk)]
    header["checksum"] = zlib.crc32(arrays, zlib.crc32(json.dumps(header, sort_keys=True).encode()))
    return (MAGIC + json.dumps(header).encode()).ljust(HEADER, b"\n") + content[HEADER:]


def _of(**fields: object) -> Callable[[bytes], bytes]:
    return lambda content: rewritten(content, lambda header: header["of"].update(fields))  # type: ignore[attr-defined]


def _matrix(fill: Callable[[int], bytes]) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        size = 4 * 64 * FILLER
        return content[:-size] + fill(size)

    return change


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "random vectors": _matrix(lambda size: np.random.default_rng(0).bytes(size)),
    "zeroed vectors": _matrix(bytes),
    "NaN": _matrix(lambda size: b"\x00\x00\xc0\x7f" * (size // 4)),
    "one bit": lambda content: content[:-9] + bytes([content[-9] ^ 4]) + content[-8:],
    "two rows exchanged": lambda content: content[:-512] + content[-256:] + content[-512:-256],
    "zeroed row numbers": lambda content: content[:HEADER] + bytes(8 * FILLER) + content[HEADER + 8 * FILLER :],
    "zeroed scopes": lambda content: (
        content[: HEADER + 8 * FILLER] + bytes(4 * FILLER) + content[HEADER + 12 * FILLER :]
    ),
    "cut": lambda content: content[:-100],
    "longer": lambda content: content + b"x",
    "empty": lambda content: b"",
    "deep": lambda content: (MAGIC + b"[" * 4000).ljust(HEADER, b"\n") + content[HEADER:],
    "a list": lambda content: (MAGIC + b"[1]").ljust(HEADER, b"\n") + content[HEADER:],
    "of format 1": lambda content: content.replace(b"vectors 2", b"vectors 1"),
    "head null": _of(head=None),
    "head of the future": _of(head=10**6),
    "head and chain of nobody": _of(chain="00" * 16),
    "dimension as text": _of(dimension="64"),
    "another encoder": _of(model="others"),
    "an unknown field": _of(more=1),
    "negative rows": lambda content: rewritten(content, lambda header: header.update(rows=-1)),
    "rows as text": lambda content: rewritten(content, lambda header: header.update(rows="30")),
    "no chunks": lambda content: rewritten(content, lambda header: header.update(chunk=0)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_vectors_are_read_from_the_file_and_laid_out_again(damage: str, tmp_path: Path):
    path = tmp_path / "a.mem"
    laid_out(path)
    beside = sidecar_path(path)
    sound = beside.read_bytes()
    beside.write_bytes(DAMAGES[damage](sound))
    with memory(path, read_only=True) as m:
        assert [problem for problem in check(m.store) if problem.startswith("a.mem.vectors: ")]
        assert best(m, "filler 11 thing 4") == ("filler 11 thing 4", 1.0)
        assert [hit.text for hit in m.search("filler 11 thing 4", top_k=1)] == ["filler 11 thing 4"]
    with memory(path) as m:
        assert best(m, "filler 11 thing 4") == ("filler 11 thing 4", 1.0)
        assert check(m.store) == []
    assert beside.read_bytes() == sound


def test_what_is_no_file_in_their_place_costs_nothing(tmp_path: Path):
    path = tmp_path / "a.mem"
    laid_out(path)
    sidecar_path(path).unlink()
    sidecar_path(path).mkdir()
    with memory(path) as m:
        assert best(m, "filler 11 thing 4") == ("filler 11 thing 4", 1.0)


def test_only_the_chunks_that_are_used_are_read(tmp_path: Path, monkeypatch):

    monkeypatch.setattr(beside, "CHUNK", 4)
    path = tmp_path / "a.mem"
    with memory(path) as m:
        for n in range(8):
            m.add_many([f"filler {n} thing {k}" for k in range(8)], user_id=f"u{n}")
        lay_out(m.store, least=1)
    content = sidecar_path(path).read_bytes()
    sidecar_path(path).write_bytes(content[:-4] + b"\x00\x00\xc0\x7f")  # in a row of the last user
    with memory(path) as m:
        assert m.search("filler 2 thing 4", user_id="u2", mode="dense")[0].text == "filler 2 thing 4"
        assert sidecar_path(path).read_bytes() != content
        assert m.search("filler 7 thing 7", user_id="u7", mode="dense")[0].text == "filler 7 thing 7"
        assert sidecar_path(path).read_bytes() == content


# What check compares.


def lived_in(path: Path) -> None:
    """At least one row in every table."""
    with memory(path) as m:
        m.add_many([f"filler {n} thing {n % 7}" for n in range(FILLER)], user_id="ana")
        m.update("m2", "filler two in other words")
        m.supersede("m3", "filler three as it is now")
        m.update("m4", status=Status.ARCHIVED)
        m.add("filler 7 thing 0", user_id="ana")  # is there: an entry that looks at another item alone
        with m.episode(user_id="ana", task="dinner") as episode:
            episode.search("filler thing", top_k=3)
            episode.reward(1.0)
        hits = m.search("filler 5", user_id="ana", top_k=2)
        m.reward(hits.decision, 0.5)
        with m.episode(user_id="ana") as episode:
            episode.remember("never was")
        m.rollback(episode.id)
        m.forget("m9", purge_history=True)
        compact(m.store)
        lay_out(m.store, least=1)


def _other_matrix(path: Path) -> None:
    with memory(path) as m:
        index, stamp = m.store.dense_index()
        numbers, _, matrix = index.arrays()
        index.put([int(numbers[0])], [1], matrix[1:2].copy())
        write_sidecar(path, stamp, index)


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
    "DELETE FROM past_words WHERE rowid = 4": "index past_words: missing are m4",
    "UPDATE indexed SET through = 10000": "indexed: it says 10000",
    "UPDATE vectors_1 SET vector = zeroblob(8) WHERE n = 5": "vectors_1: not vectors of length one: m5",
    "UPDATE vectors_1 SET vector = (SELECT vector FROM vectors_1 WHERE n = 6) WHERE n = 5": "a.mem.vectors: .* m5",
    "UPDATE vectors_1 SET hash = 5 WHERE n = 5": "vectors_1: vectors of another wording of m5",
    "INSERT INTO vectors_1 SELECT 9, hash, vector FROM vectors_1 WHERE n = 5": "vectors_1: vectors of what is no item: m9",
    "UPDATE former_vectors SET vector = zeroblob(256 + 4)": "former_vectors: .*m2",
    "UPDATE events SET payload = replace(payload, 'filler 0', 'filler 9') WHERE seq = 1": "journal: .*chain: entry 1$",
    "UPDATE events SET payload = replace(payload, 'never', 'always')": "journal: .*chain: entry ",
    "UPDATE events SET source = 'web' WHERE seq = 2": "journal: .*chain: entry 2",
    "UPDATE events SET chain = zeroblob(24) WHERE seq = 2": "journal: .*chain: entry 2, entry 3",
    "DELETE FROM events WHERE seq = 12": "events: entries are missing",
    "UPDATE touches SET before = replace(before, 'filler 1', 'filler 9')": "touches: .*m2 before entry",
    "UPDATE decisions SET chosen = '[\"m5\"]' WHERE episode = ''": "decisions: not what was rewarded",
    "UPDATE decisions SET propensity = 7 WHERE episode = ''": "decisions: not what a search leaves",
    "UPDATE decisions SET candidates = '{' WHERE episode = ''": "decisions: not what a search leaves",
    "UPDATE decisions SET candidates = substr(candidates, 2) WHERE episode = ''": "decisions: not what a search leaves",
    "UPDATE decisions SET scope = 77": "decisions: 2 rows are of a scope that does not exist",
    "INSERT INTO tombstones VALUES(1, 1, 1)": "tombstones: erased, and still there: m1",
    "DELETE FROM tombstones": "tombstones: erased, and not in it: m9",
    "UPDATE tombstones SET seq = 7": "tombstones: erased by no entry that erases: m9",
    "UPDATE touches SET changed = 0 WHERE n = 2": "touches: not all that the entry concerns: entry 3",
    "DELETE FROM touches WHERE NOT changed": "touches: not all that the entry concerns: entry ",
    "UPDATE events SET content = content + 1 WHERE seq = 31": "events: the number by which .* entry 31",
    "UPDATE events SET body = 7 WHERE seq = 2": "journal: .*chain: entry 2",
    "DELETE FROM former_contents": "former_contents: what it said before is missing of m2",
    "UPDATE words_config SET v = 77 WHERE k = 'version'": "full-text index .* is damaged",
}


@pytest.mark.parametrize("statement", TAMPERED)
def test_check_names_the_table_that_differs(statement: str, tmp_path: Path):
    path = tmp_path / "a.mem"
    lived_in(path)
    with memory(path) as m:
        assert check(m.store) == []
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.execute(statement)
    connection.close()
    with memory(path) as m:
        problems = check(m.store)
    assert problems
    assert any(re.search(TAMPERED[statement], problem) for problem in problems), problems


def test_a_damaged_full_text_index_is_named_and_not_taken_for_a_lock(tmp_path: Path):
    path = tmp_path / "a.mem"
    lived_in(path)
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.execute("PRAGMA journal_mode = delete")
    id, block = connection.execute("SELECT id, block FROM words_data ORDER BY length(block) DESC LIMIT 1").fetchone()
    for place in range(4, len(block), len(block) // 12):
        damaged = block[:place] + bytes([block[place] ^ 0x80]) + block[place + 1 :]
        connection.execute("UPDATE words_data SET block = ? WHERE id = ?", (damaged, id))
        connection.close()
        with memory(path) as m:
            assert any("words" in problem or "damaged" in problem for problem in check(m.store))
        connection = apsw.Connection(str(path))
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.close()


def test_check_compares_the_vectors_beside_the_file_with_those_in_it(tmp_path: Path):
    path = tmp_path / "a.mem"
    lived_in(path)
    _other_matrix(path)
    with memory(path, encoder=None) as m:
        (problem,) = check(m.store)
    assert problem == "a.mem.vectors: not the vectors on file of m1"


# The chain.


def chains(path: Path) -> list[bytes | None]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = [link for (link,) in connection.execute("SELECT chain FROM events ORDER BY seq")]
    connection.close()
    return found


def test_the_chain_survives_what_is_erased_and_proves_no_guess_of_it(tmp_path: Path):
    from keepworth.memory.store import rows

    path = tmp_path / "a.mem"
    with memory(path) as m:
        m.add_many(["one", "the code is 1234", "three"])
    before = chains(path)
    with memory(path) as m:
        m.forget("m2", purge_history=True)
        assert check(m.store) == []
    after = chains(path)
    assert after[0] == before[0]
    assert after[1] == rows.named(before[1])  # no salt, so no guess can be tried
    assert after[2] == before[2]


def test_two_copies_that_write_the_same_at_the_same_time_are_two_states(tmp_path: Path):
    one, other = tmp_path / "a.mem", tmp_path / "b.mem"

    def clock() -> str:
        return "2026-01-01T00:00:00"

    memory(one, clock=clock).close()
    shutil.copy(one, other)
    for path in (one, other):
        with memory(path, clock=clock) as m:
            m.add("the same")
    assert chains(one) != chains(other)


def test_a_file_of_format_3_gets_a_chain_that_begins_where_it_stands(tmp_path: Path):
    path = tmp_path / "a.mem"
    lived_in(path)
    as_in_format_3(path)
    with memory(path) as m:
        assert check(m.store) == []
        m.add("afterwards")
        lay_out(m.store, least=1)
    found = chains(path)
    assert found[:-2] == [None] * (len(found) - 2)
    assert found[-2] is not None
    with memory(path) as m:
        assert check(m.store) == []
        assert best(m, "afterwards") == ("afterwards", 1.0)
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE events SET at = '2020-01-01T00:00:00' WHERE seq = (SELECT max(seq) FROM events)")
    connection.close()
    with memory(path) as m:
        assert any("chain" in problem for problem in check(m.store))
