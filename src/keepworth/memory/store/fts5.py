"""The full-text index of a file: SQLite's FTS5, which implements `connection.FullText`."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from heapq import merge
from itertools import chain, groupby, islice, zip_longest
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import apsw
import numpy as np

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
        query += " ORDER BY bm25(words, 0.0, 1.0), rowid LIMIT ?"
        return [n for (n,) in select(connection, query, (*values, wanted.count))]

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
