"""How terms get into the full-text index, which each database implements: see `connection.FullText`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from keepworth.memory.search.terms import terms_of_many
from keepworth.memory.store.connection import AnyConnection

Row = tuple[Any, ...]
"""Number of an item, tokens of its scope, and its text."""
FULL_TEXT = "scope, text, content='', contentless_delete=1, tokenize='ascii'"
"""The definition of FTS5's table. It holds terms, not text; its tokenizer takes every character outside ASCII for a letter."""
SEGMENTS = 8
"""How many segments of similar size a full-text index may have before they are merged into one. Fewer make writes slower, more
make searches slower."""
CURRENT = "content IS NOT NULL AND status = 'active'"
"""SQL condition for an item that is current."""
WHOLE_TEXT = "CASE WHEN key = '' THEN text ELSE key || '\n' || text END"
"""SQL for the text of an item that is searched by words."""
TOKENS = "(SELECT tokens FROM scopes WHERE scopes.id = items.scope)"
"""SQL for the tokens of an item's scope."""


def index_rows(connection: AnyConnection, since: int, through: int) -> None:
    """Add current items to the full-text index, and record how far it goes.

    Args:
        connection: A connection to the memory.
        since, through: The item numbers: above the first, up to the second.
    """
    query = f"SELECT n, {TOKENS}, {WHOLE_TEXT} FROM items WHERE n > ? AND n <= ? AND {CURRENT} ORDER BY n"
    listed = iter(connection.execute(query, (since, through)))
    while part := list(islice(listed, TOGETHER)):
        write_terms(connection, part)
    connection.execute("UPDATE indexed SET through = ?", (through,))


TOGETHER = 1000
"""Number of rows that are added to the full-text index in one call."""


def write_terms(connection: AnyConnection, listed: Sequence[Row]) -> None:
    """Add texts to the full-text index, and their languages to the languages in it."""
    written, languages = with_terms(listed)
    connection.full_text.write(connection, written)
    connection.executemany(
        "INSERT INTO languages VALUES(?) ON CONFLICT DO NOTHING", [(name,) for name in sorted(languages)]
    )


def with_terms(listed: Sequence[Row]) -> tuple[list[Row], set[str]]:
    """Return rows with terms, as the full-text index has them, in place of the texts, and the languages of the texts."""
    of_texts, languages = terms_of_many([text for *_, text in listed])
    return [(n, scope, " ".join(terms)) for (n, scope, _), terms in zip(listed, of_texts, strict=True)], languages
