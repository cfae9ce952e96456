"""Metadata by name, in memory: a filter is answered for all items at once, before anything is ranked.

A column holds what the current items have under one name, as numbers of distinct values; kind and time are columns like others.
An operator looks at each distinct value once, or at a few where it asks for an order. It is a cache: its truth is the file, and
it follows the journal.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.memory.search.where import MISSING, RANGES, Condition, Field, Tree, holds, value_key

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.base.arrays import Bools, Numbers

    Codes = npt.NDArray[np.int32]
    Mask = Bools
    """By item number: whether it is kept."""

MOST = 16_000_000
"""Largest number of entries in all columns, of 4 bytes each; the column that was used least recently is dropped first."""
TABLES = 64
"""Number of operators of one column whose answers are cached."""
REMEMBERED = 4096
"""Number of changed items for which the journal entry of the change is remembered."""
Row = tuple[int, Mapping[str, Any] | None]
"""Number and metadata of an item; None where it is not current."""


class _Column:
    """The values of all items under one name of metadata. `codes` maps an item number to the index of its value in `values`, or
    to -1 if the item is not current. The first of the distinct `values` is MISSING."""

    __slots__ = ("_known", "_sorted", "_tables", "codes", "field", "values")

    def __init__(self, field: Field, rows: Iterable[Row]) -> None:
        self.field = field
        self.codes: Codes = np.zeros(0, np.int32)
        self.values: list[Any] = [MISSING]
        self._known: dict[object, int] = {MISSING: 0}
        self._tables: OrderedDict[object, Mask] = OrderedDict()
        self._sorted: dict[bool, tuple[int, Codes]] = {}
        self.put(rows)

    @classmethod
    def of_texts(cls, field: Field, numbers: Numbers, texts: Sequence[str], values: Sequence[Any]) -> _Column:
        """Build a column for all current items. `texts` holds for each item a text that is equal for items of equal value, and
        `values` the values of the distinct texts, in order of first appearance."""
        column = cls(field, ())
        code_of: dict[str, int] = {}
        for text, value in zip(dict.fromkeys(texts), values, strict=True):
            code_of[text] = column._known.setdefault(value_key(value), len(column.values))
            if code_of[text] == len(column.values):
                column.values.append(value)
        column.codes = np.full(int(numbers.max(initial=-1)) + 1, -1, np.int32)
        column.codes[numbers] = np.fromiter(map(code_of.__getitem__, texts), np.int32, len(texts))
        return column

    def put(self, rows: Iterable[Row]) -> None:
        """Set the values of some items. Metadata of None take an item out."""
        numbers, codes = [], []
        of, known_values, values = self.field.of, self._known, self.values
        for number, metadata in rows:
            numbers.append(number)
            if metadata is None:
                codes.append(-1)
                continue
            value = of(metadata)
            code = known_values.setdefault(value_key(value), len(values))
            if code == len(values):
                values.append(value)
            codes.append(code)
        if not numbers:
            return
        newest = max(numbers)
        if newest >= len(self.codes):
            grown = np.full(max(newest + 1, 2 * len(self.codes)), -1, np.int32)
            grown[: len(self.codes)] = self.codes
            self.codes = grown
        self.codes[numbers] = codes

    def met(self, condition: Condition) -> Mask:
        """Return a mask by item number of the items that meet a condition. It means nothing for items that are not current."""
        mask: Mask = self._table(condition)[self.codes]
        return mask

    def _table(self, condition: Condition) -> Mask:
        """Return which of `values` meet a condition, as a mask."""
        if condition.operator in ("$eq", "$in", "$ne", "$nin"):
            table = np.zeros(len(self.values), bool)
            table[[code for key in condition.operand if (code := self._known.get(key)) is not None]] = True
            return table if condition.operator in ("$eq", "$in") else ~table
        if condition.operator in RANGES:
            return self._between(condition.operator, condition.operand)
        name = (condition.operator, value_key(condition.operand))
        cached = self._tables.pop(name, None)
        start = 0 if cached is None else len(cached)
        fresh = np.array([condition.holds(value) for value in self.values[start:]], bool)
        table = self._tables[name] = fresh if cached is None else np.concatenate([cached, fresh])
        if len(self._tables) > TABLES:
            self._tables.popitem(last=False)
        return table

    def _between(self, operator: str, bound: Any) -> Mask:
        """Return which of `values` are within a bound, as a mask, by bisection in the sorted values of the bound's type."""
        text, values = isinstance(bound, str), self.values
        seen, order = self._sorted.get(text, (0, np.zeros(0, np.int32)))
        if seen < len(values):
            of = (str,) if text else (int, float)
            more = [index for index in range(seen, len(values)) if type(values[index]) in of]
            order = np.array(sorted([*order.tolist(), *more], key=values.__getitem__), np.int32)
            self._sorted[text] = (len(values), order)
        cut = bisect_left if operator in ("$gte", "$lt") else bisect_right
        index = cut(order, bound, key=values.__getitem__)
        table = np.zeros(len(values), bool)
        table[order[index:] if operator in ("$gt", "$gte") else order[:index]] = True
        return table


