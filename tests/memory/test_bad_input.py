"""What people get wrong, and what a memory says to it: an error of its own type, and nothing written."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import keepworth
from keepworth.base.errors import UnknownName
from keepworth.memory import errors
from keepworth.memory.errors import MemoryProblem, NotAMemoryFile
from keepworth.memory.item import Provenance, Scope
from keepworth.memory.memory import Memory
from keepworth.memory.overlay import Bank
from keepworth.memory.place import address
from keepworth.memory.store.maintenance import backup, check, reembed
from keepworth.memory.store.transfer import exported, imported
from keepworth.records import EncoderIdentity, Operation, OperationKind
from tests.memory.helpers import WordEncoder, behind_its_back, command, finds, largest_file, rows, texts

LONE = "a\udc80"  # what a text of other bytes becomes where they are passed through


def nested(depth: int) -> dict[str, object]:
    """Dictionaries in each other; with 0, one in itself."""
    inner: dict[str, object] = {}
    whole = inner
    for _ in range(depth):
        whole = {"deeper": whole}
    if not depth:
        inner["itself"] = inner
    return whole


def test_message_names_the_argument_and_its_type() -> None:
    with Memory(encoder=None) as memory, pytest.raises(errors.InvalidText, match=r"^name is no dictionary but 'str'"):
        memory.put("x", name="str")  # type: ignore[arg-type]


def test_missing_file_that_is_opened_to_read_is_named_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(NotAMemoryFile, match=r"opened read-only\. Give the path"):
        Memory(tmp_path / "a.mem", read_only=True)


BAD_CALLS = {
    "worth: of no query": lambda m: m.worth("m1", 5),
    "observe: no draft": lambda m: m.episode().observe(5),
    "search: what a selector gives": lambda m: m.search("a", selector=lambda query, hits, k: 5),
    "search: another episode": lambda m: m.episode("t").search("a", episode="e"),
    "search: another step": lambda m: m.episode("t").search("a", step=3),
    "policy: a setting of a method there is not": lambda m: keepworth.policy("memrl", capacitty=5),
    "search: not Unicode": lambda m: m.search(LONE),
    "search: step that no file holds": lambda m: m.search("cat", step=10**30),
    "search: k beyond everything": lambda m: m.search("cat", top_k=10**30),
    "search: status": lambda m: m.search("cat", statuses=["lost"]),
    "search: threshold": lambda m: m.search("cat", threshold="high"),
    "search: threshold above every score": lambda m: m.search("cat", threshold=1.5),
    "search: threshold above every cosine": lambda m: m.search("cat", mode="dense", threshold=1.5),
    "search: longer than any question": lambda m: m.search("cat " * 60_000),
    "add: metadata too deep": lambda m: m.add("a dog", metadata=nested(5_000)),
    "add: metadata in itself": lambda m: m.add("a dog", metadata=nested(0)),
    "add: nothing": lambda m: m.add(None),
    "add: not Unicode": lambda m: m.add_many(["a dog", LONE]),
    "add: bytes": lambda m: m.add(b"cat"),
    "add: texts for messages": lambda m: m.add(["a cat", "a dog"]),
    "add: status": lambda m: m.add("a dog", status="lost"),
    "add: ttl without end": lambda m: m.add("a dog", ttl=math.inf),
    "commit: no bank": lambda m: m.commit(None),
    "add: two ends": lambda m: m.add("a dog", ttl=5, expires_at="2030-01-01"),
    "add: infer that is no switch": lambda m: m.add("a dog", infer="yes"),
    "add: never valid": lambda m: m.add("a dog", valid_from="2025-01-01", valid_to="2024-01-01"),
    "add: source": lambda m: m.add("a dog", source=LONE),
    "add: a source of memory's own": lambda m: m.add("a dog", source="own"),
    "add: somebody's own word": lambda m: m.add_many(["a dog"], provenances=[Provenance("own:bob")]),
    "supersede: somebody's own word": lambda m: m.supersede("m1", "a dog", source="own:bob"),
    "reward: on another's word": lambda m: m.reward(m.search("cat").decision, 1.0, source="own:bob"),
    "add: role": lambda m: m.add([{"role": LONE, "content": "a dog"}]),
    "add: fewer provenances": lambda m: m.add_many(["a dog", "a cat"], provenances=[Provenance()]),
    "add: provenance": lambda m: m.add_many(["a dog"], provenances=[Provenance(speaker=LONE)]),
    "add: trust that is no number": lambda m: m.add("a dog", trust=math.nan),
    "add: metadata that no file holds": lambda m: m.add("a dog", metadata={"a": object()}),
    "add_many: metadata for one of two": lambda m: m.add_many(["x", "y"], metadata=[{"a": 1}]),
    "add_many: metadata of the second": lambda m: m.add_many(["x", "y"], metadata=[None, {"a": object()}]),
    "add: an option there is not, with a writer": lambda m: m.add("a dog", infer=True, usr_id="ana"),
    "add: provenances of messages": lambda m: m.add([{"role": "user", "content": "a dog"}], provenances=[]),
    "bank: mode": lambda m: m.bank().search("cat", mode="fuzzy"),
    "search: half-life": lambda m: m.search("cat", half_life=-1),
    "search: half-life of cosines": lambda m: m.search("cat", half_life=5, mode="dense"),
    "search: half-life of a reranker's order": lambda m: m.search("cat", half_life=5, reranker=lambda q, t: t),
    "seed: without a policy": lambda m: Memory(":memory:", encoder=None, policy=None, seed=3),
    "delete: a list": lambda m: m.delete(["m1"]),
    "episode: task": lambda m: m.episode(task=LONE),
    "rollback: number": lambda m: m.rollback(7),
    "rollback: a number no file has": lambda m: m.rollback("r" + "9" * 40),
    "rollback: a superscript": lambda m: m.rollback("r\u00b2"),
    "restore: a number no file has": lambda m: m.rollback(since="s" + "9" * 40),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_call_raises_a_typed_error_without_effect(name: str):
    m = Memory(":memory:", encoder=WordEncoder(8))
    m.add("a cat")
    m.reward(m.search("a cat").decision, 1.0)
    before = m.snapshot()
    with pytest.raises(errors.MemoryProblem):
        BAD_CALLS[name](m)
    m._decisions.flush()
    assert m.snapshot() == before
    assert check(m.store) == []
    assert m.search("a cat")


def test_add_accepts_one_message_and_empty_lists():
    m = Memory(":memory:", encoder=WordEncoder(8))
    (item,) = m.add({"role": "user", "content": "a cat"})
    assert (item.text, item.provenance.speaker) == ("a cat", "user")
    assert m.add_many([]) == m.add([]) == []


def test_forget_is_atomic_and_accepts_repeated_ids():
    m = Memory(":memory:", encoder=WordEncoder(8))
    a, b, c = m.add_many(["a cat", "a dog", "a cow"])
    m.delete(c.id)
    for ids in ((a.id, "m99"), (a.id, c.id)):
        with pytest.raises(errors.UnknownItem):
            m.forget(*ids)
        assert not m.get(a.id).deleted
    m.forget(a.id, a.id)
    assert m.get(a.id).deleted
    assert m.forget(b.id, b.id, purge_history=True).ids == (b.id,)
    assert check(m.store) == []


def test_a_bank_cannot_be_committed_where_it_does_not_belong():
    m = Memory(":memory:", encoder=None, user_id="ana")
    bank = Bank.empty(None)
    bank.add("for everybody")
    with pytest.raises(errors.InvalidScope, match="not inside"):
        m.commit(bank)
    assert m.store.head() == 0


def test_search_time_grows_with_the_length_of_a_pasted_query(m: Memory):
    """Counting each word of the query in each text anew would take 64 times as long for eight times the words."""

    def seconds(length: int) -> float:
        words = " ".join(f"w{number}" for number in range(length))
        m.add(words)
        taken = list[float]()
        for _ in range(3):
            start = time.process_time()
            assert m.search(words, top_k=1, explain=True)[0].text == words
            taken.append(time.process_time() - start)
        return min(taken)

    short, long = seconds(2_500), seconds(20_000)
    assert long < 24 * short


ENDLESS = [np.full((1, 8), number, np.float32) for number in (np.inf, np.nan)]


@pytest.mark.parametrize("made", [np.zeros((1, 3), np.float32), *ENDLESS, None, [["x"]], [[1.0], [2.0, 3.0]]])
def test_vectors_of_the_wrong_shape_or_without_end_are_refused(made):
    class Broken:
        identity = EncoderIdentity("broken", 8, True)

        def encode(self, texts):
            return made

    m = Memory(":memory:", encoder=Broken())
    bank = Bank.empty(Broken())
    bank.add("a cat")
    for call in (lambda: m.add("a cat"), lambda: bank.search("cat")):
        with pytest.raises(errors.InvalidVector, match="broken"):
            call()
    assert m.store.head() == 0


def test_purge_removes_vectors_of_an_interrupted_reembedding():
    m = Memory(":memory:", encoder=WordEncoder(8))
    m.add_many(["a cat", "a dog"])
    job = reembed(m.store, WordEncoder(16, "other words"))
    next(job), next(job)
    job.close()
    m.forget("m1", purge_history=True)
    sets = [id for (id,) in rows(m, "SELECT id FROM vector_sets")]
    left = [n for id in sets for (n,) in rows(m, f"SELECT n FROM vectors_{id}")]
    assert (len(sets), left) == (2, [2, 2])


def test_full_disk_raises_a_typed_error_and_loses_no_items(path: Path):
    m = Memory(path, encoder=None)
    m.add("safe")
    with largest_file(300_000), pytest.raises((errors.StorageFailed, errors.StorageFull), match="nothing was written"):
        m.add_many([f"{number} " + "x" * 5000 for number in range(200)])
    assert texts(m) == ["safe"]
    m.add("and on it goes")
    assert check(m.store) == []


def test_full_disk_leaves_no_new_memory(tmp_path: Path):
    with largest_file(10_000), pytest.raises((errors.StorageFailed, errors.StorageFull), match=r"a\.mem"):
        Memory(tmp_path / "a.mem", encoder=None)
    assert list(tmp_path.iterdir()) == []


class Named:
    """An encoder whose identity is none."""

    identity = "my-encoder"

    def encode(self, texts):
        return np.ones((len(texts), 2), np.float32)


TEAM = {"te\u202eam": True}
FIXES = {
    "text is empty: give it.*nothing was stored": lambda m: m.add(" "),
    r"text number 1 has control character U\+0007 at character 1: remove it": lambda m: m.add_many(["a", "b\a"]),
    r"no item 'm9' in this scope of :memory:: take an id that a search": lambda m: m.get("m9"),
    r"no item 'm9' to delete in this scope of :memory:: take an id": lambda m: m.delete("m9"),
    r"no rollback 'r9' in this scope of :memory:: .* `rollback` gave; nothing was undone": lambda m: m.rollback("r9"),
    r"no episode or rollback 'e9' in this scope of :memory:": lambda m: m.rollback("e9"),
    r"no episode 'e9' in this scope of :memory:: take the `.id`": lambda m: m.episode_record("e9"),
    r"user of a scope must be text, got int: pass str": lambda m: m.search("a cat", user_id=7),
    r"user of a scope must be text, got NoneType: only leaving it out means all": lambda m: m.search("a", user_id=None),
    r"a search has no option k=: did you mean top_k=": lambda m: m.search("a cat", k=5),
    r"a search has no option limit=: did you mean top_k=": lambda m: m.search("a cat", limit=5),
    r"a search has no option n_results=: did you mean top_k=": lambda m: m.search("a cat", n_results=5),
    r"metadata is no dictionary but 'topic': give names with values": lambda m: m.add("a cat", metadata="topic"),
    r"get_all has no option top_k=: did you mean limit=": lambda m: m.get_all(top_k=5),
    r"has no option highlight=: it takes top_k, actions, .*agent_id, session_id": lambda m: m.search("a", highlight=5),
    r"give policy=keepworth.policy\('default', withhold=...\)": lambda m: Memory(encoder=None, withhold=0.1),
    r"'withhold'": lambda m: keepworth.policy("default", witthold=0.1),
    r"EncoderIdentity": lambda m: Memory("no folder/a.mem", encoder=Named()),
    r"encoder": lambda m: Bank.empty(None).search("x"),
    r"'process' or 'power'": lambda m: Memory(encoder=None, durability="eternal"),
    r"no policy 'DEFAULT'. Did you mean 'default'": lambda m: Memory(encoder=None, policy="DEFAULT"),
    r"no policy 'learned'. Known: ": lambda m: Memory(encoder=None, policy="learned"),
    r"a text or messages, got int: give one of them": lambda m: m.add(3),
    r"a text or messages, got bytes: decode it": lambda m: m.add(b"x"),
    r"text must be str, got NoneType: give a text": lambda m: m.add_many([None]),
    r"got nan: nothing was learned. Give a plain number, such as reward": lambda m: m.episode("x").reward(math.nan),
    r"user of a scope has control characters or is not valid Unicode: 'te\\x00am'": lambda m: Scope(user="te\0am"),
    r"user of a scope has .* that cannot be seen: 'te\\u202eam'": lambda m: m.within(user_id="ana", shared=TEAM),
    r"explore must be True or False, got 'no'": lambda m: m.search("a cat", explore="no"),
    r"explore must be True or False, got None": lambda m: m.episode("a cat", explore=None),
    r"user of a scope is 600 characters long: shorten it": lambda m: m.add("a cat", user_id="u" * 600),
    r"user of a scope has control characters.*remove": lambda m: m.add("a cat", user_id="u\0"),
}


@pytest.mark.parametrize("message", FIXES)
def test_messages_name_the_thing_the_place_and_the_fix(message: str):
    with pytest.raises(errors.MemoryProblem, match=message):
        FIXES[message](Memory(":memory:", encoder=None))


def test_unknown_source_error_lists_the_sources_of_the_scope(m: Memory):
    m.add("a cat", source="wiki")
    m.add("a dog", source="bo's", user_id="bo")
    assert m.rollback(source="wiki").changed
    assert not m.rollback(source="wiki").changed, "what is undone already may be asked for again"
    assert m.ledger(source="wiki").accounts == ()
    known = r"'wikki' in this scope. Did you mean 'wiki'[?] Known: bo's, wiki[.]"
    for verb in (m.rollback, m.ledger):
        with pytest.raises(errors.InvalidFilter, match=known):
            verb(source="wikki")
    with pytest.raises(errors.InvalidFilter, match=r"Known: bo's[.]$"):
        m.within(user_id="bo").rollback(source="wiki")


def test_backup_without_room_leaves_no_file(tmp_path: Path):
    m = Memory(tmp_path / "a.mem", encoder=WordEncoder(400))
    m.add_many([f"{number} " + "x" * 300 for number in range(400)])
    m.store.database.truncate_log()
    (tmp_path / "there").mkdir()
    full = pytest.raises((errors.StorageFailed, errors.StorageFull), match=r"b\.mem could not be written")
    with largest_file(300_000), full:
        backup(m.store, tmp_path / "there" / "b.mem")
    assert list((tmp_path / "there").iterdir()) == []
    with pytest.raises(errors.MemoryProblem, match="no folder"):
        backup(m.store, tmp_path / "nowhere" / "b.mem")
    assert len(m.search("399", mode="lexical")) == 1
    assert check(m.store) == []


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """The administrator may read and write everything, whatever the permissions say."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that others may enter, which those that pytest makes are not."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    path.chmod(0o755)
    shutil.rmtree(path)


