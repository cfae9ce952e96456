"""Several processes that serve one memory at one address: the *workers*.

The first process listens, and hands each connection to the worker whose turn it is, so that each has as many as any other. A
worker is a `MemoryServer` that listens to nothing but that. It ends when the first process ends, however that happens; one that
ends by itself is replaced.

The file is safe for many writers, and what a worker has read of it follows the journal. What one worker has to know of another
beyond the file is which persons' last turns are answered and not stored yet (`UnstoredTurns`). See "Several processes" in
docs/server.md for what each worker has of its own.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import selectors
import signal
import socket
import threading
import zlib
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepworth.base.errors import KeepworthError
from keepworth.memory.place import MemoryPlace, place_of
from keepworth.serving.http_server import LOOPBACK, address, bind

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess
    from typing import Self

_LOG = logging.getLogger("keepworth.serving")
_SPAWN = multiprocessing.get_context("spawn")
SLOTS = 4096
"""Persons with the same number modulo this wait for one another."""
MOST_FAILURES = 3
"""After so many workers in a row that ended before they served, no other one is started."""
ENDING = 20
"""The seconds after which a worker that was told to end is killed."""
_AT_ONCE = 64
"""The most connections that are handed over before anything else is looked at."""
_CONNECTION, _SERVES = b"c", b"s"


class UnstoredTurns:
    """How many turns of each person every worker has answered and not stored yet, in memory that all workers share. Each worker
    changes its part alone, in one thread."""

    def __init__(self, workers: int) -> None:
        self._counts: Any = _SPAWN.RawArray("H", workers * SLOTS)
        self._worker = 0

    def of_worker(self, number: int) -> Self:
        """Count for this worker from now on, which begins with none."""
        self._worker = number
        for slot in range(SLOTS):
            self._counts[number * SLOTS + slot] = 0
        return self

    def count(self, whose: tuple[str, str], by: int) -> None:
        """Add to the count of a tenant's person."""
        self._counts[self._worker * SLOTS + self._slot(whose)] += by

    async def stored(self, whose: tuple[str, str], seconds: float) -> None:
        """Wait until the other workers have stored the turns of a person, for some seconds at most."""
        slot, end = self._slot(whose), asyncio.get_running_loop().time() + seconds
        others = [start + slot for start in range(0, len(self._counts), SLOTS) if start != self._worker * SLOTS]
        while any(self._counts[place] for place in others) and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.005)

    @staticmethod
    def _slot(whose: tuple[str, str]) -> int:
        return zlib.crc32(repr(whose).encode("utf-8", "surrogatepass")) % SLOTS


