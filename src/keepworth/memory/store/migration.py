"""Steps between formats of the file that SQL alone cannot take."""

from __future__ import annotations

import hashlib
import json

from keepworth.memory.item import DATED, Item, Scope, folded, from_record
from keepworth.memory.search.terms import term_count
from keepworth.memory.store import rows
from keepworth.memory.store.connection import AnyConnection
from keepworth.memory.store.full_text import CURRENT, FULL_TEXT, SEGMENTS, index_through


def number_by_scope(connection: AnyConnection) -> None:
    """Format 1 to 2: the numbers by which duplicates are found begin with the scope, so that what one user writes lies
    together in the index. The caller holds a write transaction."""
    scopes = {
        id: Scope(*parts) for id, *parts in connection.execute("SELECT id, tenant, user, agent, session FROM scopes")
    }
    # Whatever an entry of the journal looked for was an item once: it is there still, or an image of it.
    numbers: dict[int, int] = {}
    open_items = []
    for row in connection.execute(rows.SELECT):
        item = rows.to_item(row, scopes[row[1]])
        number = numbers[_plain_number(item)] = rows.content_number(item)
        if item.open:
            open_items.append((number, row[0]))
    for (before,) in connection.execute("SELECT before FROM changes WHERE before IS NOT NULL"):
        item = from_record(json.loads(before))
        numbers[_plain_number(item)] = rows.content_number(item)
    asked: list[tuple[int, int]] = []
    for content, seq in connection.execute("SELECT content, seq FROM events WHERE content IS NOT NULL"):
        asked.append((int(content), int(seq)))
    connection.executemany("UPDATE items SET content = ? WHERE n = ?", open_items)
    connection.executemany(
        "UPDATE events SET content = ? WHERE seq = ?",
        [(numbers[content], seq) for content, seq in asked if content in numbers],
    )


def learning_in_columns(connection: AnyConnection) -> None:
    """Format 4 to 5: what a memory that learns notes of its choices stands beside them. The caller holds a write transaction."""
    connection.execute(
        "ALTER TABLE decisions ADD COLUMN details TEXT NOT NULL DEFAULT '';"
        "ALTER TABLE decisions ADD COLUMN vector BLOB;"
        "ALTER TABLE episodes ADD COLUMN person TEXT NOT NULL DEFAULT '';"
        "DROP INDEX IF EXISTS events_by_kind;"
        "CREATE INDEX events_by_kind ON events(kind) WHERE kind IN ('ROLLBACK', 'PURGE', 'PARAMETERS', 'REWARD')"
    )
    fill_from_notes(connection)


def fill_from_notes(connection: AnyConnection) -> None:
    """Until format 4 each choice was noted in the journal, after the row of its decision; and for whom an episode was."""
    places: dict[str, int] = {}
    query = "SELECT episode, payload FROM events WHERE kind = 'PARAMETERS' AND payload IS NOT NULL ORDER BY seq"
    for episode, payload in list(connection.execute(query)):
        body = json.loads(payload)
        if not isinstance(body, dict) or body.get("name") != "experience":
            continue
        if body.get("what") == "episode" and body.get("by"):
            connection.execute("UPDATE episodes SET person = ? WHERE id = ?", (body["by"], episode))
        if body.get("what") == "decision":
            place = places[episode] = places.get(episode, -1) + 1
            details = {name: value for name, value in body.items() if name not in _IN_COLUMNS}
            connection.execute(
                "UPDATE decisions SET details = ? WHERE n = "
                "(SELECT n FROM decisions WHERE episode = ? ORDER BY n LIMIT 1 OFFSET ?) AND candidates <> '[]'",
                (json.dumps(details, ensure_ascii=False, separators=(",", ":")), episode, place),
            )


_IN_COLUMNS = ("name", "what", "ids", "propensity", "policy")


def _plain_number(item: Item) -> int:
    """As format 1 had it: 64 bits over everything that makes a duplicate."""
    time = item.event_time if item.kind in DATED else ""
    parts = (*item.scope.parts(), item.kind.value, time, folded(item.key), folded(item.text))
    digest = hashlib.blake2b("\x00".join(parts).encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


def stemmed(connection: AnyConnection) -> None:
    """Format 5 to 6: the full-text index holds terms (`keepworth.memory.search.terms`) where it held words. The caller holds a
    write transaction."""
    ((through,),) = connection.execute("SELECT through FROM indexed")
    connection.execute(
        "DROP TABLE word_counts; CREATE TABLE IF NOT EXISTS languages(name TEXT PRIMARY KEY) WITHOUT ROWID"
    )
    for table in ("words", "past_words"):
        connection.execute(
            f"DROP TABLE {table}; CREATE VIRTUAL TABLE {table} USING fts5({FULL_TEXT});"
            f"INSERT INTO {table}({table}, rank) VALUES('automerge', {SEGMENTS})"
        )
    connection.execute("CREATE VIRTUAL TABLE word_counts USING fts5vocab(words, 'row')")
    index_through(connection, -1, through)
    count: dict[int, int] = {}
    text = "CASE WHEN key = '' THEN text ELSE key || char(10) || text END"
    for scope, said in connection.execute(f"SELECT scope, {text} FROM items WHERE {CURRENT}"):
        count[scope] = count.get(scope, 0) + term_count(said)
    connection.executemany("UPDATE scopes SET words = ? WHERE id = ?", [(words, id) for id, words in count.items()])
