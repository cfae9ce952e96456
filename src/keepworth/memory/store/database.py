"""Connections to one memory file: who may use it, and what a failure means.

Readers have a connection per thread and never wait for writers. Writes are committed in groups: see `backend`. The write-ahead
log is moved into the file on a thread beside, so that no write waits for the disk.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import random
import struct
import sys
import threading
import time
import uuid
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import quote

import apsw

from keepworth.base.durable_files import appearing
from keepworth.memory.errors import (
    NO_FILES,
    NONE_LEFT,
    Busy,
    DamagedWords,
    Forked,
    MemoryProblem,
    NotAMemoryFile,
    ReadOnly,
    StorageFailed,
    StorageFull,
    TooManyFiles,
    files_left,
    none_left,
)
from keepworth.memory.search.index import threads
from keepworth.memory.store import moved_files, schema
from keepworth.memory.store.backend import FORKED, Backend
from keepworth.memory.store.connection import scalar, select
from keepworth.memory.store.fts5 import Fts5, make_anew
from keepworth.memory.store.moved_files import identity
from keepworth.memory.store.rows import Unreadable

if TYPE_CHECKING:
    from keepworth.memory.store.connection import AnyConnection, FullText


HEADER = b"SQLite format 3\x00"
LOG_MAGIC = (0x377F0682, 0x377F0683)
"""The numbers with which a write-ahead log of SQLite begins."""


def writable(path: str) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _refuse_strangers(path: str) -> None:
    """Raise NotAMemoryFile by the file's header, before SQLite opens it, so that another program's file is never touched."""
    if Path(path).is_dir():
        raise NotAMemoryFile(f"{path} is a folder: give the path of a file in it")
    if not os.path.isfile(path):  # opening a pipe waits until a program writes to it
        raise NotAMemoryFile(f"{path} is no file that can hold a memory: give another path")
    try:
        with open(path, "rb") as file:
            head = file.read(100)
    except OSError as error:
        if error.errno in NO_FILES:
            raise TooManyFiles(f"{path} cannot be opened: this process {NONE_LEFT}") from error
        raise NotAMemoryFile(f"{path} cannot be read ({error.strerror}): check its permissions") from error
    if head[:16] != HEADER:
        head = _head_in_log(path) or head
    if not any(head):
        raise NotAMemoryFile(
            f"{path} is empty (0 bytes) or holds zeros alone, so it is no memory, nor a new one: an interrupted copy or a full "
            "disk leaves such a file; restore a backup over it, or delete it to begin anew"
        )
    if len(head) < 100 or head[:16] != HEADER:
        raise NotAMemoryFile(
            f"{path} is not a memory file: it belongs to another program, or its beginning is damaged; give another path, or "
            "restore a backup"
        )
    if head[18] == 1 and os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal"):
        # A memory in use says in its header that it has a write-ahead log; a backup that it has none.
        raise NotAMemoryFile(
            f"{path} is a backup, and {path}-wal beside it is the log of what lay there before: delete that log and {path}-shm, "
            "then open it again"
        )
    application = int.from_bytes(head[68:72], "big")
    if application != schema.APPLICATION_ID:
        raise NotAMemoryFile(f"{path} is an SQLite file of another program: give another path")


def _head_in_log(path: str) -> bytes:
    """Return the first bytes of a file as its write-ahead log has them, b"" where there is none, or not of a file like this. A
    loss of power while the log is moved into the file can damage these bytes in the file itself."""
    with contextlib.suppress(OSError), open(f"{path}-wal", "rb") as log:
        magic, page = struct.unpack(">I4xI20x", log.read(32).ljust(32, b"\0"))
        if magic in LOG_MAGIC and page == schema.PAGE and os.path.getsize(path) % page == 0:
            while len(frame := log.read(24 + page)) == 24 + page:
                if int.from_bytes(frame[:4], "big") == 1 and frame[24:40] == HEADER:
                    return frame[24:124]
    return b""


SYNCHRONOUS = {"process": "NORMAL", "power": "FULL"}
Result = TypeVar("Result")


OPEN: Counter[tuple[int, int]] = Counter()
"""Files that this process has open for writing. If it opened and closed one of them by other means, POSIX would drop SQLite's
locks on it."""
_CARRIED: set[tuple[int, int]] = set()
"""Files that the parent had open when it forked this process, where SQLite would take the parent's locks for its own."""