def test_a_file_that_may_not_be_read_is_a_typed_error(folder: Path):
    path = folder / "a.mem"
    Memory(path, encoder=None).close()
    path.chmod(0)
    with as_nobody(), pytest.raises(errors.NotAMemoryFile, match="permissions"):
        Memory(path, encoder=None)


def test_a_file_in_a_folder_that_cannot_be_written_is_searched_and_refuses_writes(folder: Path, caplog):
    path = folder / "a #1?.mem"
    with Memory(path, encoder=None) as m:
        m.add("a cat")
        m.search("cat")  # reads what comes with the package, where nobody may have no leave to
    content = path.read_bytes()
    path.chmod(0o444)
    folder.chmod(0o555)
    with as_nobody(), Memory(path, encoder=None) as m:
        assert m.read_only
        assert "not logged" in caplog.text
        assert [hit.text for hit in m.search("cat")] == ["a cat"]
        with pytest.raises(errors.ReadOnly, match="write access"):
            m.add("a dog")
        assert [file.name for file in folder.iterdir()] == [path.name]
        assert path.read_bytes() == content


@pytest.mark.skipif(os.geteuid() != 0, reason="somebody else has to write meanwhile")
def test_reader_of_an_unwritable_folder_sees_later_writes(folder: Path):
    path = folder / "a.mem"
    with Memory(path, encoder=None) as m:
        m.add("a cat")
        m.search("cat")
    path.chmod(0o644)
    with as_nobody():
        reader = Memory(path, encoder=None)
        assert len(reader.search("cat")) == 1
    with Memory(path, encoder=None) as m:
        m.add_many([f"cat number {number}" for number in range(50)])
    with as_nobody():
        assert len(reader.search("cat", top_k=100)) == 51
        assert check(reader.store) == []
        reader.close()


