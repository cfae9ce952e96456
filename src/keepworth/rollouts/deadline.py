"""Deadlines: a limit of time for what other people's code does, told apart from the timeouts that it raises itself.

A limit acts where the code awaits. Code that computes or sleeps without awaiting holds up the whole event loop, its own
deadline included: nothing can end it, so a warning from another thread names it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")
GRACE = 1.0
"""Seconds for what is given up to give back what it holds."""
BLOCKED_AFTER = 10.0
"""Seconds without an await after which code is said to hold up the loop."""

_LOG = logging.getLogger("keepworth.rollouts")


class OutOfTime(Exception):
    """The deadline has passed. What was waited for has been told to stop."""


async def within(work: Awaitable[T], seconds: float, name: str = "A rollout") -> T:
    """The result of `work`, or whatever it raises, a TimeoutError of its own included. Raises OutOfTime after `seconds`.

    `asyncio.wait_for` raises the same error for both, and waits for ever for work that does not let itself be cancelled.
    name: what a warning calls it where it holds up the loop."""
    task = asyncio.ensure_future(_Watched(work, name))
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        try:
            await _stop(task)
        finally:
            if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()  # else Python says that nobody awaited it
        raise
    if not done:
        await _stop(task)
        raise OutOfTime
    if task.cancelled():  # from inside: to whoever waits here that is a failure, not the end of the program
        raise RuntimeError("it cancelled itself")
    return task.result()


async def _stop(task: asyncio.Future[T]) -> None:
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=GRACE)
    if done and not task.cancelled():
        task.exception()  # looked at, so that nobody is told that it was not


class Watch:
    """Who is running on which event loop without awaiting, and since when. One loop runs in one thread at a time."""

    def __init__(self) -> None:
        self.running: dict[int, tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self, name: str) -> None:
        self.running[threading.get_ident()] = name, time.monotonic()
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._look, daemon=True, name="blocked loops")
                    self._thread.start()

    def end(self) -> None:
        self.running.pop(threading.get_ident(), None)

    def blocked(self, now: float, seconds: float) -> list[tuple[str, float]]:
        """(name, since) of those that have run for longer than `seconds` at a stretch."""
        return [(name, since) for name, since in list(self.running.values()) if now - since > seconds]

    def _look(self) -> None:
        known: set[tuple[str, float]] = set()
        while True:
            time.sleep(min(1.0, BLOCKED_AFTER / 4))
            found = set(self.blocked(time.monotonic(), BLOCKED_AFTER))
            for name, _ in found - known:
                _LOG.warning(
                    "%s has not awaited anything for %g s: no other episode goes on meanwhile, and no time limit can "
                    "end it. Put code that blocks into a thread: context.call(function, ...), or Blocking(environment).",
                    name,
                    BLOCKED_AFTER,
                )
            known = found


WATCH = Watch()


class _Watched(Generic[T]):
    """`work`, every stretch of which between two awaits is noted."""

    def __init__(self, work: Awaitable[T], name: str) -> None:
        self._work, self._name = work, name

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        step, sent = steps.send, None
        while True:
            WATCH.begin(self._name)
            try:
                awaited = step(sent)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                WATCH.end()
            try:
                sent = yield awaited
                step = steps.send
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:
                step, sent = steps.throw, error
