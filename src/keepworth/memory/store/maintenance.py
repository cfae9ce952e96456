"""Maintenance of a memory: statistics, compaction, backup, and new vectors."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from keepworth.base.durable_files import appearing
from keepworth.memory.errors import MemoryProblem, StorageFailed, StorageFull
from keepworth.memory.search.index import Embedder
from keepworth.memory.store import blocks, rows, schema
from keepworth.memory.store.checks import check as check
from keepworth.memory.store.checks import first_pass_recall as first_pass_recall
from keepworth.memory.store.checks import without_vector
from keepworth.memory.store.connection import AnyConnection, first, scalar, select
from keepworth.memory.store.decision_log import shorten
from keepworth.memory.store.fts5 import make_anew
from keepworth.memory.store.full_text import CURRENT, index_rows
from keepworth.memory.store.purge import finish
from keepworth.memory.store.rows import SEARCHED, VECTORS
from keepworth.records.model import Encoder

if TYPE_CHECKING:
    from keepworth.memory.store.store import Store


@dataclass(frozen=True, slots=True)
class Statistics:
    """Figures of a whole memory. `unembedded` counts the current items that have no vector: only searches by words find them."""

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
            f"SELECT count(*) FILTER (WHERE {CURRENT}), count(*) FILTER (WHERE NOT deleted AND NOT ({CURRENT})), "
            "count(*) FILTER (WHERE deleted) FROM items",
        )
        served = first(connection, "SELECT model, dimension FROM vector_sets WHERE state = 'serving'")

        def count(table: str, where: str = "true") -> int:
            return int(scalar(connection, f"SELECT count(*) FROM {table} WHERE {where}"))

        return Statistics(
            path=store.database.path,
            current=current,
            closed=closed,
            deleted=deleted,
            unembedded=current if served is None else len(without_vector(connection)[1]),
            journal=count("events"),
            decisions=count("decisions"),
            episodes=count("episodes"),
            rewards=count("events", "kind = 'REWARD'"),
            scopes=count("scopes"),
            erased=count("tombstones", "n IN (SELECT n FROM touches)"),
            encoder=served[0] if served is not None else "",
            dimension=served[1] if served is not None else 0,
            bytes_on_disk=store.database.size(),
            format=scalar(connection, "PRAGMA user_version") if connection.in_file else schema.VERSION,
        )


def compact(store: Store, *, keep_decisions: int | None = None) -> tuple[int, int]:
    """Free space without changing what the memory says, and return its size in bytes before and after.

    Make the vectors that current items lack, if the store has an encoder, and a file's full-text index anew; drop vectors that no
    undo needs, rewrite blocks with outdated items, and pack it. With `keep_decisions`, also drop the candidates of all but the
    newest so many decisions."""
    before = store.database.size()

    def work(connection: AnyConnection) -> None:
        if connection.in_file:
            make_anew(connection)
        else:
            last = "SELECT through, (SELECT coalesce(max(seq), 0) FROM events) FROM indexed"
            index_rows(connection, *first(connection, last))
            connection.full_text.tidy(connection)
        blocks.write_again(connection, blocks.strays(connection))
        connection.execute("DELETE FROM former_vectors WHERE set_id NOT IN (SELECT id FROM vector_sets)")
        if keep_decisions is not None:
            shorten(connection, (scalar(connection, "SELECT max(n) FROM decisions") or 0) - keep_decisions)

    with store.database.sparing():
        if store.embedder is not None and store.database.write(lambda connection: without_vector(connection)[1]):
            for _ in reembed(store, store.embedder.encoder):
                pass
        store.database.write(work)
        store.derived.write_all_codes()
        store.database.pack(optimise=True)
        finish(store)
    return before, store.database.size()


def backup(store: Store, target: str | os.PathLike[str]) -> Path:
    """Copy a memory that is in use to a new file and return the file's path. The file appears only when it is complete and on
    disk. Raises MemoryProblem if `target` exists."""
    path = Path(target)
    if os.path.lexists(path):
        raise MemoryProblem(f"{path} exists: a backup never overwrites; give another path")
    if not path.parent.is_dir():
        raise MemoryProblem(f"{path.parent} is no folder: make it, or give another path for the backup")
    try:
        with store.database.translated(), appearing(path) as part:
            store.database.copy(part)
    except FileExistsError as error:
        raise MemoryProblem(f"{path} exists by now: a backup never overwrites; give another path") from error
    except OSError as error:
        raise StorageFailed(
            f"the backup {path} could not be written ({error.strerror}): look at its folder and the space there"
        ) from error
    except (StorageFull, StorageFailed) as error:
        raise type(error)(f"the backup {path} could not be written: free some space there ({error})") from error
    return path


def reembed(store: Store, encoder: Encoder, *, batch: int = 256) -> Iterator[tuple[int, int]]:
    """Make new vectors of all items, or, with the encoder in use, those that are missing; yield (done, all).

    The old vectors are used until all new ones are there. After an interruption, a call with the same encoder
    continues. Open the memory with the new encoder afterwards.

    Args:
        store: The memory.
        encoder: It makes the vectors from now on.
        batch: How many texts it gets at once.
    """
    identity = encoder.identity
    embedder = Embedder(encoder, cached=0)

    def begin(connection: AnyConnection) -> int:
        begun = first(
            connection,
            "SELECT id FROM vector_sets WHERE model=? AND dimension=? AND normalised=? AND state <> 'former'",
            (identity.model, identity.dimension, int(identity.normalised)),
        )
        return schema.begin_vectors(connection, identity, "filling", "") if begun is None else int(begun[0])

    set_id = store.database.write(begin)
    table = VECTORS.format(set_id)
    missing = (
        f"SELECT i.n, {SEARCHED} FROM items i LEFT JOIN {table} v USING(n) WHERE v.n IS NULL AND i.n > ? ORDER BY i.n"
    )
    # A row that was reworded meanwhile is skipped here and found again at the end.
    insert = (
        f"INSERT INTO {table}(n, hash, vector) SELECT ?, ?, ? WHERE EXISTS "
        f"(SELECT 1 FROM items WHERE n = ? AND coalesce(nullif(key, ''), text) = ?) {rows.NEW_VECTOR}"
    )

    def embed(listed: Sequence[tuple[int, str]]) -> list[tuple[int, int, bytes, int, str]]:
        """Return the parameters of `insert` for items, each given as number and text."""
        vectors = embedder.in_parts([text for _, text in listed])
        return [
            (n, rows.text_number(text), vector.tobytes(), n, text)
            for (n, text), vector in zip(listed, vectors, strict=True)
        ]

    with store.database.reading() as connection:
        everything = scalar(connection, "SELECT count(*) FROM items")
        done = scalar(connection, f"SELECT count(*) FROM {table}")
    yield done, everything
    last = 0
    while True:
        with store.database.reading() as connection:
            todo = select(connection, f"{missing} LIMIT ?", (last, batch))
        if not todo:
            break
        last = todo[-1][0]
        entries = embed(todo)
        store.database.write(lambda connection, entries=entries: connection.executemany(insert, entries))  # type: ignore[misc]
        done += len(todo)
        yield done, everything

    def switch(connection: AnyConnection) -> None:
        stale = select(connection, f"SELECT v.n, v.hash, {SEARCHED} FROM {table} v JOIN items i USING(n)")
        changed = [n for n, number, text in stale if rows.text_number(text) != number]
        connection.executemany(f"DELETE FROM {table} WHERE n = ?", [(n,) for n in changed])
        connection.executemany(insert, embed(select(connection, missing, (0,))))
        for (old,) in select(connection, "SELECT id FROM vector_sets WHERE state = 'serving' AND id <> ?", (set_id,)):
            connection.execute(f"DROP TABLE {VECTORS.format(old)}")
            connection.execute("DELETE FROM former_vectors WHERE set_id = ?", (old,))
            connection.execute("DELETE FROM vector_sets WHERE id = ?", (old,))
        # The vectors changed without a journal entry, so the older blocks do not belong to this set any more.
        if connection.in_file:
            connection.execute("DELETE FROM blocks; DELETE FROM outdated")
            if schema.with_codes(connection):
                connection.execute("DELETE FROM codes")
        values = (uuid.uuid4().hex, set_id)
        connection.execute("UPDATE vector_sets SET state = 'serving', made = ? WHERE id = ?", values)

    store.database.write(switch)
    store.serve(set_id, Embedder(encoder))
    store.derived.write_blocks()
    yield everything, everything
