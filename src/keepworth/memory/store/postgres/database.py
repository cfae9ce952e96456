"""A memory in Postgres: connections, who may write, and what a failure means.

One writes at a time, under an advisory lock of the memory that a transaction holds to its end: so the journal has one order
without gaps, and whoever reads sees all of it up to some entry. Readers never wait: each `reading` sees one moment. Whether
something was written is asked of the journal, at each search; nothing is taken from notifications.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepworth.memory.errors import (
    Busy,
    InvalidText,
    MemoryProblem,
    NewerFile,
    NotAMemoryFile,
    NothingThere,
    OlderFile,
    ReadOnly,
    StorageFailed,
    StorageFull,
)
from keepworth.memory.place import address
from keepworth.memory.store.backend import Backend
from keepworth.memory.store.connection import AMONG, Cursor, FullText, scalar, select
from keepworth.memory.store.postgres import schema as tables
from keepworth.memory.store.postgres.full_text import Postings
from keepworth.memory.store.rows import Unreadable
from keepworth.memory.store.schema import SERVER_VERSION as VERSION

if TYPE_CHECKING:
    import psycopg

BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
SYNCHRONOUS = {"process": "off", "power": "on"}
"""Whether a commit waits for the server's disk."""


@lru_cache(maxsize=1000)
def _marked(statement: str) -> str:
    """A statement with values, as psycopg takes it. What differs from SQLite are the marks of values, and a list is an array."""
    return statement.replace("%", "%%").replace(AMONG, "= ANY(?)").replace("?", "%s")


class ServerConnection:
    """`connection.AnyConnection` on one of psycopg's."""

    full_text: FullText = Postings()
    in_file: bool = False
    types: Mapping[str, str] = tables.TYPES

    def __init__(self, raw: psycopg.Connection[tuple[Any, ...]]) -> None:
        self.raw = raw

    @property
    def in_transaction(self) -> bool:
        return self.raw.info.transaction_status.name in ("INTRANS", "INERROR", "ACTIVE")

    def execute(self, statements: str, bindings: Sequence[Any] = (), /) -> Cursor:
        cursor: Cursor
        if bindings:
            cursor = self.raw.execute(_marked(statements), bindings)
        else:  # several statements may go at once
            cursor = self.raw.execute(statements)
        return cursor

    def executemany(self, statements: str, bindings: Iterable[Sequence[Any]], /) -> None:
        self.raw.cursor().executemany(_marked(statements), bindings)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.raw.close()


