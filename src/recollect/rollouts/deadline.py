"""Deadlines: a limit of time for what other people's code does, told apart from the timeouts that it raises itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")
GRACE = 1.0
"""Seconds for what is given up to give back what it holds."""


class OutOfTime(Exception):
    """The deadline has passed. What was waited for has been told to stop."""


async def within(work: Awaitable[T], seconds: float) -> T:
    """The result of `work`, or whatever it raises, a TimeoutError of its own included. Raises OutOfTime after `seconds`.

    `asyncio.wait_for` raises the same error for both, and waits for ever for work that does not let itself be cancelled."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        await _stop(task)
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
