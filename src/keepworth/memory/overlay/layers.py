"""Layer and Overlay: items in memory, layered so that a fork costs nothing until it is written."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from keepworth.memory.item import HASH_MODULUS, Item, content_digest, duplicate_key
from keepworth.memory.search.index import CorpusStatistics, InvertedIndex
from keepworth.memory.search.ranking import Ranked

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Rows = npt.NDArray[np.intp]
    Vectors = npt.NDArray[np.float32]

DEEPEST = 6


class Embedding(Protocol):
    def __call__(self, texts: Sequence[str]) -> Vectors: ...


class Base(Protocol):
    """A snapshot of a store, read-only, under the layers of a bank. Ranked lists hold current items only, best first."""

    @property
    def snapshot(self) -> str: ...
    @property
    def content_sum(self) -> int: ...
    @property
    def next_number(self) -> int: ...
    def __len__(self) -> int: ...
    def get(self, id: str) -> Item | None: ...
    def fetch(self, ids: Sequence[str]) -> dict[str, Item | None]: ...
    def duplicates_of(self, item: Item) -> list[str]: ...
    def items(self) -> Iterator[Item]:
        """Every item, closed ones too, in order of writing."""
        ...

    def statistics(self, terms: Sequence[str]) -> CorpusStatistics: ...
    def lexical(self, terms: Sequence[str], count: int, hidden: frozenset[str], statistics: CorpusStatistics) -> Ranked:
        """statistics: of everything that is ranked together, this base and what lies on it."""
        ...

    def dense(self, vectors: Vectors, count: int, hidden: frozenset[str]) -> list[Ranked]:
        """Per query; vectors: (queries, dimension)."""
        ...

    def closed(self) -> Iterator[Item]:
        """Items that are neither current nor deleted."""
        ...

    def vectors_for(self, items: Sequence[Item]) -> dict[str, Vectors]:
        """Vectors on file for items as given, by id; those that are not on file are left out or made."""
        ...


class Layer:
    """One layer. Only the top one of a overlay is written; those below are shared between forks.

    items: the latest state, on this layer, of every item it has; rows: one per searchable wording, in order of arrival.
    hides: rows of a layer (by its index in the overlay) that a change on this one took out of search; covers: the same for
    rows on the base, by id.
    """

    __slots__ = (
        "_lock",
        "_pending",
        "_vectors",
        "by_content",
        "covers",
        "hides",
        "index",
        "items",
        "row_ids",
        "row_of",
    )

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.row_ids: list[str] = []
        self.row_of: dict[str, int] = {}
        self.by_content: dict[bytes, tuple[str, ...]] = {}
        self.hides: dict[int, list[int]] = {}
        self.covers: set[str] = set()
        self.index = InvertedIndex()
        self._vectors: Vectors | None = None
        self._pending: list[str] = []
        self._lock = threading.Lock()

    def add_row(self, item: Item) -> None:
        """Make the present wording of `item` searchable. Its vector is made when a dense search first needs it."""
        self.row_of[item.id] = len(self.row_ids)
        self.row_ids.append(item.id)
        self.index.add(f"{item.key}\n{item.text}" if item.key else item.text)
        with self._lock:
            self._pending.append(item.searched_text)

    def preset(self, known: Mapping[str, Vectors]) -> None:
        """Take vectors that are on file for rows of this layer, where all of them are known."""
        import numpy as np

        with self._lock:
            if self._vectors is None and all(id in known for id in self.row_ids):
                self._vectors = np.stack([known[id] for id in self.row_ids])
                self._pending = []

    def vectors(self, embed: Embedding) -> Vectors:
        """Shape (rows, dimension), unit rows. Encodes, in one batch, what has arrived since the last call."""
        import numpy as np

        with self._lock:
            if self._pending:
                fresh = embed(self._pending)
                self._vectors = fresh if self._vectors is None else np.concatenate([self._vectors, fresh])
                self._pending = []
            if self._vectors is None:
                return np.zeros((0, 0), dtype=np.float32)
            return self._vectors


class Overlay:
    """Shelves on a base: the `View` that operations act on, with forks, a count and an incremental content hash."""

    __slots__ = ("_count", "_hidden", "_next_number", "_total", "_written", "base", "layers")

    def __init__(self, base: Base | None = None) -> None:
        self.base = base
        self.layers: tuple[Layer, ...] = ()
        self._written = False  # whether the top layer is ours to write
        self._hidden: dict[int, Rows] = {}
        # Relative to the base, which is asked only when someone wants to know: a search does not.
        self._count = 0
        self._total = 0
        self._next_number = 0

    @property
    def count(self) -> int:
        """How many items are current."""
        return self._count + (len(self.base) if self.base is not None else 0)

    @property
    def total(self) -> int:
        """Sum of the content digests of all items, modulo 2**256."""
        return (self._total + (self.base.content_sum if self.base is not None else 0)) % HASH_MODULUS

    @property
    def next_number(self) -> int:
        """The number in the id of the next new item."""
        if not self._next_number:
            self._next_number = self.base.next_number if self.base is not None else 1
        return self._next_number

    @next_number.setter
    def next_number(self, number: int) -> None:
        self._next_number = number

    def fork(self) -> Overlay:
        """Both sides keep what is there; what either writes later the other does not see."""
        if len(self.layers) > DEEPEST:
            self._flatten()
        self._written = False
        twin = Overlay.__new__(Overlay)
        twin.base = self.base
        twin.layers = self.layers
        twin._written = False
        twin._hidden = {}
        twin._count, twin._total, twin._next_number = self._count, self._total, self._next_number
        return twin

    def get(self, id: str) -> Item | None:
        for layer in reversed(self.layers):
            item = layer.items.get(id)
            if item is not None:
                return item
        return self.base.get(id) if self.base is not None else None

    def duplicates_of(self, item: Item) -> list[str]:
        return sorted(self._same(item), key=lambda id: int(id[1:]))

    def _same(self, item: Item) -> tuple[str, ...]:
        """Ids of all open items with this content."""
        key = duplicate_key(item)
        for layer in reversed(self.layers):
            if key in layer.by_content:
                return layer.by_content[key]
        return tuple(self.base.duplicates_of(item)) if self.base is not None else ()

    def put(self, item: Item) -> None:
        before = self.get(item.id)
        if before is not None and before == item:
            return
        top = self._top()
        if before is not None:
            self._total -= content_digest(before)
            self._count -= before.current
            if before.open:
                top.by_content[duplicate_key(before)] = tuple(id for id in self._same(before) if id != item.id)
        self._total = (self._total + content_digest(item)) % HASH_MODULUS
        self._count += item.current
        top.items[item.id] = item
        if item.open:
            top.by_content[duplicate_key(item)] = (*self._same(item), item.id)
        was = before is not None and before.current
        reworded = before is not None and (before.text != item.text or before.key != item.key)
        if was and (reworded or not item.current):
            self._hide_row(item.id)
        if item.current and (reworded or not was):
            top.add_row(item)

    def items(self) -> Iterator[Item]:
        """Every item in its latest state, closed ones too, in order of first writing."""
        latest: dict[str, Item] = {}
        if self.base is not None:
            latest.update((item.id, item) for item in self.base.items())
        for layer in self.layers:
            latest.update(layer.items)
        return iter(latest.values())

    def closed(self) -> Iterator[Item]:
        """Items that are neither current nor deleted, in their latest state."""
        if self.base is None:
            return (item for item in self.items() if not item.current and not item.deleted)
        latest = {item.id: item for item in self.base.closed()}
        for layer in self.layers:
            latest.update(layer.items)
        return (item for item in latest.values() if not item.current and not item.deleted)

    def hidden(self, level: int) -> Rows:
        """Rows of layer `level` that no longer count. Shape (h,)."""
        import numpy as np

        cached = self._hidden.get(level)
        if cached is None:
            rows = [row for layer in self.layers[level:] for row in layer.hides.get(level, ())]
            cached = self._hidden[level] = np.asarray(rows, dtype=np.intp)
        return cached

    def covered(self) -> frozenset[str]:
        """Ids whose row on the base no longer counts."""
        return frozenset().union(*(layer.covers for layer in self.layers))

    def _top(self) -> Layer:
        if not self._written:
            self.layers = (*self.layers, Layer())
            self._written = True
        return self.layers[-1]

    def _hide_row(self, id: str) -> None:
        top = self.layers[-1]
        for level in range(len(self.layers) - 1, -1, -1):
            row = self.layers[level].row_of.get(id)
            if row is not None:
                top.hides.setdefault(level, []).append(row)
                self._hidden.pop(level, None)
                return
        top.covers.add(id)

    def _flatten(self) -> None:
        one = Layer()
        latest: dict[str, Item] = {}
        for layer in self.layers:
            latest.update(layer.items)
            one.by_content.update(layer.by_content)
            one.covers.update(layer.covers)
        for item in latest.values():
            one.items[item.id] = item
            below = self.base is not None and item.id not in one.covers and self.base.get(item.id) is not None
            if item.current and not below:
                one.add_row(item)
        self.layers = (one,)
        self._hidden = {}
