"""Files of an older format: brought up to date in one step or not at all, and never read wrongly."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from recollect.memory import errors, schema
from recollect.memory.memory import Memory
from recollect.memory.upkeep import check, statistics


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
    with pytest.raises(apsw.SQLError, match="no_such_table"):
        Memory(old, encoder=None)
    assert version_of(old) == (first, False)
    monkeypatch.undo()
    with Memory(old, encoder=None) as m:
        assert [item.text for item in m.get_all()] == ["a cat"]


def test_a_format_without_a_step_is_refused_and_untouched(old: Path, monkeypatch):
    content = old.read_bytes()
    at_version(monkeypatch, schema.VERSION + 2, {schema.VERSION: "ALTER TABLE episodes ADD COLUMN note TEXT"})
    with pytest.raises(errors.OlderFile, match=r"a\.mem has format 1 .* export"):
        Memory(old, encoder=None)
    assert old.read_bytes() == content


def test_an_older_file_opened_read_only_is_refused_and_untouched(old: Path, monkeypatch):
    content = old.read_bytes()
    at_version(monkeypatch, schema.VERSION + 1, {schema.VERSION: "ALTER TABLE episodes ADD COLUMN note TEXT"})
    with pytest.raises(errors.OlderFile, match="open it once with write access"):
        Memory(old, encoder=None, read_only=True)
    assert old.read_bytes() == content
