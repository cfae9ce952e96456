"""A file beside the memory that holds the dense matrix ready to be mapped, so that opening reads nothing.

It is a cache: made again when it is missing, stale in identity, or damaged. Rows that changed after it was made are
taken from the journal.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.memory.dense import Block, DenseIndex
from recollect.memory.index_file import remove_indexes, stamp, write_index

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAGIC = b"recollect vectors 1\n"
HEADER = 4096


def sidecar_path(path: Path) -> Path:
    return path.with_name(path.name + ".vectors")


def write_sidecar(path: Path, store_id: str, set_id: int, head: int, index: DenseIndex) -> Path:
    """Write the rows in search at journal entry `head`, and beside them the index that proposes them, if one does. Atomic:
    readers see an old file or a new one, and an index that was made from other rows is not used."""
    numbers, scopes, matrix, proposer = index.packed()
    target = sidecar_path(path)
    header = json.dumps(
        {"store": store_id, "set": set_id, "head": head, "rows": len(numbers), "dimension": index.dimension}
    ).encode()
    temporary = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write((MAGIC + header).ljust(HEADER, b"\n"))
            file.write(numbers.astype("<i8").tobytes())
            file.write(scopes.astype("<i4").tobytes())
            file.write(b"\0" * (-(12 * len(numbers)) % 64))
            file.write(matrix.astype("<f4", copy=False).data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if proposer is None:
        remove_indexes(path)
    else:
        write_index(path, stamp(store_id, set_id, head, numbers), proposer)
    return target


def read_sidecar(path: Path, store_id: str, set_id: int, dimension: int) -> tuple[Block, int] | None:
    """The mapped block and the journal entry it was made at, or None where the file is missing or does not fit."""
    import numpy as np

    target = sidecar_path(path)
    try:
        with open(target, "rb") as file:
            head = file.read(HEADER)
        if len(head) < HEADER or not head.startswith(MAGIC):
            return None
        header = json.loads(head[len(MAGIC) :])
        if (header["store"], header["set"], header["dimension"]) != (store_id, set_id, dimension):
            return None
        rows = int(header["rows"])
        start = HEADER + 12 * rows + (-(12 * rows) % 64)
        if rows == 0 or target.stat().st_size != start + 4 * rows * dimension:
            return None
        numbers: npt.NDArray[np.int64] = np.fromfile(target, "<i8", rows, offset=HEADER)
        scopes: npt.NDArray[np.int32] = np.fromfile(target, "<i4", rows, offset=HEADER + 8 * rows)
        # As a plain array: slices of a memory map cost a tenth of a millisecond each.
        matrix = np.memmap(target, "<f4", "r", start, (rows, dimension)).view(np.ndarray)
        return Block(numbers, scopes, np.ones(rows, bool), matrix, rows), int(header["head"])
    except (OSError, ValueError, KeyError):
        return None


def remove_sidecar(path: Path) -> None:
    """And the indexes made from it."""
    with contextlib.suppress(FileNotFoundError):
        sidecar_path(path).unlink()
    remove_indexes(path)