def test_command_line_refuses_non_text_input(path: Path, tmp_path: Path):
    def run(*arguments: object, told: bytes = b""):
        return command(*arguments, "--file", path, "--encoder", "none", input=told)

    for told in (b"caf\xe9 au lait\n", b"\n \n"):
        assert isinstance(run("add", "-", told=told).exception, errors.InvalidText)
        assert not path.exists()
    assert run("import", tmp_path / "missing.jsonl").exit_code == 2
    assert not path.exists()
    (tmp_path / "latin.jsonl").write_bytes(b'{"format": "keepworth memory"}\ncaf\xe9\n')
    result = run("import", tmp_path / "latin.jsonl")
    assert isinstance(result.exception, errors.NotAMemoryFile)
    assert "latin.jsonl" in str(result.exception)
    assert "UTF-8" in str(result.exception)


@pytest.mark.parametrize("path", ["", "a\0b", "\udc80", None, ["a"]])
@pytest.mark.parametrize("encoder", [None, "default"])
def test_non_path_is_refused(path: Any, encoder: str | None):
    with pytest.raises(errors.NotAMemoryFile, match="no path"):
        Memory(path, encoder=encoder)


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_of_an_encoder_is_refused_by_name(name: str) -> None:
    with pytest.raises(keepworth.KeepworthError, match=f"No model is called '{name}'.*hashing"):
        Memory(encoder=name)


