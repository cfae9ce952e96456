"""A file beside the memory that holds the dense matrix ready to be mapped, so that opening reads little of it.

It is a cache, and never believed: it names the state of the memory it was made from (see `stamp`), and every byte of it is
under a checksum. Those of the matrix are compared chunk by chunk, before a chunk is first used. Where anything does not fit,
the vectors are read from the memory, and the file is made again. Rows that changed after it was made are taken from the
journal.

    line of magic, JSON line {"of": stamp, "rows", "chunk", "checksum"}   padded to HEADER bytes
    row numbers (int64), scope ids (int32), checksums of the chunks (uint32), all under "checksum"; padded to 64 bytes
    matrix (float32), `chunk` rows under each checksum
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepworth.memory.durable_file import PRIVATE, leftovers, replacing
from keepworth.memory.search.dense import Block, DenseIndex
from keepworth.memory.search.index_file import remove_indexes, write_index
from keepworth.memory.stamp import Stamp, Unfit

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

MAGIC = b"keepworth vectors 2\n"
HEADER = 4096
CHUNK = 1024
"""Rows under one checksum."""


@dataclass(frozen=True, slots=True)
class Sidecar:
    stamp: Stamp
    block: Block


class Seal:
    """Checksums of a mapped matrix. A chunk is looked at once, before a row of it is first used."""

    __slots__ = ("_checked", "_chunk", "_done", "_matrix", "_sums")

    def __init__(self, matrix: Vectors, chunk: int, sums: npt.NDArray[np.uint32]) -> None:
        import numpy as np

        self._matrix = matrix
        self._chunk = chunk
        self._sums = sums
        self._checked = np.zeros(len(sums), bool)
        self._done = False

    def require(self, rows: npt.NDArray[np.intp] | None = None) -> None:
        """Raise Unfit where one of `rows` (None: any) lies in a chunk that is not what was written."""
        import numpy as np

        if self._done:
            return
        if rows is None:
            pending = np.flatnonzero(~self._checked)
        else:
            touched = np.zeros(len(self._sums), bool)
            touched[rows // self._chunk] = True
            pending = np.flatnonzero(touched & ~self._checked)
        for one in pending.tolist():
            if chunk_sum(self._matrix[one * self._chunk : (one + 1) * self._chunk]) != self._sums[one]:
                raise Unfit(f"its rows from {one * self._chunk} on are damaged")
            self._checked[one] = True
        self._done = bool(self._checked.all())


def chunk_sum(part: Vectors) -> int:
    """A checksum at the speed of memory: sums over the rows of each column, and one that tells the order of the rows."""
    import numpy as np

    words = part.view(np.uint64 if part.shape[1] % 2 == 0 else np.uint32)
    columns = np.add.reduce(words, axis=0, dtype=np.uint64)
    order = np.dot(words[:, 0].astype(np.uint64), np.arange(1, len(words) + 1, dtype=np.uint64))
    return zlib.crc32(order.tobytes(), zlib.crc32(columns.tobytes()))


def sidecar_path(path: Path) -> Path:
    return path.with_name(path.name + ".vectors")


def write_sidecar(path: Path, stamp: Stamp, index: DenseIndex) -> Path:
    """Write the rows in search at `stamp`, and beside them the index that proposes them, if one does. Atomic: readers see an
    old file or a new one, and an index that was made from other rows is not used. path: the memory's. Raises OSError."""
    import numpy as np

    numbers, scopes, matrix, proposer = index.packed()
    matrix = np.ascontiguousarray(matrix, "<f4")
    starts = range(0, len(matrix), CHUNK)
    sums = np.array([chunk_sum(matrix[start : start + CHUNK]) for start in starts], "<u4")
    arrays = numbers.astype("<i8").tobytes() + scopes.astype("<i4").tobytes() + sums.tobytes()
    said = {"of": stamp.record(), "rows": len(numbers), "chunk": CHUNK}
    header = MAGIC + json.dumps({**said, "checksum": _checksum(said, arrays)}).encode()
    if len(header) > HEADER:
        raise OSError(f"the encoder's name is too long for the header of {sidecar_path(path)}")
    target = sidecar_path(path)
    with replacing(target, mode_beside(path)) as file:
        file.write(header.ljust(HEADER, b"\n"))
        file.write(arrays)
        file.write(b"\0" * (-len(arrays) % 64))
        file.write(matrix.data)
    if proposer is None:
        remove_indexes(path)
    else:
        write_index(path, stamp, numbers, proposer, mode_beside(path))
    return target


def read_sidecar(path: Path) -> Sidecar | None:
    """What lies beside the memory at `path`; None where nothing does. Raises Unfit."""
    target = sidecar_path(path)
    try:
        if not stat.S_ISREG(os.stat(target).st_mode):
            raise Unfit("it is not a file")
        return _read(target)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise Unfit(f"it cannot be read ({error})") from error


def _read(target: Path) -> Sidecar:
    import numpy as np

    with open(target, "rb") as file:
        head = file.read(HEADER)
        if len(head) < HEADER or not head.startswith(MAGIC):
            raise Unfit("it is of another format")
        header: Any = json.loads(head[len(MAGIC) :])
        if not isinstance(header, dict) or set(header) != {"of", "rows", "chunk", "checksum"}:
            raise Unfit("its header is damaged")
        rows, chunk, said = header["rows"], header["chunk"], header["of"]
        if type(rows) is not int or type(chunk) is not int or rows < 1 or chunk < 1 or not isinstance(said, dict):
            raise Unfit("its header is damaged")
        stamp = Stamp.of_record(said)
        chunks = -(-rows // chunk)
        length = 12 * rows + 4 * chunks
        start = HEADER + length + (-length % 64)
        if os.fstat(file.fileno()).st_size != start + 4 * rows * stamp.dimension:
            raise Unfit("it is cut off or too long")
        arrays = file.read(length)
        if _checksum({"of": said, "rows": rows, "chunk": chunk}, arrays) != header["checksum"]:
            raise Unfit("its header or row numbers are damaged")
        # As a plain array: slices of a memory map cost a tenth of a millisecond each.
        matrix = np.memmap(file, "<f4", "r", start, (rows, stamp.dimension)).view(np.ndarray)
    numbers = np.frombuffer(arrays, "<i8", rows)
    scopes = np.frombuffer(arrays, "<i4", rows, 8 * rows)
    seal = Seal(matrix, chunk, np.frombuffer(arrays, "<u4", chunks, 12 * rows))
    return Sidecar(stamp, Block(numbers, scopes, np.ones(rows, bool), matrix, rows, seal))


def _checksum(said: dict[str, Any], arrays: bytes) -> int:
    return zlib.crc32(arrays, zlib.crc32(json.dumps(said, sort_keys=True).encode()))


def mode_beside(path: Path) -> int:
    """What is derived from a memory may be read by whoever may read the memory."""
    try:
        return stat.S_IMODE(path.stat().st_mode) & 0o666
    except OSError:
        return PRIVATE


def remove_sidecar(path: Path) -> None:
    """And the indexes made from it, and what interrupted writers left of either."""
    target = sidecar_path(path)
    for each in (target, *leftovers(target)):
        with contextlib.suppress(FileNotFoundError):
            each.unlink()
    remove_indexes(path)
