"""The tables of a memory file, and their version.

| table | holds | changed how |
| --- | --- | --- |
| events | the journal, in order: operations, rewards, rollbacks, parameters; and its chain | appended; a purge erases payloads |
| touches | the items an event touched, as they were before, but for one it created | appended; a purge erases images |
| changes | a view: the touches, and what was created (an item has the number of its event) | |
| former_contents | content numbers (by which duplicates are found) that an item had before, for undo | appended; purged |
| items | the view: the latest state of each item | rewritten by events |
| words | full-text index of terms of current items | with the row, up to the newest |
| languages | the languages that have stems in the full-text index | with the index |
| indexed | up to which row number the full-text index goes; the few rows beyond are read as they are | with the index |
| vector_sets | which encoder made which vectors; `made` changes when they do without a journal entry | by `reembed` |
| vectors_<set> | one vector per item and encoder | with the item's row |
| blocks | copies of vectors of ranges of items, for opening: see `blocks`; empty where codes stand | with what they copy |
| codes | codes of the vectors of each block, see `search.first_pass`; row 0 holds their centre | with the block |
| outdated | items in blocks whose vectors have changed since | with the item's row |
| former_vectors | vectors of former wordings, so that undo needs no encoder | appended; compacted |
| scopes | scope names, integer ids, and each scope's count, words and content hash | with the item's row |
| decisions | what searches considered, showed, with what probability, and what they knew | appended; retention is configurable |
| episodes | when an episode ran, in which scope, for which person, on what task | appended |
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from keepworth.memory.store.connection import AnyConnection, scalar
from keepworth.memory.store.fts5 import WORDS
from keepworth.memory.store.full_text import CURRENT
from keepworth.memory.store.rows import VECTORS
from keepworth.records.model import EncoderIdentity

APPLICATION_ID = 0x7265636C  # "recl"
VERSION = 10
CODED_VERSION = 13
"""The format of a file that has the table `codes`, which the first codes make that are written for a large memory, and blocks
without vectors: an earlier version, which would not keep them in step, refuses it."""
READ_VERSIONS = (VERSION, 12, CODED_VERSION)
"""The formats of files that are read. In format 12 blocks with codes have vectors too. There was no format 11."""
SERVER_VERSION = 7
"""The format of a memory on a server, which has none of the tables that later versions added to files."""

PAGE = 8192
"""Bytes of a page: five vectors of 384 numbers fit in one, while of the usual 4096 two fit and a quarter is left over."""
CLOSED = "NOT deleted AND (content IS NULL OR status <> 'active')"
"""SQL condition for an item that is neither current nor deleted; an index holds just these."""

CREATED = 2
"""Value of `events.applied` where the event created the item that has its number; it is 0 for no-ops, else 1."""

OF_KIND = "kind IN ('ROLLBACK', 'PURGE', 'PARAMETERS', 'REWARD')"
"""SQL condition of an index of events, which is used only by queries that have this condition word for word."""

TABLES = (
    files(__package__).joinpath("tables.sql").read_text("utf-8").format(CLOSED=CLOSED, CREATED=CREATED, OF_KIND=OF_KIND)
)

WHEN = "CASE WHEN event_time = '' THEN written_at ELSE event_time END"
"""SQL for the time of an item in filters: that of its event, else that of writing."""
FILTERED = f"CREATE INDEX items_current ON items(scope, metadata, kind, {WHEN}) WHERE {CURRENT};"
"""An index that only files have: what a process reads of all current items for its first search by meaning or with a filter."""
BY_CURRENT = f"INDEXED BY items_current WHERE {CURRENT}"
"""SQL that reads current items from this index, which SQLite would not choose by itself."""
BLOCKS = """
CREATE TABLE blocks(last INTEGER PRIMARY KEY, first INTEGER NOT NULL, size INTEGER NOT NULL, sum INTEGER NOT NULL,
  body BLOB NOT NULL);
CREATE TABLE outdated(n INTEGER PRIMARY KEY);
"""
"""Tables that only files have: see `blocks`."""
CODES = """
CREATE TABLE IF NOT EXISTS codes(last INTEGER PRIMARY KEY, block INTEGER NOT NULL, sum INTEGER NOT NULL, body BLOB NOT NULL);
"""
"""Another, that only files of large memories have: `block` is the checksum of the block whose vectors the codes are of."""


def create(connection: AnyConnection, store_id: str) -> None:
    """Create the tables of an empty file. The caller holds a write transaction."""
    connection.execute(TABLES + WORDS + FILTERED + BLOCKS)
    connection.execute("INSERT INTO facts_of_file VALUES('store', ?)", (store_id,))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def with_codes(connection: AnyConnection) -> bool:
    """Return whether a file has the table of codes."""
    return scalar(connection, "SELECT 1 FROM sqlite_schema WHERE name = 'codes'") is not None


def add_codes(connection: AnyConnection) -> None:
    """Add the table of codes to a file that lacks it, and make its format the one that has codes."""
    if scalar(connection, "PRAGMA user_version") != CODED_VERSION or not with_codes(connection):
        connection.execute(f"{CODES}PRAGMA user_version = {CODED_VERSION}")


def begin_vectors(connection: AnyConnection, identity: EncoderIdentity, state: str, made: str) -> int:
    """Add an empty set of vectors of an encoder, with its table, and return its id.

    Args:
        connection: A connection to the memory.
        identity: The encoder.
        state: "filling" while its vectors are being made, see the table.
        made: When it was made, as ISO 8601; "" if it is being filled.
    """
    id: int = scalar(
        connection,
        "INSERT INTO vector_sets(model, dimension, normalised, state, made) VALUES(?,?,?,?,?) RETURNING id",
        (identity.model, identity.dimension, int(identity.normalised), state, made),
    )
    columns = "n INTEGER PRIMARY KEY, hash INTEGER NOT NULL, vector BLOB NOT NULL"
    table = f"CREATE TABLE IF NOT EXISTS {VECTORS.format(id)}({columns})"
    connection.execute(in_types(table, connection.types))
    return id


def in_types(layout: str, types: Mapping[str, str]) -> str:
    """Return a table definition for another database: see `connection.AnyConnection.types`."""
    for word, instead in types.items():
        layout = layout.replace(word, instead)
    return layout
