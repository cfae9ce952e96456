"""A file beside the memory that holds a proposing index ready to be used, next to the one that holds the vectors.

It is a cache like that one: it says which rows, in which order, of which state of the memory it was made from, and how much
of the exact result it found then. Where any of that does not fit, or a byte is wrong, it is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import zlib
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepworth.memory.durable_file import leftovers, replacing
from keepworth.memory.search.quantised import INDEXES, LEAST_RECALL, Proposer
from keepworth.memory.stamp import Stamp, Unfit

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAGIC = b"keepworth index 2\n"
HEADER = 2048


def index_path(path: Path, kind: str) -> Path:
    return path.with_name(f"{path.name}.{kind}")


def made_from(stamp: Stamp, numbers: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Names the rows an index was made from: items in order, in one state of one memory."""
    order = hashlib.blake2b(numbers.astype("<i8").tobytes(), digest_size=16).hexdigest()
    return {**stamp.record(), "rows": len(numbers), "order": order}


def write_index(path: Path, stamp: Stamp, numbers: npt.NDArray[np.int64], proposer: Proposer, mode: int) -> Path:
    """Atomic: readers see the old file or the new one. Raises OSError."""
    faiss: Any = import_module("faiss")
    body = faiss.serialize_index(proposer.index).tobytes()
    said = {
        "made_from": made_from(stamp, numbers),
        "kind": proposer.kind,
        "recall": proposer.recall,
        "reach": proposer.reach,
        "rows": proposer.rows,
        "scale": proposer.scale,
        "bytes": len(body),
    }
    header = MAGIC + json.dumps({**said, "checksum": _checksum(said, body)}).encode()
    target = index_path(path, proposer.kind)
    with replacing(target, mode) as file:
        file.write(header.ljust(HEADER, b"\n"))
        file.write(body)
    return target


def read_index(path: Path, kind: str, stamp: Stamp, numbers: npt.NDArray[np.int64]) -> Proposer | None:
    """The index kept for exactly these rows; None where there is none. Raises Unfit where it is of other rows, or damaged."""
    said, body = read_index_file(path, kind)
    if not said:
        return None
    if said["made_from"] != made_from(stamp, numbers):
        raise Unfit("it was made from other rows")
    if said["recall"] < LEAST_RECALL[kind]:
        raise Unfit("it finds too little")
    faiss: Any = import_module("faiss")
    faiss.omp_set_num_threads(1)
    try:
        index = faiss.deserialize_index(body)
    except RuntimeError as error:
        raise Unfit(f"the library cannot read it ({error})") from error
    rows = said["rows"]
    if index.ntotal != rows:
        raise Unfit("it holds another number of rows than it says")
    return Proposer(kind, said["recall"], said["reach"], rows, rows, said["scale"], index)


def read_index_file(path: Path, kind: str) -> tuple[dict[str, Any], npt.NDArray[np.uint8]]:
    """What the file says and its body, both under its checksum; ({}, nothing) where there is none. Raises Unfit."""
    import numpy as np

    try:
        with open(index_path(path, kind), "rb") as file:
            head = file.read(HEADER)
            if len(head) < HEADER or not head.startswith(MAGIC):
                raise Unfit("it is of another format")
            header: Any = json.loads(head[len(MAGIC) :])
            if not isinstance(header, dict):
                raise Unfit("its header is damaged")
            body = np.fromfile(file, np.uint8)
    except FileNotFoundError:
        return {}, np.zeros(0, np.uint8)
    except (OSError, ValueError, RecursionError) as error:
        raise Unfit(f"it cannot be read ({error})") from error
    checksum = header.pop("checksum", None)
    # The library trusts what it reads, so a damaged file must not reach it.
    if header.get("bytes") != len(body) or _checksum(header, body.data) != checksum or header.get("kind") != kind:
        raise Unfit("it is damaged")
    return header, body


def _checksum(said: dict[str, Any], body: bytes | memoryview) -> int:
    return zlib.crc32(body, zlib.crc32(json.dumps(said, sort_keys=True).encode()))


def remove_indexes(path: Path) -> None:
    """They hold coarse copies of the vectors, so whoever erases the ones erases the others."""
    for kind in INDEXES[1:]:
        target = index_path(path, kind)
        for each in (target, *leftovers(target)):
            with contextlib.suppress(FileNotFoundError):
                each.unlink()
