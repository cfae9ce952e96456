"""Pool: the items a policy chooses among, as columns, with every change on record. A row is one item; rows are never reused."""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from keepworth.memory.choose.actions import NONE, Actions
from keepworth.memory.item import EVERYWHERE, Item, ItemKind, Provenance, Scope, Status, learned

if TYPE_CHECKING:
    from keepworth.base.arrays import Floats, Rows, Vectors

STATUSES = (Status.ACTIVE, Status.CANDIDATE, Status.QUARANTINED, Status.ARCHIVED)
ACTIVE, CANDIDATE, QUARANTINED, ARCHIVED = range(4)
CODES = {status: code for code, status in enumerate(STATUSES)}
OUTSIDE = "outside"
COLUMNS = ("vectors", "status", "born", "episode", "good", "content", "warns", "conditional")


class Change(NamedTuple):
    """One event in the pool. what: "add", "status" or "revise"."""

    what: str
    row: int


@dataclass(frozen=True, slots=True)
class Advice:
    """A candidate item.

    Args:
        key: The situation it is for.
        do, avoid: Actions it advises.
        good: Whether it came of a success.
        source: Where it comes from. Only this decides how it is treated; a draft by an episode's writer gets `on_word_of` the
            person who rewarded the episode instead.
        trust: Stored with the item, for readers of the file.
        trigger, payload: A condition in the text ("if it says X, do Y"), as a reader of the text would follow it.
        extra: Data that slots of the same method read; of a draft from outside, data that no slot reads.
    """

    key: str
    text: str
    do: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    good: bool = True
    kind: ItemKind = ItemKind.CASE
    source: str = OUTSIDE
    trust: float = 1.0
    trigger: str = ""
    payload: str = ""
    extra: Mapping[str, Any] | None = None


def advice(item: Item, situation: str) -> tuple[tuple[str, float], ...]:
    """Return what `item` alone would have its reader do in `situation`: pairs of an action and +1 (do it) or -1 (avoid it)."""
    data = item.metadata
    if "do" not in data:
        return ()
    trigger = data.get("trigger", "")
    if trigger and trigger in situation:
        return ((data["payload"], 1.0),)
    return tuple((action, 1.0) for action in data["do"]) + tuple((action, -1.0) for action in data["avoid"])


