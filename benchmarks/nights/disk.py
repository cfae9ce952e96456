"""A simulated disk under SQLite: it logs what is written and synced, refuses what a fault says, and makes images of itself.

The files lie in a real folder, so that the engine's own look-ups work. All of SQLite's reads and writes of the memory and of its
write-ahead log pass through `Disk`, which is a VFS of apsw. From the log it makes what would lie on the disk had the process been
killed, or the machine lost its power, between any two of these writes or in the middle of one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

SECTOR = 512
"""Bytes that a disk writes whole or not at all."""
PARTS = ("", "-wal")
"""Suffixes of the files that hold a memory. The third, `-shm`, is made anew by whoever opens a memory that nobody has open."""


class DiskRefused(Exception):
    """Nothing in the engine may catch this: it stands for a mistake of the simulation itself."""


@dataclass(frozen=True, slots=True)
class Event:
    """What SQLite did to a file: "write" of `data` at `offset`, "cut" to the length `offset`, "sync", or "delete"."""

    kind: str
    part: str
    offset: int = 0
    data: bytes = b""


@dataclass(slots=True)
class FileState:
    """A file as the system shows it (`seen`), as the disk surely holds it (`synced`), and the changes between, in order. None: it
    does not exist."""

    seen: bytearray | None = None
    synced: bytearray | None = None
    pending: list[Event] = field(default_factory=list)

    def copy(self) -> FileState:
        seen = None if self.seen is None else bytearray(self.seen)
        synced = None if self.synced is None else bytearray(self.synced)
        return FileState(seen, synced, list(self.pending))

    def take(self, event: Event) -> None:
        """Carry out an event."""
        if event.kind == "delete":
            self.seen, self.synced, self.pending = None, None, []
            return
        if self.seen is None:
            self.seen, self.synced = bytearray(), bytearray()
        if event.kind == "sync":
            self.synced, self.pending = bytearray(self.seen), []
        else:
            _change(self.seen, event)
            self.pending.append(event)


def _change(content: bytearray, event: Event, data: bytes | None = None) -> None:
    data = event.data if data is None else data
    if event.kind == "cut":
        del content[event.offset :]
    else:
        if len(content) < event.offset:
            content.extend(bytes(event.offset - len(content)))
        content[event.offset : event.offset + len(data)] = data


Image = dict[str, bytes]
"""The contents of a memory's files, by suffix."""


class Platters:
    """What a disk holds: the state of both files."""

    def __init__(self) -> None:
        self.files = {part: FileState() for part in PARTS}

    def copy(self) -> Platters:
        twin = Platters()
        twin.files = {part: state.copy() for part, state in self.files.items()}
        return twin

    def take(self, event: Event) -> None:
        self.files[event.part].take(event)

    def after_kill(self, torn: Event | None = None, at: int = 0) -> Image:
        """Return what is there after a killed process: all that it wrote.

        Args:
            torn: A write in whose middle it was killed; None for between two.
            at: The bytes of that write that were done.
        """
        out = {}
        for part, state in self.files.items():
            if state.seen is not None:
                content = state.seen
                if torn is not None and torn.part == part and torn.kind == "write":
                    content = bytearray(content)
                    _change(content, torn, torn.data[:at])
                out[part] = bytes(content)
        return out

    def after_power_loss(self, draw: random.Random, lost: float, garbled: float) -> Image:
        """Return what is there after a loss of power: what was synced, and of the rest each write there, lost, torn between
        sectors, or garbled.

        Args:
            draw: Says which.
            lost: The share of writes that are lost.
            garbled: The share of torn writes whose sectors hold nonsense where they are not done.
        """
        out = {}
        for part, state in self.files.items():
            if state.synced is None:
                continue
            content = bytearray(state.synced)
            for event in state.pending:
                chance = draw.random()
                if chance < lost:
                    continue
                if event.kind == "write" and chance < lost + 0.2:
                    _change(content, event, _torn(content, event, draw, garbled))
                else:
                    _change(content, event)
            out[part] = bytes(content)
        return out


def _torn(content: bytearray, event: Event, draw: random.Random, garbled: float) -> bytes:
    """Return what a torn write leaves in its place, sector by sector."""
    there = bytes(content[event.offset : event.offset + len(event.data)]).ljust(len(event.data), b"\0")
    sectors = []
    for begin in range(0, len(event.data), SECTOR):
        end = begin + SECTOR
        if draw.random() < 0.5:
            sectors.append(event.data[begin:end])
        elif draw.random() < garbled:
            sectors.append(draw.randbytes(len(event.data[begin:end])))
        else:
            sectors.append(there[begin:end])
    return b"".join(sectors)


