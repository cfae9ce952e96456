"""What the store asks of a database: statements that SQLite and Postgres both take, and a few things for which each has its own
words.

Nothing but the modules that implement them knows which database there is: `database` and `fts5` for a file, `postgres` for a
server. What both have in common is `backend`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from keepworth.memory.search.columns import Mask


class Cursor(Protocol):
    """The rows of one query, each a tuple."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[tuple[Any, ...]]: ...
    def close(self) -> None: ...


class FullText(Protocol):
    """Which current items hold which terms."""

    def write(self, connection: AnyConnection, rows: Sequence[tuple[int, str, str]]) -> None:
        """rows: number, tokens of the scope, terms; tokens and terms are separated by blanks."""

    def remove(self, connection: AnyConnection, numbers: Sequence[int]) -> None:
        """Forget these rows."""

    def tidy(self, connection: AnyConnection) -> None:
        """Pack the index, so that nothing is left in it of rows that were removed."""

    def counts(self, connection: AnyConnection, terms: Sequence[str]) -> list[int | None]:
        """How many current rows hold each term; None, or 0, where none does."""

    def holds(self, connection: AnyConnection, term: str) -> bool:
        """Whether a row holds the term."""

    def best(
        self,
        connection: AnyConnection,
        terms: Sequence[str],
        scope_tokens: Sequence[Sequence[str]],
        count: int,
        newest_only: int | None = None,
        *,
        together: bool = False,
        admitted: str = "",
    ) -> list[int]:
        """Numbers of its `count` best current rows for any of `terms` (together: for all of them) in the scopes, best first.

        scope_tokens: of each scope, none for everywhere. They and terms are runs of letters and digits, so quoting them is
        enough; values never come from a name.
        newest_only: look at rows above this number only. admitted: SQL for which ones, as of `admit`.
        """

    def admit(self, connection: AnyConnection, mask: Mask, row: str) -> str:
        """SQL for whether the column `row` of row numbers is in `mask`, which this connection is told."""

    def wrong(self, connection: AnyConnection) -> set[int]:
        """Rows of which it does not hold just the terms of their texts."""


class AnyConnection(Protocol):
    """A connection in a transaction."""

    def execute(self, statements: str, bindings: Sequence[Any] = (), /) -> Cursor:
        """Values are given for each `?` in turn."""

    @property
    def in_transaction(self) -> bool: ...
    @property
    def full_text(self) -> FullText: ...
    @property
    def in_file(self) -> bool:
        """Whether SQLite reads it from a file."""

    @property
    def types(self) -> Mapping[str, str]:
        """What layouts of tables say for SQLite, and what this database has for it."""

    def executemany(self, statements: str, bindings: Iterable[Sequence[Any]], /) -> object: ...


AMONG = "IN (SELECT value FROM json_each(?))"
"""SQL for one of several numbers or texts, which are given by `among`."""


class Listed(str):
    """Numbers or texts, as JSON: see AMONG."""

    __slots__ = ()


def among(values: Iterable[int] | Iterable[str]) -> Listed:
    """The value of AMONG."""
    return Listed(json.dumps([*values]))


def select(connection: AnyConnection, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """All rows of a query."""
    return connection.execute(query, values).fetchall()


def first(connection: AnyConnection, query: str, values: Sequence[Any] = ()) -> Any:
    """The first row of a query as a tuple, or None."""
    return connection.execute(query, values).fetchone()


def scalar(connection: AnyConnection, query: str, values: Sequence[Any] = ()) -> Any:
    """The first value of the first row of a query, or None."""
    row = connection.execute(query, values).fetchone()
    return None if row is None else row[0]
