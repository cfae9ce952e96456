"""How terms get into the full-text index. The index itself is each database's own: see `connection.FullText`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any

from keepworth.memory.search.terms import terms_of_many
from keepworth.memory.store.connection import AnyConnection

Row = tuple[Any, ...]
"""Number of an item, tokens of its scope, and its text."""
FULL_TEXT = "scope, text, content='', contentless_delete=1, tokenize='ascii'"
"""Of terms: to this tokenizer whatever is not ASCII is a letter."""
SEGMENTS = 8
"""How many parts of a full-text index of like size may lie side by side before they are merged into one. Fewer make writes
dearer, more make searches dearer."""
CURRENT = "content IS NOT NULL AND status = 'active'"
"""The condition under which an item is current."""
WHOLE_TEXT = "CASE WHEN key = '' THEN text ELSE key || '\n' || text END"
"""SQL for what of an item is searched by words."""
TOKENS = "(SELECT tokens FROM scopes WHERE scopes.id = items.scope)"
"""SQL for the tokens of an item's scope."""


def index_rows(connection: AnyConnection, since: int, through: int, newer: Iterable[Row] = ()) -> None:
    """Put the items of rows since < n <= through, as they are now, into the full-text index, and the current ones beyond, which
    are at hand."""
    query = f"SELECT n, {TOKENS}, {WHOLE_TEXT} FROM items WHERE n > ? AND n <= ? AND {CURRENT} ORDER BY n"
    listed = chain(connection.execute(query, (since, through)), newer)
    while part := list(islice(listed, TOGETHER)):
        write_terms(connection, part)


def note_indexed(connection: AnyConnection, through: int) -> None:
    """Note up to which row the full-text index goes now."""
    connection.execute("UPDATE indexed SET through = ?", (through,))


TOGETHER = 1000
"""Rows that are put into the full-text index in one call."""


def write_terms(connection: AnyConnection, listed: Sequence[Row]) -> None:
    """Put texts into the full-text index."""
    of_texts, languages = terms_of_many([text for *_, text in listed])
    written = [(n, scope, " ".join(terms)) for (n, scope, _), terms in zip(listed, of_texts, strict=True)]
    connection.full_text.write(connection, written)
    connection.executemany(
        "INSERT INTO languages VALUES(?) ON CONFLICT DO NOTHING", [(name,) for name in sorted(languages)]
    )
