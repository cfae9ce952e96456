"""What a policy learned, beside the memory that it learned from: a cache, so that opening need not read every reward again.

The file says of which memory, which policy and which entry of the journal it is, and is under checksums. Whatever does not fit is
read from the log instead. It holds what a purge must erase (actions, names, vectors of queries), so a purge removes it: by its
name, and by the memory that it says it is of, should that have been renamed.

| bytes | what |
| --- | --- |
| the first line | `MAGIC` |
| the second line | the name of the memory (`store_id`) |
| 12 | length and checksum of the header |
| the header | JSON |
| the arrays | each from a multiple of 64 bytes on; shapes and checksums are in the header |
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import struct
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from keepworth.memory.durable_file import alive, part_for, part_of, remove
from keepworth.memory.errors import Busy
from keepworth.memory.search.beside import Unfit, mode_beside
from keepworth.memory.store.connection import AnyConnection, first, scalar, select
from keepworth.memory.store.database import OPEN
from keepworth.memory.store.rows import FORGOTTEN
from keepworth.memory.store.schema import OF_KIND

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from keepworth.memory.store.store import Store

    Arrays = Sequence[npt.NDArray[Any]]

MAGIC = b"keepworth learned 1\n"
_LENGTHS = struct.Struct("<QI")
"""Of the header: its bytes, and their checksum."""
_ALIGNED = 64
BETWEEN = 0.02
"""Seconds from one look whether nobody writes to the next."""
Result = TypeVar("Result")
_NAME = re.compile(r"(?P<of>.+)\.learned-[0-9a-f]{8}", re.DOTALL)
_DATABASE = b"SQLite format 3\0"
SHORTENED = "shortened"
"""The fact of the file that says up to which decision those of before lost their candidates, which is no entry of the journal."""


def learned_path(place: Path, name: str) -> Path:
    """place: of the memory; name: eight hexadecimal digits that tell what several policies and scopes learned apart."""
    return place.with_name(f"{place.name}.learned-{name}")


def learned_files(place: Path) -> list[Path]:
    """What lies beside the memory at `place`, or something else that has such a name."""
    return sorted(each for each, of, part in _in_folder(place) if of == place.name and not part)


def _in_folder(place: Path) -> list[tuple[Path, str, bool]]:
    """What has a name of ours in the folder of a memory, the name of the memory that it says it is beside, and whether it is only
    a part, whose writer is at work or was killed."""
    try:
        names = os.listdir(place.parent)
    except OSError:
        return []
    said = [(name, part_for(name)) for name in names if ".learned-" in name]
    found = [(name, part, _NAME.fullmatch(part or name)) for name, part in said]
    return [(place.with_name(name), of["of"], part is not None) for name, part, of in found if of is not None]


def _first_lines(file: Path) -> tuple[bytes, bytes]:
    """Of a file, no longer than ours: ours has `MAGIC` and the name of a memory. Raises PermissionError."""
    try:
        status = file.lstat()
        if (status.st_dev, status.st_ino) in OPEN:
            return _DATABASE, b""
        if stat.S_ISREG(status.st_mode):
            with open(file, "rb") as opened:
                return opened.readline(len(MAGIC)), opened.readline(_ALIGNED).rstrip(b"\n")
    except PermissionError:
        raise
    except OSError:
        pass
    return b"", b""


def remove_learned(store: Store) -> list[Path]:
    """All that was kept of this memory, under this or another name in this folder, and what interrupted writers left of it. Those
    that could not be removed."""
    place, mine = store.database.place, store.store_id().encode()
    going, closed = list[Path](), list[Path]()
    for each, of, _ in _in_folder(place):
        try:
            magic, owner = _first_lines(each)
        except PermissionError:
            closed += [each] if of == place.name else []
            continue
        if magic == MAGIC and (of == place.name or owner == mine):
            going.append(each)
    return closed + remove(going)


def remove_unfit(store: Store) -> None:
    """What cannot be used any more, and what killed writers left."""
    place = store.database.place
    with store.database.reading() as connection:
        for each, of, part in _in_folder(place):
            with contextlib.suppress(PermissionError):
                if of == place.name and _first_lines(each)[0] == MAGIC:
                    needed = alive(each) if part else _fits(store, connection, each)
                    if not needed:
                        remove([each])


def _fits(store: Store, connection: AnyConnection, target: Path) -> bool:
    try:
        read = read_learned(target)
    except Unfit:
        return False
    return read is not None and went_through(store, connection, read[0].get("state", {}))


def state_of(store: Store, connection: AnyConnection, head: int) -> dict[str, Any]:
    """What names the state of the memory at entry `head` of its journal, as far as it decides what is learned: the journal, the
    vectors that queries have, and the decisions that lost their candidates."""
    made = scalar(connection, "SELECT made FROM vector_sets WHERE id = ?", (store.set_id,)) if store.set_id else None
    return {
        "store": store.store_id(),
        "vectors": [store.set_id, made],
        "shortened": scalar(connection, "SELECT value FROM facts_of_file WHERE name = ?", (SHORTENED,)),
        "head": head,
        "chain": scalar(connection, f"SELECT hex({FORGOTTEN}) FROM events WHERE seq = ?", (head,)),
    }


def went_through(store: Store, connection: AnyConnection, state: Mapping[str, Any]) -> bool:
    """Whether the memory was in `state`, and nothing was rolled back or erased since."""
    head = state.get("head")
    if type(head) is not int or state.get("chain") is None or state != state_of(store, connection, head):
        return False
    undone = f"SELECT 1 FROM events WHERE {OF_KIND} AND kind IN ('ROLLBACK', 'PURGE') AND seq > ? LIMIT 1"
    return first(connection, undone, (head,)) is None


def shorten(connection: AnyConnection, through: int, after: int = 0) -> None:
    """Take the candidates from decisions `after` to `through`."""
    if through < 1:
        return
    connection.execute(
        "UPDATE decisions SET candidates = '[]', details = '' WHERE n <= ? AND n > ? AND candidates <> '[]'",
        (through, after),
    )
    before = scalar(connection, "SELECT value FROM facts_of_file WHERE name = ?", (SHORTENED,))
    most = max(through, int(before or 0))  # never less: a number that came back would name two states
    connection.execute("INSERT OR REPLACE INTO facts_of_file VALUES(?, ?)", (SHORTENED, str(most)))


def write_learned(
    store: Store, name: str, header: Mapping[str, Any], arrays: Arrays, goes_on: Callable[[], bool] = bool
) -> bool:
    """Atomic: readers see the file of before or the new one. header: its `state` as of `state_of`. False where something was
    erased or rolled back meanwhile. Where another process writes to the memory: waits while `goes_on`, then raises Busy.
    Raises OSError, MemoryProblem."""
    import numpy as np

    target = learned_path(store.database.place, name)
    listed: list[tuple[str, list[int], int, int]] = []
    begin = 0
    arrays = [np.ascontiguousarray(array) for array in arrays]
    for array in arrays:
        listed.append((array.dtype.str, list(array.shape), begin, zlib.crc32(array.data)))
        begin += array.nbytes + -array.nbytes % _ALIGNED
    head = json.dumps({**header, "arrays": listed}, separators=(",", ":")).encode()
    part = part_of(target)
    lines = MAGIC + store.store_id().encode() + b"\n"

    # Nobody erases anything between a look and what is done on it: who erases removes both names afterwards. So nothing of what
    # is erased comes to lie under a name, whenever this process is killed, and nobody waits while the file is written.
    def start(connection: AnyConnection) -> int | None:
        if not went_through(store, connection, header["state"]):
            return None
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode_beside(store.database.place))
        os.write(descriptor, lines)
        return descriptor

    def put(connection: AnyConnection) -> bool:
        if not went_through(store, connection, header["state"]):
            return False
        with contextlib.suppress(FileNotFoundError):  # somebody erased something
            os.replace(part, target)
            return True
        return False

    descriptor = _between_writes(store, start, goes_on)
    if descriptor is None:
        return False
    try:
        with open(descriptor, "wb") as file:
            file.write(_LENGTHS.pack(len(head), zlib.crc32(head)) + head)
            file.write(b"\0" * (-(len(lines) + _LENGTHS.size + len(head)) % _ALIGNED))
            for array in arrays:
                file.write(array.data)
                file.write(b"\0" * (-array.nbytes % _ALIGNED))
        return _between_writes(store, put, goes_on)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _between_writes(store: Store, work: Callable[[AnyConnection], Result], goes_on: Callable[[], bool]) -> Result:
    while True:
        try:
            return store.database.undisturbed(work)
        except Busy:
            if not goes_on():
                raise
        time.sleep(BETWEEN)


def read_learned(target: Path) -> tuple[dict[str, Any], list[npt.NDArray[Any]]] | None:
    """The header, and the arrays, which are mapped: what is written to them stays in this process. None where there is no such
    file. Raises Unfit."""
    import numpy as np

    try:
        if not stat.S_ISREG(os.stat(target).st_mode):
            raise Unfit("it is not a file")
        with open(target, "rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise Unfit("it is of another format")
            file.readline(_ALIGNED)
            length, checksum = _LENGTHS.unpack(file.read(_LENGTHS.size))
            size = os.fstat(file.fileno()).st_size
            head = file.read(min(length, size))
            if len(head) != length or zlib.crc32(head) != checksum:
                raise Unfit("its header is damaged")
            header: Any = json.loads(head)
            listed = header.pop("arrays")
            start = file.tell() + -file.tell() % _ALIGNED
            whole: npt.NDArray[np.uint8] = np.memmap(file, np.uint8, "c").view(np.ndarray)
        arrays = []
        for kind, shape, begin, crc in listed:
            dtype = np.dtype(kind)
            end = start + begin + dtype.itemsize * int(np.prod(shape, dtype=np.int64))
            if end > size:
                raise Unfit("it is cut off")
            array = whole[start + begin : end]
            if zlib.crc32(array.data) != crc:
                raise Unfit("it is damaged")
            arrays.append(array.view(dtype).reshape(shape))
        return header, arrays
    except FileNotFoundError:
        return None
    except Unfit:
        raise
    except Exception as error:  # whatever a damaged byte makes of it
        raise Unfit(f"it cannot be read ({error})") from error


def learned_problems(store: Store, connection: AnyConnection) -> list[str]:
    """What `check` says of the files: those that are damaged, or of no earlier state of this memory."""
    problems = []
    place = store.database.place
    for target, of, part in _in_folder(place):
        try:
            magic, owner = _first_lines(target)
        except PermissionError:
            magic, owner = b"", b""
        mine = magic == MAGIC and owner == store.store_id().encode()
        try:
            if part:
                if magic == MAGIC and (mine or of == place.name) and not alive(target):
                    problems.append(f"{target.name}: a writer that was killed left it: `compact` removes it")
                continue
            # Of another name: only what is of this memory, which was renamed. A memory of its own may have such a name.
            if (of != place.name and not mine) or magic.startswith(_DATABASE):
                continue
            read = read_learned(target)
            if read is None:
                continue
            state = read[0].get("state", {})
            if state.get("store") != store.store_id():
                raise Unfit("it is of another memory")
            if select(connection, "SELECT 1 FROM events WHERE kind = 'PURGE' AND seq > ?", (state["head"],)):
                raise Unfit("it holds what was erased since, and could not be removed: delete it, then run `compact`")
            now = state_of(store, connection, state["head"])
            if state.get("chain") is None or now["chain"] != state["chain"]:
                raise Unfit("it is not of an earlier state of this memory")
        except (Unfit, KeyError, TypeError, AttributeError) as problem:
            problems.append(f"{target.name}: {problem}: it is not used, and what was learned is read from the log")
    return problems
