"""Lexical search in the store: the full-text index proposes, BM25 over the whole query disposes.

The index has no early termination, so its cost is the number of postings read. Common words are therefore left out of
the proposal (not of the score) when rarer ones are there, and a query of common words only looks for rows that hold several of
them at once: those score best, and are few enough to be ranked, if need be the newest of them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from keepworth.memory.search.lexical import CorpusStatistics, term_score, tokens
from keepworth.memory.store.database import first, select

if TYPE_CHECKING:
    import apsw

POSTINGS = 10_000
"""How many postings one search may read: at half a microsecond each, about 5 ms."""
SKIPPING = 0.1
"""What a posting outside the scope costs, next to one inside it."""
JOINT = 15_000
"""How many where common words are all there is, which pays in what is found."""
RANKED = 2.5
"""What ranking a row that holds several words costs, in postings."""
PASSED = 0.15
"""What a posting costs that is only looked at for whether the other words are in its row."""
TOGETHER = 3
"""How many common words, the rarest of those asked for, a row is looked up by at once: more rows hold two of them than can be
ranked, and few hold all of a long query's. Chosen on queries of two to five common words."""
LEAST = 100
"""How many rows are proposed at least; BM25 over the whole query ranks them anew."""


TAIL = 64
"""How far the full-text index may be behind: it is written for so many entries of the journal at once, as one write to it costs
as much as all else that an item costs, and one for many little more. What is beyond is read and counted as it is."""
LONG = 2000
"""Characters of a text that is not left for later, so that what is beyond the index stays little to read."""


def index_through(connection: apsw.Connection, since: int, through: int) -> None:
    """Put the items of rows since < n <= through, as they are now, into the full-text index, which goes up to `since`."""
    text = "CASE WHEN i.key = '' THEN i.text ELSE i.key || char(10) || i.text END"
    for table, held in (("words", CURRENT), ("past_words", f"NOT deleted AND NOT ({CURRENT})")):
        connection.execute(
            f"INSERT INTO {table}(rowid, scope, text) SELECT i.n, s.tokens, {text} FROM items i CROSS JOIN scopes s "
            f"ON s.id = i.scope WHERE i.n > ? AND i.n <= ? AND {held} ORDER BY i.n",
            (since, through),
        )
    connection.execute("UPDATE indexed SET through = ?", (through,))


CURRENT = "content IS NOT NULL AND status = 'active'"


class Tail:
    """Current items that the full-text index does not hold yet. before: an earlier one, whose texts need no second reading."""

    __slots__ = ("_rows",)

    def __init__(self, connection: apsw.Connection, before: Tail | None = None) -> None:
        known = before._rows if before is not None else {}
        self._rows: dict[int, tuple[int, str, frozenset[str]]] = {}
        found = select(
            connection,
            f"SELECT n, scope, key, text FROM items WHERE n > (SELECT through FROM indexed) AND {CURRENT}",
        )
        for n, scope, key, text in found:
            whole = f"{key}\n{text}" if key else text
            row = known.get(n)
            self._rows[n] = row if row is not None and row[1] == whole else (scope, whole, frozenset(tokens(whole)))

    def frequency(self, term: str) -> int:
        """How many of them hold a word."""
        return sum(term in listed for _, _, listed in self._rows.values())

    def candidates(self, terms: Sequence[str], scopes: Sequence[int] | None) -> dict[int, str]:
        """Texts of those with any of `terms` in any of `scopes` (None: all), by row number."""
        asked = frozenset(terms)
        inside = None if scopes is None else frozenset(scopes)
        return {
            n: text
            for n, (scope, text, listed) in self._rows.items()
            if (inside is None or scope in inside) and not asked.isdisjoint(listed)
        }


