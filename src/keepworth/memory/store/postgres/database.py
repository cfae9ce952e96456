"""A memory in Postgres: connections, who may write, and what a failure means.

There is one writer at a time: a write transaction holds the memory's advisory lock to its end. So the journal has one order
without gaps, and a reader sees all of it up to some entry. Readers never wait; each `reading` sees one snapshot. Each search asks
the journal whether something was written; notifications are not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from keepworth.base.needs import needs_postgres

import psycopg

from keepworth.memory.errors import (
    Busy,
    InvalidText,
    MemoryProblem,
    NotAMemoryFile,
    NothingThere,
    ReadOnly,
    StorageFailed,
    StorageFull,
)
from keepworth.memory.place import address
from keepworth.memory.store.backend import Backend
from keepworth.memory.store.connection import AMONG, AnyConnection, Cursor, FullText, scalar, select
from keepworth.memory.store.postgres import schema as tables
from keepworth.memory.store.postgres.adapting import adapt
from keepworth.memory.store.postgres.full_text import Postings
from keepworth.memory.store.rows import Unreadable
from keepworth.memory.store.schema import SERVER_VERSION as VERSION

_LOG = logging.getLogger("keepworth.memory")
MOST = 16
"""Most connections to read from; further readers wait."""
BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
SYNCHRONOUS = {"process": "off", "power": "on"}
"""By durability: whether a commit waits for the server's disk."""
MOST_GATHERED = 1000
"""Most writes that are gathered before they are sent."""
_WRITES = ("INSERT", "UPDATE", "DELETE")
_NOWHERE = "\ufffe\uffff\ufffe"
"""A text that no stored text equals."""


def _marked(statement: str) -> str:
    """Return a statement with parameters as psycopg takes it: `%s` for `?`, and an array for AMONG."""
    return statement.replace("%", "%%").replace(AMONG, "= ANY(?)").replace("?", "%s")


class ServerConnection:
    """A connection of psycopg; implements `connection.AnyConnection`.

    If `gathers` is set, writes that return no rows wait for the next other statement and go to the server with it, in one round
    trip. An error in one of them is raised only then."""

    full_text: FullText = Postings()
    in_file: bool = False
    types: Mapping[str, str] = tables.TYPES

    def __init__(self, raw: psycopg.Connection[tuple[Any, ...]]) -> None:
        self.raw = raw
        self.gathers = False
        self._gathered: list[tuple[str, Sequence[Any]]] = []

    @property
    def in_transaction(self) -> bool:
        return self.raw.info.transaction_status.name in ("INTRANS", "INERROR", "ACTIVE")

    def execute(self, statements: str, bindings: Sequence[Any] = (), /) -> Cursor:
        if any(isinstance(value, str) and "\0" in value for value in bindings) and statements.startswith("SELECT"):
            # No text in Postgres holds a NUL character, so such a value matches nothing.
            bindings = [_NOWHERE if isinstance(value, str) and "\0" in value else value for value in bindings]
        if self.gathers and bindings and statements.startswith(_WRITES) and "RETURNING" not in statements:
            self._gathered.append((statements, tuple(bindings)))
            if len(self._gathered) < MOST_GATHERED:
                return cast("Cursor", None)  # the caller of a write reads no rows
            statements, bindings = self._gathered.pop()
        if statements.startswith("ROLLBACK"):  # what was not sent needs no rollback
            self._gathered.clear()
        if not self._gathered:
            return self._sent(statements, bindings, None)
        gathered, self._gathered = self._gathered, []
        with self.raw.pipeline():
            for statement in gathered:
                self._sent(*statement, False)
            return self._sent(statements, bindings, False)

    def _sent(self, statements: str, bindings: Sequence[Any], prepare: bool | None) -> Cursor:
        """Send a statement. `prepare` is False in a pipeline, where an error would leave psycopg with a wrong list of prepared
        ones."""
        cursor: Cursor
        if bindings:
            cursor = self.raw.execute(_marked(statements), bindings, prepare=prepare)
        else:  # there may be several statements
            cursor = self.raw.execute(statements, prepare=prepare)
        return cursor

    def executemany(self, statements: str, bindings: Iterable[Sequence[Any]], /) -> None:
        for binding in bindings:
            self.execute(statements, binding)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.raw.close()


