"""What the store needs from a database: statements that both SQLite and Postgres understand, and a few operations that each
implements in its own way.

Only the modules that implement them depend on one database: `database` and `fts5` on SQLite, `postgres` on a server. What both
have in common is in `backend`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from keepworth.memory.search.columns import Mask


class Cursor(Protocol):
    """The rows of one query, each a tuple."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[tuple[Any, ...]]: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class WantedRows:
    """Which rows a full-text index is asked for: the `count` current ones that rank best.

    Args:
        terms: What to look for: runs of letters and digits, so quoting them makes them safe.
        scope_tokens: The tokens of each scope to look in, none for everywhere. They hold numbers, never names.
        count: The most rows.
        newest_only: Look at rows above this number only.
        together: Whether a row must hold all terms, not just any.
        admitted: An SQL condition that rows must meet, made by `FullText.admit`.
    """

    terms: Sequence[str]
    scope_tokens: Sequence[Sequence[str]]
    count: int
    newest_only: int | None = None
    together: bool = False
    admitted: str = ""


class WordRanker(Protocol):
    """Ranks the rows of a full-text index by what it holds of them in memory, in the state that it was brought to."""

    def begin(self, connection: AnyConnection) -> None:
        """Read what is held of all rows."""

    def read(self, connection: AnyConnection, where: str, values: Sequence[Any]) -> None:
        """Read anew what is held of the rows that an SQL condition selects.

        Args:
            connection: A connection to the memory.
            where: A condition on `id`, the number of the row.
            values: Its parameters.
        """

    def best(
        self, connection: AnyConnection, terms: Sequence[str], count: int, mask: Mask | None = None
    ) -> list[int] | None:
        """Return what `FullText.best` returns for rows that hold any of the terms; None if it cannot tell.

        Args:
            connection: A connection to the memory.
            terms: What to look for.
            count: The most rows.
            mask: By row number, whether a row may be returned; None for all.
        """


class FullText(Protocol):
    """A full-text index of the current items."""

    def write(self, connection: AnyConnection, rows: Sequence[tuple[int, str, str]]) -> None:
        """Add rows, each of an item number, the tokens of its scope, and its terms; tokens and terms are separated by blanks."""

    def remove(self, connection: AnyConnection, numbers: Sequence[int]) -> None:
        """Remove these rows from the index."""

    def tidy(self, connection: AnyConnection) -> None:
        """Pack the index, so that nothing of removed rows is left in it."""

    def counts(self, connection: AnyConnection, terms: Sequence[str]) -> list[int | None]:
        """Return how many current rows hold each term: None or 0 for a term that no row holds."""

    def holds(self, connection: AnyConnection, term: str) -> bool:
        """Return whether a row holds the term."""

    def best(self, connection: AnyConnection, wanted: WantedRows) -> list[int]:
        """Return the numbers of the rows that rank best, best first."""

    def ranker(self) -> WordRanker | None:
        """Return what ranks rows by the same scores as `best` and reads less for it; None where there is nothing such."""

    def admit(self, connection: AnyConnection, mask: Mask, row: str) -> str:
        """Return an SQL condition for this connection: whether a mask admits the item of a row.

        Args:
            connection: A connection to the memory.
            mask: By item number, whether it is admitted.
            row: The column that holds the item number.
        """

    def wrong(self, connection: AnyConnection) -> set[int]:
        """Return the rows whose terms in the index are not those of their texts."""


class AnyConnection(Protocol):
    """A connection in a transaction."""

    def execute(self, statements: str, bindings: Sequence[Any] = (), /) -> Cursor:
        """Execute SQL, with a value for each `?` in turn, and return the rows."""

    @property
    def in_transaction(self) -> bool: ...
    @property
    def full_text(self) -> FullText: ...
    @property
    def in_file(self) -> bool:
        """Whether this is SQLite on a file."""

    @property
    def types(self) -> Mapping[str, str]:
        """Return what to replace in SQLite's table definitions, and with what, for this database."""

    def executemany(self, statements: str, bindings: Iterable[Sequence[Any]], /) -> object: ...


AMONG = "IN (SELECT value FROM json_each(?))"
"""SQL for "is one of several numbers or texts"; `among` makes its parameter."""


class Listed(str):
    """Numbers or texts as JSON, the parameter of AMONG."""

    __slots__ = ()


def among(values: Iterable[int] | Iterable[str]) -> Listed:
    """Return the parameter of AMONG for these values."""
    return Listed(json.dumps([*values]))


def select(connection: AnyConnection, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Return all rows of a query.

    Args:
        connection: A connection to the memory.
        query: The statement.
        values: Its parameters.
    """
    return connection.execute(query, values).fetchall()


def first(connection: AnyConnection, query: str, values: Sequence[Any] = ()) -> Any:
    """Return the first row of a query as a tuple, or None.

    Args:
        connection: A connection to the memory.
        query: The statement.
        values: Its parameters.
    """
    return connection.execute(query, values).fetchone()


def scalar(connection: AnyConnection, query: str, values: Sequence[Any] = ()) -> Any:
    """Return the first value of the first row of a query, or None.

    Args:
        connection: A connection to the memory.
        query: The statement.
        values: Its parameters.
    """
    row = connection.execute(query, values).fetchone()
    return None if row is None else row[0]
