"""Group commit, and the coming and going of threads: what a memory has, in whatever database it lies.

Writes queue up: those that wait together are carried out in one transaction, each under its own savepoint, so that one sync to
disk pays for all.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from keepworth.memory.errors import MemoryProblem, ReadOnly, ScopeFull, StorageFailed, StorageFull

if TYPE_CHECKING:
    from keepworth.memory.store.connection import AnyConnection

Result = TypeVar("Result")
FORKED = (
    "{} was in use when the process forked, and cannot be used in the child: fork while no thread is in the middle of a call "
    "to it, open it in the child only, or start the child with 'spawn'"
)


class QueuedWrite:
    """A write that waits its turn. woken: released once it is done, or once its thread is to lead."""

    __slots__ = ("error", "lead", "result", "woken", "work")

    def __init__(self, work: Callable[[AnyConnection], Any]) -> None:
        self.work = work
        self.lead = False
        self.woken = threading.Lock()
        self.woken.acquire()
        self.result: Any = None
        self.error: BaseException | None = None


class WriteQueue:
    """commit: carries out a group of queued writes and sets each one's result or error; it does not raise. gathering: seconds a
    leader waits at most for those of the last group, who are on their way again; worth it where a commit costs a sync."""

    def __init__(self, commit: Callable[[Sequence[QueuedWrite]], None], gathering: float = 0.0) -> None:
        self._commit = commit
        self._gathering = gathering
        self._turn = threading.Lock()
        self._waiting: deque[QueuedWrite] = deque()
        self._led = False
        self._leader = 0
        self._group = 0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def carry_out(self, work: Callable[[AnyConnection], Any]) -> Any:
        """What `work` returns, once it is committed; raises what it raised."""
        if self._leader == threading.get_ident():
            raise MemoryProblem("a write inside a write: do both in one")
        queued = QueuedWrite(work)
        with self._turn:
            self._waiting.append(queued)
            queued.lead = not self._led
            self._led = True
        try:
            if not queued.lead:
                queued.woken.acquire()
            if queued.lead:
                self._lead()
        finally:
            self._leave(queued)
        if queued.error is not None:
            raise queued.error
        return queued.result

    def _lead(self) -> None:
        self._leader = threading.get_ident()
        if self._gathering and self._group > 1:
            end = time.monotonic() + self._gathering
            while len(self._waiting) < self._group and time.monotonic() < end:
                time.sleep(self._gathering / 10)
        with self._turn:
            batch = list(self._waiting)
            self._waiting.clear()
        self._group = len(batch)
        try:
            self._commit(batch)
        finally:
            for queued in batch:
                if not queued.lead:
                    queued.woken.release()

    def _leave(self, queued: QueuedWrite) -> None:
        """Whatever happened: what a thread that is gone had asked for is not done later, and where some wait, one leads."""
        with self._turn:
            if queued in self._waiting:
                self._waiting.remove(queued)
            if not queued.lead:
                return
            self._leader = 0
            if self._waiting:
                self._waiting[0].lead = True
                self._waiting[0].woken.release()
            else:
                self._led = False


class ConnectionGate:
    """Counts who is inside; can be closed once all are out. A thread that is inside may enter again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._inside = 0
        self._closed = False
        self._mine = threading.local()

    def enter(self) -> list[int]:
        """Waits while the gate is closed. Give what it returns to `leave`."""
        depth: list[int] | None = getattr(self._mine, "depth", None)
        if depth is None:
            depth = self._mine.depth = [0]
        if not depth[0]:
            with self._lock:
                while self._closed:
                    self._changed.wait()
                self._inside += 1
        depth[0] += 1
        return depth

    def leave(self, depth: list[int]) -> None:
        depth[0] -= 1
        if not depth[0]:
            with self._lock:
                self._inside -= 1
                if self._closed:
                    self._changed.notify_all()

    def close(self, patience: float) -> bool:
        """Let nobody in any more, and wait until all are out; False, and open again, where this thread is inside itself or others
        do not come out in time."""
        if getattr(self._mine, "depth", [0])[0]:
            return False
        end = time.monotonic() + patience
        with self._changed:
            self._closed = True
            while self._inside:
                left = end - time.monotonic()
                if left <= 0.0:
                    self._closed = False
                    self._changed.notify_all()
                    return False
                self._changed.wait(left)
        return True

    def open(self) -> None:
        with self._changed:
            self._closed = False
            self._changed.notify_all()


