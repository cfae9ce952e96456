"""The tables of a memory in Postgres: those of a file, with replacements for what only SQLite has.

A memory is a schema of its own, so one database holds many, and the rights to each are given with Postgres's `GRANT`.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

from keepworth.memory.store.postgres.full_text import TABLES as FULL_TEXT
from keepworth.memory.store.schema import SERVER_VERSION, TABLES, in_types

if TYPE_CHECKING:
    import psycopg

NUMBERED = {"names": "id", "scopes": "id", "vector_sets": "id", "decisions": "n", "episodes": "rowid"}
"""Tables (and their column) that SQLite numbers by itself: one more than the largest number, without gaps, with one writer."""

TYPES = {
    "deleted INTEGER": "deleted BOOLEAN",
    "changed INTEGER": "changed BOOLEAN",
    "seq, seq, 1, NULL": "seq, seq, true, NULL",
    " INTEGER": " BIGINT",
    " REAL": " DOUBLE PRECISION",
    " BLOB": " BYTEA",
    " TEXT": ' TEXT COLLATE "C"',
    " WITHOUT ROWID": "",
}
"""What to replace in table definitions: see `connection.AnyConnection.types`."""


def statements() -> list[str]:
    """Return the SQL statements that create an empty memory, in order."""
    listed = [part for part in in_types(f"{TABLES};{FULL_TEXT}", TYPES).split(";") if part.strip()]
    more = [
        "ALTER TABLE episodes ADD COLUMN rowid BIGINT NOT NULL UNIQUE",
        "CREATE INDEX scopes_by_token ON scopes USING gin (string_to_array(tokens, ' '))",
    ]
    for table, column in NUMBERED.items():
        more += [
            f"CREATE FUNCTION number_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"IF NEW.{column} IS NULL THEN SELECT coalesce(max({column}), 0) + 1 INTO NEW.{column} FROM {table}; END IF; "
            "RETURN NEW; END $$",
            f"CREATE TRIGGER number_{table} BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION number_{table}()",
        ]
    functions = files(__package__).joinpath("functions.sql").read_text("utf-8")
    return [functions.strip().rstrip(";"), *listed, *more]


def create(raw: psycopg.Connection[Any], store_id: str) -> None:
    """Create the tables in the first schema on the connection's search path. The caller holds a write transaction."""
    raw.execute(";\n".join(statements()).encode())  # in one round trip
    for fact in (("store", store_id), ("format", str(SERVER_VERSION))):
        raw.execute("INSERT INTO facts_of_file VALUES(%s, %s)", fact)