class Pool:
    """The items of the memory, with columns that follow their row numbers.

    Args:
        encode: Maps a text to a unit vector of `dimension` numbers.
    """

    def __init__(self, encode: Callable[[str], Vectors], dimension: int) -> None:
        self.encode = encode
        self.scope = EVERYWHERE  # of items that are added
        self.items: list[Item] = []
        self.history: list[Change] = []
        self.revisions: dict[int, int] = {}
        size = 64
        self.vectors = np.zeros((size, dimension), dtype=np.float32)
        self.status = np.full(size, ARCHIVED, dtype=np.int8)
        self.born, self.episode = (np.zeros(size, dtype=np.int64) for _ in range(2))
        self.good, self.warns, self.conditional = (np.zeros(size, dtype=bool) for _ in range(3))
        self.content = np.full(size, -1, dtype=np.int64)
        self.actions = Actions(encode)
        # Rows that speak of several actions, with the numbers of all of them.
        self._several: dict[int, frozenset[int]] = {}
        self._active: Rows | None = None
        self._admits: Callable[[Item], bool] | None = None
        self._latest: tuple[Vectors, int, Vectors] | None = None
        self._frozen = False

    def __len__(self) -> int:
        return len(self.items)

    @property
    def version(self) -> int:
        """Return a number that grows with every change."""
        return len(self.history)

    def content_of(self, action: str) -> int:
        """Return a number that items share if they advise the same action, or warn of the same."""
        return self.actions.number(action)

    def is_note(self, row: int) -> bool:
        """Return whether an item advises no action. What rewards say about such an item is about the item itself."""
        return bool(self.content[row] < 0)

    def speaking_of(self, rows: Rows, actions: Sequence[str]) -> Rows:
        """Return those of `rows` that advise or warn of one of `actions`, or of a free answer that may mean one of them, and
        those that advise nothing."""
        numbers = np.array([self.content_of(action) for action in actions])
        offered = np.zeros(len(self.actions), dtype=bool)
        offered[numbers] = True
        free = np.flatnonzero(~self.actions.listed(np.arange(len(offered))))
        offered[free] = (self.actions.sameness(free, numbers) > 0.0).any(axis=1)
        content = self.content[rows]
        speaks = content < 0
        speaks[~speaks] = offered[content[~speaks]]
        for index in np.flatnonzero(~speaks) if self._several else ():
            also = self._several.get(int(rows[index]))
            speaks[index] = also is not None and any(offered[number] for number in also)
        speaking: Rows = rows[speaks]
        return speaking

    def active(self) -> Rows:
        """Return the rows that may be shown, oldest first."""
        if self._active is None:
            rows = np.flatnonzero(self.status[: len(self.items)] == ACTIVE)
            if self._admits is not None:
                rows = rows[np.array([self._admits(self.items[row]) for row in rows.tolist()], dtype=bool)]
            self._active = rows
        return self._active

    @contextmanager
    def narrowed_to(self, admits: Callable[[Item], bool], scope: Scope | None = None) -> Iterator[None]:
        """Make only admitted items active inside the block, so that a retriever ranks these alone. scope: that of items which are
        added inside the block."""
        before = self.scope, self._admits
        self.scope, self._admits, self._active = self.scope if scope is None else scope, admits, None
        try:
            yield
        finally:
            (self.scope, self._admits), self._active = before, None

    def advising(self) -> Rows:
        """Return those active rows that advise something, which a policy may retire."""
        rows = self.active()
        advising: Rows = rows[self.content[rows] >= 0]
        return advising

    def add(self, draft: Advice, *, status: Status, time: int, episode: int = -1) -> int:
        """Add an item and return its row.

        Args:
            draft: What the item says and advises.
            status: Its state, such as active.
            time: The number of the task at which it is written.
            episode: The number of the episode that wrote it; -1 for none.
        """
        data = {"do": tuple(draft.do), "avoid": tuple(draft.avoid), "good": bool(draft.good)}
        if draft.trigger:
            data |= {"trigger": draft.trigger, "payload": draft.payload}
        if draft.extra:
            data |= draft.extra if learned(draft.source) else {"extra": dict(draft.extra)}
        item = Item(
            f"m{len(self.items)}",
            draft.text,
            kind=draft.kind,
            key=draft.key,
            scope=self.scope,
            provenance=Provenance(source=draft.source),
            trust=draft.trust,
            status=status,
            metadata=data,
        )
        row = self._append(item, time, episode, self.encode(draft.key))
        self.history.append(Change("add", row))
        return row

    def restore(self, item: Item, vector: Vectors) -> int:
        """Add an item that is on file, and return its row. Its metadata says when it was written (`born`) and in which episode
        (`of`), if a policy wrote it."""
        data, born, episode = dict(item.metadata), 0, -1
        if "do" in data:
            born, episode = int(data.pop("born", 0)), int(data.pop("of", -1))
        row = self._append(replace(item, metadata=data), born, episode, vector)
        self.history.append(Change("add", row))
        return row

    def refresh(self, row: int, item: Item) -> None:
        """Replace the item of a row by its state on file. This is no event of the pool."""
        ours = ("born", "of") if "do" in item.metadata else ()
        data: Mapping[str, Any] = {name: value for name, value in item.metadata.items() if name not in ours}
        if data == self.items[row].metadata:
            data = self.items[row].metadata  # in the order in which it was made, by which ties are broken
        if self.items[row].status is not item.status:
            self._put_status(row, CODES[item.status])
        self._put(row, replace(item, metadata=data))

    def _append(self, item: Item, time: int, episode: int, vector: Vectors) -> int:
        row = len(self.items)
        if row == len(self.status):
            for name in COLUMNS:
                setattr(self, name, grown(getattr(self, name), 2 * row))
        self.items.append(item)
        self.vectors[row] = vector
        self.status[row] = CODES[item.status]
        self.born[row], self.episode[row] = time, episode
        self._note_advice(row, item)
        self.conditional[row] = bool(item.metadata.get("trigger"))
        self._active = None
        return row

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Ignore changes inside the block, because what maintainers ask for is on file already."""
        before, self._frozen = self._frozen, True
        try:
            yield
        finally:
            self._frozen = before

    def set_status(self, row: int, status: Status) -> None:
        """Give an item another status. Items that people keep are not changed."""
        if self._frozen or self.status[row] == CODES[status] or self.is_note(row):
            return
        self.history.append(Change("status", row))
        self._put_status(row, CODES[status])

    def revise(self, row: int, *, key: str | None = None, **data: Any) -> None:
        """Give an item another key or other metadata. Its vector follows at once.

        Args:
            row: The row of the item.
            key: The new key; None leaves it.
            **data: Metadata to set; others stay.
        """
        if self._frozen:
            return
        old = self.items[row]
        self.history.append(Change("revise", row))
        self.revisions[row] = self.revisions.get(row, 0) + 1
        key = old.key if key is None else key
        self._put(row, replace(old, key=key, metadata={**old.metadata, **data}, revision=old.revision + 1))

    def similarities(self, vector: Vectors, rows: Rows) -> Floats:
        """Return the cosines of `vector` with the keys of `rows`, as float64. A scan of all rows is cached for the next call with
        this vector."""
        cosines: Floats = self.scan(vector, rows).astype(np.float64)
        return cosines

    def scan(self, vector: Vectors, rows: Rows) -> Vectors:
        """Return the same cosines as float32, in an array that may be shared: do not write to it."""
        n, latest = len(self.items), self._latest
        if latest is None or latest[0] is not vector or not len(rows) or int(rows.max()) >= latest[1]:
            if 2 * len(rows) < n:  # where most items are archived, the others alone are compared
                few: Vectors = self.vectors[rows] @ vector
                return few
            latest = self._latest = (vector, n, self.vectors[:n] @ vector)
        scanned = latest[2]
        everything = rows is self._active and len(rows) == len(scanned) == n
        cosines: Vectors = scanned if everything else scanned[rows]
        return cosines

    def _put_status(self, row: int, code: int) -> None:
        if ACTIVE in (code, self.status[row]):
            self._active = None
        self.status[row] = code
        self.items[row] = replace(self.items[row], status=STATUSES[code])

    def _put(self, row: int, item: Item) -> None:
        if item.key != self.items[row].key:
            self._latest = None
            self.vectors[row] = self.encode(item.key)
        self._note_advice(row, item)
        # The status is an event of its own: rewording never changes it.
        self.items[row] = replace(item, status=self.items[row].status)

    def _note_advice(self, row: int, item: Item) -> None:
        do, avoid = item.metadata.get("do", ()), item.metadata.get("avoid", ())
        numbers = [self.content_of(action) for action in (*do, *avoid)]
        self.good[row] = item.metadata.get("good", True)
        self.content[row] = numbers[0] if numbers else NONE - 1 - row
        self.warns[row] = bool(avoid) and not do
        self._several.pop(row, None)
        if len(numbers) > 1:
            self._several[row] = frozenset(numbers)


LARGE = 1 << 18
"""Bytes."""
_PRIVATE: dict[str, int] = {} if sys.platform == "win32" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}


def grown(column: Any, size: int, width: int = 0) -> Any:
    """Return a column with more room; new rows are zero.

    A large column is allocated on its own, so that its memory returns to the system when it is outgrown; a process
    keeps most of what is freed in small pieces.

    Args:
        column: The array, with a row for each item.
        size: The number of rows of the new one.
        width: The length of a row, if the column was empty.
    """
    shape = (size, *((width,) if width else column.shape[1:]))
    count = math.prod(shape) * column.dtype.itemsize
    if count < LARGE:
        larger = np.zeros(shape, column.dtype)
    else:
        larger = np.frombuffer(mmap.mmap(-1, count, **_PRIVATE), column.dtype).reshape(shape)
    if len(column):
        larger[: len(column)] = column
    return larger
