"""The learned state of a policy, saved in the file so that a process that opens it goes on from there.

A state is what a record says it has learned: JSON, in which arrays may stand. It is one fact of the file, with a digest. Where an
array or a list is long, each full piece of it is a fact of its own, named by its digest, so that a save writes only the pieces
that changed, and none of an older save is taken for one of this. All of a state is written in one transaction. What does not
match its digest or the journal is no state: its rewards are then learned from the log again.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from keepworth.memory.store.connection import AnyConnection, scalar, select
from keepworth.memory.store.log import news_since
from keepworth.memory.store.notes import BEGINNING, beginning, drop, fact, keep
from keepworth.memory.store.rows import NAMED

PIECE = 1 << 13
"""Bytes of a piece, before they are written as text."""
LONG = 256
"""Number of elements from which on a list is cut into pieces."""
VERSIONS = 3
"""For how many versions of the rules and settings of a policy a state is kept in each scope: those that learned the latest."""
_SAVED = "learned "
"""Prefix of the names of saved states among the facts of a file."""
_COLUMN = "column of the state"
"""Stands for an array or a long list in the JSON of a state."""


class PackedColumn(NamedTuple):
    """An array or a list as bytes: the type and the shape of the array ("" and () for a list, which is JSON), and its content."""

    type: str
    shape: tuple[int, ...]
    content: bytes


@dataclass(frozen=True, slots=True)
class Packed:
    """A state as JSON, in which columns are named by their number."""

    text: str
    columns: Sequence[PackedColumn]


@dataclass(frozen=True, slots=True)
class Saved:
    """What was learned when the journal's newest entry was `seq`: `state` is what the policy's record saved."""

    seq: int
    state: Any


def pack(state: Any) -> Packed:
    """Return a state as it is written. Raises TypeError and ValueError for what JSON cannot say."""
    columns = list[PackedColumn]()

    def place(column: PackedColumn) -> dict[str, int]:
        columns.append(column)
        return {_COLUMN: len(columns) - 1}

    def replaced(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            if value.dtype.hasobject:
                raise TypeError("arrays of objects cannot be saved")
            return place(PackedColumn(value.dtype.str, value.shape, np.ascontiguousarray(value).tobytes()))
        if isinstance(value, dict):
            return {name: replaced(element) for name, element in value.items()}
        if isinstance(value, (list, tuple)):
            if len(value) > LONG:
                with suppress(TypeError):  # it has arrays in it
                    return place(PackedColumn("", (), json.dumps(value, allow_nan=False).encode()))
            return [replaced(element) for element in value]
        return value

    return Packed(json.dumps(replaced(state), allow_nan=False), columns)


def unpack(packed: Packed) -> Any:
    """Return the state that was packed."""

    def replaced(value: dict[str, Any]) -> Any:
        if value.keys() != {_COLUMN}:
            return value
        type, shape, content = packed.columns[value[_COLUMN]]
        return np.frombuffer(content, type).reshape(shape) if type else json.loads(content)

    return json.loads(packed.text, object_hook=replaced)


def save(connection: AnyConnection, policy: str, version: str, seq: int, packed: Packed, *, anew: bool = False) -> None:
    """Save a state. It is valid as long as the journal goes on from its newest entry and nothing is rolled back or erased. One
    that is void by now, or that has learned less than the one on file, is not written.

    Args:
        connection: A connection to the memory, in a transaction that writes.
        policy: The policy and the scope in which it learns.
        version: Everything else that the state depends on besides the journal.
        seq: The number of the journal's newest entry when it was learned.
        packed: What was learned.
        anew: Whether all pieces are written, also those that are there, as they may be damaged.
    """
    name = f"{_SAVED}{policy} {version}"
    before = _read(connection, name)
    if news_since(connection, seq)[2] or (before is not None and before[0] > seq):
        return
    prefix = _pieces_of(name)
    there = {
        piece for (piece,) in select(connection, f"SELECT name FROM facts_of_file WHERE {BEGINNING}", beginning(prefix))
    }
    columns, pieces = list[Any](), set[str]()
    for type, shape, content in packed.columns:
        step, digests = _length_of_piece(type, shape), list[str]()
        full = len(content) // step * step
        for begin in range(0, full, step):
            piece = content[begin : begin + step]
            digests.append(_digest(piece))
            if prefix + digests[-1] not in pieces and (anew or prefix + digests[-1] not in there):
                keep(connection, prefix + digests[-1], base64.b64encode(piece).decode())
            pieces.add(prefix + digests[-1])
        columns.append([type, shape, digests, base64.b64encode(content[full:]).decode()])
    drop(connection, there - pieces)
    body = json.dumps([seq, _state_at(connection, seq), packed.text, columns])
    keep(connection, name, f"{_digest(body.encode())} {body}")
    _forget_versions(connection, f"{_SAVED}{policy} ")


def saved(connection: AnyConnection, policy: str, version: str) -> Saved | None:
    """Return the state saved under this name, or None if there is no valid one.

    Args:
        connection: A connection to the memory.
        policy: The policy and the scope in which it learns.
        version: Everything else that the state depends on besides the journal.
    """
    name = f"{_SAVED}{policy} {version}"
    read = _read(connection, name)
    if read is None:
        return None
    seq, _, text, columns = read
    if news_since(connection, seq)[2]:
        return None
    query, prefix = f"SELECT name, value FROM facts_of_file WHERE {BEGINNING}", _pieces_of(name)
    there, whole = dict(select(connection, query, beginning(prefix))), list[PackedColumn]()
    for type, shape, digests, rest in columns:
        content = [_bytes(there.get(prefix + digest)) for digest in digests]
        if [_digest(piece) for piece in content] != digests:
            return None
        whole.append(PackedColumn(type, tuple(shape), b"".join([*content, _bytes(rest)])))
    return Saved(seq, unpack(Packed(text, whole)))


def forget_saved(connection: AnyConnection) -> None:
    """Delete all saved states, as they name rewarders."""
    connection.execute(f"DELETE FROM facts_of_file WHERE {BEGINNING}", beginning(_SAVED))


def _read(connection: AnyConnection, name: str) -> Any:
    """Return what is saved under a name, but for its pieces. None if there is nothing, or it is damaged or of another journal."""
    digest, _, body = str(fact(connection, name) or "").partition(" ")
    if not body or _digest(body.encode()) != digest:
        return None
    read = json.loads(body)
    return read if _state_at(connection, read[0]) == read[1] else None


def _state_at(connection: AnyConnection, seq: int) -> str | None:
    """Return the name of the state that a journal entry led to."""
    name: str | None = scalar(connection, f"SELECT {NAMED} FROM events WHERE seq = ?", (seq,))
    return name


def _forget_versions(connection: AnyConnection, prefix: str) -> None:
    """Delete all states whose names begin with `prefix` but the `VERSIONS` that learned the latest."""
    names = [
        name for (name,) in select(connection, f"SELECT name FROM facts_of_file WHERE {BEGINNING}", beginning(prefix))
    ]
    if len(names) > VERSIONS:
        seqs = {name: read[0] if (read := _read(connection, name)) else -1 for name in names}
        for name in sorted(names, key=lambda name: seqs[name])[:-VERSIONS]:
            drop(connection, [name])
            connection.execute(f"DELETE FROM facts_of_file WHERE {BEGINNING}", beginning(_pieces_of(name)))


def _pieces_of(name: str) -> str:
    """Return the prefix of the names of the pieces of a state."""
    return f"{_SAVED}piece {_digest(name.encode())} "


def _length_of_piece(type: str, shape: Sequence[int]) -> int:
    """Return the number of bytes in a piece of a column: of an array as many as whole rows have."""
    row = np.dtype(type).itemsize * int(np.prod(shape[1:], dtype=np.int64)) if type else 1
    return max(1, PIECE // max(1, row)) * max(1, row)


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=12).hexdigest()


def _bytes(text: Any) -> bytes:
    """Return the bytes of a piece, b"" if it is missing or not one."""
    try:
        return base64.b64decode(text or "")
    except (ValueError, TypeError):
        return b""
