"""Erasing for good: what `forget(purge=True)` does, and nothing else does.

The journal keeps its shape, so that everything else can still be undone, but every wording the item ever had is
replaced by a placeholder; rows, full text and vectors go; freed pages are overwritten and the write-ahead log emptied.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recollect.memory import journal_entry, rows
from recollect.memory.chain import FORGOTTEN
from recollect.memory.database import select
from recollect.memory.errors import UnknownItem
from recollect.memory.ground import image
from recollect.memory.item import Item, drop_memos, folded
from recollect.memory.schema import vector_table
from recollect.memory.scope import Scope
from recollect.memory.sidecar import remove_sidecar
from recollect.memory.transaction import Transaction

if TYPE_CHECKING:
    from recollect.memory.store import Store


@dataclass(frozen=True, slots=True)
class Erased:
    """ids: what is gone; log_emptied: False where a reader in another process kept the old write-ahead log open, and erasing
    must be finished with `compact` once it is gone."""

    ids: tuple[str, ...]
    log_emptied: bool


def purge(store: Store, scope: Scope, ids: Sequence[str]) -> Erased:
    """Erase items of `scope` with all their history. Raises UnknownItem; then nothing was erased."""

    def work(transaction: Transaction) -> list[str]:
        texts: list[str] = []
        homes = {item.id: item.scope for item in map(transaction.get, ids) if item is not None}
        for id in ids:
            texts.extend(_erase(transaction, id))
        now = store.clock()
        payload = json.dumps({"ids": list(ids)})
        seq = transaction.write_event(journal_entry.PURGE, scope, payload, now=now)
        for id in ids:
            home = transaction.book.row(homes[id]).id
            transaction.connection.execute("INSERT INTO tombstones VALUES(?,?,?)", (int(id[1:]), home, seq))
        transaction.finish()
        # The purge's own change rows hold images of what it removed.
        for id in ids:
            transaction.connection.execute("UPDATE touches SET before = NULL WHERE n = ?", (int(id[1:]),))
            transaction.connection.execute("DELETE FROM former_contents WHERE n = ?", (int(id[1:]),))
        for table in ("words", "past_words"):
            # Deleted rows leave their words in the index until its segments are merged.
            transaction.connection.execute(f"INSERT INTO {table}({table}) VALUES('optimize')")
        return texts

    texts = store.change(scope, work)
    if store.embedder is not None:
        for text in texts:
            store.embedder.forget(text)
    drop_memos()
    journal_entry.drop_memos()
    store.reset_caches()
    if not store.database.in_memory:
        remove_sidecar(store.database.place)
    return Erased(tuple(ids), store.database.truncate_log())


def _erase(transaction: Transaction, id: str) -> list[str]:
    """Take one item out of view and journal; returns every wording it had."""
    connection = transaction.connection
    present = transaction.get(id)
    if present is None:
        raise UnknownItem(f"no item {id!r:.80} to erase in this scope: nothing was erased")
    n = int(id[1:])
    states = [image(before) for (before,) in select(connection, "SELECT before FROM changes WHERE n = ?", (n,))]
    known: list[Item] = [state for state in (*states, present) if state is not None]
    wordings = list(dict.fromkeys(text for item in known for text in (item.text, item.key) if text))
    placeholders = {folded(text): f"[erased {id} {number}]" for number, text in enumerate(wordings)}
    touching = select(
        connection,
        "SELECT seq, kind, payload FROM events JOIN changes USING(seq) WHERE changes.n = ? AND payload IS NOT NULL",
        (n,),
    )
    for seq, kind, payload in touching:
        body = json.loads(payload)
        text = body.get("text", "")
        own = folded(text) in placeholders or (kind == "UPDATE" and body.get("targets") == [id])
        if kind == journal_entry.ASSIGN and body.get("target") == id:
            body["fields"] = {name: value for name, value in body["fields"].items() if name != "metadata"}
        elif own and text:
            body["text"] = placeholders.get(folded(text), f"[erased {id} at {seq}]")
            for name in ("key", "metadata", "provenance"):
                body.pop(name, None)
        else:
            continue
        connection.execute(
            f"UPDATE events SET payload = ?, content = NULL, chain = {FORGOTTEN} WHERE seq = ?",
            (json.dumps(body, ensure_ascii=False, separators=(",", ":")), seq),
        )
    transaction.remove(id)
    # Also the set that an interrupted `reembed` has begun.
    for (set_id,) in select(connection, "SELECT id FROM vector_sets"):
        connection.execute(f"DELETE FROM {vector_table(set_id)} WHERE n = ?", (n,))
    connection.execute("DELETE FROM former_vectors WHERE n = ?", (n,))
    return wordings


def is_tombstone(store: Store, scope: Scope, id: str) -> bool:
    """Whether `id` was an item inside `scope` that is erased."""
    number = rows.number_of(id)
    with store.database.reading() as connection:
        found = select(connection, "SELECT scope FROM tombstones WHERE n = ?", (number,))
        return bool(found) and scope.contains(store.scope_named(connection, found[0][0]))
