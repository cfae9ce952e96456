"""The full-text index in Postgres: plain tables of how often each row holds each term, ranked by the BM25 of `search.index`.

Every row also has an entry for the empty term, so that a row without words is in the index, too.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.search.index import K1, B
from keepworth.memory.search.terms import terms as terms_of
from keepworth.memory.store.connection import AnyConnection, WantedRows, scalar, select
from keepworth.memory.store.full_text import CURRENT, WHOLE_TEXT

if TYPE_CHECKING:
    from keepworth.base.arrays import Rows
    from keepworth.memory.search.columns import Mask

LONGEST = 500
"""Most bytes of a stored term, as a Postgres index holds no value of more than some 2,700. A longer term is stored as its
beginning and a digest."""
LISTED = 2000
"""Most rows that are listed in a statement; more are given as a string of bits."""
TABLES = """
CREATE TABLE words(term TEXT NOT NULL, rowid INTEGER NOT NULL, home INTEGER NOT NULL, times INTEGER NOT NULL,
  length INTEGER NOT NULL, PRIMARY KEY(term, home, rowid));
CREATE INDEX words_by_row ON words(rowid);
CREATE TABLE word_counts(term TEXT PRIMARY KEY, doc INTEGER NOT NULL);
"""


class Postings:
    """The full-text index in these tables; implements `connection.FullText`."""

    def write(self, connection: AnyConnection, rows: Sequence[tuple[int, str, str]]) -> None:
        terms: list[str] = []
        numbers: list[int] = []
        times: list[int] = []
        lengths: list[int] = []
        documents: Counter[str] = Counter()
        for n, _, text in rows:
            listed = [stored_term(term) for term in text.split()]
            counted = Counter(listed)
            documents.update(counted.keys())
            for term, count in [("", 0), *counted.items()]:
                terms.append(term)
                numbers.append(n)
                times.append(count)
                lengths.append(len(listed))
        connection.execute(
            "INSERT INTO words(term, rowid, home, times, length) SELECT t.term, t.n, i.scope, t.times, t.length "
            "FROM unnest(?::text[], ?::bigint[], ?::bigint[], ?::bigint[]) AS t(term, n, times, length) "
            "JOIN items i ON i.n = t.n",
            (terms, numbers, times, lengths),
        )
        connection.execute(
            "INSERT INTO word_counts SELECT * FROM unnest(?::text[], ?::bigint[]) ON CONFLICT(term) DO UPDATE SET "
            "doc = word_counts.doc + excluded.doc",
            (list(documents), list(documents.values())),
        )

    def remove(self, connection: AnyConnection, numbers: Sequence[int]) -> None:
        gone = select(connection, "DELETE FROM words WHERE rowid = ANY(?) RETURNING term", (list(numbers),))
        fewer = Counter(term for (term,) in gone if term)
        connection.execute(
            "UPDATE word_counts SET doc = word_counts.doc - less.doc FROM unnest(?::text[], ?::bigint[]) AS less(term, doc) "
            "WHERE word_counts.term = less.term",
            (list(fewer), list(fewer.values())),
        )

    def tidy(self, connection: AnyConnection) -> None:
        connection.execute("DELETE FROM word_counts WHERE doc <= 0")

    def counts(self, connection: AnyConnection, terms: Sequence[str]) -> list[int | None]:
        keys = [stored_term(term) for term in terms]
        counted = dict(select(connection, "SELECT term, doc FROM word_counts WHERE term = ANY(?)", (keys,)))
        return [counted.get(key) for key in keys]

    def holds(self, connection: AnyConnection, term: str) -> bool:
        return scalar(connection, "SELECT 1 FROM words WHERE term = ? LIMIT 1", (stored_term(term),)) is not None

    def best(self, connection: AnyConnection, wanted: WantedRows) -> list[int]:
        if not wanted.terms:
            return []
        keys = list(dict.fromkeys(map(stored_term, wanted.terms)))
        where, values = "", list[object]()
        if wanted.scope_tokens:
            one = "string_to_array(tokens, ' ') @> ?::text[]"
            where += f" AND p.home IN (SELECT id FROM scopes WHERE {' OR '.join([one] * len(wanted.scope_tokens))})"
            values += [list(tokens) for tokens in wanted.scope_tokens]
        if wanted.newest_only is not None:
            where += " AND p.rowid > ?"
            values.append(wanted.newest_only)
        if wanted.admitted:
            where += f" AND {wanted.admitted}"
        having = f" HAVING count(*) = {len(keys)}" if wanted.together else ""
        query = (
            "WITH every AS (SELECT greatest(sum(count), 1)::float8 AS n, greatest(sum(words), 1)::float8 AS words FROM scopes), "
            "asked AS (SELECT term, ln(1 + (greatest(n - doc, 0) + 0.5) / (doc + 0.5)) AS weight, words / n AS mean "
            "FROM word_counts, every WHERE term = ANY(?) AND doc > 0) "
            f"SELECT p.rowid FROM asked a JOIN words p ON p.term = a.term WHERE p.term = ANY(?){where} GROUP BY p.rowid{having} "
            f"ORDER BY sum(a.weight * p.times * {K1 + 1} / (p.times + {K1} * ({1 - B} + {B} * p.length / a.mean))) DESC, p.rowid "
            "LIMIT ?"
        )
        return [n for (n,) in select(connection, query, (keys, keys, *values, wanted.count))]

    def ranker(self) -> None:
        return None

    def admit(self, connection: AnyConnection, mask: Mask, row: str) -> str:
        admitted = np.flatnonzero(mask)
        end = int(admitted[-1]) + 1 if len(admitted) else 0
        if len(admitted) <= LISTED:
            return f"{row} = ANY('{{{_joined(admitted)}}}')"
        if end - len(admitted) <= LISTED:
            return f"{row} < {end} AND {row} <> ALL('{{{_joined(np.flatnonzero(~mask[:end]))}}}')"
        bits = np.packbits(mask[:end], bitorder="little").tobytes().hex()
        return f"(CASE WHEN {row} < {end} THEN get_bit('\\x{bits}'::bytea, {row}) = 1 ELSE false END)"

    def wrong(self, connection: AnyConnection) -> set[int]:
        query = f"SELECT n, scope, {WHOLE_TEXT} FROM items WHERE {CURRENT} AND n <= (SELECT through FROM indexed)"
        expected: dict[int, set[tuple[str, int, int, int]]] = {}
        for n, home, text in select(connection, query):
            listed = [stored_term(term) for term in terms_of(text)]
            lines = [("", 0), *Counter(listed).items()]
            expected[n] = {(term, home, times, len(listed)) for term, times in lines}
        there: dict[int, set[tuple[str, int, int, int]]] = {}
        for n, *line in select(connection, "SELECT rowid, term, home, times, length FROM words"):
            there.setdefault(n, set()).add(tuple(line))
        return {n for n in expected.keys() | there.keys() if expected.get(n) != there.get(n)}


def _joined(numbers: Rows) -> str:
    return ",".join(map(str, numbers.tolist()))


def stored_term(term: str) -> str:
    """Return a term as the tables store it: a long one as its beginning and a digest."""
    encoded = term.encode("utf-8", "surrogatepass")
    if len(encoded) <= LONGEST:
        return term
    return f"{term[:50]} {hashlib.blake2b(encoded, digest_size=16).hexdigest()}"
