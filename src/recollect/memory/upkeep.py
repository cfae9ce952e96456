"""Looking after a memory file: figures, checks, compaction, backup, new vectors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.episodes.encoder import Encoder
from recollect.memory import rows, schema, undo, words
from recollect.memory.database import first, scalar, select
from recollect.memory.embedding import Embedder
from recollect.memory.errors import MemoryProblem, StorageFailed, StorageFull
from recollect.memory.item import Item, content_digest
from recollect.memory.schema import vector_table
from recollect.memory.scope import Scope
from recollect.memory.shelf import HASH_MODULUS
from recollect.memory.sidecar import remove_sidecar, write_sidecar

if TYPE_CHECKING:
    import apsw

    from recollect.memory.store import Store

_SEARCHED = "coalesce(nullif(i.key, ''), i.text)"
SIDECAR_FROM = 20_000
"""Rows from which a mapped file opens noticeably faster than reading the vectors from the store."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of a whole file. unembedded: current items that only a search by words can find."""

    path: str
    current: int
    closed: int
    deleted: int
    unembedded: int
    journal: int
    decisions: int
    episodes: int
    rewards: int
    scopes: int
    erased: int
    encoder: str
    dimension: int
    bytes_on_disk: int
    format: int


def statistics(store: Store) -> Statistics:
    with store.database.reading() as connection:
        current, closed, deleted = first(
            connection,
            "SELECT sum(content IS NOT NULL AND status = 'active'), "
            "sum(NOT deleted AND NOT (content IS NOT NULL AND status = 'active')), sum(deleted) FROM items",
        )
        served = first(connection, "SELECT id, model, dimension FROM vector_sets WHERE state = 'serving'")
        unembedded = current or 0
        if served is not None:
            unembedded -= scalar(
                connection,
                f"SELECT count(*) FROM {vector_table(served[0])} JOIN items USING(n) "
                "WHERE content IS NOT NULL AND status = 'active'",
            )

        def count(table: str, where: str = "1") -> int:
            return int(scalar(connection, f"SELECT count(*) FROM {table} WHERE {where}"))

        return Statistics(
            path=store.database.path,
            current=current or 0,
            closed=closed or 0,
            deleted=deleted or 0,
            unembedded=unembedded,
            journal=count("events"),
            decisions=count("decisions"),
            episodes=count("episodes"),
            rewards=count("events", "kind = 'REWARD'"),
            scopes=count("scopes"),
            erased=count("tombstones"),
            encoder=served[1] if served is not None else "",
            dimension=served[2] if served is not None else 0,
            bytes_on_disk=_bytes(store.database.path),
            format=schema.VERSION,
        )


def check(store: Store, *, deep: bool = True) -> list[str]:
    """Everything wrong with the file, in words; [] when it is sound. deep: also replay the journal and compare with the view."""
    problems: list[str] = []
    with store.database.reading() as connection:
        problems.extend(
            f"SQLite: {line}" for (line,) in select(connection, "PRAGMA integrity_check(20)") if line != "ok"
        )
        for table in ("words", "past_words"):
            problems.extend(_full_text_problems(connection, table))
        items = dict(_all_items(store, connection)) if not problems else {}
        sums: dict[Scope, list[int]] = {}
        for item in items.values():
            mine = sums.setdefault(item.scope, [0, 0])
            mine[0] = (mine[0] + content_digest(item)) % HASH_MODULUS
            mine[1] += item.current
        for id, total, count in select(connection, "SELECT id, total, count FROM scopes"):
            scope = store.scope_named(connection, id)
            expected = sums.get(scope, [0, 0])
            if [int.from_bytes(total, "little"), count] != expected and not problems:
                problems.append(f"scope {scope}: its sums do not match its {expected[1]} current items")
        if deep and not problems:
            cancelled = undo.active_ranges(undo.rollbacks_in(connection))
            erased = {f"m{n}" for (n,) in select(connection, "SELECT n FROM tombstones")}
            listed = [entry for entry in store.entries() if not undo.within(entry.seq, cancelled)]
            replayed = undo.replay(listed)[0].items
            known = sorted(set(items) | (set(replayed) - erased))
            differing = [id for id in known if items.get(id) != replayed.get(id)]
            problems.extend(f"item {id}: the journal does not lead to what the view holds" for id in differing)
    return problems


