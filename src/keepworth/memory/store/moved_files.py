"""What is said of a file that is renamed while it is open: its write-ahead log stays at the old name, with what was written last.

SQLite lists this among the ways to damage a database (https://www.sqlite.org/howtocorrupt.html, 2.4). Whoever has the memory open
notices it at the next write. Whoever opens the file elsewhere notices it by notes that lie on the file and its log as extended
attributes: the number of the file, and where it was last opened. A rename keeps them, and of a copy the number is another. Where
the system has no such notes (macOS, some file systems), it is noticed that a log lies alone where a new memory would be made.
"""

from __future__ import annotations

import contextlib
import os

from keepworth.memory.errors import NotAMemoryFile

NOTE = "user.keepworth.place"


def identity(path: str) -> tuple[int, int]:
    """Return what tells the file at a path from any other: its device and its number there. Raises OSError."""
    status = os.stat(path)
    return status.st_dev, status.st_ino


def note_place(path: str) -> None:
    """Note on a file and its log that they were opened here, if the system can."""
    place = os.path.realpath(path)
    with contextlib.suppress(OSError, AttributeError):
        note = f"{os.stat(place).st_ino} {place}"
        for file in (place, f"{place}-wal"):
            if os.path.exists(file) and " ".join(_note(file)) != note:
                os.setxattr(file, NOTE, os.fsencode(note))


def _note(file: str) -> tuple[str, str]:
    """Return the number and the place on a file's note, ("", "") where there is none."""
    with contextlib.suppress(OSError, AttributeError):
        number, _, place = os.fsdecode(os.getxattr(file, NOTE)).partition(" ")
        return number, place
    return "", ""


def refuse_separated(path: str) -> None:
    """Raise NotAMemoryFile for a file whose log stayed where it was before, or that lies beside the log of another."""
    place = os.path.realpath(path)
    log, present = f"{place}-wal", str(os.stat(place).st_ino)
    number, former = _note(place)
    if os.path.exists(log) and os.path.getsize(log):
        of = _note(log)[0]
        if of and of != (number or present):
            raise NotAMemoryFile(
                f"{path} was put in the place of another memory that was open, and {log} is the log of that one: put that one "
                "back, or delete its log, and with it what was written to it last"
            )
    elif number == present and former != place and not os.path.lexists(former) and os.path.exists(f"{former}-wal"):
        raise NotAMemoryFile(
            f"{path} was moved here from {former} without its log {former}-wal, which holds what was written last: move it back "
            f"to {former}, let `keepworth memory check --file {former}` open and close it there, and then move it"
        )


def refuse_lonely_log(path: str) -> None:
    """Raise NotAMemoryFile where a memory would be made beside the log of another, which SQLite would take for the new one's."""
    log = f"{os.path.realpath(path)}-wal"
    if os.path.exists(log) and os.path.getsize(log):
        raise NotAMemoryFile(
            f"{path} is not there, but its log {log} is: the file was moved or deleted while it was open; move it back to "
            f"{path}, or, to begin anew, delete that log too, and with it what was written last"
        )


def taken_away(path: str, file: tuple[int, int]) -> str:
    """Return what became of a file that is open and not at its path any more, and what to do.

    Args:
        path: Where it was when it was opened.
        file: Its identity.
    """
    name, log = _name(file), f"{os.path.realpath(path)}-wal"
    if not name:
        what = "another file was put in its place" if os.path.lexists(path) else "it was deleted"
        fix = f"restore a backup, and delete {log}, which is the log of the file that is gone"
        return f"{path} is not the file any more that was opened, as {what}: close this memory, {fix}"
    if os.path.exists(f"{name}-wal"):
        return f"{path} was moved to {name} while it was open: close this memory, and open {name}"
    return (
        f"{path} was moved to {name} while it was open, and what was written last is in {log}: move it back before anybody opens "
        "it there, and close the memory before you move it"
    )


def _name(file: tuple[int, int]) -> str:
    """Return where a file that this process has open lies now; "" if it was deleted, or the system does not tell."""
    with contextlib.suppress(OSError):
        for descriptor in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if identity(f"/proc/self/fd/{descriptor}") == file:
                    name = os.readlink(f"/proc/self/fd/{descriptor}")
                    if identity(name) == file:
                        return name
    return ""
