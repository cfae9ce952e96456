"""What happens to open memories when the process forks.

SQLite's connections cannot be carried into a forked process, nor can threads, nor locks that some other thread holds. So before
the process forks, every connection is closed, and both sides open theirs again when they need one.
A memory that a thread is in the middle of using, and does not let go of in time, works on in the parent and raises `Forked` in
the child: at once, not after a deadlock.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  # see the end
import logging
import os
import threading
import weakref
from typing import Any, Protocol

_LOG = logging.getLogger("keepworth.memory")
PATIENCE = 5.0
"""Seconds a fork waits for other threads to leave a memory."""


class Forkable(Protocol):
    """Hooks must not raise: the process forks whatever happens."""

    def after_fork(self, *, child: bool) -> None: ...


class Preparable(Forkable, Protocol):
    """What has connections to close first."""

    def before_fork(self) -> None: ...


_DATABASES: weakref.WeakSet[Preparable] = weakref.WeakSet()
_OTHERS: weakref.WeakSet[Forkable] = weakref.WeakSet()
_ONE_AT_A_TIME = threading.RLock()
"""Held from before a fork until after it, as what one thread has put away another must not take up again meanwhile."""


def register(thing: Forkable) -> None:
    """Call its hook after every fork from here on."""
    _OTHERS.add(thing)


def register_database(database: Preparable) -> None:
    """Call its hooks before and after every fork from here on."""
    _DATABASES.add(database)


def _call(hook: str, *sets: weakref.WeakSet[Any], **arguments: bool) -> None:
    while True:
        try:
            listed = [thing for one in sets for thing in list(one)]
            break
        except RuntimeError:  # another thread opened one meanwhile
            continue
    for thing in listed:
        try:
            getattr(thing, hook)(**arguments)
        except Exception:
            _LOG.exception("a memory could not follow when the process forked")


def _before() -> None:
    _ONE_AT_A_TIME.acquire()
    _call("before_fork", _DATABASES)


def _after(child: bool) -> None:
    global _ONE_AT_A_TIME
    _call("after_fork", _DATABASES, _OTHERS, child=child)
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
