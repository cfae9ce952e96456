"""Copies of the vectors of current items in blocks, which a new process reads three times as quickly as the rows themselves.

The rows of `vectors_<set>` are the source of truth. A block copies the vectors of a range of item numbers of the set that serves,
and is written by the transaction that fills the range. The table `outdated` lists the items in blocks that have changed since:
they are read from their rows. A block whose checksum does not match its content and its set is ignored and written again.

A large memory has codes of the vectors of each block instead, for the first pass of its searches (`search.first_pass`), so that
no vector lies in the file twice. They name the checksum of the vectors: codes that do not fit are not read, and are made again.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.memory.search import first_pass
from keepworth.memory.search.first_pass import CodeBlock, code
from keepworth.memory.search.index import Block
from keepworth.memory.store import rows, schema
from keepworth.memory.store.connection import AMONG, AnyConnection, among, first, scalar, select
from keepworth.memory.store.full_text import CURRENT
from keepworth.memory.store.rows import VECTORS

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.base.arrays import Numbers, Vectors

_LOG = logging.getLogger("keepworth.memory")
ITEMS = 1024
"""Number of items with vectors in a block."""
CHECK_EVERY = 256
"""Number of journal entries after which a transaction checks whether there is a block to write."""
WORN = 256
"""Number of outdated items in a block from which on it is written again."""
BOUNDED = {"mmap_size": 0, "cache_size": -4000}
"""Settings of SQLite while vectors are read, so that this process does not hold them in its cache a second time."""
TOGETHER, LAST = 8, 2**63 - 1
"""Most blocks that get their codes in one transaction, and a number beyond that of any item."""
FEWEST = 32
"""Least number of vectors whose mean is the centre of all codes, so that it is nobody's vector."""
LONGEST = 1.002
"""The largest squared length of a sound vector, which has the length 1 but for rounding."""
Range = tuple[int, int]
"""A range of item numbers: those above the first number, up to and including the second."""
Part = tuple[Range | None, int]
"""What was read: the range of a stored block if it was rejected, and how many vectors came from the rows."""


def covered(connection: AnyConnection) -> int:
    """Return the largest item number that blocks cover, or 0 without blocks."""
    return (scalar(connection, "SELECT max(last) FROM blocks") or 0) if connection.in_file else 0


def mark_outdated(connection: AnyConnection, numbers: Iterable[int]) -> None:
    """Record that the blocks' vectors of these items are out of date."""
    connection.executemany("INSERT INTO outdated VALUES(?) ON CONFLICT DO NOTHING", [(n,) for n in numbers])


def extend(connection: AnyConnection, set_id: int, most: int = -1) -> bool:
    """Write blocks for the items that no block covers yet, as far as they fill blocks, and rewrite worn blocks. Returns
    whether it stopped while there were more blocks to write.

    Args:
        connection: A connection to the memory.
        set_id: The id of the set of vectors.
        most: The most blocks; -1 for all.
    """
    if not connection.in_file:
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
        _catch_up(connection, set_id)
        written += 1
    if scalar(connection, "SELECT count(*) FROM outdated") >= WORN:
        count = "SELECT count(*) FROM outdated WHERE n > first AND n <= last"
        for span in select(connection, f"SELECT first, last FROM blocks WHERE ({count}) >= ?", (WORN,)):
            write_block(connection, set_id, span)
    return False


