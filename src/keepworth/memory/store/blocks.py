"""Vectors of current items in blocks, side by side, so that a process reads them at once when it first searches by meaning.

The rows of `vectors_<set>` are what is true. A block is a copy of those of a range of item numbers, of the set that serves, and
is written by the transaction that fills the range. `outdated` names the items in blocks that changed since: who reads blocks
leaves those out and reads them from the rows. A block that its checksum or its set does not fit is not believed, and made again.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from keepworth.memory.search.index import Block
from keepworth.memory.store import rows
from keepworth.memory.store.connection import AnyConnection, Cursor, first, scalar, select
from keepworth.memory.store.full_text import CURRENT
from keepworth.memory.store.rows import VECTORS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

ITEMS = 1024
"""Items with vectors in a block."""
LOOKED_FOR = 256
"""After so many entries of the journal a transaction looks whether there is a block to write."""
MOST = 64 * ITEMS
"""Vectors that a block is believed to have."""
WORN = 256
"""Outdated items in a block from which on it is written again."""
BOUNDED = {"mmap_size": 0, "cache_size": -4000}
"""What SQLite may hold of the file while blocks are read."""
Range = tuple[int, int]
"""Item numbers: those above the first, up to the second."""


def covered(connection: AnyConnection) -> int:
    """The largest item number that blocks hold; 0 without blocks."""
    return (scalar(connection, "SELECT max(last) FROM blocks") or 0) if connection.has_blocks else 0


def mark_outdated(connection: AnyConnection, numbers: Iterable[int]) -> None:
    """What blocks say of these items does not hold any more."""
    connection.executemany("INSERT OR IGNORE INTO outdated VALUES(?)", [(n,) for n in numbers])


def extend(connection: AnyConnection, set_id: int, most: int = -1) -> bool:
    """Write blocks of what no block holds yet, as far as it fills them, and again those that are worn; `most` of the first
    at most. Returns whether there is more to write."""
    if not connection.has_blocks:
        return False
    table = VECTORS.format(set_id)
    written = 0
    while True:
        since = covered(connection)
        last = scalar(connection, f"SELECT n FROM {table} WHERE n > ? ORDER BY n LIMIT 1 OFFSET ?", (since, ITEMS - 1))
        if last is None:
            break
        if written == most:
            return True
        write_block(connection, set_id, (since, last))
        written += 1
    if scalar(connection, "SELECT count(*) FROM outdated") >= WORN:
        count = "SELECT count(*) FROM outdated WHERE n > first AND n <= last"
        for begin, last in select(connection, f"SELECT first, last FROM blocks WHERE ({count}) >= ?", (WORN,)):
            write_block(connection, set_id, (begin, last))
    return False


def write_block(connection: AnyConnection, set_id: int, span: Range) -> None:
    """Write the block of a range of item numbers from the rows."""
    import numpy as np

    made, dimension = first(connection, "SELECT made, dimension FROM vector_sets WHERE id = ?", (set_id,))
    listed = _rows(connection, set_id, "v.n > ? AND v.n <= ?", span).fetchall()
    sizes = [len(vector) // (4 * dimension) for _, _, vector in listed]
    numbers = np.repeat(np.array([n for n, _, _ in listed], "<i8"), sizes)
    scopes = np.repeat(np.array([scope for _, scope, _ in listed], "<i4"), sizes)
    body = b"".join([*(vector for _, _, vector in listed), numbers.tobytes(), scopes.tobytes()])
    said = (span[1], span[0], set_id, made, len(numbers))
    values = (*said, _checksum(said, body, dimension), body)
    connection.execute("INSERT OR REPLACE INTO blocks VALUES(?,?,?,?,?,?,?)", values)
    connection.execute("DELETE FROM outdated WHERE n > ? AND n <= ?", span)


def write_again(connection: AnyConnection, numbers: Iterable[int] | None = None) -> None:
    """Write all blocks again that hold one of these items, or, for None, one that is outdated."""
    if not connection.has_blocks:
        return
    if numbers is not None:
        mark_outdated(connection, numbers)
    held = "EXISTS (SELECT 1 FROM outdated WHERE n > first AND n <= last)"
    for set_id, begin, last in select(connection, f"SELECT set_id, first, last FROM blocks WHERE {held}"):
        write_block(connection, set_id, (begin, last))
    connection.execute("DELETE FROM outdated")


def drop_blocks(connection: AnyConnection) -> None:
    """Take all blocks away, to be written anew."""
    if connection.has_blocks:
        connection.execute("DELETE FROM blocks; DELETE FROM outdated")


def load(connection: AnyConnection, set_id: int, made: str, dimension: int) -> tuple[Block, list[Range], int]:
    """The vectors of all current items, from blocks where they fit and from the rows elsewhere; which blocks do not fit; and how
    many vectors came from the rows."""
    known, outdated = list[Any](), list[int]()
    if connection.has_blocks:
        known = select(connection, "SELECT last, first, set_id, made, size, sum FROM blocks ORDER BY last")
        outdated = [n for (n,) in select(connection, "SELECT n FROM outdated")] if known else []
    room = sum(size for *_, size, _ in known if type(size) is int and 0 <= size <= MOST) + len(outdated)
    since = known[-1][0] if known else 0
    room += scalar(connection, f"SELECT count(*) FROM {VECTORS.format(set_id)} WHERE n > ?", (since,))
    block = Block.empty(dimension, max(room, 64))
    unfit: list[Range] = []
    loose = end = 0
    # What is copied need not be in the memory of this process twice, neither mapped nor in SQLite's cache.
    before = {name: scalar(connection, f"PRAGMA {name}") for name in BOUNDED} if known else {}
    for name in before:
        select(connection, f"PRAGMA {name} = {BOUNDED[name]}")
    for last, begin, *said in known:
        if type(begin) is not int or begin < end:
            unfit.append((end, last))
            loose += _append_rows(block, connection, set_id, "v.n > ? AND v.n <= ?", (end, last))
        else:
            loose += _append_rows(block, connection, set_id, "v.n > ? AND v.n <= ?", (end, begin))
            body = scalar(connection, "SELECT body FROM blocks WHERE last = ?", (last,))
            if said[:2] != [set_id, made] or not _append_body(block, (last, begin, *said), body):
                unfit.append((begin, last))
                loose += _append_rows(block, connection, set_id, "v.n > ? AND v.n <= ?", (begin, last))
        end = last
    for name, value in before.items():
        select(connection, f"PRAGMA {name} = {value}")
    if outdated:
        import numpy as np

        block.alive[: block.size] &= ~np.isin(block.numbers[: block.size], outdated)
        named = "v.n IN (SELECT value FROM json_each(?)) AND v.n <= ?"
        loose += _append_rows(block, connection, set_id, named, (json.dumps(outdated), end))
    loose += _append_rows(block, connection, set_id, "v.n > ?", (end,))
    return block, unfit, loose


def problems(connection: AnyConnection, deep: bool) -> list[str]:
    """What `check` says of the blocks. deep: each is compared with the rows."""
    found: list[str] = []
    served = first(connection, "SELECT id, made, dimension FROM vector_sets WHERE state = 'serving'")
    if not connection.has_blocks or served is None:
        return found
    set_id, made, dimension = served
    outdated = {n for (n,) in select(connection, "SELECT n FROM outdated")}
    for *said, body in connection.execute(
        "SELECT last, first, set_id, made, size, sum, body FROM blocks ORDER BY last"
    ).fetchall():
        last, begin = said[:2]
        name = f"table blocks: m{last}"
        block, fresh = Block.empty(dimension), Block.empty(dimension)
        if said[2:4] != [set_id, made] or not _append_body(block, said, body):
            found.append(f"{name}: it is damaged: it is not used, and the next search by meaning writes it again")
        elif deep:
            _append_rows(fresh, connection, set_id, "v.n > ? AND v.n <= ?", (begin, last))
            unlike = sorted({n for n, *_ in _content(block) ^ _content(fresh)} - outdated)
            if unlike:
                found.append(f"{name}: not the vectors on file of {', '.join(f'm{n}' for n in unlike[:5])}")
    return found


def _content(block: Block) -> set[tuple[int, int, bytes]]:
    listed = zip(block.numbers.tolist(), block.scopes.tolist(), block.matrix, range(block.size), strict=False)
    return {(n, scope, row.tobytes()) for n, scope, row, _ in listed}


def _rows(connection: AnyConnection, set_id: int, which: str, values: tuple[Any, ...]) -> Cursor:
    """Number, scope and vectors of current items. which: SQL over `v`, the rows of the set."""
    return connection.execute(
        f"SELECT v.n, i.scope, v.vector FROM {VECTORS.format(set_id)} v JOIN items i USING(n) WHERE {CURRENT} AND {which} "
        "ORDER BY v.n",
        values,
    )


def _append_rows(block: Block, connection: AnyConnection, set_id: int, which: str, values: tuple[Any, ...]) -> int:
    """Returns how many vectors."""
    import numpy as np

    before = block.size
    listed = _rows(connection, set_id, which, values)
    while part := list(islice(listed, ITEMS)):
        parts = [rows.to_vectors(vector, block.matrix.shape[1]) for _, _, vector in part]
        sizes = [len(each) for each in parts]
        numbers, scopes = (np.repeat([row[place] for row in part], sizes) for place in (0, 1))
        block.append(numbers, scopes, np.concatenate(parts))
    return block.size - before


def _append_body(block: Block, said: Sequence[Any], body: Any) -> bool:
    """False where it is not what was written. said: the other columns of the table."""
    import numpy as np

    dimension, size, checksum = block.matrix.shape[1], *said[-2:]
    if type(body) is not bytes or type(size) is not int or len(body) != size * (12 + 4 * dimension):
        return False
    if _checksum(said[:-1], body, dimension) != checksum:
        return False
    end = 4 * dimension * size
    numbers, scopes = np.frombuffer(body, "<i8", size, end), np.frombuffer(body, "<i4", size, end + 8 * size)
    block.append(numbers, scopes, np.frombuffer(body, "<f4", dimension * size).reshape(size, dimension))
    return True


def _checksum(said: Sequence[Any], body: bytes, dimension: int) -> int:
    """At the speed of memory: the sums of each column of the vectors, one that tells the order of the rows, and the rest as it
    is."""
    import numpy as np

    size = said[-1]
    words = np.frombuffer(body, "<u4", dimension * size).reshape(size, dimension)
    order = np.dot(words[:, 0].astype(np.uint64), np.arange(1, size + 1, dtype=np.uint64))
    columns = np.add.reduce(words.view("<u8") if dimension % 2 == 0 else words, axis=0, dtype=np.uint64)
    rest = zlib.crc32(memoryview(body)[4 * dimension * size :], zlib.crc32(repr(tuple(said)).encode()))
    return zlib.crc32(order.tobytes(), zlib.crc32(columns.tobytes(), rest))
