"""Says when a memory, or a client of one, stalls an event loop: searches and writes take milliseconds, and a loop that runs them
serves nobody."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from keepworth.base.notebook import in_notebook

_LOG = logging.getLogger("keepworth.memory")
_warned = False
_expected: ContextVar[bool] = ContextVar("expected", default=False)


@contextmanager
def expecting_event_loop() -> Iterator[None]:
    """Inside this context nothing is logged: the loop plays episodes for this package, and the user could change nothing."""
    token = _expected.set(True)
    try:
        yield
    finally:
        _expected.reset(token)


def warn_in_event_loop(kind: str = "Memory") -> None:
    """Log a warning, once in a process, if the caller runs inside an event loop. A notebook's loop waits for each cell anyhow.
    `kind` is the class that is used, "Memory" or "Client"."""
    global _warned
    if _warned or "asyncio" not in sys.modules or _expected.get() or in_notebook():
        return
    from asyncio import _get_running_loop

    if _get_running_loop() is not None:
        _warned = True
        _LOG.warning(
            f"a {kind} is used inside an event loop, which waits meanwhile and serves nobody else: use Async{kind}, or call it "
            "in a thread (asyncio.to_thread)"
        )