def test_a_path_too_long_for_the_system_is_a_typed_error():
    with pytest.raises(errors.MemoryProblem):
        Memory("a" * 5_000, encoder=None)


@pytest.mark.parametrize("kind", ["a pipe", "links to each other", "a name that is too long"])
@pytest.mark.parametrize("verb", [("search", "cat"), ("add", "a cat")])
def test_command_line_refuses_pipes_loops_and_long_names(path: Path, kind: str, verb: tuple[str, str]):
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "links to each other":
        path.symlink_to(path)
    else:
        path = path.with_name("a" * 300)
    result = command(*verb, "--file", path, "--encoder", "none")
    assert isinstance(result.exception, errors.NotAMemoryFile)
    assert str(path) in str(result.exception)


@pytest.mark.parametrize("value", [10**400, 1e308, -1e308, math.nan])
def test_rewards_with_overflowing_sums_are_refused(value):
    m = Memory(":memory:", encoder=None, reward_range=(-1e100, 1e100))
    m.add("a cat")
    hits = m.search("cat")
    with pytest.raises(errors.InvalidReward):
        m.reward(hits.decision, value)
    for _ in range(2):
        m.reward(hits.decision, 1e100)
    assert "Infinity" not in "".join(exported(m.store))


def test_supersede_orders_items_after_the_clock_went_back():
    time = ["2026-06-01T12:00:00"]
    m = Memory(":memory:", encoder=None, clock=lambda: time[0])
    m.add("the code is red")
    time[0] = "2025-06-01T12:00:00"
    m.supersede("m1", "the code is blue")
    old, new = m.get("m1"), m.get("m2")
    assert old.written_at < old.ended_at <= new.written_at
    assert finds(m, "code", as_of=old.written_at) == ["the code is red"]
    assert finds(m, "code", as_of=new.written_at) == ["the code is blue"]
    assert check(m.store) == []


