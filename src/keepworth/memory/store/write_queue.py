"""WriteQueue: threads that write at the same time share one commit.

The first to come leads: it carries out everything that is waiting, wakes the others with their results, and hands the lead to
the first of those who came meanwhile. Nobody waits for more than the group before its own.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from keepworth.memory.errors import MemoryProblem

if TYPE_CHECKING:
    import apsw


class Ticket:
    """A write that waits its turn. woken: released once it is done, or once its thread is to lead."""

    __slots__ = ("error", "lead", "result", "woken", "work")

    def __init__(self, work: Callable[[apsw.Connection], Any]) -> None:
        self.work = work
        self.lead = False
        self.woken = threading.Lock()
        self.woken.acquire()
        self.result: Any = None
        self.error: BaseException | None = None


class WriteQueue:
    """commit: carries out a group of tickets and sets each one's result or error; it does not raise. gathering: seconds a
    leader waits at most for those of the last group, who are on their way again; worth it where a commit costs a sync."""

    def __init__(self, commit: Callable[[Sequence[Ticket]], None], gathering: float = 0.0) -> None:
        self._commit = commit
        self._gathering = gathering
        self._turn = threading.Lock()
        self._waiting: deque[Ticket] = deque()
        self._led = False
        self._leader = 0
        self._group = 0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def carry_out(self, work: Callable[[apsw.Connection], Any]) -> Any:
        """What `work` returns, once it is committed; raises what it raised."""
        if self._leader == threading.get_ident():
            raise MemoryProblem("a write inside a write: do both in one")
        ticket = Ticket(work)
        with self._turn:
            self._waiting.append(ticket)
            ticket.lead = not self._led
            self._led = True
        try:
            if not ticket.lead:
                ticket.woken.acquire()
            if ticket.lead:
                self._lead()
        finally:
            self._leave(ticket)
        if ticket.error is not None:
            raise ticket.error
        return ticket.result

    def _lead(self) -> None:
        self._leader = threading.get_ident()
        if self._gathering and self._group > 1:
            end = time.monotonic() + self._gathering
            while len(self._waiting) < self._group and time.monotonic() < end:
                time.sleep(self._gathering / 10)
        with self._turn:
            batch = list(self._waiting)
            self._waiting.clear()
        self._group = len(batch)
        try:
            self._commit(batch)
        finally:
            for ticket in batch:
                if not ticket.lead:
                    ticket.woken.release()

    def _leave(self, ticket: Ticket) -> None:
        """Whatever happened: what a thread that is gone had asked for is not done later, and where some wait, one leads."""
        with self._turn:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            if not ticket.lead:
                return
            self._leader = 0
            if self._waiting:
                self._waiting[0].lead = True
                self._waiting[0].woken.release()
            else:
                self._led = False
