"""What a policy learned, beside the memory that it learned from: a cache, so that opening need not read every reward again.

The file says of which memory, which policy and which entry of the journal it is, and is under checksums. Whatever does not fit is
read from the log instead. It holds what a purge must erase (actions, names, vectors of queries), so a purge removes it.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepworth.memory.durable_file import part_of
from keepworth.memory.search.beside import Unfit, mode_beside
from keepworth.memory.store.database import first, scalar, select
from keepworth.memory.store.rows import FORGOTTEN
from keepworth.memory.store.schema import OF_KIND

if TYPE_CHECKING:
    import apsw
    import numpy as np
    import numpy.typing as npt

    from keepworth.memory.store.store import Store

    Arrays = Sequence[npt.NDArray[Any]]

MAGIC = b"keepworth learned 1\n"
_LENGTHS = struct.Struct("<QI")
"""Of the header: its bytes, and their checksum."""
_ALIGNED = 64
SHORTENED = "shortened"
"""The fact of the file that says up to which decision those of before lost their candidates, which is no entry of the journal."""


def learned_path(place: Path, name: str) -> Path:
    """place: of the memory; name: tells what several policies and scopes learned apart."""
    return place.with_name(f"{place.name}.learned-{name}")


def learned_files(place: Path, start: str = "") -> list[Path]:
    """What lies beside the memory at `place`, under names that begin with `start`."""
    start += f"{place.name}.learned-"
    with contextlib.suppress(OSError):
        return sorted(place.with_name(name) for name in os.listdir(place.parent) if name.startswith(start))
    return []


def remove_learned(place: Path) -> None:
    """And what interrupted writers left of them."""
    for each in (*learned_files(place), *learned_files(place, ".")):
        with contextlib.suppress(FileNotFoundError):
            each.unlink()


def state_of(store: Store, connection: apsw.Connection, head: int) -> dict[str, Any]:
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


def went_through(store: Store, connection: apsw.Connection, state: Mapping[str, Any]) -> bool:
    """Whether the memory was in `state`, and nothing was rolled back or erased since."""
    head = state.get("head")
    if type(head) is not int or state.get("chain") is None or state != state_of(store, connection, head):
        return False
    undone = f"SELECT 1 FROM events WHERE {OF_KIND} AND kind IN ('ROLLBACK', 'PURGE') AND seq > ? LIMIT 1"
    return first(connection, undone, (head,)) is None


def shorten(connection: apsw.Connection, through: int, after: int = 0) -> None:
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


def write_learned(store: Store, name: str, header: Mapping[str, Any], arrays: Arrays) -> bool:
    """Atomic: readers see the file of before or the new one. header: its `state` as of `state_of`. False where something was
    erased or rolled back meanwhile. Raises OSError, MemoryProblem."""
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
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode_beside(store.database.place))
        with open(descriptor, "wb") as file:
            file.write(MAGIC + _LENGTHS.pack(len(head), zlib.crc32(head)) + head)
            file.write(b"\0" * (-file.tell() % _ALIGNED))
            for array in arrays:
                file.write(array.data)
                file.write(b"\0" * (-array.nbytes % _ALIGNED))

        def put(connection: apsw.Connection) -> bool:
            # Nobody can erase anything between this look and the new name: who erases removes files of this name after it.
            fits = went_through(store, connection, header["state"])
            if fits:
                os.replace(part, target)
            return fits

        return store.database.write(put)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def read_learned(target: Path) -> tuple[dict[str, Any], list[npt.NDArray[Any]]] | None:
    """The header, and the arrays, which are mapped: what is written to them stays in this process. None where there is no such
    file. Raises Unfit."""
    import numpy as np

    try:
        with open(target, "rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise Unfit("it is of another format")
            length, checksum = _LENGTHS.unpack(file.read(_LENGTHS.size))
            head = file.read(length)
            if len(head) != length or zlib.crc32(head) != checksum:
                raise Unfit("its header is damaged")
            header: Any = json.loads(head)
            listed = header.pop("arrays")
            start = file.tell() + -file.tell() % _ALIGNED
            size = os.fstat(file.fileno()).st_size
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
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error) as error:
        raise Unfit(f"it cannot be read ({error})") from error


def learned_problems(store: Store, connection: apsw.Connection) -> list[str]:
    """What `check` says of the files: those that are damaged, or of no earlier state of this memory."""
    problems = []
    for target in learned_files(store.database.place):
        try:
            read = read_learned(target)
            if read is None:
                continue
            state = read[0].get("state", {})
            if state.get("store") != store.store_id():
                raise Unfit("it is of another memory")
            now = state_of(store, connection, state["head"])
            undone = select(connection, "SELECT 1 FROM events WHERE kind = 'PURGE' AND seq > ?", (state["head"],))
            if state.get("chain") is None or now["chain"] != state["chain"] or undone:
                raise Unfit("it is not of an earlier state of this memory")
        except (Unfit, KeyError, TypeError, AttributeError) as problem:
            problems.append(f"{target.name}: {problem}: it is not used, and what was learned is read from the log")
    return problems
