"""Ctrl-C and SIGTERM, which schedulers, containers and service managers send, end a command alike: at a safe point, quietly."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside, both signals raise KeyboardInterrupt in this thread, where it is the main one.

    Raised in the middle of an asyncio task it would leave that task, and those that wait for it, with an exception that nobody
    retrieves. So while an event loop runs here its tasks are cancelled instead, and KeyboardInterrupt comes out of this block.
    A second signal does not wait for them. SIGINT stays ignored where it is, as in a shell's background jobs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    cancelled = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal cancelled
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise KeyboardInterrupt from None
        if cancelled:
            raise KeyboardInterrupt
        cancelled = True
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.call_soon_threadsafe(lambda: None)  # it may be waiting for something else to happen

    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        numbers.append(signal.SIGINT)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
        if cancelled:  # whoever was cancelled may have made a value of it
            raise KeyboardInterrupt
    except asyncio.CancelledError:
        if cancelled:
            raise KeyboardInterrupt from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