class WordStatistics:
    """How many current items hold a word, remembered until the memory has grown or shrunk by a tenth. Thread-safe."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._documents = 0
        self._lock = threading.Lock()

    def frequency(self, connection: apsw.Connection, terms: Sequence[str], documents: int) -> dict[str, int]:
        """Document frequency of each term; a term nobody uses is left out."""
        with self._lock:
            if abs(documents - self._documents) * 10 > self._documents or len(self._counts) > 200_000:
                self._counts.clear()
                self._documents = documents
            known = dict(self._counts)
        out = {}
        for term in terms:
            count = known.get(term)
            if count is None:
                row = first(connection, "SELECT doc FROM word_counts WHERE term = ?", (term,))
                count = 0 if row is None else row[0]
                # Only words that are worth remembering: a rare one is cheap to count and its count changes most.
                if count > 100:
                    with self._lock:
                        self._counts[term] = count
            if count:
                out[term] = count
        return out


def proposal(frequency: Mapping[str, int], share: float = 1.0, postings: int = POSTINGS) -> tuple[list[str], bool]:
    """The words to look rows up by, rarest first, and whether they stay within `postings` (else only the newest are read).

    share: which part of all rows the scope holds. The index skips postings outside it, for about a tenth of their price.
    """
    price = min(1.0, share + SKIPPING)
    chosen: list[str] = []
    used = 0.0
    for term, count in sorted(frequency.items(), key=lambda pair: (pair[1], pair[0])):
        if chosen and used + price * count > postings:
            break
        chosen.append(term)
        used += price * count
    return chosen, used <= postings


def proposed(
    connection: apsw.Connection,
    statistics: CorpusStatistics,
    scope_tokens: Sequence[str],
    share: float,
    count: int,
    head: int,
) -> list[int]:
    """`candidates` for a whole query at a price that does not grow with the memory. Where common words are all there is, rows
    with several of them are looked for, then the newest rows with one, and older ones as long as fewer than `count` are found.
    head: the newest row number there may be."""
    chosen, affordable = proposal(statistics.frequency, share, POSTINGS)
    found: list[int] = []
    window = head
    if not affordable:
        window = max(POSTINGS, count)
        rarest, part = joint_proposal(statistics, share, JOINT)
        if len(rarest) > 1:
            newest = None if part >= 1.0 else head - int(part * head)
            found = candidates(connection, rarest, scope_tokens, count, newest, together=True)
    while len(found) < count:
        newest = None if window >= head else head - window
        more = candidates(connection, chosen, scope_tokens, count, newest)
        if len(more) >= count or newest is None:
            return list(dict.fromkeys([*found, *more]))
        window *= 4
    return found


def joint_proposal(statistics: CorpusStatistics, share: float, postings: int = JOINT) -> tuple[list[str], float]:
    """The words that rows should all hold, rarest first, and in which part of the rows, the newest, they can be looked for at
    the price of `postings`. Words are taken to be independent of each other."""
    rarest = sorted(statistics.frequency, key=lambda term: (statistics.frequency[term], term))[:TOGETHER]
    expected = float(statistics.documents)
    for term in rarest:
        expected *= statistics.frequency[term] / max(1, statistics.documents)
    price = RANKED * expected + PASSED * sum(statistics.frequency[term] for term in rarest)
    return rarest, min(1.0, postings / max(1.0, min(1.0, share + SKIPPING) * price))


def candidates(
    connection: apsw.Connection,
    terms: Sequence[str],
    scope_tokens: Sequence[str],
    count: int,
    newest_only: int | None,
    *,
    together: bool = False,
) -> list[int]:
    """Row numbers of the index's own `count` best for any of `terms` (together: for all of them) in the scope, best first.

    terms and scope_tokens are runs of letters and digits, so quoting them is enough; values never come from a name.
    newest_only: look at rows above this number only.
    """
    if not terms:
        return []
    match = "text : (" + (" AND " if together else " OR ").join(f'"{term}"' for term in terms) + ")"
    if scope_tokens:
        match = "(scope : (" + " AND ".join(f'"{token}"' for token in scope_tokens) + ")) AND (" + match + ")"
    query = "SELECT rowid FROM words WHERE words MATCH ?"
    values: tuple[object, ...] = (match,)
    if newest_only is not None:
        query += " AND rowid > ?"
        values += (newest_only,)
    query += " ORDER BY bm25(words, 0.0, 1.0), rowid LIMIT ?"
    return [n for (n,) in select(connection, query, (*values, count))]


def scores(texts: Mapping[int, str], terms: Sequence[str], statistics: CorpusStatistics) -> list[tuple[int, float]]:
    """BM25 of each text, the same as `InvertedIndex.scores` gives it."""
    weights = {term: statistics.weight(term) for term in terms}
    mean = statistics.mean_length or 1.0
    out = []
    for n, text in texts.items():
        listed = tokens(text)
        length, score = len(listed), 0.0
        for term, count in Counter(word for word in listed if word in weights).items():
            score += term_score(count, length, weights[term], mean)
        out.append((n, score))
    return out