class HandedConnections(socket.socket):
    """What a worker listens to: the first process sends it connections. `ended` is set once it sends no more."""

    def __init__(self, channel: socket.socket) -> None:
        super().__init__(channel.family, channel.type, channel.proto, channel.detach())
        self.ended = threading.Event()

    def listen(self, backlog: int = 0, /) -> None:
        """Do nothing: the first process listens."""

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection and its address. Raises BlockingIOError if there is none now."""
        try:
            sent, numbers, *_ = socket.recv_fds(self, 1, 1)
        except ConnectionError:
            sent, numbers = b"", []
        if not sent:
            self.ended.set()
        if not numbers:
            raise BlockingIOError
        connection = socket.socket(fileno=numbers[0])
        try:
            return connection, connection.getpeername()
        except OSError as error:  # the caller hung up meanwhile
            connection.close()
            raise ConnectionAbortedError from error


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """The place of a `MemoryServer` among the `count` processes that serve a memory."""

    listener: HandedConnections
    count: int
    unstored: UnstoredTurns


def _work(channel: socket.socket, count: int, unstored: UnstoredTurns, number: int, options: Mapping[str, Any]) -> None:
    """Serve the connections that come through `channel`, until it ends or the process is terminated."""
    from keepworth.memory.telemetry import export_spans
    from keepworth.serving.memory_server import MemoryServer

    export_spans()
    listener = HandedConnections(channel)
    signal.signal(signal.SIGTERM, lambda *_: listener.ended.set())
    try:
        with MemoryServer(**options, place=WorkerPlace(listener, count, unstored.of_worker(number))):
            with suppress(OSError):  # the first process has ended meanwhile, which `accept` sees
                listener.send(_SERVES)
            listener.ended.wait()
    except KeepworthError as error:
        _LOG.error("A worker could not serve: %s", error)
        raise SystemExit(1) from None


@dataclass(slots=True, eq=False)
class _Worker:
    number: int
    process: SpawnProcess
    channel: socket.socket
    serves: threading.Event = field(default_factory=threading.Event)


class Workers:
    """Serves the memory at `path` by `count` processes, from `start` to `close`, or inside a `with` block.

    Args:
        token: The token that allows everything until the workers end; a new one if not given.
        say: Is called with a line whenever a worker ends by itself.
        options: Options of `MemoryServer` that another process can be given: `upstream` is an address.
    """

    def __init__(
        self,
        count: int,
        path: str | Path | MemoryPlace,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        token: str = "",
        say: Callable[[str], None] = _LOG.warning,
        **options: Any,
    ) -> None:
        from keepworth.serving.access import new_token
        from keepworth.serving.memory_server import MemoryServer

        if not hasattr(socket, "send_fds"):
            raise KeepworthError("This system cannot hand connections to other processes.", "Leave --workers out.")
        if place_of(path).given == ":memory:":
            raise KeepworthError("A memory that is in no file cannot be served by several processes.", "Name a file.")
        self._options = {"path": path, "host": host, "token": token or new_token(), **options}
        # So that what is wrong is said before anything is started, and the file is there.
        with closing(MemoryServer(**self._options)) as tried:
            self.token, self.mcp, self.keyless, self.leads_to = tried.token, tried.mcp, tried.keyless, tried.leads_to
        self.count, self._say = count, say
        self._unstored = UnstoredTurns(count)
        self._socket = bind(host, port)
        self._socket.setblocking(False)
        self.url = address(host, int(self._socket.getsockname()[1]))
        self._wake, self._woken = socket.socketpair()
        self._workers: list[_Worker] = []
        self._turn = self._failures = 0
        self.failure: KeepworthError | None = None
        self._serves, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="workers", daemon=True)

    @property
    def processes(self) -> list[int]:
        """Return the numbers of the workers' processes."""
        return [worker.process.pid or 0 for worker in self._workers]

    def start(self) -> Self:
        """Start the workers, and return once all of them serve. Raises KeepworthError if they do not."""
        self._workers += [self._started(number) for number in range(self.count)]
        self._thread.start()
        try:
            self._serves.wait()
            if self.failure is not None:
                raise self.failure
        except BaseException:  # such as Ctrl-C
            self.close()
            raise
        return self

    def wait(self) -> None:
        """Wait until the workers have ended. Raises KeepworthError if they could not go on."""
        self._ended.wait()
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """End the workers. They finish what they are answering, and take nothing new."""
        with suppress(OSError):
            self._wake.send(_SERVES)
        if self._thread.ident is not None:
            self._ended.wait()
        for worker in self._workers:
            worker.channel.close()
        for worker in self._workers:
            worker.process.join(ENDING)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        for end in (self._socket, self._wake, self._woken):
            end.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _started(self, number: int) -> _Worker:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            arguments = (theirs, self.count, self._unstored, number, self._options)
            process = _SPAWN.Process(target=_work, args=arguments, name=f"worker {number + 1}", daemon=True)
            # A terminal sends Ctrl-C to all; the first process says when the others end.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
            try:
                process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return _Worker(number, process, ours)

    def _run(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ, self._hand_over)
                selector.register(self._woken, selectors.EVENT_READ, None)
                for worker in self._workers:
                    self._watch(selector, worker)
                while self.failure is None:
                    for key, _ in selector.select():
                        if key.data is None:
                            return
                        key.data()
        except OSError as error:  # as where there may be no more processes or open files
            self.failure = KeepworthError(f"The workers cannot be looked after ({error.strerror}).", "Start it again.")
        finally:
            self._serves.set()
            self._ended.set()

    def _watch(self, selector: selectors.BaseSelector, worker: _Worker) -> None:
        selector.register(worker.channel, selectors.EVENT_READ, lambda: self._heard(selector, worker))
        selector.register(worker.process.sentinel, selectors.EVENT_READ, lambda: self._replace(selector, worker))

    def _heard(self, selector: selectors.BaseSelector, worker: _Worker) -> None:
        """Note that a worker serves; one that ends is seen by its process."""
        if worker not in self._workers:  # it was replaced a moment ago
            return
        selector.unregister(worker.channel)
        with suppress(OSError):
            if worker.channel.recv(1):
                self._failures = 0
                worker.serves.set()
        if all(other.serves.is_set() for other in self._workers):
            self._serves.set()

    def _replace(self, selector: selectors.BaseSelector, worker: _Worker) -> None:
        """Start another worker in the place of one that has ended."""
        selector.unregister(worker.process.sentinel)
        if worker.channel in selector.get_map():
            selector.unregister(worker.channel)
        worker.channel.close()
        worker.process.join()
        code = worker.process.exitcode or 0
        self._failures += not worker.serves.is_set()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        if self._failures == MOST_FAILURES:
            message = f"{MOST_FAILURES} workers in a row ended before they served ({how})."
            self.failure = KeepworthError(message, "What they printed says why.")
            return
        self._say(f"Worker {worker.number + 1} ended ({how}); another one takes its place.")
        new = self._workers[self._workers.index(worker)] = self._started(worker.number)
        self._watch(selector, new)

    def _hand_over(self) -> None:
        """Accept the connections that wait, and send each to the worker whose turn it is, or the next one that takes it."""
        for _ in range(_AT_ONCE):
            try:
                connection, _ = self._socket.accept()
            except OSError:  # there is none any more, or the caller has hung up
                return
            with connection:
                for worker in [self._next() for _ in range(self.count)]:
                    with suppress(OSError):  # it has just ended, or its queue is full
                        socket.send_fds(worker.channel, [_CONNECTION], [connection.fileno()])
                        break

    def _next(self) -> _Worker:
        self._turn = (self._turn + 1) % self.count
        return self._workers[self._turn]
