"""How what is held of a memory keeps up with the journal: it stands at a state, follows to a later one, or begins anew."""

from __future__ import annotations

from collections.abc import Callable

from keepworth.memory.store.connection import AnyConnection, scalar, select
from keepworth.memory.store.rows import NAMED

PASSED_STATES = 1024
"""Entries of the journal behind the newest whose names are remembered: a search that began before others wrote sees one."""


class Follower:
    """How far something that follows the journal has come: to entry `head`, which led to the state `name`; -1 before it began."""

    __slots__ = ("_passed", "head", "name")

    def __init__(self) -> None:
        self.head, self.name = -1, ""
        self._passed: dict[int, str] = {}

    def reach(
        self,
        connection: AnyConnection,
        seq: int,
        name: str,
        follow: Callable[[int], bool],
        begin: Callable[[], object],
        *,
        anew: bool = False,
    ) -> bool:
        """Bring what follows to the state that this connection sees.

        Args:
            seq, name: Of that state.
            follow: Takes in what changed after an entry; False where it cannot.
            begin: Makes it anew.
            anew: It has to be.

        Returns:
            False where it is ahead: another thread's look at the file was newer. What it has more is not to be read from here.
        """
        if not anew and (self.head, self.name) == (seq, name):
            return True
        if not anew and self._passed.get(seq) == name:
            return False
        # Whether the journal, as this connection sees it, went through this state on its way.
        there = f"SELECT {NAMED} FROM events WHERE seq = ?"
        passed = 0 <= self.head <= seq and (scalar(connection, there, (self.head,)) or "") == self.name
        if not anew and passed and follow(self.head):
            self._passed[self.head] = self.name
            names = f"SELECT seq, {NAMED} FROM events WHERE seq > ? ORDER BY seq"
            self._passed.update(select(connection, names, (max(self.head, seq - PASSED_STATES),)))
            while len(self._passed) > PASSED_STATES:
                self._passed.pop(next(iter(self._passed)))
        else:
            begin()
            self._passed = {}
        self.head, self.name = seq, name
        return True
