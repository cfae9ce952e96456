"""Files beside a memory: its vectors, mapped, and an index that proposes them. Both are caches, and say of which state.

Each says which rows, in which order, of which state of the memory it was made from. Where any of that does not fit, or a byte is
wrong, it is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepworth.memory.durable_file import PRIVATE, leftovers, remove, replacing
from keepworth.memory.search.index import Block, DenseIndex
from keepworth.memory.search.quantised import INDEXES, LEAST_RECALL, Proposer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]


class Unfit(Exception):
    """A file beside a memory that cannot be used, and why. Whoever reads it makes the file again."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """store, vector_set, made, model, dimension: which vectors; head, chain: the newest journal entry, and its chain in hex."""

    store: str
    vector_set: int
    made: str
    model: str
    dimension: int
    head: int
    chain: str

    def record(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Stamp:
        """Raises Unfit."""
        try:
            stamp = cls(**record)
        except TypeError as error:
            raise Unfit("it does not say what it was made from") from error
        numbers = (stamp.vector_set, stamp.dimension, stamp.head)
        names = (stamp.store, stamp.made, stamp.model, stamp.chain)
        if not all(type(number) is int for number in numbers) or not all(isinstance(name, str) for name in names):
            raise Unfit("it does not say what it was made from")
        return stamp


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


def _checksum(header: dict[str, Any], arrays: bytes) -> int:
    return zlib.crc32(arrays, zlib.crc32(json.dumps(header, sort_keys=True).encode()))


def mode_beside(path: Path) -> int:
    """What is derived from a memory may be read by whoever may read the memory."""
    try:
        return stat.S_IMODE(path.stat().st_mode) & 0o666
    except OSError:
        return PRIVATE


def remove_sidecar(path: Path) -> list[Path]:
    """And the indexes made from it, and what interrupted writers left of either. Those that could not be removed."""
    target = sidecar_path(path)
    return [*remove([target, *leftovers(target)]), *remove_indexes(path)]


INDEX_MAGIC = b"keepworth index 2\n"
INDEX_HEADER = 2048


def index_path(path: Path, kind: str) -> Path:
    return path.with_name(f"{path.name}.{kind}")


def made_from(stamp: Stamp, numbers: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Names the rows an index was made from: items in order, in one state of one memory."""
    order = hashlib.blake2b(numbers.astype("<i8").tobytes(), digest_size=16).hexdigest()
    return {**stamp.record(), "rows": len(numbers), "order": order}


def write_index(path: Path, stamp: Stamp, numbers: npt.NDArray[np.int64], proposer: Proposer, mode: int) -> Path:
    """Atomic: readers see the old file or the new one. Raises OSError."""
    body = proposer.to_bytes()
    said = {
        "made_from": made_from(stamp, numbers),
        "kind": proposer.kind,
        "recall": proposer.recall,
        "reach": proposer.reach,
        "rows": proposer.rows,
        "scale": proposer.scale,
        "bytes": len(body),
    }
    header = INDEX_MAGIC + json.dumps({**said, "checksum": _index_checksum(said, body)}).encode()
    target = index_path(path, proposer.kind)
    with replacing(target, mode) as file:
        file.write(header.ljust(INDEX_HEADER, b"\n"))
        file.write(body)
    return target


def read_index(path: Path, kind: str, stamp: Stamp, numbers: npt.NDArray[np.int64]) -> Proposer | None:
    """The index kept for exactly these rows; None where there is none. Raises Unfit where it is of other rows, or damaged."""
    header, body = read_index_file(path, kind)
    if not header:
        return None
    if header["made_from"] != made_from(stamp, numbers):
        raise Unfit("it was made from other rows")
    if header["recall"] < LEAST_RECALL[kind]:
        raise Unfit("it finds too little")
    try:
        return Proposer.of_bytes(
            body, kind, header["recall"], header["reach"], header["rows"], header["scale"], stamp.dimension
        )
    except ValueError as error:
        raise Unfit(f"it cannot be read ({error})") from error


def read_index_file(path: Path, kind: str) -> tuple[dict[str, Any], npt.NDArray[np.uint8]]:
    """What the file says and its body, both under its checksum; ({}, nothing) where there is none. Raises Unfit."""
    import numpy as np

    try:
        with open(index_path(path, kind), "rb") as file:
            head = file.read(INDEX_HEADER)
            if len(head) < INDEX_HEADER or not head.startswith(INDEX_MAGIC):
                raise Unfit("it is of another format")
            header: Any = json.loads(head[len(INDEX_MAGIC) :])
            if not isinstance(header, dict):
                raise Unfit("its header is damaged")
            body = np.fromfile(file, np.uint8)
    except FileNotFoundError:
        return {}, np.zeros(0, np.uint8)
    except (OSError, ValueError, RecursionError) as error:
        raise Unfit(f"it cannot be read ({error})") from error
    checksum = header.pop("checksum", None)
    # The library trusts what it reads, so a damaged file must not reach it.
    if header.get("bytes") != len(body) or _index_checksum(header, body.data) != checksum or header.get("kind") != kind:
        raise Unfit("it is damaged")
    return header, body


def _index_checksum(header: dict[str, Any], body: bytes | memoryview) -> int:
    return zlib.crc32(body, zlib.crc32(json.dumps(header, sort_keys=True).encode()))


def remove_indexes(path: Path) -> list[Path]:
    """They hold coarse copies of the vectors, so whoever erases the ones erases the others. Those that could not be removed."""
    targets = [index_path(path, kind) for kind in INDEXES[1:]]
    return remove([each for target in targets for each in (target, *leftovers(target))])
