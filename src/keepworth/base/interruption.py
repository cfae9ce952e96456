"""Ctrl-C, SIGTERM, which schedulers, containers and service managers send, and SIGHUP, which a terminal sends that is closed, end
work alike: at a safe point, quietly."""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


class _Section:
    """Work of one thread that an interruption waits for. `say` tells the user that it waits."""

    def __init__(self, say: Callable[[], None]) -> None:
        self.say = say
        self.stopping = False


_HANG_UP = getattr(signal, "SIGHUP", None)
"""None on Windows."""
_sections: dict[int, _Section] = {}
"""The sections that threads are in, by the thread's number."""


@contextmanager
def uninterrupted(say: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Makes the first interruption of this thread wait for the end of the block, where KeyboardInterrupt is then raised. A second
    one does not wait. It holds for interruptions that `interruptible` or `postpone` see.

    Args:
        say: Is called where an interruption has to wait.
    """
    thread = threading.get_ident()
    section = _sections[thread] = _Section(say)
    try:
        yield
    finally:
        del _sections[thread]
    if section.stopping:
        raise KeyboardInterrupt


def postpone(thread: int) -> bool:
    """Whether the thread will be interrupted by itself, at the end of a block of `uninterrupted`. A second call for the same
    block returns False."""
    section = _sections.get(thread)
    if section is None or section.stopping:
        return False
    section.stopping = True
    with suppress(RuntimeError):  # a signal may have come in the middle of a line on the same stream
        section.say()
    return True


def _leave_terminal() -> None:
    """Sends what is still printed to nowhere where it went to a terminal, which is gone: to write there would be an error."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(number).st_mode):
                os.dup2(nowhere, number)
    os.close(nowhere)


class _Interrupt:
    """The handler of these signals. `cancelled` says whether tasks of an event loop were cancelled."""

    def __init__(self) -> None:
        self.cancelled = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if number == _HANG_UP:
            _leave_terminal()
        if postpone(threading.get_ident()):
            return
        if "asyncio" not in sys.modules:  # then no loop runs; importing it would be a tenth of the time that help takes
            raise KeyboardInterrupt
        import asyncio

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise KeyboardInterrupt from None
        if self.cancelled:
            raise KeyboardInterrupt
        self.cancelled = True
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.call_soon_threadsafe(lambda: None)  # it may be waiting for something else to happen


@contextmanager
def interruptible() -> Iterator[None]:
    """Makes these signals raise KeyboardInterrupt in this thread inside the block, where it is the main one.

    Raised in the middle of an asyncio task, it would leave that task, and those that wait for it, with an exception that is never
    retrieved. So while an event loop runs here its tasks are cancelled instead, and KeyboardInterrupt is raised from this block.
    A second signal does not wait for them. A signal stays ignored where it is, as SIGINT in a shell's background jobs and SIGHUP
    below `nohup`, and a program's own handlers stay, too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupt = _Interrupt()
    usual: dict[int, object] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    if _HANG_UP is not None:
        usual[_HANG_UP] = signal.SIG_DFL
    present = {number: signal.getsignal(number) for number in usual}
    before = {n: handler for n, handler in present.items() if handler is usual[n] or isinstance(handler, _Interrupt)}
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
        if interrupt.cancelled:  # a cancelled task may have returned a value
            raise KeyboardInterrupt
    except BaseException as error:
        if interrupt.cancelled and isinstance(error, sys.modules["asyncio"].CancelledError):
            raise KeyboardInterrupt from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
