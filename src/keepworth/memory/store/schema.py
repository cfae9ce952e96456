"""The tables of a memory file, their version, and the steps that bring an older file up to date.

| table | holds | changed how |
| --- | --- | --- |
| events | the journal, in order: operations, rewards, rollbacks, parameters; and its chain | appended; a purge erases payloads |
| touches | the items an event touched, as they were before, but for one it created | appended; a purge erases images |
| changes | a view: the touches, and what was created (an item has the number of its event) | |
| former_contents | duplicates' numbers that an item no longer has, so that undo finds who asked | appended; purged |
| items | the view: the latest state of each item | rewritten by events |
| words, past_words | full-text index of terms of current items; of closed or held back ones | with the row, up to the newest |
| languages | those of which there are stems in the full-text index | with it |
| indexed | up to which row number the full-text index goes; the few rows beyond are read as they are | with the index |
| vector_sets | which encoder made which vectors; `made` changes when they do without a journal entry | by `reembed` |
| vectors_<set> | one vector per item and encoder | with the item's row |
| blocks | copies of the vectors of ranges of items, for opening: see `blocks` | with what they copy |
| outdated | items that blocks are wrong about | with the item's row |
| former_vectors | vectors of former wordings, so that undo needs no encoder | appended; compacted |
| scopes | scope names, integer ids, and each scope's count, words and content hash | with the item's row |
| decisions | what searches considered, showed, with what probability, and what they knew | appended; retention is configurable |
| episodes | when an episode ran, in which scope, for which person, on what task | appended |
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

from keepworth.memory.errors import OlderFile
from keepworth.memory.search.chunks import LONG
from keepworth.memory.store.connection import AnyConnection
from keepworth.memory.store.full_text import CURRENT, FULL_TEXT, SEGMENTS
from keepworth.memory.store.migration import learning_in_columns, number_by_scope, stemmed
from keepworth.memory.store.rows import DIGEST, VECTORS

_LOG = logging.getLogger("keepworth.memory")
PARTS_SINCE = 6
"""The format from which on long texts have vectors of their parts."""
ONE_FILE_SINCE = 8
"""The format from which on no copies of the vectors lie in files beside the memory."""
APPLICATION_ID = 0x7265636C  # "recl"
VERSION = 10
SERVER_VERSION = 7
"""Of a memory on a server, which does without what came since."""

PAGE = 8192
"""Bytes of a page: five vectors of 384 numbers fit in one, where two fit in the usual 4096 with a quarter left over."""
CLOSED = "NOT deleted AND (content IS NULL OR status <> 'active')"
"""The condition under which an item is neither current nor deleted; an index holds just these."""

CREATED = 2
"""What `events.applied` is where the event created the item that has its number: 0 for no-ops, 1 for everything else."""

# An item that was created needs neither a row in `touches` nor its duplicates' number twice: writing one item is what memories
# do most, and every tree of the file that it need not touch makes it cheaper.
ASKED = f"CREATE INDEX events_by_content ON events(content) WHERE content IS NOT NULL AND applied <> {CREATED};"
CREATIONS = f"""CREATE VIEW changes AS SELECT seq, n, changed, before FROM touches
  UNION ALL SELECT seq, seq, 1, NULL FROM events WHERE applied = {CREATED};