@dataclass(slots=True)
class Fault:
    """What goes wrong while a handle works: at its `at`-th read, write, sync, cut or deletion of the kinds that the fault
    concerns, or before its `at`-th statement of SQL.

    Args:
        kind: "full", "write", "sync", "read", "dead", "slow" or, at a statement, "interrupt".
        at: Counted from 0.
        lasting: Whether all later ones are refused, too.
        meanwhile: Of a slow disk: what another handle does then.
    """

    kind: str
    at: int
    lasting: bool = False
    meanwhile: Callable[[], None] | None = None
    count: int = 0
    fired: str = ""  # where: the kind of the access and the file

    def interrupt(self, connection: apsw.Connection) -> None:
        """Raise KeyboardInterrupt before the `at`-th statement of a connection, as when a user presses Ctrl-C."""

        def before(*_: object) -> bool:
            number, self.count = self.count, self.count + 1
            if number == self.at and not self.fired:
                self.fired = "statement"
                raise KeyboardInterrupt
            return True

        connection.exec_trace = before


CONCERNED = {
    "interrupt": (),
    "full": ("write",),
    "write": ("write", "cut"),
    "sync": ("sync",),
    "read": ("read",),
    "dead": ("write", "sync", "cut", "delete"),
    "slow": ("write", "sync"),
}
"""Kinds of accesses that each kind of fault is counted by."""
CODES = {
    "full": apsw.SQLITE_FULL,
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "read": apsw.SQLITE_IOERR_READ,
    "dead": apsw.SQLITE_IOERR_WRITE,
}


class Disk(apsw.VFS):
    """A disk for the memory at `path`. `acting` is the handle that works at present; files belong to the handle that opened them.

    Args:
        name: The name of the VFS.
        path: That of the memory.
        seed: Of the bytes that SQLite draws at random.
    """

    def __init__(self, name: str, path: str, seed: int) -> None:
        self.name = name
        self._parts = {path + part: part for part in PARTS}
        self._draw = random.Random(f"disk/{seed}")
        self.acting = ""
        self.dead: set[str] = set()
        self.fault: Fault | None = None
        self.platters, self.events = Platters(), list[Event]()
        self.accesses = 0
        super().__init__(name, "unix")

    def begin(self) -> Platters:
        """Forget the events so far, and return the state of the disk at present."""
        self.events = []
        return self.platters.copy()

    # What SQLite calls.

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path not in self._parts:
            return super().xOpen(name, flags)
        state = self.platters.files[self._parts[path]]
        if state.seen is None and os.path.exists(path):
            # The engine made it under another name, synced it and renamed it.
            content = Path(path).read_bytes()
            state.seen, state.synced = bytearray(content), bytearray(content)
        return _File(self, name, flags, self._parts[path])

    def xDelete(self, filename: str, syncdir: bool) -> None:
        part = self._parts.get(filename)
        if part is not None:
            self.pass_by("delete", part, self.acting)
        super().xDelete(filename, syncdir)
        if part is not None:
            self.note(Event("delete", part))

    def xRandomness(self, numbytes: int) -> bytes:
        return self._draw.randbytes(numbytes)

    # What the files call.

    def note(self, event: Event) -> None:
        self.events.append(event)
        self.platters.take(event)

    def pass_by(self, access: str, part: str, owner: str) -> None:
        """Let an access happen, or raise what the fault says of it."""
        self.accesses += 1
        if owner in self.dead and access != "read":
            raise _refusal("dead")
        fault = self.fault
        if fault is None or owner != self.acting or access not in CONCERNED[fault.kind]:
            return
        number, fault.count = fault.count, fault.count + 1
        if number < fault.at or (number > fault.at and not fault.lasting):
            return
        fault.fired = fault.fired or f"{access}{part}"
        if fault.kind == "slow":
            if number == fault.at and fault.meanwhile is not None:
                fault.meanwhile()
            return
        if fault.kind == "dead":
            self.dead.add(owner)
        raise _refusal(fault.kind)


def _refusal(kind: str) -> apsw.Error:
    return apsw.exception_for(CODES[kind])


class _File(apsw.VFSFile):
    """One of the files of a memory, as one connection has it open."""

    def __init__(self, disk: Disk, name: Any, flags: list[int], part: str) -> None:
        self._disk, self._part, self._owner = disk, part, disk.acting
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.pass_by("write", self._part, self._owner)
        super().xWrite(data, offset)
        self._disk.note(Event("write", self._part, offset, bytes(data)))

    def xRead(self, amount: int, offset: int) -> bytes:
        self._disk.pass_by("read", self._part, self._owner)
        return super().xRead(amount, offset)

    def xSync(self, flags: int) -> None:
        self._disk.pass_by("sync", self._part, self._owner)
        # The real folder is thrown away, so the real file is not synced.
        self._disk.note(Event("sync", self._part))

    def xTruncate(self, size: int) -> None:
        self._disk.pass_by("cut", self._part, self._owner)
        super().xTruncate(size)
        self._disk.note(Event("cut", self._part, size))


__all__: Sequence[str] = ("Disk", "Event", "Fault", "Image", "Platters")