class PostgresDatabase(Backend):
    """A memory on a server.

    url: postgresql://user:password@host:port/database, and `?schema=name` where it is not `keepworth`. durability: "process"
    survives a killed process of ours, "power" a killed server, too, for which each commit waits for its disk."""

    def __init__(
        self, url: str, *, durability: str = "process", read_only: bool = False, timeout: float = 10.0
    ) -> None:
        super().__init__(durability, read_only, timeout)
        try:
            import psycopg
        except ImportError as error:
            raise MemoryProblem("a memory in Postgres needs psycopg: pip install 'keepworth[postgres]'") from error
        self._psycopg = psycopg
        self.errors: tuple[type[Exception], ...] = (psycopg.Error,)
        parts = address(url)
        self.path, self._conninfo, self.schema = parts.shown, parts.conninfo, parts.schema
        digest = hashlib.blake2b(f"keepworth {self.schema}".encode(), digest_size=8).digest()
        self._lock_number = int.from_bytes(digest, "little", signed=True)
        self._writer: ServerConnection | None = None
        self._idle: list[ServerConnection] = []
        try:
            with self.translated():
                self._open_first()
        except BaseException:
            self._close_connections()
            raise

    # Opening.

    def _open_first(self) -> None:
        connection = self._connect()
        self._idle.append(connection)
        version = self._format(connection)
        if version is None and self.read_only:
            raise NothingThere(f"{self.path} holds no memory, and none can be made: it was opened read-only")
        if version is None:
            self._make(connection)
            version = self._format(connection)
        if version is None or version > VERSION:
            raise NewerFile(
                f"{self.path} was written by a newer version (format {version}, this one knows {VERSION}): upgrade keepworth"
            )
        if version < VERSION:
            raise OlderFile(
                f"{self.path} has format {version}, this version reads {VERSION}: open it with the version of keepworth that "
                "wrote it, write its items out with `keepworth memory export --to jsonl` and import them here"
            )
        may = "SELECT has_table_privilege('events', 'INSERT') AND NOT pg_is_in_recovery()"
        if not scalar(connection, may):
            self.read_only = True

    def _make(self, connection: ServerConnection) -> None:
        """A new, empty memory, which is there whole or not at all; or somebody else's, made at the same moment."""
        connection.execute("BEGIN")
        connection.execute("SELECT pg_advisory_xact_lock(?)", (self._lock_number,))
        if self._format(connection) is None:
            # Not IF NOT EXISTS, for which Postgres asks for the right to make one where it is there, too.
            if scalar(connection, "SELECT 1 FROM pg_namespace WHERE nspname = ?", (self.schema,)) is None:
                connection.execute(f"CREATE SCHEMA {_name(self.schema)}")
            tables.create(connection.raw, uuid.uuid4().hex)
        connection.execute("COMMIT")

    def _format(self, connection: ServerConnection) -> int | None:
        """The format of the memory that is there; None where there is none."""
        # Not with to_regclass: what that was told of before the lock was there, it says again.
        there = "SELECT 1 FROM pg_tables WHERE schemaname = ? AND tablename = 'facts_of_file'"
        if scalar(connection, there, (self.schema,)) is None:
            return None
        return int(scalar(connection, f"SELECT value FROM {_name(self.schema)}.facts_of_file WHERE name = 'format'"))

    def _connect(self) -> ServerConnection:
        from keepworth.memory.store.postgres.adapting import adapt

        commit, patience = SYNCHRONOUS[self._durability], max(1, round(1000 * self._timeout))
        options = (
            f"-c search_path={_name(self.schema)} -c synchronous_commit={commit} -c client_min_messages=warning "
            f"-c lock_timeout={patience}"
        )
        try:
            raw = self._psycopg.connect(
                self._conninfo, autocommit=True, options=options, connect_timeout=max(2, round(self._timeout))
            )
        except self._psycopg.ProgrammingError:  # which may quote a piece of a password
            raise NotAMemoryFile(f"{self.path} is no address that libpq takes: correct it") from None
        adapt(raw)
        return ServerConnection(raw)

    # Reading.

    def _reader(self) -> ServerConnection:
        if self._idle:
            connection = self._idle.pop()
            try:
                connection.execute(BEGIN_READING)
                return connection
            except self._psycopg.Error:
                connection.close()  # the server may have let go of it since it was last used
        connection = self._connect()
        connection.execute(BEGIN_READING)
        return connection

    def _leave(self, connection: Any) -> None:
        with contextlib.suppress(self._psycopg.Error):  # what was read is read
            connection.execute("COMMIT")
        if connection.in_transaction or connection.raw.closed or self._closed:
            connection.close()
        else:
            self._idle.append(connection)

    # Writing.

    def _begun(self) -> ServerConnection:
        begin = f"BEGIN; SELECT pg_advisory_xact_lock({self._lock_number})"
        try:
            self._to_write().execute(begin)
        except self._psycopg.Error:
            if self._writer is not None and not self._writer.raw.closed:
                self._roll_back(self._writer)
                raise
            self._to_write().execute(begin)  # the server had let go of it since it was last used
        return self._to_write()

    def _to_write(self) -> ServerConnection:
        if self._writer is None or self._writer.raw.closed:
            self._writer = self._connect()
        return self._writer

    # What each database does in its own words.

    def pack(self, *, optimise: bool = False) -> None:
        """Write the tables and their indexes anew, so that no file of the database holds what was in them any more, and gather
        anew what queries are planned by, which may quote it. The server's log of writes, backups and replicas are not reached.

        Args:
            optimise: Only give back what rows left behind, for which nobody has to wait.

        Raises:
            Busy: Somebody reads what was erased.
            StorageFailed: Only the owner of the tables may write them anew.
        """
        self.check_writable()
        with self._write_lock, self.translated():
            writer = self._to_write()
            listed = (
                "SELECT quote_ident(tablename), pg_has_role(tableowner, 'MEMBER') FROM pg_tables WHERE schemaname = ?"
            )
            owned = dict(select(writer, listed, (self.schema,)))
            if optimise:
                writer.execute(f"VACUUM (ANALYZE) {', '.join(owned)}")
                return
            if not all(owned.values()):
                raise StorageFailed(
                    f"what was erased is still in the data files of {self.path}, since only the owner of its tables may "
                    "write them anew: run `keepworth memory compact` as that user"
                )
            self._outlast_readers(writer)
            for table in (*owned, "pg_catalog.pg_statistic"):
                writer.execute(f"VACUUM (FULL, ANALYZE) {table}")

    def _outlast_readers(self, writer: ServerConnection) -> None:
        """Wait for the transactions that began before, whose rows a packed table would still have. Raises Busy."""
        now, end = scalar(writer, "SELECT clock_timestamp()"), time.monotonic() + self._timeout
        earlier = (
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND backend_xmin IS NOT NULL AND xact_start < ? LIMIT 1"
        )
        while scalar(writer, earlier, (now,)) is not None:
            if time.monotonic() > end:
                raise Busy(f"somebody reads {self.path} as it was before something was erased: try again later")
            time.sleep(0.05)

    def truncate_log(self) -> bool:
        return True  # the log is the server's

    def size(self) -> int:
        query = (
            "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace "
            "WHERE s.nspname = current_schema() AND c.relkind = 'r'"
        )
        with self.reading() as connection:
            return int(scalar(connection, query) or 0)

    def copy(self, target: Path) -> None:
        raise MemoryProblem(
            f"{self.path} is no file to copy: use pg_dump --schema={self.schema}, or `keepworth memory export`"
        )

    # Coming and going.

    def _close_connections(self) -> None:
        listed, self._idle, self._writer = [*self._idle, self._writer], [], None
        for connection in listed:
            if connection is not None:
                connection.close()

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        errors = self._psycopg.errors
        try:
            yield
        except Unreadable as error:
            raise NotAMemoryFile(f"{self.path} is damaged ({error}): restore a backup") from error
        except UnicodeEncodeError as error:
            raise self.invalid(error) from error
        except errors.UndefinedTable as error:
            if "vectors_" not in str(error):
                raise
            raise self.made_anew() from error
        except (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction) as error:
            raise ReadOnly(
                f"{self.path} cannot be written or read by this user ({_first_line(error)}): let its owner GRANT the rights"
            ) from error
        except errors.LockNotAvailable as error:
            raise Busy(f"{self.path} was locked by another process for {self._timeout:g} s: try again") from error
        except errors.DiskFull as error:
            raise StorageFull(
                f"no room left for {self.path}: free some space on the server; nothing was written"
            ) from error
        except self._psycopg.DataError as error:
            raise InvalidText(
                f"Postgres holds no such text or number ({_first_line(error)}): leave out characters of number 0; nothing was "
                "done"
            ) from error
        except (self._psycopg.OperationalError, self._psycopg.InterfaceError) as error:
            raise StorageFailed(
                f"no connection to the server of {self.path} ({_first_line(error)}): see that it runs and can be reached; look "
                "whether what was being written is there"
            ) from error


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _name(schema: str) -> str:
    return '"' + schema.replace('"', '""') + '"'