def compact(store: Store, *, keep_decisions: int | None = None) -> tuple[int, int]:
    """Give space back without changing what the memory says; returns bytes before and after.

    Merges the full-text index, drops vectors that no undo needs, packs the file, and lays the vectors out for mapping.
    keep_decisions: drop the candidate lists of all but that many decisions.
    """
    before = _bytes(store.database.path)

    def work(connection: apsw.Connection) -> None:
        since, through = first(connection, "SELECT through, (SELECT max(seq) FROM events) FROM indexed")
        if through is not None:
            words.index_through(connection, since, through)
        for table in ("words", "past_words"):
            connection.execute(f"INSERT INTO {table}({table}) VALUES('optimize')")
        connection.execute("DELETE FROM former_vectors WHERE set_id NOT IN (SELECT id FROM vector_sets)")
        if keep_decisions is not None:
            connection.execute(
                "UPDATE decisions SET candidates = '[]' WHERE n <= (SELECT max(n) FROM decisions) - ?",
                (keep_decisions,),
            )

    store.database.write(work)
    store.database.exclusive(lambda connection: connection.execute("VACUUM; PRAGMA optimize"))
    store.database.truncate_log()
    lay_out(store)
    return before, _bytes(store.database.path)


def lay_out(store: Store, *, least: int = SIDECAR_FROM) -> Path | None:
    """Write the file that makes opening a large memory instant; None where it would not pay."""
    if store.database.in_memory or store.set_id is None:
        return None
    index, head = store.dense_index(packed=True)
    if len(index) < least:
        remove_sidecar(Path(store.database.path))
        return None
    try:
        return write_sidecar(Path(store.database.path), store.store_id(), store.set_id, head, index)
    except OSError as error:
        raise StorageFailed(
            f"the vectors of {store.database.path} could not be laid out beside it ({error.strerror}): free some space; "
            "the memory itself is sound and opens without them"
        ) from error


def backup(store: Store, target: str | os.PathLike[str]) -> Path:
    """Copy a memory in use to a new file; readers and writers go on meanwhile."""
    import apsw

    path = Path(target)
    if path.exists():
        raise MemoryProblem(f"{path} exists: a backup never overwrites; give another path")
    if not path.parent.is_dir():
        raise MemoryProblem(f"{path.parent} is no folder: make it, or give another path for the backup")
    try:
        with store.database.translated():
            copy = apsw.Connection(str(path))
            try:
                with store.database.reading() as connection, copy.backup("main", connection, "main") as job:
                    while not job.done:
                        job.step(2000)
                copy.pragma("journal_mode", "delete")
            finally:
                copy.close(True)
    except BaseException as error:
        path.unlink(missing_ok=True)  # half a copy looks like a whole one
        if isinstance(error, (StorageFull, StorageFailed)):
            raise type(error)(f"the backup {path} could not be written: free some space there ({error})") from error
        raise
    return path


