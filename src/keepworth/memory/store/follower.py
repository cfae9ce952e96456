"""How caches keep up with the journal: a cache stands at a state, and follows to a later one or is built anew."""

from __future__ import annotations

from collections.abc import Callable

from keepworth.memory.store.connection import AnyConnection, scalar, select
from keepworth.memory.store.rows import NAMED

PASSED_STATES = 1024
"""Number of states before the newest whose names are remembered: a search that began before others wrote sees one of them."""


class Follower:
    """How far a cache has followed the journal: to entry `head` (-1 before it began), which led to the state `name`."""

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
        """Bring a cache to the state that this connection sees.

        Args:
            seq, name: The number of the newest entry in that state, and the state's name.
            follow: Takes what changed after an entry into the cache; returns False where it cannot.
            begin: Builds the cache anew.
            anew: Whether it has to be built anew.

        Returns:
            False if the cache is ahead of this connection, as another thread saw a newer state; this one must not read what was
            added.
        """
        if not anew and (self.head, self.name) == (seq, name):
            return True
        if not anew and self._passed.get(seq) == name:
            return False
        # Whether the cache's state is a past state of the journal that this connection sees.
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