HOSTILE = {
    "deep": lambda lines: [*lines, '{"event":' + "[" * 100_000],
    "an id that is none": lambda lines: [*lines, '{"item": {"id": "x", "text": "a cat"}}'],
    "an item without an id": lambda lines: [*lines, '{"item": {"text": ""}}'],
    "an item that is a list": lambda lines: [*lines, '{"item": [7]}'],
    "cut off": lambda lines: lines[:4],
    "a first line alone": lambda lines: lines[:1],
    "number beyond every other": lambda lines: changed(lines, "event", 0, 2**63 - 1),
    "entry of no number": lambda lines: changed(lines, "event", 0, -5),
    "control characters": lambda lines: changed(lines, "item", "text", "\x1b]0;owned\x07"),
    "time": lambda lines: changed(lines, "item", "written_at", "soon"),
    "not what the journal says": lambda lines: changed(lines, "item", "text", "a dog"),
    "no row at all": lambda lines: changed(lines, "event", slice(None), []),
    "rollback": lambda lines: changed(changed(lines, "event", 2, "ROLLBACK"), "event", 6, '{"ranges":"x"}'),
}


def changed(lines: list[str], sort: str, place: int | str, value: object) -> list[str]:
    """The last line of a sort with another value, and a first line that agrees."""
    records = [json.loads(line) for line in lines]
    [record for record in records if sort in record][-1][sort][place] = value
    numbers = [record["event"][0] for record in records if record.get("event")]
    records[0]["head"] = max(numbers)
    return [json.dumps(record) for record in records]


