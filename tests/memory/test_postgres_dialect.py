"""The statements of the store in the words of Postgres; no server is needed."""

from __future__ import annotations

import re

import pytest

from keepworth.memory.errors import NotAMemoryFile
from keepworth.memory.place import address
from keepworth.memory.store import rows
from keepworth.memory.store.postgres.dialect import translated
from keepworth.memory.store.postgres.full_text import LONGEST, stored_term


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("SELECT n FROM items WHERE n = ?", "SELECT n FROM items WHERE n = %s"),
        (
            "SELECT id FROM scopes WHERE user = ? AND part = 'user'",
            "SELECT id FROM scopes WHERE \"user\" = %s AND part = 'user'",
        ),
        ("SELECT 1 FROM t WHERE s.user = 'it''s a user?'", "SELECT 1 FROM t WHERE s.\"user\" = 'it''s a user?'"),
        ("DELETE FROM f WHERE name GLOB 'call *'", "DELETE FROM f WHERE starts_with(name, 'call ')"),
        ("DELETE FROM f WHERE name GLOB ?", "DELETE FROM f WHERE starts_with(name, rtrim(%s::text, '*'))"),
        ("SELECT 1 FROM d WHERE details LIKE '%odds%'", "SELECT 1 FROM d WHERE details LIKE '%%odds%%'"),
        ("INSERT OR IGNORE INTO languages VALUES(?)", "INSERT INTO languages VALUES(%s) ON CONFLICT DO NOTHING"),
        (
            "INSERT OR REPLACE INTO facts_of_file VALUES(?, '1')",
            "INSERT INTO facts_of_file(name, value) VALUES(%s, '1') ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        ),
        (
            "INSERT OR REPLACE INTO vectors_3(n, hash, vector) SELECT n, hash, vector FROM former_vectors",
            "INSERT INTO vectors_3(n, hash, vector) SELECT n, hash, vector FROM former_vectors ON CONFLICT (n) DO UPDATE SET "
            "hash = excluded.hash, vector = excluded.vector",
        ),
        (
            "SELECT n, before, min(seq) FROM changes WHERE seq > ? AND changed GROUP BY n",
            "SELECT DISTINCT ON (n) n, before, seq FROM changes WHERE seq > %s AND changed ORDER BY n, seq",
        ),
        ("SELECT n FROM items ORDER BY n LIMIT ?", "SELECT n FROM items ORDER BY n LIMIT nullif(%s::bigint, -1)"),
        ("SELECT name FROM f LIMIT -1 OFFSET 7", "SELECT name FROM f OFFSET 7"),
        (
            "SELECT key || char(10) FROM i CROSS JOIN s ON s.id = i.scope",
            "SELECT key || chr(10) FROM i JOIN s ON s.id = i.scope",
        ),
        (
            "CREATE TABLE t(n INTEGER, deleted INTEGER NOT NULL, v BLOB) WITHOUT ROWID",
            "CREATE TABLE t(n BIGINT, deleted BOOLEAN NOT NULL, v BYTEA)",
        ),
    ],
)
def test_what_only_sqlite_says(said: str, expected: str) -> None:
    assert translated(said).text == expected


def test_lists_are_arrays_and_come_in_their_places() -> None:
    one = translated("SELECT 1 FROM t WHERE a = ? AND n IN (SELECT value FROM json_each(?)) AND b = ?")
    assert one.text == "SELECT 1 FROM t WHERE a = %s AND n = ANY(%s) AND b = %s"
    assert one.values(("x", "[1, 2]", 3)) == ["x", [1, 2], 3]
    by_number = translated(
        "SELECT n FROM a WHERE n IN (SELECT value FROM json_each(?1)) OR m IN (SELECT value FROM json_each(?1))"
    )
    assert by_number.text == "SELECT n FROM a WHERE n = ANY(%(v1)s) OR m = ANY(%(v1)s)"
    assert by_number.values(('["a"]',)) == {"v1": ["a"]}


def test_a_row_of_an_item_replaces_the_one_of_its_number_alone() -> None:
    text = translated(rows.INSERT).text
    assert text.count("%s") == rows.WIDTH
    assert text.endswith("content = excluded.content")
    assert "ON CONFLICT (n) DO UPDATE SET scope = excluded.scope" in text
    assert not re.search(r"\bn = excluded", text)


def test_what_an_address_says() -> None:
    path, conninfo, schema, *_ = address(
        "postgres://ann:se%20cret@db.example:5433/agents?schema=team_a&sslmode=require&password=x"
    )
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
def test_addresses_that_cannot_be_are_refused_without_their_password(url: str) -> None:
    with pytest.raises(NotAMemoryFile) as caught:
        address(url)
    assert "secret" not in str(caught.value)


def test_long_terms_stand_as_digests_and_stay_apart() -> None:
    one, other = "a" * LONGEST + "b", "a" * LONGEST + "c"
    assert stored_term("word") == "word"
    assert stored_term("a" * LONGEST) == "a" * LONGEST
    assert stored_term(one) != stored_term(other)
    assert len(stored_term(one).encode()) <= LONGEST
