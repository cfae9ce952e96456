"""How terms get into the full-text index. The index itself is each database's own: see `connection.FullText`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from keepworth.memory.search.terms import terms_of_many
from keepworth.memory.store.connection import AnyConnection

FULL_TEXT = "scope, text, content='', contentless_delete=1, tokenize='ascii'"
"""Of terms: to this tokenizer whatever is not ASCII is a letter."""
SEGMENTS = 8
"""How many parts of a full-text index of like size may lie side by side before they are merged into one. Fewer make writes
dearer, more make searches dearer."""
CURRENT = "content IS NOT NULL AND status = 'active'"
"""The condition under which an item is current."""


def index_through(connection: AnyConnection, since: int, through: int) -> None:
    """Put the items of rows since < n <= through, as they are now, into the full-text index, which goes up to `since`."""
    text = "CASE WHEN i.key = '' THEN i.text ELSE i.key || char(10) || i.text END"
    for table, held in (("words", CURRENT), ("past_words", f"NOT deleted AND NOT ({CURRENT})")):
        listed = connection.execute(
            f"SELECT i.n, s.tokens, {text} FROM items i CROSS JOIN scopes s ON s.id = i.scope "
            f"WHERE i.n > ? AND i.n <= ? AND {held} ORDER BY i.n",
            (since, through),
        )
        while part := list(islice(listed, TOGETHER)):
            write_terms(connection, table, part)
    connection.execute("UPDATE indexed SET through = ?", (through,))


TOGETHER = 1000
"""Rows that are put into the full-text index in one call."""


def write_terms(connection: AnyConnection, table: str, listed: Iterable[tuple[int, str, str]]) -> None:
    """Put texts into a full-text index. listed: row, tokens of the scope, text."""
    listed = list(listed)
    found, languages = terms_of_many([text for *_, text in listed])
    written = [(n, scope, " ".join(terms)) for (n, scope, _), terms in zip(listed, found, strict=True)]
    connection.full_text.write(connection, table, written)
    connection.executemany("INSERT OR IGNORE INTO languages VALUES(?)", [(name,) for name in sorted(languages)])