@pytest.mark.parametrize("name", HOSTILE)
def test_foreign_import_is_refused_whole(name: str, m: Memory):
    m.add("a cat")
    m.update("m1", "a small cat")
    with m.episode("pets") as episode:
        episode.search("cat")
    twin = Memory(":memory:", encoder=None)
    with pytest.raises(errors.NotAMemoryFile, match="import"):
        imported(twin.store, HOSTILE[name](list(exported(m.store))))
    assert (twin.store.head(), len(twin)) == (0, 0)
    assert imported(twin.store, exported(m.store)) == 1
    assert twin.add("a cow").id == "m3"


@pytest.mark.parametrize("damage", ["metadata = '{'", "kind = 'rumour'", "scope = 99"])
def test_invalid_stored_value_counts_as_damage_and_stops_writes(path: Path, damage: str):
    with Memory(path, encoder=None) as m:
        m.add_many(["a cat", "a dog"])
    behind_its_back(path, f"UPDATE items SET {damage} WHERE n = 1")
    m = Memory(path, encoder=None)
    with pytest.raises(errors.NotAMemoryFile, match="is damaged"):
        m.get("m1")
    with pytest.raises(errors.NotAMemoryFile, match="nothing is written"):
        m.add("a cow")
    assert m.get("m2").text == "a dog"
    m.close()


# Whatever a program hands in, every verb does what it should or raises an error of ours, and the file stays sound.


