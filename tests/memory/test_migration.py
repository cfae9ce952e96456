"""Files of an older format: brought up to date in one step or not at all, and never read wrongly."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import apsw
import pytest

from keepworth.memory import errors
from keepworth.memory.item import ItemKind, Scope, from_record
from keepworth.memory.memory import Memory
from keepworth.memory.store import rows, schema
from keepworth.memory.store.maintenance import check, compact, statistics
from keepworth.memory.store.transfer import exported, imported


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file of today's format, which the tests then call an old one."""
    path = tmp_path / "a.mem"
    with Memory(path, encoder=None) as m:
        m.add("a cat")
    return path


def at_version(monkeypatch: pytest.MonkeyPatch, version: int, steps: dict[int, str]) -> None:
    monkeypatch.setattr(schema, "VERSION", version)
    monkeypatch.setattr(schema, "MIGRATIONS", steps)


def version_of(path: Path) -> tuple[int, bool]:
    """What the header says, and whether the column that the tests add is there."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    columns = {row[1] for row in connection.execute("PRAGMA table_info(episodes)")}
    found = connection.pragma("user_version")
    connection.close()
    return found, "note" in columns


def test_every_step_up_to_todays_format_is_there():
    assert sorted(schema.MIGRATIONS) == list(range(1, schema.VERSION))


def test_an_older_file_is_brought_up_to_date_when_it_is_opened(old: Path, monkeypatch):
    first = schema.VERSION
    steps = {
        first: "ALTER TABLE episodes ADD COLUMN note TEXT NOT NULL DEFAULT ''",
        first + 1: "UPDATE facts_of_file SET value = value; CREATE INDEX episodes_by_task ON episodes(task)",
    }
    at_version(monkeypatch, first + 2, steps)
    with Memory(old, encoder=None) as m:
        assert [item.text for item in m.get_all()] == ["a cat"]
        m.add("a dog")
        assert check(m.store) == []
        assert statistics(m.store).format == first + 2
    assert version_of(old) == (first + 2, True)
    with Memory(old, encoder=None, read_only=True) as m:
        assert len(m) == 2


def test_where_a_step_fails_none_was_taken(old: Path, monkeypatch):
    first = schema.VERSION
    steps = {first: "ALTER TABLE episodes ADD COLUMN note TEXT", first + 1: "INSERT INTO no_such_table VALUES(1)"}
    at_version(monkeypatch, first + 2, steps)
    with pytest.raises(errors.OlderFile, match=r"a\.mem has format .*no_such_table.*nothing was changed.*export"):
        Memory(old, encoder=None)
    assert version_of(old) == (first, False)
    monkeypatch.undo()
    with Memory(old, encoder=None) as m:
        assert [item.text for item in m.get_all()] == ["a cat"]


def test_a_format_without_a_step_is_refused_and_untouched(old: Path, monkeypatch):
    content = old.read_bytes()
    at_version(monkeypatch, schema.VERSION + 2, {schema.VERSION: "ALTER TABLE episodes ADD COLUMN note TEXT"})
    with pytest.raises(errors.OlderFile, match=rf"a\.mem has format {schema.VERSION - 2} .* export"):
        Memory(old, encoder=None)
    assert old.read_bytes() == content


def test_an_older_file_opened_read_only_is_refused_and_untouched(old: Path, monkeypatch):
    content = old.read_bytes()
    at_version(monkeypatch, schema.VERSION + 1, {schema.VERSION: "ALTER TABLE episodes ADD COLUMN note TEXT"})
    with pytest.raises(errors.OlderFile, match="open it once with write access"):
        Memory(old, encoder=None, read_only=True)
    assert old.read_bytes() == content


def as_in_format_3(path: Path) -> None:
    """A journal without a chain."""
    with Memory(path, encoder=None) as m:
        compact(m.store)
    connection = apsw.Connection(str(path))
    connection.execute(
        "ALTER TABLE events DROP COLUMN chain; ALTER TABLE vector_sets DROP COLUMN made;"
        "ALTER TABLE decisions DROP COLUMN details; ALTER TABLE decisions DROP COLUMN vector;"
        "ALTER TABLE episodes DROP COLUMN person; DROP INDEX items_current;"
    )
    connection.pragma("user_version", 3)
    connection.close()


def as_in_format_2(path: Path) -> None:
    """Each item that an event created named beside it, each number that was asked for in the index, and all words too."""
    as_in_format_3(path)
    connection = apsw.Connection(str(path))
    connection.execute(
        "INSERT INTO touches SELECT * FROM changes EXCEPT SELECT * FROM touches;"
        "DROP VIEW changes; ALTER TABLE touches RENAME TO changes; UPDATE events SET applied = 1 WHERE applied = 2;"
        "DROP TABLE former_contents; DROP TABLE indexed; DROP INDEX events_by_content;"
        "CREATE INDEX events_by_content ON events(content) WHERE content IS NOT NULL;"
    )
    connection.pragma("user_version", 2)
    connection.close()


def as_in_format_1(path: Path) -> None:
    """Numbers of duplicates as format 1 had them: over everything that makes a duplicate, with no place for the scope."""
    as_in_format_2(path)
    connection = apsw.Connection(str(path))
    known: dict[int, int] = {}
    query = f"{rows.SELECT.replace(' FROM', ', content FROM')}"
    scopes = {
        id: Scope(*parts) for id, *parts in connection.execute("SELECT id, tenant, user, agent, session FROM scopes")
    }
    states = [rows.to_item(row, scopes[row[1]]) for row in connection.execute(query)]
    images = connection.execute("SELECT before FROM changes WHERE before IS NOT NULL").fetchall()
    states += [from_record(json.loads(before)) for (before,) in images]
    for item in states:
        time = item.event_time if item.kind in (ItemKind.EPISODE, ItemKind.CASE) else ""
        words = " ".join(item.text.split()), " ".join(item.key.split())
        body = "\x00".join((*item.scope.parts(), item.kind.value, time, words[1], words[0]))
        digest = hashlib.blake2b(body.encode(), digest_size=16).digest()
        known[rows.content_number(item)] = int.from_bytes(digest[:8], "little", signed=True)
    for table, key in (("items", "n"), ("events", "seq")):
        for number, content in connection.execute(
            f"SELECT {key}, content FROM {table} WHERE content IS NOT NULL"
        ).fetchall():
            connection.execute(f"UPDATE {table} SET content = ? WHERE {key} = ?", (known[content], number))
    connection.pragma("user_version", 1)
    connection.close()


def numbers_in(path: Path) -> list[list[tuple[int, int]]]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    tables = ("items ORDER BY n", "events ORDER BY seq")
    found = [connection.execute(f"SELECT rowid, content FROM {table}").fetchall() for table in tables]
    connection.close()
    return found


def lived_in(path: Path) -> None:
    """Whatever leaves a duplicate's number somewhere: repeats, rewordings, successors, deletions, an undone episode."""
    with Memory(path, encoder=None) as m:
        first = m.add("a  cat", user_id="ana")
        m.add("a cat", user_id="ana")
        m.add("a cat", user_id="bob")
        m.update(first.id, "a grey cat")
        m.add("met Bob", user_id="ana", kind="episode", event_time="2026-01-01")
        m.supersede(m.add("lives in Oslo").id, "lives in Rome", key="home")
        m.delete(m.add("gone").id)
        with m.episode() as ep:
            m.add("never was", episode=ep.id)
            m.add("lives in Rome", key="home", episode=ep.id)
        m.rollback(ep.id)


