"""A file beside the memory that holds a proposing index ready to be used, next to the one that holds the vectors.

It is a cache like that one: it says which rows, in which order, at which journal entry it was made from, and how much of
the exact result it found then. Where any of that does not fit, or a byte is wrong, it is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zlib
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.memory.quantised import INDEXES, LEAST_RECALL, Proposer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAGIC = b"recollect index 1\n"
HEADER = 1024


def index_path(path: Path, kind: str) -> Path:
    return path.with_name(f"{path.name}.{kind}")


def stamp(store_id: str, set_id: int, head: int, numbers: npt.NDArray[np.int64]) -> str:
    """Names the rows an index was made from: items in order, at a journal entry of one memory."""
    order = hashlib.blake2b(numbers.astype("<i8").tobytes(), digest_size=16).hexdigest()
    return f"{store_id}:{set_id}:{head}:{len(numbers)}:{order}"


def write_index(path: Path, made_from: str, proposer: Proposer) -> Path:
    """Atomic: readers see the old file or the new one. made_from: see `stamp`."""
    faiss: Any = import_module("faiss")
    body = faiss.serialize_index(proposer.index).tobytes()
    header = {
        "made_from": made_from,
        "kind": proposer.kind,
        "recall": proposer.recall,
        "reach": proposer.reach,
        "rows": proposer.rows,
        "scale": proposer.scale,
        "bytes": len(body),
        "checksum": zlib.crc32(body),
    }
    target = index_path(path, proposer.kind)
    temporary = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write((MAGIC + json.dumps(header).encode()).ljust(HEADER, b"\n"))
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return target


def read_index(path: Path, made_from: str, kind: str) -> Proposer | None:
    """The index kept for exactly these rows, or None where there is none, it is of other rows, or it is damaged."""
    import numpy as np

    faiss: Any = import_module("faiss")
    try:
        with open(index_path(path, kind), "rb") as file:
            head = file.read(HEADER)
            if len(head) < HEADER or not head.startswith(MAGIC):
                return None
            header = json.loads(head[len(MAGIC) :])
            if (header["made_from"], header["kind"]) != (made_from, kind) or header["recall"] < LEAST_RECALL[kind]:
                return None
            body = np.fromfile(file, np.uint8)
        # The library trusts what it reads, so a damaged file must not reach it.
        if (len(body), zlib.crc32(body.data)) != (header["bytes"], header["checksum"]):
            return None
        faiss.omp_set_num_threads(1)
        index = faiss.deserialize_index(body)
        rows = int(header["rows"])
        if index.ntotal != rows:
            return None
        return Proposer(kind, header["recall"], header["reach"], rows, rows, header["scale"], index)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return None


def remove_indexes(path: Path) -> None:
    """They hold coarse copies of the vectors, so whoever erases the ones erases the others."""
    for kind in INDEXES[1:]:
        with contextlib.suppress(FileNotFoundError):
            index_path(path, kind).unlink()
