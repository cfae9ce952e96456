"""One memory in whatever database it lies: who may use it, and group commit.

Writes queue up: those that wait together are carried out in one transaction, each under its own savepoint, so that one sync to
disk pays for all.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from keepworth.memory.errors import (
    EncoderMismatch,
    Forked,
    InvalidText,
    MemoryProblem,
    ReadOnly,
    StorageFailed,
    StorageFull,
)

if TYPE_CHECKING:
    from keepworth.memory.store.connection import AnyConnection

Result = TypeVar("Result")
FORKED = "{} was open when the process forked, and cannot be used in the child: open it there alone, or start it with 'spawn'"

GATHERING = 0.0005
"""Seconds a leader waits at most for others to join, where a commit costs a sync of several milliseconds."""


class QueuedWrite:
    """A write that waits its turn."""

    __slots__ = ("done", "error", "result", "work")

    def __init__(self, work: Callable[[AnyConnection], Any]) -> None:
        self.work = work
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None


class Backend(ABC):
    """One memory in a database: whose it is, who may write, what a failure means.

    Whoever builds on it says how a transaction begins and ends, and what only its database has words for. durability: "process"
    survives a killed process, "power" also a lost machine."""

    path: str
    errors: tuple[type[Exception], ...]
    """What the database raises by itself."""
    place = Path()
    """Where the file lies; only where it `has_files`."""
    in_memory = False
    """Whether it goes with this process."""

    def __init__(self, durability: str, read_only: bool, timeout: float) -> None:
        if durability not in ("process", "power"):
            raise MemoryProblem(f"durability {durability!r} does not exist: use 'process' or 'power'")
        self.read_only = read_only
        self._durability = durability
        self._timeout = timeout
        self._closed = False
        self._process = os.getpid()
        self._write_lock = threading.RLock()
        self._turn = threading.Condition()
        self._queued: list[QueuedWrite] = []
        self._led = False  # whether a thread carries out what waits
        self._group = 0  # how many writes the last transaction carried out
        self._leader = 0  # the thread that is in a transaction
        # Of each thread. reading: its connection inside `reading`, and known: what was asked there.
        self._local = threading.local()

    # What each database does in its own words.

    @abstractmethod
    def _reader(self) -> AnyConnection:
        """A connection to read from, in a transaction that sees one moment."""

    @abstractmethod
    def _leave(self, connection: AnyConnection) -> None:
        """Nothing more is read from this connection."""

    @abstractmethod
    def translated(self) -> contextlib.AbstractContextManager[None]:
        """The database's errors as ours."""

    @abstractmethod
    def _begun(self) -> AnyConnection:
        """The connection to write with, in a transaction that no other process writes beside; the caller holds the write lock."""

    @abstractmethod
    def _close_connections(self) -> None: ...

    @property
    def has_files(self) -> bool:
        """Whether it is a file, beside which others may lie."""
        return False

    @abstractmethod
    def pack(self, *, optimise: bool = False) -> bool:
        """Overwrite and give back what rows left behind. optimise: gather, too, what queries are planned by. False where
        something stays that this user cannot reach."""

    @abstractmethod
    def truncate_log(self) -> bool:
        """Empty the log of writes. False where another process prevented it."""

    @abstractmethod
    def forget_samples(self, connection: AnyConnection) -> None:
        """Samples of values, which queries are planned by, may quote what is erased."""

    @abstractmethod
    def damage(self, connection: AnyConnection) -> list[str]:
        """What the database itself finds wrong."""

    @abstractmethod
    def size(self) -> int:
        """Bytes on disk."""

    @abstractmethod
    def copy(self, target: Path) -> None:
        """Write what it holds to the new, empty file `target`."""

    def made_anew(self) -> EncoderMismatch:
        """What is raised where vectors are gone that were there."""
        return EncoderMismatch(
            f"the vectors of {self.path} were made anew with another encoder meanwhile: open the memory again, with that one"
        )

    def invalid(self, error: UnicodeEncodeError) -> InvalidText:
        """What is raised where a text is no Unicode."""
        return InvalidText(
            f"{error.object!r:.80} is not valid Unicode: decode it with errors='replace'; nothing was done"
        )

    # Reading.

    @contextlib.contextmanager
    def reading(self) -> Iterator[Any]:
        """A connection in a read transaction: everything read inside is of one moment. Nests."""
        self.check_open()
        local = self._local
        present = getattr(local, "reading", None)
        if present is not None:
            yield present
            return
        with self.translated():
            connection = local.reading = self._reader()
            # Who reads what lies in memory may write to it meanwhile, on the same connection.
            local.known = None if self.in_memory else {}
            try:
                yield connection
            finally:
                local.reading = local.known = None
                self._leave(connection)

    @property
    def forked(self) -> bool:
        """Whether it is another process's: this one is a child of that."""
        return self._process != os.getpid()

    def check_open(self) -> None:
        """Raise Forked in a child of the process that opened it, and MemoryProblem where it was closed."""
        if self.forked:
            raise Forked(FORKED.format(self.path))
        if self._closed:
            raise MemoryProblem(f"the memory at {self.path} was closed: open it again")

    def once(self, connection: AnyConnection, name: Hashable, read: Callable[[], Result]) -> Result:
        """What `read` finds through `connection`; inside one `reading`, where nothing changes, it is asked once for each name."""
        local = self._local
        asked: dict[Hashable, Any] | None = getattr(local, "known", None)
        if asked is None or connection is not local.reading:
            return read()
        if name not in asked:
            asked[name] = read()
        result: Result = asked[name]
        return result

    # Writing.

    def check_writable(self) -> None:
        """Raise ReadOnly for a file that was opened so, and where it can be used no more."""
        self.check_open()
        if self.read_only:
            raise ReadOnly(f"{self.path} is open read-only: open it with write access to change it")

    def write(self, work: Callable[[AnyConnection], Result]) -> Result:
        """Run `work` in a durable transaction; concurrent calls share one. If it raises, nothing of it was written."""
        self.check_writable()
        if self._leader == threading.get_ident():
            raise MemoryProblem("a write inside a write: do both in one")
        queued = QueuedWrite(work)
        if self.in_memory:  # whoever reads that holds the lock, and may write meanwhile
            self._commit([queued])
        else:
            self._join(queued)
        if queued.error is not None:
            raise queued.error
        result: Result = queued.result
        return result

    def _join(self, queued: QueuedWrite) -> None:
        """Wait until another thread has carried out this write, or lead and carry out all that wait."""
        with self._turn:
            self._queued.append(queued)
            try:
                while self._led and not queued.done:
                    self._turn.wait()
            except BaseException:
                if queued in self._queued:  # what a thread that gave up had asked for is not done later
                    self._queued.remove(queued)
                raise
            if queued.done:
                return
            self._led = True
        try:
            if self._group > 1 and self._durability == "power":
                end = time.monotonic() + GATHERING
                while len(self._queued) < self._group and time.monotonic() < end:
                    time.sleep(GATHERING / 10)
            with self._turn:
                batch, self._queued = self._queued, []
            self._group = len(batch)
            self._commit(batch)
        finally:
            with self._turn:
                if queued in self._queued:
                    self._queued.remove(queued)
                self._led = False
                self._turn.notify_all()

    def _commit(self, batch: Sequence[QueuedWrite]) -> None:
        """Carry out a group of writes in one transaction; note the result or the error of each."""
        try:
            with self._write_lock, self.translated():
                connection = self._begun()
                self._leader = threading.get_ident()
                try:
                    if len(batch) == 1:
                        batch[0].result = batch[0].work(connection)
                    else:
                        for queued in batch:
                            self._run(connection, queued)
                    self._end(connection)
                except BaseException:
                    self._roll_back(connection)
                    raise
                finally:
                    self._leader = 0
        except BaseException as error:
            for queued in batch:
                queued.error = queued.error or error
        for queued in batch:
            queued.done = True

    def _run(self, connection: AnyConnection, queued: QueuedWrite) -> None:
        """One of several in a transaction: what goes wrong with it is its own."""
        connection.execute("SAVEPOINT one")
        try:
            with self.translated():
                queued.result = queued.work(connection)
                connection.execute("RELEASE one")  # a server carries out its writes at the latest now
        except BaseException as error:
            if isinstance(error, (StorageFull, StorageFailed)):  # everybody's
                raise
            connection.execute("ROLLBACK TO one")
            connection.execute("RELEASE one")
            queued.error = error

    def _end(self, connection: AnyConnection) -> None:
        connection.execute("COMMIT")

    def _roll_back(self, connection: AnyConnection) -> None:
        with contextlib.suppress(*self.errors):
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    # Coming and going.

    def close(self) -> None:
        """Close every connection; further calls are refused."""
        if self.forked:
            return  # the connections are the parent's
        with self._write_lock:
            if not self._closed:
                self._closed = True
                self._close_connections()
