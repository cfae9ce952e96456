"""When the write-ahead log of a file is moved into it: on a thread beside, so that no write waits for the disk."""

from __future__ import annotations

import contextlib
import os
import threading

import apsw

from keepworth.memory.search.scan import threads

LOG_PAGES = 2000
"""Pages of 8 kB the write-ahead log grows to before it is moved into the file. Pages that change with every write (the ends of
tables, the roots of indexes) are moved once per so many, not per thousand."""
MOST_PAGES = 4 * LOG_PAGES
"""Pages from which on a write moves the log itself: it writes faster than the thread moves."""


def identity(path: str) -> tuple[int, int]:
    """Return what tells the file at a path from any other: its device and its number there. Raises OSError."""
    status = os.stat(path)
    return status.st_dev, status.st_ino


class Checkpoints:
    """Moves the write-ahead log of one open file. Whoever needs the log to stay as it is holds `lock`.

    Args:
        where: The absolute path of the file.
    """

    def __init__(self, where: str) -> None:
        self.lock = threading.Lock()
        self.file: tuple[int, int] | None = None
        """The identity of the file while it is open: what lies at its path later may be another file."""
        self._where = where
        self._begun = 0  # how many pages the log had when a move last began

    def note(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """Start a move if the log has grown enough. SQLite calls this after each commit, with the number of pages in the log."""
        if pages < self._begun:  # the log began anew
            self._begun = 0
        if pages >= MOST_PAGES:
            _move(connection)
        elif pages - self._begun >= LOG_PAGES:
            self._begun = pages
            try:
                threads("checkpoint", os.getpid()).submit(self._move_beside)
            except RuntimeError:  # the interpreter is shutting down
                _move(connection)
        return apsw.SQLITE_OK

    def _move_beside(self) -> None:
        """Move the log on a connection of this thread."""
        with self.lock, contextlib.suppress(apsw.Error, OSError):
            if self.file is not None and identity(self._where) == self.file:
                connection = apsw.Connection(self._where, flags=apsw.SQLITE_OPEN_READWRITE)
                try:
                    connection.execute("SELECT 1 FROM sqlite_schema").fetchall()  # only who has read knows of the log
                    _move(connection)
                finally:
                    connection.close()


def _move(connection: apsw.Connection) -> None:
    """Move what no reader needs any more. If the disk refuses, the log stays, and with it what was written."""
    with contextlib.suppress(apsw.Error):
        connection.wal_checkpoint()
