"""The full-text index of a file: SQLite's FTS5, which implements `connection.FullText`."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import chain, groupby, islice, zip_longest
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import apsw
import numpy as np

from keepworth.memory.search.index import best, in_mask
from keepworth.memory.store.connection import AnyConnection, WantedRows, first, scalar, select
from keepworth.memory.store.full_text import (
    CURRENT,
    FULL_TEXT,
    SEGMENTS,
    TOGETHER,
    TOKENS,
    WHOLE_TEXT,
    index_rows,
    with_terms,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.base.arrays import Numbers
    from keepworth.memory.search.columns import Mask

LEFT_OUT = 2000
"""Most rows that a filter may leave out for them to be listed in SQL. Beyond that an SQL function says which rows are kept, which
costs half a microsecond for each."""


WORDS = f"""
CREATE VIRTUAL TABLE words USING fts5({FULL_TEXT});
CREATE VIRTUAL TABLE IF NOT EXISTS word_counts USING fts5vocab(words, 'row');
INSERT INTO words(words, rank) VALUES('automerge', {SEGMENTS});
"""
"""The full-text index of files."""

_SUMS = """
SELECT term, count(*) || ' ' || sum(place * place % 2147483629) FROM (
  SELECT term, (doc * 1103515245 + offset * 69069 + (col = 'text') * 1664525) % 2147483629 AS place FROM temp.occurrences
) GROUP BY term ORDER BY term
"""
"""SQL for a sum over the places of each word, which no other places are likely to have: squares modulo a prime number."""


def _are_two_alike(lines: Sequence[Any]) -> bool:
    return len(lines) == 2 and lines[0] == lines[1]


def make_anew(connection: AnyConnection) -> None:
    """Make the full-text index of a file anew from all current items."""
    connection.execute(f"DROP TABLE words; {WORDS}")
    index_rows(connection, 0, scalar(connection, "SELECT coalesce(max(seq), 0) FROM events"))


class Fts5:
    """The full-text index in the tables that `WORDS` creates."""

    def write(self, connection: AnyConnection, rows: Sequence[tuple[int, str, str]]) -> None:
        connection.executemany("INSERT INTO words(rowid, scope, text) VALUES(?,?,?)", rows)

    def remove(self, connection: AnyConnection, numbers: Sequence[int]) -> None:
        connection.executemany("DELETE FROM words WHERE rowid = ?", [(n,) for n in numbers])

    def tidy(self, connection: AnyConnection) -> None:
        # Deleted rows leave their words in the index until its segments are merged.
        connection.execute("INSERT INTO words(words) VALUES('optimize')")

    def counts(self, connection: AnyConnection, terms: Sequence[str]) -> list[int | None]:
        # One query with a look-up for each term: for a list of terms SQLite would read the whole vocabulary.
        one = "(SELECT doc FROM word_counts WHERE term = ?)"
        return list(first(connection, f"SELECT {', '.join([one] * len(terms))}", terms))

    def holds(self, connection: AnyConnection, term: str) -> bool:
        query = "SELECT 1 FROM words WHERE words MATCH ? LIMIT 1"
        return scalar(connection, query, (f'text : "{term}"',)) is not None

    def best(self, connection: AnyConnection, wanted: WantedRows) -> list[int]:
        if not wanted.terms:
            return []
        match = "text : (" + (" AND " if wanted.together else " OR ").join(f'"{term}"' for term in wanted.terms) + ")"
        if wanted.scope_tokens:
            scopes = ["(" + " AND ".join(f'"{token}"' for token in tokens) + ")" for tokens in wanted.scope_tokens]
            match = "(scope : (" + " OR ".join(scopes) + ")) AND (" + match + ")"
        query = "SELECT rowid FROM words WHERE words MATCH ?"
        values: tuple[object, ...] = (match,)
        if wanted.newest_only is not None:
            query += " AND rowid > ?"
            values += (wanted.newest_only,)
        if wanted.admitted:
            query += f" AND {wanted.admitted}"
        query += " ORDER BY bm25(words, 0.0, 1.0), rowid LIMIT ?"  # `RowLengths` has the same scores
        return [n for (n,) in select(connection, query, (*values, wanted.count))]

    def ranker(self) -> RowLengths:
        return RowLengths()

    def admit(self, connection: AnyConnection, mask: Mask, row: str) -> str:
        numbers = np.flatnonzero(mask)
        end = int(numbers[-1]) + 1 if len(numbers) else 0
        if end - len(numbers) <= LEFT_OUT:
            listed = ",".join(map(str, np.flatnonzero(~mask[:end]).tolist()))
            return f"{row} < {end} AND {row} NOT IN ({listed})"
        flags, room = mask.tobytes(), len(mask)

        def admitted(*row: Any) -> int:
            (number,) = row
            return flags[number] if number < room else 0

        connection.create_scalar_function("admitted", admitted, 1, deterministic=True)  # type: ignore[attr-defined]
        return f"admitted({row})"

    def wrong(self, connection: AnyConnection) -> set[int]:
        """Compare every occurrence of every word with an index made anew from the items."""
        fresh = apsw.Connection("")  # a temporary file that SQLite deletes on close
        try:
            fresh.execute(f"CREATE VIRTUAL TABLE words USING fts5({FULL_TEXT})")
            query = (
                f"SELECT n, {TOKENS}, {WHOLE_TEXT} FROM items WHERE n <= (SELECT through FROM indexed) AND {CURRENT}"
            )
            with fresh:
                listed = iter(connection.execute(query))
                while part := list(islice(listed, TOGETHER)):
                    fresh.executemany("INSERT INTO words(rowid, scope, text) VALUES(?,?,?)", with_terms(part)[0])
            for one in (connection, fresh):
                one.execute(
                    "CREATE VIRTUAL TABLE IF NOT EXISTS temp.occurrences USING fts5vocab(main, words, instance)"
                )
            try:
                sums = tuple(iter(one.execute(_SUMS)) for one in (connection, fresh))
                pairs = zip_longest(*sums)  # alike but where something is wrong
                unequal = next((pair for pair in pairs if pair[0] != pair[1]), (None, None))
                rest = (chain([line] if line else [], lines) for line, lines in zip(unequal, sums, strict=True))
                lines = merge(*rest)
                unlike = [term for term, of_term in groupby(lines, itemgetter(0)) if not _are_two_alike(list(of_term))]
                places = "SELECT doc, col, offset FROM temp.occurrences WHERE term = ?"
                out = set[int]()
                for term in unlike:
                    there, expected = (set(one.execute(places, (term,))) for one in (connection, fresh))
                    out.update(row for row, *_ in there ^ expected)
                return out
            finally:
                with contextlib.suppress(apsw.LockedError):  # a damaged index can leave its reader open
                    connection.execute("DROP TABLE temp.occurrences")
        finally:
            fresh.close()


READ_AT_ONCE = 65_536
"""Number of rows whose lengths are read in one query."""
PLACES = "temp.places"
"""The table that lists the places of a word in the full-text index."""
FTS5_K1, FTS5_B, FTS5_LEAST = 1.2, 0.75, 1e-6
"""Parameters of the BM25 of FTS5, and its weight of a term that most rows hold."""


class RowLengths:
    """The number of terms in each row of the full-text index, held in memory, so that the index is asked for the places of words
    alone. FTS5 reads the length of each row that it ranks from a table, which takes five times as long as finding the row.

    Scores are those of FTS5's function `bm25`, digit by digit. Implements `connection.WordRanker`."""

    def __init__(self) -> None:
        self._lengths: npt.NDArray[np.int32] = np.zeros(0, np.int32)

    def begin(self, connection: AnyConnection) -> None:
        self._lengths = np.zeros(0, np.int32)
        end = scalar(connection, "SELECT max(id) FROM words_docsize") or 0
        for start in range(0, end + 1, READ_AT_ONCE):
            self.read(connection, "id >= ? AND id < ?", (start, start + READ_AT_ONCE))

    def read(self, connection: AnyConnection, where: str, values: Sequence[Any]) -> None:
        # Two lengths of one byte each, as nearly all rows have, are read together.
        both = "SELECT group_concat(id), group_concat(hex(sz), '')"
        numbers, sizes = first(connection, f"{both} FROM words_docsize WHERE length(sz) = 2 AND {where}", values)
        if numbers is not None:
            self._set(
                np.fromstring(numbers, np.int64, sep=","),
                np.frombuffer(bytes.fromhex(sizes), np.uint8).reshape(-1, 2).sum(axis=1),
            )
        rest = f"SELECT id, sz FROM words_docsize WHERE length(sz) <> 2 AND {where}"
        for number, size in select(connection, rest, values):
            self._set(np.array([number]), np.array([sum(_numbers_in(size))]))

    def _set(self, numbers: Numbers, lengths: npt.NDArray[Any]) -> None:
        need = int(numbers.max()) + 1
        if need > len(self._lengths):
            more = np.zeros(max(need, len(self._lengths) + len(self._lengths) // 8), np.int32)
            more[: len(self._lengths)] = self._lengths
            self._lengths = more
        self._lengths[numbers] = lengths

    def best(
        self, connection: AnyConnection, terms: Sequence[str], count: int, mask: Mask | None = None
    ) -> list[int] | None:
        held = self._lengths
        connection.execute(f"CREATE VIRTUAL TABLE IF NOT EXISTS {PLACES} USING fts5vocab(main, words, instance)")
        rows, *sizes = _numbers_in(scalar(connection, "SELECT block FROM words_data WHERE id = 1") or b"")
        query = f"SELECT group_concat(doc) FROM {PLACES} WHERE term = ? AND col = 'text'"
        parts: list[tuple[float, Numbers, npt.NDArray[np.float64]]] = []
        for term in terms:
            listed = scalar(connection, query, (term,))
            places = np.fromstring(listed or "", np.int64, sep=",")
            numbers, times = _counted(places)
            weight = math.log((rows - len(numbers) + 0.5) / (len(numbers) + 0.5)) if len(numbers) <= rows else 0.0
            if mask is not None:
                here = in_mask(mask, numbers)
                numbers, times = numbers[here], times[here]
            parts.append((weight if weight > 0.0 else FTS5_LEAST, numbers, times.astype(np.float64)))
        joined = np.concatenate([numbers for _, numbers, _ in parts])
        if not len(joined):
            return []
        numbers, _ = _counted(np.sort(joined))  # `np.unique` takes ten times as long
        if numbers[0] < 0 or numbers[-1] >= len(held):
            return None
        lengths = held[numbers].astype(np.float64)
        if not lengths.all():
            return None
        norm = FTS5_K1 * (1.0 - FTS5_B + FTS5_B * lengths / (sum(sizes) / rows))
        scores = np.zeros(len(numbers))
        for weight, of_term, frequency in parts:
            at = np.searchsorted(numbers, of_term)
            scores[at] += weight * ((frequency * (FTS5_K1 + 1.0)) / (frequency + norm[at]))
        return [int(n) for n in numbers[best(scores, count)]]


def _counted(places: Numbers) -> tuple[Numbers, npt.NDArray[np.int64]]:
    """Return the distinct numbers of a sorted list, and how often each stands in it."""
    begins = np.flatnonzero(np.append(True, places[1:] != places[:-1])[: len(places)])
    return places[begins], np.diff(np.append(begins, len(places)))


def _numbers_in(block: bytes) -> Iterator[int]:
    """Yield the whole numbers of a record of FTS5: seven bits in each byte, the highest first, in which the eighth bit says that
    more follow. Those of nine bytes do not occur."""
    number = 0
    for byte in block:
        number = number << 7 | byte & 127
        if byte < 128:
            yield number
            number = 0
