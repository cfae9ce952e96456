"""What the store asks of a database: statements that SQLite and Postgres both take, and a few things for which each has its own
words.

Nothing but the modules that implement these protocols knows which database there is: `database` and `full_text` for a file,
`postgres` for a server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from keepworth.memory.search.columns import Mask

Result = TypeVar("Result")


class Cursor(Protocol):
    """The rows of one query, each a tuple."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[tuple[Any, ...]]: ...
    def close(self) -> None: ...


class FullText(Protocol):
    """Which rows hold which terms: of current items in the table `words`, of closed ones in `past_words`."""

    def write(self, connection: AnyConnection, table: str, rows: Sequence[tuple[int, str, str]]) -> None:
        """rows: number, tokens of the scope, terms; tokens and terms are separated by blanks."""

    def remove(self, connection: AnyConnection, table: str, numbers: Sequence[int]) -> None:
        """Forget these rows."""

    def tidy(self, connection: AnyConnection) -> None:
        """Pack the index, so that nothing is left in it of rows that were removed."""

    def counts(self, connection: AnyConnection, terms: Sequence[str]) -> list[int | None]:
        """How many current rows hold each term; None, or 0, where none does."""

    def holds(self, connection: AnyConnection, table: str, term: str) -> bool:
        """Whether a row holds the term."""

    def best(
        self,
        connection: AnyConnection,
        terms: Sequence[str],
        scope_tokens: Sequence[Sequence[str]],
        count: int,
        newest_only: int | None,
        together: bool,
        admitted: str,
    ) -> list[int]:
        """See `words.candidates`; terms are one at least."""

    def admit(self, connection: AnyConnection, mask: Mask, row: str) -> str:
        """See `words.admit`."""

    def wrong(self, connection: AnyConnection, table: str) -> set[int]:
        """Rows of which the table does not hold just the terms of their texts."""


class Executes(Protocol):
    """What queries need. Values are given for each `?` in turn."""

    def execute(self, statements: str, bindings: Sequence[Any] = (), /) -> Cursor: ...


class AnyConnection(Executes, Protocol):
    """A connection in a transaction."""

    @property
    def in_transaction(self) -> bool: ...
    @property
    def full_text(self) -> FullText: ...
    @property
    def in_file(self) -> bool:
        """Whether SQLite reads it from a file."""

    def executemany(self, statements: str, bindings: Iterable[Sequence[Any]], /) -> object: ...


class Backend(Protocol):
    """One memory in a database: whose it is, who may write, what a failure means."""

    path: str
    in_memory: bool
    """Whether it goes with this process."""
    place: Path
    """Where the file lies; only where it `has_files`."""
    read_only: bool
    errors: tuple[type[Exception], ...]
    """What the database raises by itself."""

    @property
    def has_files(self) -> bool:
        """Whether it is a file, beside which others may lie."""

    @property
    def forked(self) -> bool: ...
    def reading(self) -> AbstractContextManager[AnyConnection]: ...
    def once(self, connection: AnyConnection, name: Hashable, read: Callable[[], Result]) -> Result: ...
    def write(self, work: Callable[[AnyConnection], Result]) -> Result: ...
    def write_later(self, work: Callable[[AnyConnection], None]) -> None: ...
    def together(self) -> AbstractContextManager[None]: ...
    def undisturbed(self, work: Callable[[AnyConnection], Result]) -> Result: ...
    def translated(self) -> AbstractContextManager[None]: ...
    def check_writable(self) -> None: ...
    def pack(self, *, optimise: bool = False) -> bool:
        """Overwrite and give back what rows left behind. optimise: gather, too, what queries are planned by. False where
        something stays that this user cannot reach."""

    def truncate_log(self) -> bool:
        """Empty the log of writes. False where another process prevented it."""

    def forget_samples(self, connection: AnyConnection) -> None:
        """Samples of values, which queries are planned by, may quote what is erased."""

    def damage(self, connection: AnyConnection) -> list[str]:
        """What the database itself finds wrong."""

    def size(self) -> int:
        """Bytes on disk."""

    def copy(self, target: Path) -> None:
        """Write what it holds to the new, empty file `target`."""

    def close(self) -> None: ...


AMONG = "IN (SELECT value FROM json_each(?))"
"""SQL for one of several numbers or texts, which are given by `among`."""


class Listed(str):
    """Numbers or texts, as JSON: see AMONG."""

    __slots__ = ()


def among(values: Iterable[int] | Iterable[str]) -> Listed:
    """The value of AMONG."""
    return Listed(json.dumps([*values]))


def select(connection: Executes, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """All rows of a query."""
    return connection.execute(query, values).fetchall()


def first(connection: Executes, query: str, values: Sequence[Any] = ()) -> Any:
    """The first row of a query as a tuple, or None."""
    return connection.execute(query, values).fetchone()


def scalar(connection: Executes, query: str, values: Sequence[Any] = ()) -> Any:
    """The first value of the first row of a query, or None."""
    row = connection.execute(query, values).fetchone()
    return None if row is None else row[0]