class MetadataColumns:
    """The columns of all names that filters have asked for. The caller knows up to which journal entry they are, and holds `lock`
    while it uses any other method."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.start(-1)

    def start(self, head: int) -> None:
        """Drop all columns and start again at a journal entry."""
        self._columns: OrderedDict[Field, _Column] = OrderedDict()
        self._changed: OrderedDict[int, int] = OrderedDict()  # item number -> the entry that changed it last
        self._since = head  # changes after this entry are all in `_changed`

    def missing(self, tree: Tree) -> list[Field]:
        """Return the names in a filter for which there is no column yet."""
        return [field for field in fields_of(tree) if field not in self._columns]

    def build(self, fields: Iterable[Field], rows: list[Row]) -> None:
        """Build columns from the metadata of all current items."""
        for field in fields:
            self._columns[field] = _Column(field, rows)

    def take(self, field: Field, numbers: Numbers, texts: Sequence[str], values: Sequence[Any]) -> None:
        """Build one column for all current items.

        Args:
            field: The name in the metadata.
            numbers: The numbers of the items, of shape (n,).
            texts: For each item, a text that is equal for items of equal value.
            values: The values of the distinct texts, in order of first appearance.
        """
        self._columns[field] = _Column.of_texts(field, numbers, texts, values)

    def follow(self, changes: Sequence[tuple[int, int, Mapping[str, Any] | None]]) -> None:
        """Apply changes to all columns. Each is (journal entry, item number, the item's metadata now)."""
        for column in self._columns.values():
            column.put((number, metadata) for _, number, metadata in changes)
        for seq, number, _ in changes:
            self._changed.pop(number, None)
            self._changed[number] = seq
        while len(self._changed) > REMEMBERED:
            _, self._since = self._changed.popitem(last=False)

    def changed_after(self, seq: int) -> list[int] | None:
        """Return the numbers of the items that entries after `seq` changed, or None if that is no longer known."""
        if seq < self._since:
            return None
        return [number for number, at in self._changed.items() if at > seq]

    def mask(self, tree: Tree) -> Mask:
        """Return a mask by item number of the current items that meet a filter. There must be a column for each of its names."""
        columns = []
        for field in fields_of(tree):
            self._columns.move_to_end(field)
            columns.append(self._columns[field])
        met = self._met(tree, max(len(column.codes) for column in columns))
        codes = columns[0].codes
        current = np.zeros(len(met), bool)
        current[: len(codes)] = codes >= 0
        while len(self._columns) > len(columns) and sum(len(column.codes) for column in self._columns.values()) > MOST:
            self._columns.popitem(last=False)
        return met & current

    def _met(self, tree: Tree, room: int) -> Mask:
        if isinstance(tree, Condition):
            met = self._columns[tree.field].met(tree)
            # Columns have room for different numbers; there are no items beyond.
            return met if len(met) == room else np.concatenate([met, np.zeros(room - len(met), bool)])
        parts = [self._met(part, room) for part in tree.parts]
        if tree.joint == "$not":
            return ~parts[0]
        join = np.logical_and if tree.joint == "$and" else np.logical_or
        mask: Mask = join.reduce(parts)
        return mask


def fields_of(tree: Tree) -> list[Field]:
    """Return the distinct names in a filter."""
    if isinstance(tree, Condition):
        return [tree.field]
    return list(dict.fromkeys(field for part in tree.parts for field in fields_of(part)))


def corrected(mask: Mask, tree: Tree, rows: Mapping[int, Mapping[str, Any] | None], numbers: Sequence[int]) -> Mask:
    """Return a mask with the entries of some items computed again.

    Args:
        mask: By item number, whether the filter admits it.
        tree: The filter.
        rows: The present metadata of the items; those that are not in here are masked out.
        numbers: The numbers of the items, at least one.
    """
    out: Mask = np.zeros(max(len(mask), max(numbers) + 1), bool)
    out[: len(mask)] = mask
    for number in numbers:
        metadata = rows.get(number)
        out[number] = metadata is not None and holds(tree, metadata)
    return out