WORDS = [
    "", " ", "\x00", "\ud800", "m1", "m0", "m01", "m99999999999999999999", "s0", "s99", "r1", "' OR 1=1 --", '" NEAR(',
    "é", "e\u0301", "ana@example.com", "\u202e", "😀", "*", "a" * 70_000, "١", "²",
]  # fmt: skip
ODD = st.one_of(
    *(st.sampled_from(WORDS), st.text(max_size=8), st.none(), st.booleans(), st.integers(), st.floats()),
    *(st.binary(max_size=3), st.lists(st.integers(), max_size=2)),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=1),
)
VERBS: dict[str, Callable[..., Any]] = {
    "add": lambda m, a, b: m.add(a, user_id=b),
    "add_many": lambda m, a, b: m.add_many(a, source=b),
    "add with a key": lambda m, a, b: m.add("a text", key=a, metadata=b),
    "add at a time": lambda m, a, b: m.add("a text", event_time=a, ttl=b),
    "add as a kind": lambda m, a, b: m.add("a text", kind=a, trust=b),
    "add like others": lambda m, a, b: m.add("a text", repeat=a, status=b),
    "apply to": lambda m, a, b: m.apply(Operation(OperationKind.UPDATE, (a,), b)),
    "apply": lambda m, a, b: m.apply(Operation(a, b, "a text")),
    "update": lambda m, a, b: m.update(a, b),
    "supersede": lambda m, a, b: m.supersede(a, b),
    "delete": lambda m, a, b: m.delete(a, episode=b),
    "delete_all": lambda m, a, b: m.delete_all(user_id=a, session_id=b),
    "forget": lambda m, a, b: m.forget(a, b),
    "forget for good": lambda m, a, b: m.forget(a, b, purge_history=True),
    "erase": lambda m, a, b: m.erase(user_id=a, session_id=b),
    "get": lambda m, a, b: m.get(a),
    "get_all": lambda m, a, b: m.get_all(user_id=a, after=b),
    "history": lambda m, a, b: m.history(a),
    "search": lambda m, a, b: m.search(a, user_id=b),
    "search as of": lambda m, a, b: m.search("cat", as_of=a, since=b),
    "search for kinds": lambda m, a, b: m.search("cat", kinds=a, where=b),
    "search so many": lambda m, a, b: m.search("cat", top_k=a, threshold=b),
    "search in a way": lambda m, a, b: m.search("cat", mode=a, half_life=b),
    "reward": lambda m, a, b: m.reward(a, b),
    "reward by": lambda m, a, b: m.reward(a, 1.0, source=b),
    "rollback": lambda m, a, b: m.rollback(a),
    "rollback of": lambda m, a, b: m.rollback(source=a),
    "rollback since": lambda m, a, b: m.rollback(since=a),
    "diff": lambda m, a, b: m.diff(a, b),
    "bank": lambda m, a, b: m.bank(user_id=a, at=b),
    "episode": lambda m, a, b: m.episode(user_id=a, task=b),
    "episode_record": lambda m, a, b: m.episode_record(a),
}


@pytest.mark.parametrize("verb", list(VERBS))
@example([], None)  # no text, and not hashable
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(a=ODD, b=ODD)
def test_odd_arguments_work_or_raise_typed_errors(verb: str, a: object, b: object):
    with Memory(encoder=WordEncoder(8)) as m:
        m.add_many(["a cat", "a dog"], user_id="ana")
        before = m.store.head()
        try:
            VERBS[verb](m, a, b)
        except MemoryProblem:
            assert m.store.head() == before, "an error, and yet something was written"
        assert check(m.store) == []


# Addresses of memories on a server; no server is needed.


def test_postgres_address_is_split_into_its_parts() -> None:
    options = "schema=team_a&sslmode=require&password=x"
    path, conninfo, schema, *_ = address(f"postgres://ann:se%20cret@db.example:5433/agents?{options}")
    assert schema == "team_a"
    assert path == "postgresql://ann@db.example:5433/agents?sslmode=require&schema=team_a"
    assert conninfo == "postgresql://ann:se%20cret@db.example:5433/agents?sslmode=require&password=x"
    assert address("postgresql:///agents").schema == "keepworth"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:secret@host/db?schema=",
        "postgresql://ann:secret@host/db?schema=a-b",
        "postgresql://ann:secret@host/db?schema=pg_mine",
        "postgresql://ann:secret@host:port/db",
        "postgresql://ann:secret/more@host/db",
        "postgresql://ann:secret#more@host/db",
        "postgresql://ann:1?secret@host/db",
        "postgresql://ann:1/secret@host/db",
        "postgresql://host:secret/db?password=secret",
        "postgresql://ann:secret@host/db?options=-cfoo",
        "postgresql://ann:secret@host/\ud800",
    ],
)
def test_invalid_address_is_refused_without_showing_its_password(url: str) -> None:
    with pytest.raises(NotAMemoryFile) as caught:
        address(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["", " ", "unheard"])
def test_writer_of_no_such_name_is_refused_with_the_names_of_those_there_are(name: str) -> None:
    with pytest.raises(UnknownName, match=r"no writer .*statements"):
        Memory(writer=name)