def test_what_format_2_says_can_be_undone_and_found_as_before(tmp_path: Path):
    path, other = tmp_path / "a.mem", tmp_path / "b.mem"
    lived_in(path)
    shutil.copy(path, other)
    as_in_format_2(path)
    told = []
    for file in (path, other):
        with Memory(file, encoder=None, clock=lambda: "2026-02-01T00:00:00") as m:
            assert check(m.store) == []
            assert statistics(m.store).format == schema.VERSION
            m.add("a cat with a hat", user_id="ana")
            undone = [m.rollback(since="s0"), m.rollback(source="rollback"), m.restore("s4"), m.rollback("r15")]
            assert check(m.store) == []
            found = [(hit.id, round(hit.score, 9)) for hit in m.search("cat Rome", mode="lexical")]
            told.append((undone, [item.text for item in m.get_all()], m.history("m1"), found, list(exported(m.store))))
    assert told[0] == told[1]


def test_duplicates_of_format_1_are_numbered_anew(tmp_path: Path):
    path = tmp_path / "a.mem"
    lived_in(path)
    today = numbers_in(path)
    as_in_format_1(path)
    assert numbers_in(path) != today
    with Memory(path, encoder=None) as m:
        assert check(m.store) == []
        before = len(m)
        assert m.add("a grey  cat", user_id="ana").id == "m1"
        assert len(m) == before
        assert statistics(m.store).format == schema.VERSION
    assert numbers_in(path)[0] == today[0]
    assert numbers_in(path)[1][: len(today[1])] == today[1]


def test_an_export_of_format_1_is_imported_with_todays_numbers(tmp_path: Path):
    path = tmp_path / "a.mem"
    lived_in(path)
    today = numbers_in(path)
    with Memory(path, encoder=None) as m:
        head, *rest = exported(m.store)
    as_in_format_1(path)
    old = dict(numbers_in(path)[1])
    lines = [json.dumps({**json.loads(head), "version": 1})]
    for line in rest:
        record = json.loads(line)
        if "event" in record:
            record["event"][9] = old[record["event"][0]]
        lines.append(json.dumps(record))
    copy = tmp_path / "b.mem"
    with Memory(copy, encoder=None) as m:
        imported(m.store, lines)
        assert check(m.store) == []
    assert numbers_in(copy) == today


def test_an_older_file_with_long_texts_says_how_their_ends_are_found(tmp_path: Path, caplog):
    path = tmp_path / "a.mem"
    with Memory(path, encoder="hashing") as m:
        m.add("A short one.")
        m.add("A long one. " * 200)
        older = "DROP INDEX items_current; PRAGMA user_version = 5"
        m.store.database.write(lambda connection: connection.execute(older))
    with Memory(path, encoder="hashing") as m:
        assert "1 long texts" in caplog.text
        assert f"reembed ENCODER --file {path}" in caplog.text
        assert check(m.store) == []
    caplog.clear()
    with Memory(path, encoder="hashing"):
        assert "long texts" not in caplog.text