class PostgresDatabase(Backend):
    """A memory on a server, postgresql://user:password@host:port/database, with `?schema=name` where that is not `keepworth`.
    With the durability "power", committed writes also survive a killed server: each commit waits for its disk."""

    errors: tuple[type[Exception], ...] = (psycopg.Error,)

    def __init__(
        self, url: str, *, durability: str = "process", read_only: bool = False, timeout: float = 10.0
    ) -> None:
        super().__init__(durability, read_only, timeout)
        parts = address(url)
        self.path, self._conninfo, self.schema = parts.shown, parts.conninfo, parts.schema
        digest = hashlib.blake2b(f"keepworth {self.schema}".encode(), digest_size=8).digest()
        self._lock_number = int.from_bytes(digest, "little", signed=True)
        self._writer: ServerConnection | None = None
        self._idle: list[ServerConnection] = []
        self._free = threading.BoundedSemaphore(MOST)
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
        self._check_format(version, VERSION)
        may = "SELECT has_table_privilege('events', 'INSERT') AND NOT pg_is_in_recovery()"
        if not scalar(connection, may):
            self.read_only = True

    def _make(self, connection: ServerConnection) -> None:
        """Create an empty memory, in one transaction. Leaves one alone that another process created just then."""
        connection.execute("BEGIN")
        try:
            connection.execute("SELECT pg_advisory_xact_lock(?)", (self._lock_number,))
            if self._format(connection) is None:
                # Not IF NOT EXISTS, which takes the right to create a schema even where it exists.
                if scalar(connection, "SELECT 1 FROM pg_namespace WHERE nspname = ?", (self.schema,)) is None:
                    connection.execute(f"CREATE SCHEMA {_name(self.schema)}")
                tables.create(connection.raw, uuid.uuid4().hex)
            connection.execute("COMMIT")
        except psycopg.errors.InsufficientPrivilege as error:
            raise ReadOnly(
                f"{self.path} holds no memory, and this user may not make one ({_first_line(error)}): let its owner run "
                f"GRANT CREATE ON DATABASE, or CREATE SCHEMA {_name(self.schema)} AUTHORIZATION this user"
            ) from error
        except (psycopg.errors.DuplicateTable, psycopg.errors.DuplicateFunction) as error:
            raise NotAMemoryFile(
                f"the schema {self.schema!r} of {self.path} holds tables of another program ({_first_line(error)}): name another "
                "with ?schema="
            ) from error

    def _format(self, connection: ServerConnection) -> int | None:
        """Return the format of the memory, or None if there is none."""
        # Not with to_regclass, which repeats what it returned before the lock was taken.
        there = "SELECT 1 FROM pg_tables WHERE schemaname = ? AND tablename = 'facts_of_file'"
        if scalar(connection, there, (self.schema,)) is None:
            return None
        facts = f"{_name(self.schema)}.facts_of_file"
        stored = scalar(connection, f"SELECT value FROM {facts} WHERE name = 'format'")
        if stored is None:
            raise NotAMemoryFile(f"the schema {self.schema!r} of {self.path} is no memory: name another with ?schema=")
        return int(stored)

    def _connect(self) -> ServerConnection:
        commit = SYNCHRONOUS[self._durability]
        options = f"-c search_path={_name(self.schema)} -c synchronous_commit={commit} -c client_min_messages=warning"
        try:
            raw = psycopg.connect(
                self._conninfo, autocommit=True, options=options, connect_timeout=max(2, round(self._timeout))
            )
        except psycopg.ProgrammingError as error:
            # libpq quotes what it cannot parse: the message may repeat a parameter's name, but not a part of a password.
            reason = f" ({_first_line(error)})" if "query parameter" in str(error) else ""
            raise NotAMemoryFile(f"{self.path} is no address that libpq takes{reason}: correct it") from None
        adapt(raw)
        return ServerConnection(raw)

    # Reading.

    def _reader(self) -> ServerConnection:
        if not self._free.acquire(timeout=self._timeout):
            raise Busy(
                f"all {MOST} connections of this process to {self.path} were in use for {self._timeout:g} s: read in fewer "
                "threads at once"
            )
        try:
            if self._idle:
                connection = self._idle.pop()
                try:
                    connection.execute(BEGIN_READING)
                    return connection
                except psycopg.Error:
                    connection.close()  # the server may have closed it since it was last used
            connection = self._connect()
            connection.execute(BEGIN_READING)
        except BaseException:
            self._free.release()
            raise
        return connection

    def _leave(self, connection: Any) -> None:
        with contextlib.suppress(psycopg.Error):  # an error here loses nothing that was read
            connection.execute("COMMIT")
        if connection.in_transaction or connection.raw.closed or self._closed:
            connection.close()
        else:
            self._idle.append(connection)
        self._free.release()

    # Writing.

    def _end_queries(self, connection: Any) -> None:
        """Do nothing: the driver has read all rows of a query when it returns."""

    def _begun(self) -> ServerConnection:
        wait = max(1, round(1000 * self._timeout))
        begin = f"BEGIN; SET LOCAL lock_timeout = {wait}; SELECT pg_advisory_xact_lock({self._lock_number})"
        self._discard(self._to_write())
        try:
            self._to_write().execute(begin)
        except psycopg.Error:
            if self._writer is not None and not self._writer.raw.closed:
                self._roll_back(self._writer)
                raise
            self._to_write().execute(begin)  # the server had closed it since it was last used
        return self._to_write()

    def _to_write(self) -> ServerConnection:
        if self._writer is None or self._writer.raw.closed:
            self._writer = self._connect()
            self._writer.gathers = True
        return self._writer

    # What each database implements itself.

    def pack(self, *, optimise: bool = False) -> bool:
        """Rewrite the tables and their indexes, so that no data file holds deleted rows any more. The server's write-ahead log,
        backups and replicas keep theirs. With `optimise`, only free the space of deleted rows, which makes nobody wait, and
        gather the query planner's statistics.

        Returns False if the query planner's samples remain, as this user may not rewrite `pg_statistic`. Raises Busy where a
        transaction still reads what was erased, and StorageFailed for others than the owner of the tables."""
        self.check_writable()
        with self._write_lock, self.translated():
            writer = self._to_write()
            owned = "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = current_schema()"
            tables = [name for (name,) in select(writer, owned)]
            if optimise:
                for table in tables:
                    writer.execute(f"VACUUM (ANALYZE) {table}")
                return True
            if not all(self._written_anew(writer.raw, table) for table in tables):
                raise StorageFailed(
                    f"what was erased is still in the data files of {self.path}, since only the owner of its tables may "
                    "write them anew: run `keepworth memory compact` as that user"
                )
            if not self._written_anew(writer.raw, "pg_catalog.pg_statistic"):
                _LOG.warning(
                    "words that were erased from %s may still be in the server's samples for planning: let the owner of the "
                    "database run VACUUM FULL pg_statistic",
                    self.path,
                )
                return False
            return True

    def _written_anew(self, raw: psycopg.Connection[tuple[Any, ...]], table: str) -> bool:
        """Run VACUUM FULL and return whether it took place, as Postgres only warns if it may not. Raises Busy if an older
        transaction still sees deleted rows, so that they were copied."""
        remaining: list[int] = []

        def note(message: psycopg.errors.Diagnostic) -> None:
            if (number := re.search(r"\d+", message.message_detail or "")) is not None:  # deleted rows that were copied
                remaining.append(int(number[0]))

        file = "SELECT pg_relation_filenode(%s::regclass)"
        before = raw.execute(file, (table,)).fetchone()
        raw.add_notice_handler(note)
        try:
            raw.execute(f"SET lock_timeout = {max(1, round(1000 * self._timeout))}")
            raw.execute(f"VACUUM (FULL, VERBOSE) {table}".encode())
        finally:
            raw.remove_notice_handler(note)
            if not raw.closed:
                raw.execute("RESET lock_timeout")
        if any(remaining):
            raise Busy(
                f"somebody reads {self.path} as it was before something was erased: try again when that has ended"
            )
        return bool(raw.execute(file, (table,)).fetchone() != before)

    def truncate_log(self) -> bool:
        return True  # the write-ahead log is the server's

    def forget_samples(self, connection: AnyConnection) -> None:
        # ANALYZE gathers new samples, from the rows that are left.
        listed = "items events touches decisions words word_counts names scopes episodes"
        for table in listed.split():
            connection.execute(f"ANALYZE {table}")

    def damage(self, connection: AnyConnection) -> list[str]:
        # The server checks its own pages (`pg_amcheck`); this checks our counts of terms.
        wrong = scalar(
            connection,
            "SELECT count(*) FROM (SELECT term, count(*) AS n FROM words WHERE term <> '' GROUP BY term) AS said "
            "FULL JOIN (SELECT term, doc FROM word_counts WHERE doc <> 0) AS known USING(term) WHERE n IS DISTINCT FROM doc",
        )
        return [f"table word_counts: it is wrong of {wrong} terms"] if wrong else []

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
        errors = psycopg.errors
        try:
            yield
        except Unreadable as error:
            raise NotAMemoryFile(f"{self.path} is damaged ({error}): restore a backup") from error
        except UnicodeEncodeError as error:
            raise self.invalid(error) from error
        except errors.UndefinedTable as error:
            if "vectors_" in str(error):
                raise self.made_anew() from error
            raise NotAMemoryFile(
                f"the tables of {self.path} were taken away while it was open ({_first_line(error)}): restore a backup"
            ) from error
        except (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction) as error:
            raise ReadOnly(
                f"{self.path} cannot be written or read by this user ({_first_line(error)}): let its owner GRANT the rights"
            ) from error
        except (
            errors.LockNotAvailable,
            errors.DeadlockDetected,
            errors.QueryCanceled,
            errors.TooManyConnections,
        ) as error:
            raise Busy(f"{self.path} was locked by another process for {self._timeout:g} s: try again") from error
        except (errors.DiskFull, errors.OutOfMemory) as error:
            raise StorageFull(
                f"no room left for {self.path}: free some space on the server; nothing was written"
            ) from error
        except psycopg.DataError as error:
            raise InvalidText(
                f"Postgres holds no such text or number ({_first_line(error)}): leave out characters of number 0; nothing was "
                "done"
            ) from error
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> MemoryProblem:
        reason = _first_line(error)
        if "too many" in reason or "connection slots" in reason:
            return Busy(
                f"the server of {self.path} takes no more connections ({reason}): try again, or raise its max_connections"
            )
        if self._committing == threading.get_ident():
            return StorageFailed(
                f"the connection to {self.path} was lost while a write was committed ({reason}): look whether it is there before "
                "you write it again"
            )
        if any(
            name in reason for name in ("does not exist", "authentication", "no password", "pg_hba", "not permitted")
        ):
            return NotAMemoryFile(
                f"{self.path} cannot be opened ({reason}): check user, password and database, and make the database with createdb"
            )
        return StorageFailed(
            f"no connection to the server of {self.path} ({reason}): see that it runs and can be reached; nothing was written"
        )


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _name(schema: str) -> str:
    return '"' + schema.replace('"', '""') + '"'