def _carry() -> None:
    _CARRIED.update(database.file for database in _DATABASES if database.file is not None)
    OPEN.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_carry)


_DATABASES: weakref.WeakSet[Database] = weakref.WeakSet()
_MANY = 16
_expected = _MANY  # as many may be open before it is looked which of them were dropped


def _collect_dropped() -> None:
    """Let the garbage collector close memories that were dropped without `close`, where many are open: it goes by the number of
    objects, and does not know of open files."""
    global _expected
    if len(_DATABASES) >= _expected:
        gc.collect()
        _expected = max(_MANY, 2 * len(_DATABASES))


_IN_FILES, _IN_MEMORY = 1, 2
"""Values of SQLite's setting for where temporary tables lie."""
MAPPED = 1 << 29
"""Most bytes of a file that are mapped: what a search touches of them, and what the system maps around it, counts as memory of
this process. At 2.6 GB a search takes as long with all of the file mapped as with none of it."""
_SPARING = {"mmap_size": 0, "cache_size": -4000}
"""Settings of SQLite under which all of a file passes through this process without staying in its memory."""
LOG_PAGES = 2000
"""Pages of 8 kB the write-ahead log grows to before it is moved into the file. Pages that change with every write (the ends of
tables, the roots of indexes) are moved once per so many, not per thousand."""
MOST_PAGES = 4 * LOG_PAGES
"""Pages from which on a write moves the log itself: it writes faster than the thread moves."""


