"""The items of a file as rows of a pool, and the changes of a pool as operations of the file.

Rows are in order of writing. Links between items are rows in the pool and ids on file. Items that no policy wrote are rows like
others; what policies read of their own items is hidden in those (`admission.plain_names`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.memory import operations
from keepworth.memory.choose.admission import advises, plain_names
from keepworth.memory.choose.experience import Experience
from keepworth.memory.choose.pool import Pool
from keepworth.memory.errors import InvalidPolicy
from keepworth.memory.item import Item, Provenance, Scope, Status, on_word_of
from keepworth.memory.operations import Assignment
from keepworth.memory.search.chunks import spans
from keepworth.records.episode import Operation, OperationKind

if TYPE_CHECKING:
    from keepworth.base.arrays import Rows, Vectors
    from keepworth.memory.store.store import Store
    from keepworth.memory.store.transaction import Transaction


class Mirror:
    """The items of a scope of a file, with the rows that an experience has for them. rows: by id; metadata: as the file has it,
    by id, of the items whose metadata differs in the pool."""

    def __init__(self, store: Store, scope: Scope, experience: Experience) -> None:
        self.store, self.scope, self.experience = store, scope, experience
        self.rows: dict[str, int] = {}
        self.metadata: dict[str, Mapping[str, Any]] = {}
        self._waiting: deque[tuple[Item, Vectors]] = deque()

    # From the file.

    def read(self) -> None:
        """Queue all items of the file to get rows."""
        self._waiting = deque(self._pooled(self.store.items(self.scope)))

    def restore(self, before: float = math.inf) -> list[int]:
        """Make rows for the queued items that were written before a journal entry."""
        fresh = []
        while self._waiting and _number(self._waiting[0][0].id) < before:
            item, vector = self._waiting.popleft()
            self.rows[item.id] = row = self.experience.restore(item, vector)
            fresh.append(row)
        return fresh

    def link(self, rows: Iterable[int]) -> None:
        """Turn the links of the items in these rows into rows, if all linked items are there."""
        items = self.experience.pool.items
        for row in rows:
            items[row] = self._linked(items[row])

    def follow(self, since: int) -> None:
        """Take in what was written after a journal entry."""
        ids = sorted(self.store.changed_since(since), key=_number)
        items = [item for item in self.store.fetch(self.scope, ids).values() if item is not None]
        self._waiting.extend(self._pooled(item for item in items if item.id not in self.rows))
        self.link(self.restore())
        for item in items:
            self.experience.pool.refresh(self.rows[item.id], self._linked(self._taken_in(item)))

    def _pooled(self, items: Iterable[Item]) -> Iterator[tuple[Item, Vectors]]:
        """Return items as the pool has them, with their vectors."""
        listed = list(items)
        yield from zip(map(self._taken_in, listed), self._read_vectors(listed), strict=True)

    def _read_vectors(self, items: Sequence[Item]) -> Iterator[Vectors]:
        """Yield the vectors of items by their keys in the pool. Those of items that are gone are zero."""
        vectors, encoder = self.store.vectors_for([item for item in items if item.text]), self.experience.encoder
        for item in items:
            key = as_pooled(item).key
            filed = vectors.get(item.id) if key == item.searched_text else None
            if not item.text:
                yield np.zeros(encoder.identity.dimension, dtype=np.float32)
            else:
                yield encoder.encode([key])[0] if filed is None else filed[0]

    def _taken_in(self, item: Item) -> Item:
        """Return an item as the pool has it."""
        pooled = as_pooled(item)
        self.metadata.pop(item.id, None)
        if pooled.metadata != item.metadata:
            self.metadata[item.id] = item.metadata
        return pooled

    def as_filed(self, item: Item) -> Item:
        """Return an item of the pool with its metadata as in the file, which filters are about."""
        metadata = self.metadata.get(item.id)
        return item if metadata is None else replace(item, metadata=metadata)

    # Of what a search has found.

    def items_of(self, ids: Sequence[str]) -> list[Item]:
        """Return the items of these ids. Those that are gone are archived and have no text."""
        items = self.store.fetch(self.scope, ids)
        return [items[id] or Item(id, "", status=Status.ARCHIVED, deleted=True) for id in ids]

    def vectors_of(self, items: Sequence[Item]) -> Vectors:
        """Return the vectors of items, shape (items, dimension)."""
        vectors = np.zeros((len(items), self.experience.encoder.identity.dimension), dtype=np.float32)
        for place, vector in enumerate(self._read_vectors(items)):
            vectors[place] = vector
        return vectors

    def rows_of(self, items: Sequence[Item]) -> Rows:
        """Return rows for the hits of a search, with the items as they are now."""
        pool, fresh = self.experience.pool, list[Item]()
        for item in items:
            row = self.rows.get(item.id)
            if row is None:
                fresh.append(item)
            elif (pooled := self._linked(self._taken_in(item))) != pool.items[row]:
                pool.refresh(row, pooled)
        for pooled, vector in self._pooled(fresh):
            self.rows[pooled.id] = pool.restore(pooled, vector)
        return np.array([self.rows[item.id] for item in items], dtype=np.intp)

    def _linked(self, item: Item) -> Item:
        """Return the item with links as rows of the pool, which are ids in the file."""
        if "links" not in item.metadata or "do" not in item.metadata:
            return item
        links = (self.rows.get(link, link) for link in item.metadata["links"])
        return replace(
            item, metadata={**item.metadata, "links": tuple(link for link in links if isinstance(link, int))}
        )

    # To the file.

    def write(self, transaction: Transaction, since: int, now: str, episode: str, by: str) -> dict[int, str]:
        """Write the pool's changes since a version to the file, one operation for each changed row.

        Args:
            transaction: The transaction of the file.
            since: The version of the pool after which changes are written.
            now: The time of the writes.
            episode: The id of the episode that they are part of.
            by: The person for whom they are written; "" for nobody.

        Returns:
            The ids of new rows, for `name` to take once they are committed.
        """
        pool, named = self.experience.pool, dict[int, str]()
        changes = pool.history[since:]
        fresh = {change.row for change in changes if change.what == "add"}
        revised = {change.row for change in changes if change.what == "revise"}
        # Without an encoder, those of the pool are of hashed words, and none of the file's.
        encoded = fresh if self.store.embedder is not None else set()
        vectors = {pool.items[row].key: pool.vectors[row].tobytes() for row in encoded}
        transaction.provide({**vectors, **self.store.encode([key for key in vectors if spans(key)])})
        for row in dict.fromkeys(change.row for change in changes):
            item = pool.items[row]
            if row in fresh:
                draft = operations.Draft(
                    kind=item.kind,
                    key=item.key,
                    scope=item.scope,
                    provenance=item.provenance,
                    trust=item.trust,
                    status=item.status,
                    metadata=_filed(pool, row, named),
                    deduplicate=False,
                )
                act = Operation(OperationKind.ADD, text=item.text)
                outcome = transaction.perform(act, draft, now=now, episode=episode)
                if not outcome.applied:
                    raise InvalidPolicy(f"the item {item.text!r:.80} was not stored: {outcome.reason}.", "Reword it.")
                named[row] = outcome.item
            else:
                assigned: dict[str, Any] = {"status": item.status.value}
                if row in revised:
                    assigned["metadata"] = {**_filed(pool, row, named), "key": item.key}
                draft = operations.Draft(scope=item.scope, provenance=Provenance(on_word_of(by) if by else ""))
                transaction.perform(Assignment(item.id, assigned), draft, now=now, episode=episode)
        return named

    def name(self, named: Mapping[int, str]) -> None:
        """Give new rows the ids that the file gave them."""
        pool = self.experience.pool
        for row, id in named.items():
            pool.items[row] = replace(pool.items[row], id=id)
            self.rows[id] = row


def as_pooled(item: Item) -> Item:
    """Return a stored item as the pool has it: closed ones are archived, each has a key, and lists are tuples."""
    status = item.status if item.open else Status.ARCHIVED
    data, key = plain_names(item), item.key or item.text
    if advises(item):
        data = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
        key = str(data.pop("key", key))
        data = {"avoid": (), "good": True, "do": (), **data}
    return replace(item, key=key, status=status, metadata=data)


def _filed(pool: Pool, row: int, named: Mapping[int, str]) -> dict[str, Any]:
    """Return metadata as the file has it, with links as ids and two numbers that say when the item was written."""
    data = dict(pool.items[row].metadata)
    if "links" in data:
        data["links"] = [named.get(other, pool.items[other].id) for other in data["links"]]
    return {**data, "born": int(pool.born[row]), "of": int(pool.episode[row])}


def _number(id: str) -> int:
    """Return the journal entry that wrote an item."""
    return int(id[1:])