def reembed(store: Store, encoder: Encoder, *, batch: int = 256) -> Iterator[tuple[int, int]]:
    """Make every vector anew with `encoder`; yields (done, all). The old set serves until the end; if interrupted, call again
    with the same encoder and it goes on where it stopped. Open the memory with the new encoder afterwards."""
    identity = encoder.identity
    embedder = Embedder(encoder, cached=0)

    def begin(connection: apsw.Connection) -> int:
        known = first(
            connection,
            "SELECT id FROM vector_sets WHERE model=? AND dimension=? AND normalised=? AND state <> 'former'",
            (identity.model, identity.dimension, int(identity.normalised)),
        )
        if known is not None:
            return int(known[0])
        connection.execute(
            "INSERT INTO vector_sets(model, dimension, normalised, state) VALUES(?,?,?,'filling')",
            (identity.model, identity.dimension, int(identity.normalised)),
        )
        id = connection.last_insert_rowid()
        schema.create_vectors(connection, id)
        return id

    set_id = store.database.write(begin)
    table = vector_table(set_id)
    missing = f"SELECT i.n, {_SEARCHED} FROM items i LEFT JOIN {table} v USING(n) WHERE v.n IS NULL AND i.n > ?"
    with store.database.reading() as connection:
        everything = scalar(connection, "SELECT count(*) FROM items")
        done = scalar(connection, f"SELECT count(*) FROM {table}")
    yield done, everything
    last = 0
    while True:
        with store.database.reading() as connection:
            todo = select(connection, f"{missing} ORDER BY i.n LIMIT ?", (last, batch))
        if not todo:
            break
        vectors = embedder([text for _, text in todo])
        entries = [
            (n, rows.text_number(text), vector.tobytes(), n, text)
            for (n, text), vector in zip(todo, vectors, strict=True)
        ]
        # A row that was reworded meanwhile is skipped here and found again at the end.
        store.database.write(
            lambda connection, entries=entries: connection.executemany(  # type: ignore[misc]
                f"INSERT OR REPLACE INTO {table} SELECT ?, ?, ? WHERE EXISTS "
                "(SELECT 1 FROM items WHERE n = ? AND coalesce(nullif(key, ''), text) = ?)",
                entries,
            )
        )
        last = todo[-1][0]
        done += len(todo)
        yield done, everything

    def switch(connection: apsw.Connection) -> None:
        stale = select(connection, f"SELECT v.n, v.hash, {_SEARCHED} FROM {table} v JOIN items i USING(n)")
        changed = [n for n, number, text in stale if rows.text_number(text) != number]
        connection.executemany(f"DELETE FROM {table} WHERE n = ?", [(n,) for n in changed])
        late = select(connection, missing, (0,))
        for (n, text), vector in zip(late, embedder([text for _, text in late]), strict=True):
            connection.execute(f"INSERT INTO {table} VALUES(?,?,?)", (n, rows.text_number(text), vector.tobytes()))
        for (old,) in select(connection, "SELECT id FROM vector_sets WHERE state = 'serving' AND id <> ?", (set_id,)):
            connection.execute(f"DROP TABLE {vector_table(old)}")
            connection.execute("DELETE FROM former_vectors WHERE set_id = ?", (old,))
            connection.execute("DELETE FROM vector_sets WHERE id = ?", (old,))
        connection.execute("UPDATE vector_sets SET state = 'serving' WHERE id = ?", (set_id,))

    store.database.write(switch)
    store.serve(set_id, Embedder(encoder))
    if not store.database.in_memory:
        remove_sidecar(Path(store.database.path))
    yield everything, everything


def _all_items(store: Store, connection: apsw.Connection) -> Iterator[tuple[str, Item]]:
    for row in connection.execute(f"{rows.SELECT} ORDER BY n"):
        item = rows.to_item(row, store.scope_named(connection, row[1]))
        yield item.id, item


def _full_text_problems(connection: apsw.Connection, table: str) -> Iterator[str]:
    where = (
        "content IS NOT NULL AND status = 'active'"
        if table == "words"
        else "NOT deleted AND NOT (content IS NOT NULL AND status = 'active')"
    )
    where = f"({where}) AND n <= (SELECT through FROM indexed)"
    missing = scalar(connection, f"SELECT count(*) FROM items WHERE {where} AND n NOT IN (SELECT rowid FROM {table})")
    extra = scalar(connection, f"SELECT count(*) FROM {table} WHERE rowid NOT IN (SELECT n FROM items WHERE {where})")
    if missing:
        yield f"{missing} items are missing in the full-text index {table}"
    if extra:
        yield f"{extra} rows of the full-text index {table} belong to no item"


def _bytes(path: str) -> int:
    return sum(file.stat().st_size for suffix in ("", "-wal", ".vectors") if (file := Path(path + suffix)).is_file())