class Checkpoints:
    """Moves the write-ahead log of one open file. Whoever needs the log to stay as it is holds `lock`.

    Args:
        where: The absolute path of the file.
    """

    def __init__(self, where: str) -> None:
        self.lock = threading.Lock()
        self.file: tuple[int, int] | None = None
        """The identity of the file while it is open: what lies at its path later may be another file."""
        self._where = where
        self._begun = 0  # how many pages the log had when a move last began

    def note(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """Start a move if the log has grown enough. SQLite calls this after each commit.

        Args:
            connection: The connection that wrote.
            name: The name of its database, which is not used.
            pages: The pages in the log.
        """
        if pages < self._begun:  # the log began anew
            self._begun = 0
        if pages >= MOST_PAGES:
            _move(connection)
        elif pages - self._begun >= LOG_PAGES:
            self._begun = pages
            try:
                threads("checkpoint", os.getpid()).submit(self._move_beside)
            except RuntimeError:  # the interpreter is shutting down
                _move(connection)
        return apsw.SQLITE_OK

    def _move_beside(self) -> None:
        """Move the log on a connection of this thread."""
        with self.lock, contextlib.suppress(apsw.Error, OSError):
            if self.file is not None and identity(self._where) == self.file:
                connection = apsw.Connection(self._where, flags=apsw.SQLITE_OPEN_READWRITE)
                try:
                    connection.execute("SELECT 1 FROM sqlite_schema").fetchall()  # only who has read knows of the log
                    _move(connection)
                finally:
                    connection.close()


def _move(connection: apsw.Connection) -> None:
    """Move what no reader needs any more. If the disk refuses, the log stays, and with it what was written."""
    with contextlib.suppress(apsw.Error):
        connection.wal_checkpoint()


class _Patience:
    """Waits for a lock that another process holds, looking again at short random intervals.

    SQLite's own handler waits ever longer between looks: a process can starve for seconds while four others always write."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._draw = random.Random()
        self._begun = 0.0

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._begun = now
        if now - self._begun > self._timeout:
            return False
        # Random intervals, so that two waiting processes do not keep colliding.
        time.sleep(self._draw.uniform(0.0002, 0.002 if now - self._begun < 0.5 else 0.01))
        return True


class FileConnection(apsw.Connection):
    """A connection to a memory file; implements `connection.AnyConnection`."""

    full_text: FullText = Fts5()
    in_file: bool = True
    types: Mapping[str, str] = MappingProxyType({})

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._cursors: weakref.WeakSet[apsw.Cursor] = weakref.WeakSet()
        self.cursor_factory = self._make_cursor

    def _make_cursor(self, connection: apsw.Connection) -> apsw.Cursor:
        cursor = apsw.Cursor(connection)
        self._cursors.add(cursor)
        return cursor

    def end_queries(self) -> None:
        """End the queries of which rows are left to read. SQLite keeps to the snapshot that they see, for all that follows.

        Their cursors stay in the frames of an error, for as long as somebody keeps it."""
        for cursor in list(self._cursors):
            cursor.close(True)


class _Hold:
    """Keeps a connection open until this object is deleted; in a forked child, for ever.

    The child drops at once what the parent's threads held. To close a connection there could wait for ever for a lock inside
    SQLite that one of these threads held."""

    _all: ClassVar[set[FileConnection]] = set()

    def __init__(self, connection: FileConnection) -> None:
        self._connection, self._process = connection, os.getpid()
        self._all.add(connection)

    def __del__(self) -> None:
        if self._process == os.getpid():
            self._all.discard(self._connection)


class Database(Backend):
    """A memory in a file, or in this process alone if `path` is ":memory:"."""

    errors: tuple[type[Exception], ...] = (apsw.Error,)
    _hold: _Hold | None = None  # while it is open

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: str = "process",
        read_only: bool = False,
        timeout: float = 10.0,
    ) -> None:
        super().__init__(durability, read_only, timeout)
        self.path = _checked(path)
        self.in_memory = self.path == ":memory:"
        self.has_files = not self.in_memory
        # Connections are opened later, too, and the process may have gone to another folder by then.
        try:
            self._where = self.path if self.in_memory else os.path.abspath(self.path)
        except FileNotFoundError as error:
            raise NotAMemoryFile(
                f"{self.path} cannot be opened, as the folder that this process works in is gone: give the whole path"
            ) from error
        self._checkpoints = Checkpoints(self._where)
        self._identity: tuple[int, int] | None = None
        self.file: tuple[int, int] | None = None  # while it is open, for writing or for reading alone
        self._opened: list[weakref.ref[FileConnection]] = []
        _collect_dropped()
        try:
            self._writer = self._open_first()
            self._hold = _Hold(self._writer)
        except BaseException:
            self._close_connections()
            raise

    def __del__(self) -> None:
        """Close what was dropped while it was open, as a file is; until the garbage collector comes, its files stay open."""
        if self._hold is None or self.in_memory or self._closed or self._process != os.getpid() or sys.is_finalizing():
            return
        warnings.warn(
            f"the memory {self.path} was dropped without close(): write `with Memory(...) as memory`",
            ResourceWarning,
            source=self,
            stacklevel=2,
        )
        self._closed = True
        self._close_connections()

    def _open_first(self) -> FileConnection:
        if not self.in_memory:
            if not os.path.exists(self.path):
                if self.read_only:
                    raise NotAMemoryFile(
                        f"{self.path} does not exist and cannot be made: it was opened read-only",
                        "Give the path of a memory that is there; `keepworth memory add TEXT --file FILE` makes one.",
                    )
                self._make()
            if not writable(self.path):
                self.read_only = True
            try:
                file = identity(self.path)
            except OSError as error:  # such as a loop of links
                raise self._opening_error(error.strerror) from error
            if file in _CARRIED:
                raise Forked(FORKED.format(self.path))
            if file not in OPEN:
                _refuse_strangers(self.path)
            moved_files.refuse_separated(self.path)
        with self.translated():
            connection = self._connect(self.read_only)
            if self.in_memory:
                with connection:
                    schema.create(connection, uuid.uuid4().hex)
                return connection
            version = scalar(connection, "PRAGMA user_version")
            if version not in schema.READ_VERSIONS:
                self._check_format(version, schema.VERSION)
            self.file = identity(self.path)
            _DATABASES.add(self)
            if not self.read_only:
                self._identity = self._checkpoints.file = self.file
                OPEN[self._identity] += 1
                moved_files.note_place(self.path)
        return connection

    def _make(self) -> None:
        """Create an empty memory, which appears at its path whole or not at all, unless another process creates one just
        then."""
        moved_files.refuse_lonely_log(self.path)
        target = Path(os.path.realpath(self.path))
        try:
            with self.translated(), appearing(target) as part:
                connection = FileConnection(str(part))
                try:
                    connection.pragma("page_size", schema.PAGE)
                    with connection:
                        schema.create(connection, uuid.uuid4().hex)
                    connection.pragma("journal_mode", "wal")
                finally:
                    connection.close()
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StorageFull(f"no room left for {self.path}: free some space; nothing was written") from error
            raise self._opening_error(error.strerror) from error

    def _connect(self, read_only: bool) -> FileConnection:
        if read_only:
            flags = apsw.SQLITE_OPEN_READONLY
        else:
            flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if self.in_memory else 0)
        self._require_in_place()
        name = self._where
        if self.read_only and self._still() is not None:
            # In a folder that cannot be written, SQLite cannot create the files that it shares with writers.
            name = f"file:{quote(self._where)}?immutable=1"
            flags |= apsw.SQLITE_OPEN_URI
        connection = FileConnection(name, flags=flags, statementcachesize=200)
        connection.in_file = not self.in_memory
        connection.set_busy_timeout(int(self._timeout * 1000))
        if not read_only:
            connection.set_busy_handler(_Patience(self._timeout))
            if not self.in_memory:
                connection.pragma("journal_mode", "wal")
                connection.set_wal_hook(self._checkpoints.note)
            connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[self._durability]}")
            connection.pragma("secure_delete", 1)
        connection.pragma("foreign_keys", 1)
        connection.pragma("temp_store", _IN_MEMORY)
        connection.pragma("cache_size", -16384)
        connection.pragma("mmap_size", MAPPED)
        # Weakly, so that the connection of a thread that ended is closed with it.
        self._opened = [reference for reference in self._opened if reference() is not None]
        self._opened.append(weakref.ref(connection))
        return connection

    def _still(self) -> tuple[int, int] | None:
        """Return modification time (ns) and size (bytes) of a file whose folder this process may not write, to notice later
        changes. None where it may, or where the file has a write-ahead log, so that it may be open for writing."""
        if self.in_memory or writable(os.path.dirname(self._where)) or os.path.exists(f"{self._where}-wal"):
            return None
        status = os.stat(self._where)
        return status.st_mtime_ns, status.st_size

    def _require_in_place(self) -> None:
        """Raise NotAMemoryFile if the file was deleted, moved or replaced while open, as what is written to it would be lost."""
        if self._identity is not None and not self._in_place(self._identity):
            raise NotAMemoryFile(f"{moved_files.taken_away(self._where, self._identity)}; nothing was written now")

    def _in_place(self, file: tuple[int, int]) -> bool:
        try:
            return identity(self._where) == file
        except OSError:
            return False

    def _reader(self) -> FileConnection:
        if self.in_memory:
            self._write_lock.acquire()
            return self._writer
        local = self._local
        connection: FileConnection | None = getattr(local, "connection", None)
        # A connection for a file that does not change (see `_still`) is replaced when the file has changed.
        if connection is None or (local.still is not None and local.still != self._still()):
            local.still = self._still() if self.read_only else None
            connection = local.connection = self._connect(True)
            local.hold = _Hold(connection)
        if connection.in_transaction:  # an interrupt left it open
            self._leave(connection)
        connection.execute("BEGIN")
        return connection

    def _leave(self, connection: AnyConnection) -> None:
        if self.in_memory:
            self._write_lock.release()
            return
        try:
            if connection.in_transaction:  # SQLite ends a transaction by itself where the disk refuses a read
                connection.execute("COMMIT")
        finally:
            self._end_queries(connection)

    def _end_queries(self, connection: AnyConnection) -> None:
        if isinstance(connection, FileConnection) and not self.in_memory:
            connection.end_queries()

    def _begun(self) -> FileConnection:
        self._require_in_place()
        self._discard(self._writer)
        try:
            self._writer.execute("BEGIN IMMEDIATE")
        except BaseException:  # such as an interrupt when it had begun
            self._roll_back(self._writer)
            raise
        return self._writer

    def _discard(self, connection: AnyConnection) -> None:
        super()._discard(connection)
        if self._committing == threading.get_ident() and not self.in_memory:
            # Where the disk refused to sync, the write-ahead log holds all of what is refused, and whoever opens the file after
            # a kill would find it there. A write that changes nothing takes its place. It is not synced, as it would be refused,
            # but for the head of a log that begins anew: without that, a loss of power could damage the file.
            replaced = False
            with contextlib.suppress(apsw.Error):
                connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS['process']}")
                connection.execute("BEGIN IMMEDIATE")
                for step in (1, -1):
                    connection.execute(f"UPDATE indexed SET through = through + {step}")
                connection.execute("COMMIT")
                replaced = True
            super()._discard(connection)
            if not replaced and isinstance(connection, apsw.Connection):
                # The refused write was the first of a log that begins anew, so all before it lies in the file, and the log can
                # be cut off. Where there is more in it, or somebody reads from it, nothing happens.
                connection.set_busy_handler(None)
                with contextlib.suppress(apsw.Error):
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                connection.set_busy_handler(_Patience(self._timeout))
            with contextlib.suppress(apsw.Error):
                connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[self._durability]}")

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        try:
            with files_left():  # a search may need a list of words that is read when it is first needed
                yield
        except apsw.FullError as error:
            raise StorageFull(f"no room left for {self.path}: free some space; nothing was written") from error
        except (apsw.ReadOnlyError, apsw.AuthError, apsw.PermissionsError) as error:
            raise ReadOnly(f"{self.path} cannot be written: check its permissions and those of its folder") from error
        except (apsw.NotADBError, apsw.CorruptError, Unreadable, UnicodeDecodeError) as error:
            if getattr(error, "extendedresult", 0) == apsw.SQLITE_CORRUPT_VTAB:
                raise DamagedWords(
                    f"the full-text index of {self.path} is damaged: `keepworth memory compact` makes it anew"
                ) from error
            raise self._damaged(error) from error
        except (apsw.BusyError, apsw.LockedError) as error:
            raise Busy(f"{self.path} was locked by another process for {self._timeout:g} s: try again") from error
        except UnicodeEncodeError as error:
            raise self.invalid(error) from error
        except apsw.SQLError as error:
            if "fts5" in str(error):
                raise self._damaged(error, "the full-text index of ") from error
            if "no such table: vectors_" in str(error):
                raise self.made_anew() from error
            # What is missing, such as a column, was there when the file was opened: its list of tables has changed by itself.
            if "malformed JSON" in str(error) or str(error).startswith("no such "):
                raise self._damaged(error) from error
            raise
        except apsw.IOError as error:
            if none_left():
                raise self._opening_error(error) from error
            if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHORT_READ:  # cut off within its last page
                raise self._damaged("its end is missing") from error
            raise StorageFailed(
                f"the disk refused {self.path} ({error}): look at its file system, quota and limits; nothing was written"
            ) from error
        except apsw.CantOpenError as error:
            raise self._opening_error(error) from error

    def write(self, work: Callable[[AnyConnection], Result]) -> Result:
        try:
            return super().write(work)
        except DamagedWords as damage:
            self.make_words_anew(damage)
            return super().write(work)

    def make_words_anew(self, damage: DamagedWords) -> None:
        if self.read_only:
            raise damage
        logging.getLogger("keepworth.memory").warning("the full-text index of %s is damaged and made anew", self.path)
        super().write(make_anew)

    def _damaged(self, what: object, part: str = "") -> NotAMemoryFile:
        """Note damage, after which nothing is written any more, and return the error to raise. `part` is what is damaged."""
        self._damage = self._damage or str(what)
        return NotAMemoryFile(f"{part}{self.path} is damaged ({what}): restore a backup")

    def _opening_error(self, reason: object) -> MemoryProblem:
        if none_left():
            return TooManyFiles(f"{self.path} cannot be opened: this process {NONE_LEFT}")
        return NotAMemoryFile(f"{self.path} cannot be opened ({reason}): check the path and its folder")

    def truncate_log(self) -> bool:
        if self.in_memory:
            return True
        if self._damage:
            return False
        self.check_open()
        with self._write_lock, self._checkpoints.lock, self.translated():
            return not scalar(self._writer, "PRAGMA wal_checkpoint(TRUNCATE)")

    def exclusive(self, work: Callable[[AnyConnection], Result]) -> Result:
        """Run `work` on the writing connection outside any transaction (VACUUM and the like)."""
        self.check_writable()
        with self._write_lock, self._checkpoints.lock, self.translated():
            return work(self._writer)

    def pack(self, *, optimise: bool = False) -> bool:
        # To overwrite deleted rows (secure_delete) is not enough: pages that were rebalanced keep copies in their unused space.
        def work(connection: AnyConnection) -> None:
            # The new file is put together in a temporary one, which holds nothing erased: in memory it would take as much.
            for place in (_IN_FILES, _IN_MEMORY):
                connection.execute(f"PRAGMA temp_store = {place}")
                try:
                    connection.execute("VACUUM")
                    break
                except (
                    apsw.CantOpenError,
                    apsw.FullError,
                    apsw.IOError,
                ):  # there is no folder, or no room, for such files
                    if place == _IN_MEMORY:
                        raise
                finally:
                    connection.execute(f"PRAGMA temp_store = {_IN_MEMORY}")
            if optimise:
                connection.execute("PRAGMA optimize")

        with self.sparing():
            self.exclusive(work)
        return True

    @contextlib.contextmanager
    def sparing(self) -> Iterator[None]:
        def settle(settings: Mapping[str, int]) -> dict[str, int]:
            with self._write_lock, self.translated():
                before = {name: int(scalar(self._writer, f"PRAGMA {name}") or 0) for name in settings}
                for name, value in settings.items():
                    self._writer.execute(f"PRAGMA {name} = {value}")
                return before

        if self.in_memory:
            yield
            return
        self.check_open()
        before = settle(_SPARING)
        try:
            yield
        finally:
            if not self._closed:
                try:
                    settle(before)
                except MemoryProblem as problem:  # what was to be done is done
                    logging.getLogger(__name__).warning(
                        "%s is read slowly until it is opened again: %s", self.path, problem
                    )

    def forget_samples(self, connection: AnyConnection) -> None:
        if scalar(connection, "SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_stat4'"):
            connection.execute("DELETE FROM sqlite_stat4")

    def damage(self, connection: AnyConnection) -> list[str]:
        # A look-up first, since FTS5 otherwise checks the segments as they were at this connection's last one.
        with contextlib.suppress(apsw.CorruptError):
            connection.full_text.holds(connection, "a")
        return [f"SQLite: {line}" for (line,) in select(connection, "PRAGMA integrity_check(20)") if line != "ok"]

    def size(self) -> int:
        parts = (Path(self.path + suffix) for suffix in ("", "-wal"))
        return sum(file.stat().st_size for file in parts if file.is_file())

    def copy(self, target: Path) -> None:
        copy = apsw.Connection(str(target))
        try:
            with self.reading() as connection, copy.backup("main", connection, "main") as job:
                while not job.done:
                    job.step(2000)
            copy.pragma("journal_mode", "delete")
        finally:
            copy.close(True)

    def _close_connections(self) -> None:
        # The writer is closed last: the last connection removes the write-ahead log, which a reader may not. It has to read
        # something first, as it does not know of the log before.
        if self._identity is not None and not self._in_place(self._identity) and os.path.exists(f"{self._where}-wal"):
            logging.getLogger("keepworth.memory").warning("%s", moved_files.taken_away(self._where, self._identity))
        writer = getattr(self, "_writer", None)
        if writer is not None:
            with contextlib.suppress(apsw.Error):
                select(writer, "SELECT 1 FROM sqlite_schema LIMIT 1")
        with self._checkpoints.lock:
            self._checkpoints.file = None
            for reference in reversed(self._opened):
                connection = reference()
                if connection is not None:
                    with contextlib.suppress(apsw.Error):
                        if self._damage:  # the log stays beside the file: nothing more is written to that
                            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                        connection.close(True)
        self._opened = []
        file, self._identity, self.file = self._identity, None, None
        if file is not None:
            OPEN[file] -= 1
            if not OPEN[file]:
                del OPEN[file]


def _checked(path: object) -> str:
    try:
        text = os.fsdecode(path)  # type: ignore[arg-type]
        text.encode()
    except (TypeError, UnicodeError):
        text = ""
    if not text or "\0" in text:
        raise NotAMemoryFile(
            f"{path!r:.80} is no path of a file: give its name, or ':memory:' for a memory without a file"
        )
    return text
