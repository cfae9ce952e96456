"""The world of a night: time, ids, random bytes and threads of the engine come from one seed, and its sizes are small.

With small sizes a memory of thirty items has blocks of vectors, codes, a first pass, a full-text index that lags behind, and a
write-ahead log that is moved every few writes.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import secrets
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import apsw

from keepworth.memory.choose import learning
from keepworth.memory.search import columns, first_pass, index, scope_words
from keepworth.memory.search import search as searching
from keepworth.memory.store import (
    blocks,
    database,
    decision_log,
    derived,
    full_text,
    log,
    saved_state,
    transaction,
    views,
)

SMALL: list[tuple[ModuleType, str, int]] = [
    (blocks, "ITEMS", 8),
    (blocks, "CHECK_EVERY", 4),
    (blocks, "WORN", 3),
    (blocks, "FEWEST", 4),
    (blocks, "TOGETHER", 2),
    (first_pass, "FROM", 24),
    (derived, "LACKING", 1),
    (derived, "FEW", 6),
    (derived, "SMALL", 4),
    (derived, "PASSED_STATES", 8),
    (transaction, "TAIL", 6),
    (transaction, "LONG", 200),
    (full_text, "TOGETHER", 3),
    (log, "TOGETHER", 3),
    (views, "REMEMBERED", 6),
    (searching, "FIRST_LOOK", 4),
    (searching, "TOGETHER", 5),
    (scope_words, "LARGEST", 12),
    (columns, "REMEMBERED", 5),
    (index, "HELD", 16),
    (learning, "LIVE", 6),
    (saved_state, "PIECE", 64),
    (saved_state, "LONG", 8),
    (database, "LOG_PAGES", 80),
    (database, "MOST_PAGES", 200),
]


class World:
    """The clock and the work that other threads would do.

    Args:
        seed: Of all that is drawn.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(f"world/{seed}")
        self.seconds = 1_700_000_000.0
        self.later: list[Callable[[], object]] = []

    def clock(self) -> str:
        return datetime.fromtimestamp(self.seconds, UTC).replace(tzinfo=None).isoformat()

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def work_off(self) -> None:
        """Do what was left to other threads."""
        while self.later:
            self.later.pop(0)()


class _NoTimer(threading.Thread):
    """A timer that never rings: a night flushes by itself, at drawn times."""

    def __init__(self, *_: Any) -> None:
        super().__init__()

    def start(self) -> None:
        pass


@contextlib.contextmanager
def simulated(seed: int, *, often_saved: bool = True) -> Iterator[World]:
    """Replace what the engine takes from outside, and yield the world that it comes from.

    Args:
        seed: Of all that is drawn.
        often_saved: Whether what was learned is saved after every second reward.
    """
    world = World(seed)
    numbers = itertools.count(1)

    class LaterThread:
        def __init__(self, target: Callable[..., object], args: tuple[Any, ...] = (), **_: Any) -> None:
            self._work = lambda: target(*args)

        def start(self) -> None:
            world.later.append(self._work)

    class Pool:
        def __init__(self, at_once: bool) -> None:
            self._at_once = at_once

        def submit(self, work: Callable[[], Any]) -> Future[Any]:
            done: Future[Any] = Future()
            if self._at_once:
                try:
                    done.set_result(work())
                except BaseException as error:
                    done.set_exception(error)
            else:
                world.later.append(work)
            return done

    thread_names = dict(vars(threading))
    patches = [patch.object(module, name, size) for module, name, size in SMALL]
    patches += [patch.object(learning, "SAVED_EVERY", 2)] if often_saved else []
    patches += [
        patch.object(os, "urandom", world.draw.randbytes),
        patch.object(secrets, "token_hex", lambda size=8: f"{next(numbers):0{2 * size}x}"),
        patch.object(uuid, "uuid4", lambda: uuid.UUID(int=world.draw.getrandbits(128), version=4)),
        patch.object(database, "time", SimpleNamespace(monotonic=lambda: world.seconds, sleep=world.sleep)),
        patch.object(decision_log, "threading", SimpleNamespace(**{**thread_names, "Timer": _NoTimer})),
        patch.object(derived, "threading", SimpleNamespace(**{**thread_names, "Thread": LaterThread})),
        patch.object(database, "threads", lambda *_: Pool(at_once=False)),
        patch.object(index, "threads", lambda *_: Pool(at_once=True)),
        patch.object(sys, "unraisablehook", lambda _: None),  # SQLite closes files of dead handles
    ]
    level = logging.root.manager.disable
    with contextlib.ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        logging.disable(logging.CRITICAL)
        try:
            yield world
        finally:
            logging.disable(level)
            apsw.set_default_vfs("unix")