CREATE TABLE former_contents(content INTEGER NOT NULL, n INTEGER NOT NULL, PRIMARY KEY(content, n)) WITHOUT ROWID;
CREATE TABLE indexed(through INTEGER NOT NULL);
INSERT INTO indexed SELECT coalesce(max(seq), 0) FROM events;"""

OF_KIND = "kind IN ('ROLLBACK', 'PURGE', 'PARAMETERS', 'REWARD')"
"""What an index of events holds. A query finds it by these very words."""
KINDS = f"CREATE INDEX events_by_kind ON events(kind) WHERE {OF_KIND};"

# The full-text tables keep positions (detail=full): without the text, ranking is not possible from less.
TABLES = f"""
CREATE TABLE facts_of_file(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE names(id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, part TEXT NOT NULL, name TEXT NOT NULL,
  UNIQUE(tenant, part, name));
CREATE TABLE scopes(id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, user TEXT NOT NULL, agent TEXT NOT NULL,
  session TEXT NOT NULL, tokens TEXT NOT NULL, count INTEGER NOT NULL DEFAULT 0, words INTEGER NOT NULL DEFAULT 0,
  total BLOB NOT NULL, UNIQUE(tenant, user, agent, session));
CREATE TABLE items(n INTEGER PRIMARY KEY, scope INTEGER NOT NULL REFERENCES scopes(id), kind TEXT NOT NULL,
  text TEXT NOT NULL, key TEXT NOT NULL, event_time TEXT NOT NULL, written_at TEXT NOT NULL, valid_from TEXT NOT NULL,
  valid_to TEXT NOT NULL, ended_at TEXT NOT NULL, expires_at TEXT NOT NULL, superseded_by TEXT NOT NULL,
  links TEXT NOT NULL, source TEXT NOT NULL, source_session TEXT NOT NULL, turn INTEGER NOT NULL, speaker TEXT NOT NULL,
  date TEXT NOT NULL, trust REAL NOT NULL, status TEXT NOT NULL, deleted INTEGER NOT NULL, revision INTEGER NOT NULL,
  shown INTEGER NOT NULL, credited INTEGER NOT NULL, total REAL NOT NULL, total_squared REAL NOT NULL,
  propensity_total REAL NOT NULL, metadata TEXT NOT NULL, content INTEGER);
CREATE INDEX items_by_content ON items(content) WHERE content IS NOT NULL;
CREATE INDEX items_by_scope ON items(scope);
CREATE INDEX items_closed ON items(n) WHERE {CLOSED};
CREATE TABLE events(seq INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, scope INTEGER NOT NULL,
  episode TEXT NOT NULL, source TEXT NOT NULL, payload TEXT, applied INTEGER NOT NULL, reason TEXT NOT NULL,
  content INTEGER, body BLOB, chain BLOB);
{ASKED}
CREATE INDEX events_by_episode ON events(episode) WHERE episode <> '';
{KINDS}
CREATE TABLE touches(seq INTEGER NOT NULL, n INTEGER NOT NULL, changed INTEGER NOT NULL, before TEXT,
  PRIMARY KEY(seq, n)) WITHOUT ROWID;
CREATE INDEX changes_by_item ON touches(n, seq);
{CREATIONS}
CREATE TABLE tombstones(n INTEGER PRIMARY KEY, scope INTEGER NOT NULL, seq INTEGER NOT NULL);
CREATE TABLE vector_sets(id INTEGER PRIMARY KEY, model TEXT NOT NULL, dimension INTEGER NOT NULL,
  normalised INTEGER NOT NULL, state TEXT NOT NULL, made TEXT NOT NULL DEFAULT '');
CREATE TABLE former_vectors(set_id INTEGER NOT NULL, n INTEGER NOT NULL, hash INTEGER NOT NULL, vector BLOB NOT NULL,
  PRIMARY KEY(set_id, n, hash));
CREATE TABLE episodes(id TEXT PRIMARY KEY, scope INTEGER NOT NULL, task TEXT NOT NULL, began TEXT NOT NULL,
  ended TEXT NOT NULL DEFAULT '', outcome TEXT NOT NULL DEFAULT '', person TEXT NOT NULL DEFAULT '');
CREATE TABLE decisions(n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, at TEXT NOT NULL, scope INTEGER NOT NULL,
  episode TEXT NOT NULL,
  step INTEGER NOT NULL, kind TEXT NOT NULL, query TEXT NOT NULL, candidates TEXT NOT NULL, chosen TEXT NOT NULL,
  propensity REAL NOT NULL, policy TEXT NOT NULL, details TEXT NOT NULL DEFAULT '', vector BLOB);
CREATE INDEX decisions_by_episode ON decisions(episode) WHERE episode <> '';
CREATE VIRTUAL TABLE words USING fts5({FULL_TEXT});
CREATE VIRTUAL TABLE past_words USING fts5({FULL_TEXT});
CREATE VIRTUAL TABLE word_counts USING fts5vocab(words, 'row');
CREATE TABLE languages(name TEXT PRIMARY KEY) WITHOUT ROWID;
INSERT INTO words(words, rank) VALUES('automerge', {SEGMENTS});
INSERT INTO past_words(past_words, rank) VALUES('automerge', {SEGMENTS});
"""

WHEN = "CASE WHEN event_time = '' THEN written_at ELSE event_time END"
"""SQL for when an item was, as filters ask for it."""
FILTERED = f"CREATE INDEX items_current ON items(scope, metadata, kind, {WHEN}) WHERE {CURRENT};"
"""Of a file alone: what a process reads of all current items when it first searches by meaning or with a filter."""
BY_CURRENT = f"INDEXED BY items_current WHERE {CURRENT}"
"""SQL that reads current items from it, which SQLite would not choose by itself."""
BLOCKS = """
CREATE TABLE blocks(last INTEGER PRIMARY KEY, first INTEGER NOT NULL, size INTEGER NOT NULL, sum INTEGER NOT NULL,
  body BLOB NOT NULL);
CREATE TABLE outdated(n INTEGER PRIMARY KEY);
"""
"""Of a file alone, too: see `blocks`."""

MIGRATIONS: dict[int, str | Callable[[AnyConnection], None]] = {
    1: number_by_scope,
    2: f"DROP INDEX events_by_content; {ASKED} ALTER TABLE changes RENAME TO touches; {CREATIONS}",
    # The chain begins with the newest entry there is, at a value that no other file has.
    3: "ALTER TABLE events ADD COLUMN chain BLOB; ALTER TABLE vector_sets ADD COLUMN made TEXT NOT NULL DEFAULT '';"
    f"UPDATE events SET chain = randomblob({DIGEST}) WHERE seq = (SELECT max(seq) FROM events)",
    4: learning_in_columns,
    5: stemmed,
    6: "",  # decisions are written packed from here on; those of before are read as they are
    7: "",
    8: FILTERED,
    9: f"DROP TABLE IF EXISTS blocks; DROP TABLE IF EXISTS outdated; {BLOCKS}",  # the first search by meaning fills them
}
"""Statements, or functions, that turn version v into v + 1, by v. A published version is never edited, only followed."""


def create(connection: AnyConnection, store_id: str) -> None:
    """Lay out an empty file. The caller holds a write transaction."""
    connection.execute(TABLES + FILTERED + BLOCKS)
    connection.execute("INSERT INTO facts_of_file VALUES('store', ?)", (store_id,))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def migrate(connection: AnyConnection, old: int, path: str) -> None:
    """Bring the file at `path`, of version `old`, to VERSION. The caller holds a write transaction: all steps or none.
    Raises OlderFile."""
    import apsw

    for version in range(old, VERSION):
        if version not in MIGRATIONS:
            raise OlderFile(
                f"{path} has format {old} and no step leads from {version} to {version + 1}: "
                "open it with the version of keepworth that wrote it and export it from there"
            )
        try:
            step = MIGRATIONS[version]
            if isinstance(step, str):
                connection.execute(step)
            else:
                step(connection)
        except (apsw.SQLError, apsw.ConstraintError) as error:
            raise OlderFile(
                f"{path} has format {old} and could not be brought from {version} to {version + 1} ({error}): nothing was "
                "changed; open it with the version of keepworth that wrote it and export it from there"
            ) from error
        connection.execute(f"PRAGMA user_version = {version + 1}")
    if old < ONE_FILE_SINCE:
        remove_earlier(path)
    if old < PARTS_SINCE:
        ((long,),) = connection.execute(
            "SELECT count(*) FROM items WHERE length(coalesce(nullif(key, ''), text)) > ?", (LONG,)
        )
        if long:
            _LOG.warning(
                "%s has %s long texts, of which only the beginning is found by meaning: `keepworth memory reembed ENCODER --file "
                "%s`, with the encoder that it has, makes the vectors of their parts",
                path,
                f"{long:,}",
                path,
            )


def remove_earlier(path: str) -> None:
    """Remove copies of the vectors that earlier formats kept beside a memory."""
    place = Path(os.path.realpath(path))
    for suffix in (".vectors", ".int8", ".pq"):
        with contextlib.suppress(OSError):
            beside = place.with_name(place.name + suffix)
            with open(beside, "rb") as file:
                ours = file.read(20).startswith((b"keepworth vectors ", b"keepworth index "))
            if ours:
                beside.unlink()


def create_vectors(connection: AnyConnection, set_id: int) -> None:
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {VECTORS.format(set_id)}"
        "(n INTEGER PRIMARY KEY, hash INTEGER NOT NULL, vector BLOB NOT NULL)"
    )
