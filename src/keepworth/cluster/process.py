"""A worker's process on this machine: it makes one object, and answers calls of its methods. `LocalCluster` starts it.

Both sides speak over a pair of sockets, in pickles. The process ends when it is told to, and at once, with whatever it began,
when the other side is gone: a controller that is killed leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import pickle
import queue
import signal
import sys
import threading
import time
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from keepworth.cluster.sending import raised
from keepworth.episodes.errors import KeepworthError

STANDS = 0
"""The number of the answer that says that the object is made."""
ALIVE = -1
"""The number of what answers nothing: a sign of life."""


def made(target: str, settings: dict[str, Any]) -> Any:
    """The object of a `Part`. Raises KeepworthError where there is no such class."""
    module, _, name = target.partition(":")
    try:
        kind = getattr(importlib.import_module(module), name)
    except (ModuleNotFoundError, AttributeError, ValueError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name != module:
            raise
        raise KeepworthError(f"there is no {target!r} for a worker: {error}.", "Name it as module:Class.") from error
    return kind(**settings)


def answers_beside(kind: type) -> bool:
    """Whether a worker of this class has calls that go on beside each other."""
    return any(inspect.iscoroutinefunction(each) for _, each in inspect.getmembers(kind))


class _Process:
    """pause: seconds between two signs of life."""

    def __init__(self, connection: Connection, pause: float) -> None:
        self._connection, self._pause = connection, pause
        self._asked: queue.SimpleQueue[tuple[int, str, bytes] | None] = queue.SimpleQueue()
        self._sending = threading.Lock()

    def run(self) -> None:
        threading.Thread(target=self._read, daemon=True, name="calls").start()
        threading.Thread(target=self._beat, daemon=True, name="signs of life").start()
        asked = self._asked.get()
        assert asked is not None
        try:
            served = made(asked[1], pickle.loads(asked[2]))
        except BaseException as error:
            self._answer(STANDS, raised(error))
            raise SystemExit(1) from None
        self._answer(STANDS, None)
        if answers_beside(type(served)):
            asyncio.run(self._beside(served))
        else:
            self._in_turn(served)

    def _read(self) -> None:
        """Takes calls also while one is answered: the other side never waits for room, and its end is seen at once."""
        try:
            while True:
                number, method = pickle.loads(self._connection.recv_bytes())
                if number < 0:
                    self._asked.put(None)
                    return
                self._asked.put((number, method, self._connection.recv_bytes()))
        except (EOFError, OSError):
            os.killpg(0, signal.SIGKILL)  # the group is this process's own, with all that it began

    def _beat(self) -> None:
        """From a thread of its own, whatever the calls do."""
        sign = pickle.dumps(ALIVE)
        with suppress(OSError):  # nobody is there to hear it; `_read` ends the process
            while True:
                with self._sending:
                    self._connection.send_bytes(sign)
                time.sleep(self._pause)

    def _in_turn(self, served: Any) -> None:
        while (asked := self._asked.get()) is not None:
            number, method, given = asked
            try:
                answer = getattr(served, method)(*pickle.loads(given))
            except BaseException as error:
                self._failed(number, error)
            else:
                self._answer(number, answer)

    async def _beside(self, served: Any) -> None:
        loop, going = asyncio.get_running_loop(), set[asyncio.Task[None]]()
        waits = ThreadPoolExecutor(1)  # a thread of its own: what the object does in threads may take all others
        while (asked := await loop.run_in_executor(waits, self._asked.get)) is not None:
            number, method, given = asked
            try:
                answer = getattr(served, method)(*pickle.loads(given))
            except BaseException as error:
                self._failed(number, error)
                continue
            if inspect.isawaitable(answer):
                task = loop.create_task(self._later(number, answer))
                going.add(task)
                task.add_done_callback(going.discard)
            else:
                self._answer(number, answer)

    async def _later(self, number: int, answer: Awaitable[Any]) -> None:
        try:
            self._answer(number, await answer)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._failed(number, error)

    def _failed(self, number: int, error: BaseException) -> None:
        self._answer(number, raised(error))
        if isinstance(error, SystemExit | KeyboardInterrupt):
            raise error

    def _answer(self, number: int, answer: Any) -> None:
        try:
            given = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            given = pickle.dumps(raised(KeepworthError(f"what it returned cannot be sent: {error}")))
        try:
            with self._sending:
                self._connection.send_bytes(pickle.dumps(number))
                self._connection.send_bytes(given)
        except OSError:  # nobody is there to hear it; `_read` ends the process
            pass


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interruption is the controller's, which ends its workers
    handle = int(sys.argv[1])
    os.set_inheritable(handle, False)
    _Process(Connection(handle), float(sys.argv[2])).run()


if __name__ == "__main__":
    main()