def write_block(connection: AnyConnection, set_id: int, span: Range) -> None:
    """Write a block, from the rows.

    Args:
        connection: A connection to the memory.
        set_id: The id of the set of vectors.
        span: The item numbers that it covers: above the first, up to the second.
    """
    made, dimension = first(connection, "SELECT made, dimension FROM vector_sets WHERE id = ?", (set_id,))
    listed = _current(connection, set_id, "v.n > ? AND v.n <= ?", span).fetchall()
    sizes = [len(vector) // (4 * dimension) for _, _, vector in listed]
    matrix = _sound(np.frombuffer(b"".join(vector for _, _, vector in listed), "<f4").reshape(-1, dimension))
    ids = np.repeat(np.array([n for n, _, _ in listed], "<i8"), sizes)
    homes = np.repeat(np.array([scope for _, scope, _ in listed], "<i4"), sizes)
    checksum = _checksum((set_id, made, *span), matrix, ids, homes)
    body = b""
    if not _write_codes(connection, (set_id, made, *span, checksum), (matrix, ids, homes)):
        body = b"".join((matrix.data, ids.data, homes.data))
    connection.execute(
        "INSERT OR REPLACE INTO blocks VALUES(?,?,?,?,?)", (span[1], span[0], len(matrix), checksum, body)
    )
    connection.execute("DELETE FROM outdated WHERE n > ? AND n <= ?", span)


def is_large(connection: AnyConnection) -> bool:
    """Return whether a file is a memory whose searches by meaning begin with a first pass."""
    if not connection.in_file:
        return False
    return (
        schema.with_codes(connection)
        or scalar(connection, "SELECT coalesce(sum(count), 0) FROM scopes") >= first_pass.FROM
    )


def _catch_up(connection: AnyConnection, set_id: int) -> None:
    """Write the codes of a few of the newest blocks that lack them, if the memory has become large."""
    if is_large(connection):
        oldest = "SELECT min(last) FROM codes WHERE last > 0"
        least = scalar(connection, oldest) if schema.with_codes(connection) else None
        before = "SELECT last FROM blocks WHERE last < ? ORDER BY last DESC LIMIT ?"
        lasts = [last for (last,) in select(connection, before, (least or LAST, TOGETHER))]
        write_codes(connection, set_id, lasts)


def write_codes(connection: AnyConnection, set_id: int, lasts: Sequence[int]) -> None:
    """Write the codes of some blocks, which take the place of their vectors.

    Args:
        connection: A connection to the memory.
        set_id: The id of the set of vectors.
        lasts: The last item numbers of the blocks.
    """
    if lasts:
        schema.add_codes(connection)
    made, dimension = first(connection, "SELECT made, dimension FROM vector_sets WHERE id = ?", (set_id,))
    listed = f"SELECT last, first, size, sum FROM blocks WHERE last {AMONG}"
    for last, since, size, checksum in select(connection, listed, (among(lasts),)):
        block, stamp = Block(dimension, 0), (set_id, made, since, last)
        if not _append_body(connection, block, stamp, size, checksum):
            write_block(connection, set_id, (since, last))
        elif _write_codes(connection, (*stamp, checksum), (block.matrix, block.numbers, block.scopes)):
            connection.execute("UPDATE blocks SET body = x'' WHERE last = ?", (last,))


def _write_codes(connection: AnyConnection, stamp: tuple[Any, ...], vectors: tuple[Vectors, Any, Any]) -> bool:
    """Write the codes of a block, if the file has codes. Returns whether it did.

    Args:
        connection: A connection to the memory.
        stamp: The set's id, its `made`, the block's range and its checksum.
        vectors: Those of the block, and the item number and the scope id of each.
    """
    if not schema.with_codes(connection):
        return False
    set_id, made, *_, last, checksum = stamp
    matrix, numbers, scopes = vectors
    centre = _centre(connection, set_id, made, matrix.shape[1])
    if centre is None:
        if len(matrix) < FEWEST:
            return False
        centre = matrix.mean(axis=0)
        body = centre.astype("<f4").tobytes()
        values = (0, set_id, _sum((set_id, made), body), body)
        connection.execute("INSERT OR REPLACE INTO codes VALUES(?,?,?,?)", values)
    early, late, levels, steps = code(matrix, centre)
    arrays = (early, late, numbers.astype("<i8"), scopes.astype("<i4"), steps, levels)
    body = b"".join(array.tobytes() for array in arrays)
    values = (last, checksum, _sum((*stamp, centre.tobytes()), body), body)
    connection.execute("INSERT OR REPLACE INTO codes VALUES(?,?,?,?)", values)
    schema.add_codes(connection)  # a file of format 12 becomes one whose blocks have no vectors
    return True


def _centre(connection: AnyConnection, set_id: int, made: str, dimension: int) -> Vectors | None:
    """Return what is subtracted from vectors before they are coded; None if it is not there or not sound."""
    if not schema.with_codes(connection):
        return None
    row = first(connection, "SELECT sum, body FROM codes WHERE last = 0 AND block = ?", (set_id,))
    if row is None or not isinstance(row[1], bytes) or len(row[1]) != 4 * dimension:
        return None
    return np.frombuffer(row[1], "<f4") if row[0] == _sum((set_id, made), row[1]) else None


def _sum(stamp: tuple[Any, ...], body: bytes) -> int:
    """Return a checksum of codes, which depends on the order of their bytes and on what they are of."""
    words = np.frombuffer(body, "<u8", len(body) // 8)
    order = np.dot(words, _counted(len(words)))
    return zlib.crc32(body[8 * len(words) :], zlib.crc32(order.tobytes(), zlib.crc32(repr(stamp).encode())))


@lru_cache(4)
def _counted(count: int) -> npt.NDArray[np.uint64]:
    """Return odd numbers, by which a product of words is that of no other words in most cases."""
    return np.arange(1, 2 * count, 2, dtype=np.uint64)


def uncoded(connection: AnyConnection, *, or_with_vectors: bool = False) -> list[int]:
    """Return the last item numbers of the blocks that have no codes, and, if that is asked, of those that have vectors too."""
    if not schema.with_codes(connection):
        return [last for (last,) in select(connection, "SELECT last FROM blocks")]
    lacking = "NOT EXISTS (SELECT 1 FROM codes WHERE codes.last = blocks.last AND codes.block = blocks.sum)"
    if or_with_vectors:
        lacking += " OR length(body) > 0"
    return [last for (last,) in select(connection, f"SELECT last FROM blocks WHERE {lacking}")]


def write_again(connection: AnyConnection, numbers: Iterable[int] = ()) -> None:
    """Rewrite every block that covers one of these items or has outdated ones."""
    if not connection.in_file:
        return
    mark_outdated(connection, numbers)
    set_id = scalar(connection, "SELECT id FROM vector_sets WHERE state = 'serving'")
    stale = "EXISTS (SELECT 1 FROM outdated WHERE n > first AND n <= last)"
    for span in select(connection, f"SELECT first, last FROM blocks WHERE {stale}"):
        write_block(connection, set_id, span)
    connection.execute("DELETE FROM outdated")


def load(
    connection: AnyConnection, set_id: int, made: str, dimension: int, *, coded: bool = False
) -> tuple[Block, list[Part]]:
    """Read the vectors of all current items.

    Args:
        connection: A connection to the memory.
        set_id: The id of the set of vectors.
        made: When the set was begun, which its blocks name too.
        dimension: The numbers in a vector.
        coded: Whether only their codes are read, into a `CodeBlock`.
    """
    room, end, before = 64, 0, dict[str, int]()
    if connection.in_file:
        sound = "typeof(size) = 'integer' AND size BETWEEN 0 AND ?"
        room += scalar(connection, f"SELECT coalesce(sum(size), 0) FROM blocks WHERE {sound}", (64 * ITEMS,))
        room += scalar(connection, "SELECT count(*) FROM outdated")
        end = covered(connection)
        before = {name: scalar(connection, f"PRAGMA {name}") for name in BOUNDED}
    for name in before:
        select(connection, f"PRAGMA {name} = {BOUNDED[name]}")
    room += scalar(connection, f"SELECT count(*) FROM {VECTORS.format(set_id)} WHERE n > ?", (end,))
    room += room // 4  # for new ones, which costs nothing until it is used
    if coded:
        centre = _centre(connection, set_id, made, dimension) if connection.in_file else None
        block: Block = CodeBlock(dimension, room, centre)
    else:
        block = Block(dimension, room)
    read = list(append_all(connection, set_id, made, block))
    for name, value in before.items():
        select(connection, f"PRAGMA {name} = {value}")
    return block, read


def append_all(connection: AnyConnection, set_id: int, made: str, block: Block) -> Iterator[Part]:
    """Append the vectors of all current items to `block` in parts, from blocks where these are sound and from the rows elsewhere.

    It yields after each part. A reader who does not need the part again may set the size of `block` to 0, so that the next part
    takes its memory.

    Args:
        connection: A connection to the memory.
        set_id: The id of the set of vectors.
        made: When the set was begun, which its blocks name too.
        block: Where they are appended.
    """
    listed, outdated, coded = list[Any](), list[int](), set[int]()
    if connection.in_file:
        listed = select(connection, "SELECT last, first, size, sum FROM blocks ORDER BY last")
        coded = {last for last, *_ in listed}.difference(uncoded(connection))
        outdated = [n for (n,) in select(connection, "SELECT n FROM outdated")]
    append: Callable[..., bool] = _append_body
    if isinstance(block, CodeBlock):
        append = _append_codes if connection.in_file and schema.with_codes(connection) else lambda *_: False
    end = 0
    for last, since, size, checksum in listed:
        start, span, loose = block.size, None, 0
        stamp = (set_id, made, since, last)
        if since != end or not append(connection, block, stamp, size, checksum):
            loose = append_rows(block, connection, set_id, "v.n > ? AND v.n <= ?", (end, last))
            if since == end and last in coded and not isinstance(block, CodeBlock):
                loose = 0  # its vectors stand in the rows alone
            else:
                span = (end, last)
        if outdated:
            here = slice(start, block.size)
            block.alive[here] = ~np.isin(block.numbers[here], outdated)
        yield span, loose
        end = last
    if outdated:
        yield None, append_rows(block, connection, set_id, f"v.n {AMONG} AND v.n <= ?", (among(outdated), end))
    yield None, append_rows(block, connection, set_id, "v.n > ?", (end,))


def problems(connection: AnyConnection) -> list[str]:
    """Return a message for each block that is damaged, or that does not hold the current items, for `check`."""
    return [message for message, _ in _wrong(connection)]


def strays(connection: AnyConnection) -> set[int]:
    """Return the numbers of the items that a sound block holds or lacks by mistake, as where a disk lost a write."""
    return set().union(*(numbers for _, numbers in _wrong(connection)))


def _wrong(connection: AnyConnection) -> Iterator[tuple[str, set[int]]]:
    """Yield what is wrong with a block, in words, and the items that it holds or lacks by mistake."""
    served = first(connection, "SELECT id, made, dimension FROM vector_sets WHERE state = 'serving'")
    if not connection.in_file or served is None:
        return
    set_id, made, dimension = served
    lacking, centre = set(uncoded(connection)), _centre(connection, set_id, made, dimension)
    present = f"SELECT v.n, i.scope FROM {VECTORS.format(set_id)} v JOIN items i USING(n)"
    present += f" WHERE {CURRENT} AND v.n > ? AND v.n <= ?"
    for last, since, size, checksum in select(connection, "SELECT last, first, size, sum FROM blocks ORDER BY last"):
        stamp = (set_id, made, since, last)
        without = last not in lacking and not scalar(
            connection, "SELECT length(body) FROM blocks WHERE last = ?", (last,)
        )
        block, codes = Block(dimension), CodeBlock(dimension, 0, centre)
        if not without and not _append_body(connection, block, stamp, size, checksum):
            yield f"table blocks: m{last}: it is damaged: the next search by meaning writes it again", set()
        elif last not in lacking and not _append_codes(connection, codes, stamp, size, checksum):
            yield f"table codes: m{last}: they are damaged: the next search by meaning writes them again", set()
        else:
            there = codes if without else block
            rows_ = zip(there.numbers[: there.size].tolist(), there.scopes[: there.size].tolist(), strict=True)
            outdated = {
                n for (n,) in select(connection, "SELECT n FROM outdated WHERE n > ? AND n <= ?", (since, last))
            }
            if astray := {n for n, _ in {*rows_} ^ {*select(connection, present, (since, last))}} - outdated:
                yield (
                    f"table blocks: m{last}: it does not hold the current items: `keepworth memory compact` writes it again",
                    astray,
                )
                continue
            compared = [there] if last in lacking or without else [block, codes]
            spans, past = (since, last), sorted(outdated)
            unlike = set[int]().union(*(_unlike(connection, set_id, copied, spans, past) for copied in compared))
            if unlike:
                names = "codes" if without else "blocks"
                yield (
                    f"table {names}: m{last}: it is of other vectors than those of m{min(unlike)}"
                    f"{' and others' * (len(unlike) > 1)}: `keepworth memory compact` writes it again",
                    unlike,
                )


def _unlike(connection: AnyConnection, set_id: int, block: Block, span: Range, outdated: Sequence[int]) -> set[int]:
    """Return the items of which a block, or its codes, holds other vectors than their rows.

    Args:
        connection: A connection to the memory.
        set_id: The id of the set of vectors.
        block: What was read of the block.
        span: The item numbers that it covers.
        outdated: Items that it need not hold as they are.
    """
    now = Block(block.dimension)
    if isinstance(block, CodeBlock):
        now = CodeBlock(block.dimension, block.size, block.centre)
    append_rows(now, connection, set_id, "v.n > ? AND v.n <= ?", span)
    lists = [block.numbers[: block.size], now.numbers[: now.size]]
    numbers = np.setdiff1d(np.intersect1d(lists[0], lists[1]), outdated)
    if not len(numbers):
        return set()
    rows_ = [np.flatnonzero(np.isin(listed, numbers)) for listed in lists]
    if len(rows_[0]) != len(rows_[1]):
        return {int(n) for n in numbers if np.count_nonzero(lists[0] == n) != np.count_nonzero(lists[1] == n)}
    if isinstance(block, CodeBlock) and isinstance(now, CodeBlock):
        pairs = [(getattr(block, name), getattr(now, name)) for name in ("late", "levels", "steps")]
        pairs.append((block.early.T, now.early.T))
    else:
        pairs = [(block.matrix, now.matrix)]
    differs = np.zeros(len(rows_[0]), bool)
    for one, other in pairs:
        differs |= (one[rows_[0]] != other[rows_[1]]).reshape(len(differs), -1).any(axis=1)
    return {int(n) for n in lists[0][rows_[0]][differs]}


def _current(connection: AnyConnection, set_id: int, which: str, values: tuple[Any, ...]) -> Any:
    """Select number, scope id and vectors of current items. `which` is an SQL condition on `v`, the rows of the set."""
    return connection.execute(
        f"SELECT v.n, i.scope, v.vector FROM {VECTORS.format(set_id)} v JOIN items i USING(n) WHERE {CURRENT} AND {which} "
        "ORDER BY v.n",
        values,
    )


def append_rows(
    block: Block,
    connection: AnyConnection,
    set_id: int,
    which: str,
    values: tuple[Any, ...],
    *,
    looked_up: bool = True,
) -> int:
    """Append the vectors of some current items, from the rows, and return how many there were.

    Args:
        block: Where they are appended.
        connection: A connection to the memory.
        set_id: The id of the set of vectors.
        which: An SQL condition on `v`, the rows of the set.
        values: The parameters of the condition.
        looked_up: Whether the items are looked up, for their scopes and whether they are current; else they have the scope 0.
    """
    before = block.size
    if looked_up:
        listed = _current(connection, set_id, which, values)
    else:
        plain = f"SELECT v.n, 0, v.vector FROM {VECTORS.format(set_id)} v WHERE {which} ORDER BY v.n"
        listed = connection.execute(plain, values)
    while part := list(islice(listed, ITEMS)):
        numbers, scopes, vectors = zip(*part, strict=True)
        if set(map(type, vectors)) == {bytes} and set(map(len, vectors)) == {4 * block.dimension}:
            matrix = np.frombuffer(b"".join(vectors), np.float32).reshape(-1, block.dimension)
            block.append(numbers, scopes, _sound(matrix))
            continue
        with rows.readable("vectors"):
            matrices = [rows.to_vectors(vector, block.dimension) for vector in vectors]
        sizes = [len(matrix) for matrix in matrices]
        block.append(np.repeat(numbers, sizes), np.repeat(scopes, sizes), _sound(np.concatenate(matrices)))
    return block.size - before


def _sound(matrix: Vectors) -> Vectors:
    """Return stored vectors with zeros, which match nothing, in place of those that are damaged: longer than 1, or not finite."""
    sound = np.einsum("ij,ij->i", matrix, matrix) <= LONGEST
    if sound.all():
        return matrix
    _LOG.warning("%d vectors are damaged and left out of searches: `keepworth memory check` names them", (~sound).sum())
    return np.where(sound[:, None], matrix, np.float32(0.0))


def _append_body(connection: AnyConnection, block: Block, stamp: tuple[Any, ...], size: Any, checksum: Any) -> bool:
    """Append the body of a stored block to `block`. Returns False, and appends nothing, where its length or checksum is wrong.
    `stamp` holds the set's id, its `made`, and the block's range."""
    dimension = block.dimension
    length = scalar(connection, "SELECT length(body) FROM blocks WHERE last = ? AND typeof(body) = 'blob'", stamp[-1:])
    if not isinstance(size, int) or length != size * (12 + 4 * dimension):
        return False
    here, rest = block.extended(size), b""
    file: Any = connection  # a server has no blocks
    if size:  # a block whose items are all gone is empty
        with file.blob_open("main", "blocks", "body", stamp[-1], False) as body:
            body.read_into(block.matrix[here].data.cast("B"))
            rest = body.read()
    ids, homes = np.frombuffer(rest, "<i8", size), np.frombuffer(rest, "<i4", size, 8 * size)
    if _checksum(stamp, block.matrix[here], ids, homes) != checksum:
        return False
    block.accept(ids, homes)
    return True


def _append_codes(connection: AnyConnection, block: Any, stamp: tuple[Any, ...], size: Any, checksum: Any) -> bool:
    """Append the codes of a stored block to a `CodeBlock`. Returns False, and appends nothing, where they do not fit the block.
    `stamp` holds the set's id, its `made`, and the block's range."""
    words, rest, half = len(block.early), block.late.shape[1], block.levels.shape[1]
    row = None
    if block.centre is not None:
        row = first(connection, "SELECT sum, body FROM codes WHERE last = ? AND block = ?", (stamp[-1], checksum))
    if (
        row is None
        or not isinstance(size, int)
        or not isinstance(row[1], bytes)
        or len(row[1]) != size * (8 * (words + rest) + 16 + half)
    ):
        return False
    expected, body = row
    if expected != _sum((*stamp, checksum, block.centre.tobytes()), body):
        return False
    end = size * 8 * (words + rest)
    early = np.frombuffer(body, "<u8", size * words).reshape(words, size)
    late = np.frombuffer(body, "<u8", size * rest, size * 8 * words).reshape(size, rest)
    ids, homes = np.frombuffer(body, "<i8", size, end), np.frombuffer(body, "<i4", size, end + 8 * size)
    steps = np.frombuffer(body, "<f4", size, end + 12 * size)
    levels = np.frombuffer(body, np.uint8, size * half, end + 16 * size).reshape(size, half)
    block.put_codes(ids, homes, (early, late, levels, steps))
    return True


def _checksum(stamp: tuple[Any, ...], matrix: Vectors, ids: Numbers, homes: npt.NDArray[np.int32]) -> int:
    """Return a checksum that takes no longer than reading the memory: a CRC of the column sums of the vectors, of a sum that
    depends on the order of the rows, and of the other arguments as they are."""
    size, dimension = matrix.shape
    words = matrix.view("<u4")
    order = np.dot(words[:, 0].astype(np.uint64), np.arange(1, size + 1, dtype=np.uint64))
    columns = np.add.reduce(words.view("<u8") if dimension % 2 == 0 else words, axis=0, dtype=np.uint64)
    sums = zlib.crc32(order.tobytes(), zlib.crc32(columns.tobytes()))
    return zlib.crc32(homes.tobytes(), zlib.crc32(ids.tobytes(), zlib.crc32(repr((*stamp, size)).encode(), sums)))