class QueuedDatabase(ABC):
    """What both kinds of `connection.Backend` do alike. Whoever builds on it carries out writes in `_carried_out`."""

    path: str
    read_only: bool
    _closed: bool
    _forked: bool
    _process: int
    _gate: ConnectionGate
    _local: threading.local
    """Of each thread. known: what was asked inside the present `reading`, of `connection`; later: writes that wait."""

    @abstractmethod
    def _refuse(self) -> None:
        """Raise for what was closed, or carried into a child."""

    @abstractmethod
    def _carried_out(self, work: Callable[[AnyConnection], Result]) -> Result: ...

    @abstractmethod
    def translated(self) -> contextlib.AbstractContextManager[None]:
        """The database's errors as ours."""

    def _enter(self) -> list[int]:
        """Begin to use connections. Give what it returns to `self._gate.leave`."""
        if self._closed or self._forked or self._process != os.getpid():
            self._refuse()
        return self._gate.enter()

    def once(self, connection: AnyConnection, name: Hashable, read: Callable[[], Result]) -> Result:
        """What `read` finds through `connection`; inside one `reading`, where nothing changes, it is asked once for each name."""
        local = self._local
        known: dict[Hashable, Any] | None = getattr(local, "known", None)
        if known is None or connection is not local.connection:
            return read()
        if name not in known:
            known[name] = read()
        found: Result = known[name]
        return found

    def write(self, work: Callable[[AnyConnection], Result]) -> Result:
        """Run `work` in a durable transaction; concurrent calls share one. If it raises, nothing of it was written."""
        earlier: list[Callable[[AnyConnection], Any]] | None = getattr(self._local, "later", None)
        if not earlier:
            return self._carried_out(work)
        before = list(earlier)
        earlier.clear()

        def all_in_turn(connection: AnyConnection) -> Result:
            for each in before:
                each(connection)
            return work(connection)

        try:
            return self._carried_out(all_in_turn)
        except BaseException:
            earlier[:0] = before  # what is wrong with this write is not wrong with those before it
            raise

    def write_later(self, work: Callable[[AnyConnection], None]) -> None:
        """As `write`, of what this thread does not read back before it leaves `together`: inside that, it is written with the
        next write or at the end, whichever comes first."""
        later: list[Callable[[AnyConnection], Any]] | None = getattr(self._local, "later", None)
        if later is None:
            self.write(work)
        else:
            self.check_writable()
            later.append(work)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Inside, writes of this thread that nothing is read back of share a transaction: see `write_later`. They are durable
        when it is left, also by an error."""
        if getattr(self._local, "later", None) is not None:
            yield
            return
        self._local.later = []
        try:
            yield
        finally:
            left, self._local.later = self._local.later, None
            if left:
                self._carried_out(lambda connection: [each(connection) for each in left])

    def check_writable(self) -> None:
        """Raise ReadOnly for a file that was opened so."""
        if self.read_only:
            raise ReadOnly(f"{self.path} is open read-only: open it with write access to change it")

    def _run(self, connection: AnyConnection, queued: QueuedWrite) -> None:
        """One of several in a transaction: what goes wrong with it is its own."""
        connection.execute("SAVEPOINT one")
        try:
            with self.translated():
                queued.result = queued.work(connection)
                connection.execute("RELEASE one")  # a server carries out its writes at the latest now
        except BaseException as error:
            # A full disk is everybody's; a full scope is that of whoever writes to it.
            if isinstance(error, (StorageFull, StorageFailed)) and not isinstance(error, ScopeFull):
                raise
            connection.execute("ROLLBACK TO one")
            connection.execute("RELEASE one")
            queued.error = error

    @property
    def forked(self) -> bool:
        """Whether this process was forked while its parent was in the middle of using the memory: see `errors.Forked`."""
        return self._forked
