"""What happens to open memories when the process forks.

SQLite's connections cannot be carried into a forked process, nor can threads, nor locks that some other thread holds. So before
the process forks, what waits is written and every connection is closed, and both sides open theirs again when they need one.
A memory that a thread is in the middle of using, and does not let go of in time, works on in the parent and raises `Forked` in
the child: at once, not after a deadlock.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  # see the end
import logging
import os
import threading
import weakref
from typing import Protocol

_LOG = logging.getLogger("keepworth.memory")
PATIENCE = 5.0
"""Seconds a fork waits for other threads to leave a memory."""


class Forkable(Protocol):
    """Hooks must not raise: the process forks whatever happens."""

    def before_fork(self) -> None: ...
    def after_fork(self, *, child: bool) -> None: ...


_KNOWN: tuple[weakref.WeakSet[Forkable], weakref.WeakSet[Forkable]] = (weakref.WeakSet(), weakref.WeakSet())
_UNDER_WAY: list[Forkable] = []
_ONE_AT_A_TIME = threading.RLock()
"""Held from before a fork until after it, as what one thread has put away another must not take up again meanwhile."""


def register(thing: Forkable, *, last: bool = False) -> None:
    """Call its hooks at every fork from here on. last: prepared after the others, which may still need it."""
    _KNOWN[last].add(thing)


def _known() -> list[Forkable]:
    while True:
        try:
            return [thing for known in _KNOWN for thing in list(known)]
        except RuntimeError:  # another thread opened one meanwhile
            continue


def _before() -> None:
    _ONE_AT_A_TIME.acquire()
    _UNDER_WAY[:] = _known()
    for thing in _UNDER_WAY:
        try:
            thing.before_fork()
        except Exception:
            _LOG.exception("a memory was not ready for the process to fork")


def _after(child: bool) -> None:
    global _ONE_AT_A_TIME
    # A program that forks by itself, not through Python's os.fork, may call the hooks of the child alone.
    listed = _UNDER_WAY or _known()
    for thing in reversed(listed):
        try:
            thing.after_fork(child=child)
        except Exception:
            _LOG.exception("a memory was not taken up again after the process forked")
    _UNDER_WAY.clear()
    if child:
        _ONE_AT_A_TIME = threading.RLock()
    else:
        _ONE_AT_A_TIME.release()


if hasattr(os, "register_at_fork"):
    # What is registered last is called first. Logging and pools of threads hold locks of theirs over a fork, which threads that
    # are to leave a memory may wait for: so both are imported, and registered, before this.
    os.register_at_fork(
        before=_before, after_in_parent=lambda: _after(child=False), after_in_child=lambda: _after(child=True)
    )
