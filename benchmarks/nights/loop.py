"""An event loop and threads for a night: time passes at once where nothing is to be done, and each thread does its work in order,
whole, at drawn moments."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from benchmarks.nights.world import World


class Stuck(Exception):
    """Nothing is ready, and nothing will be: whoever waits waits for ever."""


class _Waiting(selectors.SelectSelector):
    """Waits by letting the time of a world pass."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None:
            raise Stuck
        self._world.seconds += max(timeout, 1e-6)  # less may not be seen by a clock of this size
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop that goes by the clock of a world.

    Args:
        world: The clock.
    """

    def __init__(self, world: World) -> None:
        super().__init__(_Waiting(world))
        self._world = world
        self._clock_resolution = 1e-6  # floats at this time are not finer

    def time(self) -> float:
        return self._world.seconds


class Lane(Executor):
    """A thread of a process: it does one thing after the other, each at once, and drawn times lie between them.

    Args:
        loop: The event loop, which the work interrupts.
        pause: Returns the seconds until the next piece of work.
        acting: Returns the context in which the work is done.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pause: Callable[[], float],
        acting: Callable[[], contextlib.AbstractContextManager[Any]],
    ) -> None:
        self._loop, self._pause, self._acting = loop, pause, acting
        self._jobs: list[tuple[Future[Any], Callable[[], Any]]] = []
        self._under_way = False
        self.dead = False

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.append((future, lambda: function(*arguments, **named)))
        if not self._under_way:
            self._under_way = True
            self._loop.call_later(self._pause(), self._next)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        pass

    def _next(self) -> None:
        if self.dead:  # the process was killed, and nobody gets an answer
            return
        future, work = self._jobs.pop(0)
        if future.set_running_or_notify_cancel():
            with self._acting():
                try:
                    result = work()
                except Exception as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
        self._under_way = bool(self._jobs)
        if self._jobs:
            self._loop.call_later(self._pause(), self._next)
