"""Base class of the databases that hold a memory: access checks, read and write transactions, and group commit.

Writes queue up. Those that wait together run in one transaction, each under its own savepoint, so that a single sync to disk
makes all of them durable.

Ctrl-C raises KeyboardInterrupt after any call of the main thread. So locks are taken by `with` on the lock itself, what an
interrupt may leave open is ended by whoever begins next, and a rollback that is interrupted is done all the same.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from keepworth.memory.errors import (
    DamagedWords,
    EncoderMismatch,
    Forked,
    InvalidText,
    MemoryProblem,
    NewerFile,
    NotAMemoryFile,
    OlderFile,
    ReadOnly,
    StorageFailed,
    StorageFull,
)

if TYPE_CHECKING:
    from keepworth.memory.store.connection import AnyConnection

Result = TypeVar("Result")
FORKED = "{} was open when the process forked, and cannot be used in the child: open it there alone, or start it with 'spawn'"

GATHERING = 0.0005
"""Most seconds that the leader of a group commit waits for others, where a commit costs a sync of several milliseconds."""
LOOK_AGAIN = 1.0
"""Seconds after which a write that waits for its turn takes it: a leader that was interrupted may not have stepped down."""


@dataclass(slots=True, eq=False)
class QueuedWrite:
    """A write that waits to be carried out, and then its result or its error."""

    work: Callable[[AnyConnection], Any]
    done: bool = False
    result: Any = None
    error: BaseException | None = None


class Backend(ABC):
    """Base class of a database that holds one memory: checks access, runs transactions and translates errors.

    Subclasses begin and end transactions, and do what takes SQL of one database alone. With `durability` "process", committed
    writes survive a killed process, with "power" also a machine that goes down."""

    path: str
    errors: tuple[type[Exception], ...]
    """The exceptions that the database's driver raises."""
    has_files = False
    """Whether the memory is a file, beside which other files may belong to it."""
    in_memory = False
    """Whether the memory lies in this process alone and ends with it."""

    def __init__(self, durability: str, read_only: bool, timeout: float) -> None:
        if durability not in ("process", "power"):
            raise MemoryProblem(f"durability {durability!r} does not exist: use 'process' or 'power'")
        self.read_only = read_only
        self._durability = durability
        self._timeout = timeout
        self._closed = False
        self._damage = ""  # the first damage that was found, in words
        self._process = os.getpid()
        self._write_lock = threading.RLock()
        self._gate = (
            threading.Lock()
        )  # of `_queued` and `_led`; a Condition is entered by code that Ctrl-C can interrupt
        self._turn = threading.Condition(self._gate)
        self._queued: list[QueuedWrite] = []
        self._led = 0  # id of the thread that carries out the queued writes; 0 for none
        self._group = 0  # how many writes the last transaction carried out
        self._leader = 0  # id of the thread that is in a write transaction; 0 for none
        self._committing = 0  # id of the thread whose COMMIT is under way, until its errors were translated; 0 for none
        # Of each thread: `reading` is its connection inside `reading()`, and `known` what `once` has read there.
        self._local = threading.local()

    # What each database implements itself.

    @abstractmethod
    def _reader(self) -> AnyConnection:
        """Return a connection to read from, in a transaction that sees one snapshot."""

    @abstractmethod
    def _leave(self, connection: AnyConnection) -> None:
        """End the read transaction of this connection."""

    @abstractmethod
    def _end_queries(self, connection: AnyConnection) -> None:
        """End the queries whose rows were not all read, once their transaction has ended."""

    @abstractmethod
    def translated(self) -> contextlib.AbstractContextManager[None]:
        """Return a context manager that raises the database's errors as this package's own."""

    @abstractmethod
    def _begun(self) -> AnyConnection:
        """Begin a transaction that excludes all other writers, and return its connection. One that an interrupt left open is
        rolled back before. The caller holds the write lock."""

    @abstractmethod
    def _close_connections(self) -> None: ...

    @abstractmethod
    def pack(self, *, optimise: bool = False) -> bool:
        """Overwrite and free the space of deleted rows; with `optimise`, also gather the query planner's statistics. Returns
        False where something deleted remains that this user has no right to remove."""

    def sparing(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which this process holds no more of the memory than it needs, for work on all of it."""
        return contextlib.nullcontext()

    @abstractmethod
    def truncate_log(self) -> bool:
        """Empty the write-ahead log. Returns False where another process prevented it."""

    @abstractmethod
    def forget_samples(self, connection: AnyConnection) -> None:
        """Remove or renew the query planner's samples of column values, which may quote what is erased."""

    @abstractmethod
    def damage(self, connection: AnyConnection) -> list[str]:
        """Return what the database's own integrity check finds wrong."""

    @abstractmethod
    def size(self) -> int:
        """Return the memory's size on disk in bytes."""

    @abstractmethod
    def copy(self, target: Path) -> None:
        """Write a copy of the memory to `target`, a new and empty file."""

    def _check_format(self, version: int | None, ours: int) -> None:
        """Raise NewerFile or OlderFile for a memory of another format than this version of keepworth reads."""
        if version is None or version > ours:
            raise NewerFile(
                f"{self.path} was written by a newer version (format {version}, this one knows {ours}): upgrade keepworth"
            )
        if version < ours:
            raise OlderFile(
                f"{self.path} has format {version}, this version reads {ours}: open it with the version of keepworth that wrote "
                "it, write its items out with `keepworth memory export --to jsonl` and import them here"
            )

    def made_anew(self) -> EncoderMismatch:
        """Return the error to raise when the vectors in use were replaced by those of another encoder."""
        return EncoderMismatch(
            f"the vectors of {self.path} were made anew with another encoder meanwhile: open the memory again, with that one"
        )

    def invalid(self, error: UnicodeEncodeError) -> InvalidText:
        """Return the error to raise for a text that is not valid Unicode."""
        return InvalidText(
            f"{error.object!r:.80} is not valid Unicode: decode it with errors='replace'; nothing was done"
        )

    # Reading.

    def reading(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context with a connection in a read transaction: everything read inside belongs to one snapshot. Contexts
        nest."""
        self.check_open()
        present = getattr(self._local, "reading", None)
        return self._new_reading() if present is None else contextlib.nullcontext(present)

    @contextlib.contextmanager
    def _new_reading(self) -> Iterator[Any]:
        local = self._local
        with self.translated():
            connection = local.reading = self._reader()
            # In memory, the same connection may write meanwhile, so nothing that was read is cached.
            local.known = None if self.in_memory else {}
            try:
                yield connection
            finally:
                local.reading = local.known = None
                self._leave(connection)

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one that opened the memory."""
        return self._process != os.getpid()

    def check_open(self) -> None:
        """Raise Forked in a child of the process that opened the memory, and MemoryProblem after `close`."""
        if self.forked:
            raise Forked(FORKED.format(self.path))
        if self._closed:
            raise MemoryProblem(f"the memory at {self.path} was closed: open it again")

    def once(self, connection: AnyConnection, name: Hashable, read: Callable[[], Result]) -> Result:
        """Return what `read` returns. Inside one `reading`, where nothing changes, the result is cached.

        Args:
            connection: A connection to the memory.
            name: What is read, as the key of the cache.
            read: Reads it.
        """
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
        """Raise ReadOnly for a memory that was opened read-only, NotAMemoryFile where damage was found, and what `check_open`
        raises."""
        self.check_open()
        if self.read_only:
            raise ReadOnly(f"{self.path} is open read-only: open it with write access to change it")
        if self._damage:
            raise NotAMemoryFile(
                f"{self.path} was found to be damaged ({self._damage}), and nothing is written to it any more: "
                "restore a backup"
            )

    def write(self, work: Callable[[AnyConnection], Result]) -> Result:
        """Run `work` in a durable transaction and return its result. Concurrent calls share one transaction. If `work` raises,
        nothing of it is written."""
        self.check_writable()
        if self._leader == threading.get_ident():
            raise MemoryProblem("a write inside a write: do both in one")
        queued = QueuedWrite(work)
        if getattr(self._local, "together", False):
            connection = self._led_connection()
            self._leader = threading.get_ident()
            try:
                self._run(connection, queued)
            finally:
                self._leader = 0
        elif (
            self.in_memory
        ):  # a reader holds the write lock: if it queued a write, two threads could wait for each other
            self._commit([queued])
        else:
            self._join(queued)
        if queued.error is not None:
            raise queued.error
        result: Result = queued.result
        return result

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Inside this context, what this thread writes is one transaction, which begins with the first write and is durable when
        the context ends. A write that fails leaves the others alone. Other writers wait meanwhile, so nothing in between may
        wait for them, or take long."""
        local = self._local
        if self.in_memory or getattr(local, "together", False):
            yield
            return
        local.together, local.opened = True, None
        try:
            yield
        finally:
            local.together, connection, local.opened = False, local.opened, None
            if connection is not None:
                try:
                    with self.translated():
                        self._committing = threading.get_ident()
                        connection.execute("COMMIT")
                except BaseException:
                    self._roll_back(connection)
                    raise
                finally:
                    self._committing = 0
                    self._end_queries(connection)
                    self._write_lock.release()
                    self._step_down()

    def _led_connection(self) -> AnyConnection:
        """Return the connection of the transaction that `together` keeps open. This thread leads until it ends."""
        local = self._local
        if local.opened is None:
            try:
                self._lead()
                self._write_lock.acquire()
                try:
                    with self.translated():
                        local.opened = self._begun()
                except BaseException:
                    self._write_lock.release()
                    raise
            except BaseException:
                self._step_down()
                raise
        connection: AnyConnection = local.opened
        return connection

    def _lead(self, queued: QueuedWrite | None = None) -> bool:
        """Wait until no other thread carries out writes, and then do that. Returns False where this write was done meanwhile."""
        thread = threading.get_ident()
        with self._gate:
            if queued is not None:
                self._queued.append(queued)
            while self._led not in (0, thread) and (queued is None or not queued.done):
                # Two leaders do no harm, as the second waits for the write lock.
                if not self._turn.wait(LOOK_AGAIN) and (queued is None or queued in self._queued):
                    break
            if queued is not None and queued.done:
                return False
            self._led = thread
        return True

    def _step_down(self) -> None:
        """Let another thread carry out the queued writes, if this one does."""
        if self._led == threading.get_ident():
            self._led = 0
            with self._gate:
                self._turn.notify_all()

    def make_words_anew(self, damage: DamagedWords) -> None:
        """Make the full-text index anew from the items. Raises `damage` where that cannot be done."""
        raise damage

    def _join(self, queued: QueuedWrite) -> None:
        """Wait until another thread has carried out this write, or become the leader and carry out all queued writes."""
        try:
            if not self._lead(queued):
                return
            if self._group > 1 and self._durability == "power":
                end = time.monotonic() + GATHERING
                while len(self._queued) < self._group and time.monotonic() < end:
                    time.sleep(GATHERING / 10)
            with self._gate:
                batch, self._queued = self._queued, []
            self._group = len(batch)
            self._commit(batch)
        finally:
            if not queued.done:  # the write of an interrupted thread is not done later
                with self._gate, contextlib.suppress(ValueError):
                    self._queued.remove(queued)
            self._step_down()

    def _commit(self, batch: Sequence[QueuedWrite]) -> None:
        """Carry out a group of writes in one transaction and store the result or the error of each."""
        try:
            with self._write_lock:
                try:
                    with self.translated():
                        self._carry_out(batch)
                finally:
                    self._committing = 0
        except BaseException as error:
            for queued in batch:
                queued.error = queued.error or error
        for queued in batch:
            queued.done = True

    def _carry_out(self, batch: Sequence[QueuedWrite]) -> None:
        """Run a group of writes and commit them. The caller holds the write lock."""
        connection = self._begun()
        try:
            self._leader = threading.get_ident()
            if len(batch) == 1:
                batch[0].result = batch[0].work(connection)
            else:
                for queued in batch:
                    self._run(connection, queued)
            self._committing = self._leader
            connection.execute("COMMIT")
        except BaseException:
            self._roll_back(connection)
            raise
        finally:
            self._leader = 0
            self._end_queries(connection)

    def _run(self, connection: AnyConnection, queued: QueuedWrite) -> None:
        """Carry out one of several writes under a savepoint, so that its failure leaves the others alone."""
        connection.execute("SAVEPOINT one")
        try:
            with self.translated():
                queued.result = queued.work(connection)
                connection.execute("RELEASE one")  # carries out gathered writes at the latest
        except BaseException as error:
            if isinstance(error, (StorageFull, StorageFailed)):  # these concern the whole group
                raise
            connection.execute("ROLLBACK TO one")
            connection.execute("RELEASE one")
            queued.error = error

    def _roll_back(self, connection: AnyConnection) -> None:
        """End a transaction so that nothing of it is there. An interrupt is raised after that: an open transaction would keep all
        other writers out until the next write."""
        interrupt: KeyboardInterrupt | None = None
        while True:
            try:
                self._discard(connection)
                break
            except KeyboardInterrupt as pressed:
                interrupt = pressed
        if interrupt is not None:
            raise interrupt

    def _discard(self, connection: AnyConnection) -> None:
        """Roll a transaction back, if there is one. To do it again does no harm."""
        with contextlib.suppress(*self.errors):
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    # Coming and going.

    def close(self) -> None:
        """Close every connection; later calls raise MemoryProblem."""
        if self.forked:
            return  # the connections are the parent's
        with self._write_lock:
            if not self._closed:
                self._closed = True
                self._close_connections()
