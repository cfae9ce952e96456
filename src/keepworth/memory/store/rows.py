"""Items as rows of the table `items`, and back."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from keepworth.memory.item import (
    UNKNOWN,
    UNTRIED,
    Item,
    ItemKind,
    Link,
    Provenance,
    Status,
    ValueStatistics,
    duplicate_key,
    from_record,
)
from keepworth.memory.scope import Scope

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

COLUMNS = (
    "n, scope, kind, text, key, event_time, written_at, valid_from, valid_to, ended_at, expires_at, superseded_by, links, "
    "source, source_session, turn, speaker, date, trust, status, deleted, revision, shown, credited, total, "
    "total_squared, propensity_total, metadata, content"
)
WIDTH = COLUMNS.count(",") + 1
INSERT = f"INSERT OR REPLACE INTO items({COLUMNS}) VALUES({','.join('?' * WIDTH)})"
SELECT = f"SELECT {COLUMNS.rsplit(',', 1)[0]} FROM items"
CREDIT = "UPDATE items SET shown=?, credited=?, total=?, total_squared=?, propensity_total=? WHERE n = ?"
_KINDS = {kind.value: kind for kind in ItemKind}
_BESIDE_VALUES = tuple(part.name for part in fields(Item) if part.name != "values")
_STATUSES = {status.value: status for status in Status}


class Unreadable(Exception):
    """A value in the file that nobody of us wrote: the file is damaged."""


@contextlib.contextmanager
def readable(what: str) -> Iterator[None]:
    """Raise Unreadable where reading `what` fails."""
    try:
        yield
    except (KeyError, TypeError, ValueError, RecursionError, OverflowError, AttributeError) as error:
        raise Unreadable(f"{what} cannot be read: {error!r:.80}") from error


def number_of(id: object) -> int | None:
    """The row number of an id such as "m17", or None for anything that is not one."""
    if not isinstance(id, str) or not id.startswith("m") or len(id) > 19 or not id.isascii():
        return None
    digits = id[1:]
    return int(digits) if digits.isdigit() and digits[0] != "0" else None


def content_number(item: Item) -> int:
    """64 bits of the duplicate key, signed as SQLite wants them. Rows that share it are compared in full."""
    return key_number(duplicate_key(item))


def key_number(key: bytes) -> int:
    return int.from_bytes(key[:8], "little", signed=True)


def to_scope(row: Sequence[Any] | None, id: int) -> Scope:
    """A scope from its four parts. Raises Unreadable."""
    if row is None:
        raise Unreadable(f"scope {id} is missing")
    with readable(f"scope {id}"):
        return Scope(*row)


def to_vector(blob: Any, dimension: int | None) -> npt.NDArray[np.float32]:
    """A vector as the file holds it. dimension: None where it is not known. Raises Unreadable."""
    import numpy as np

    if not isinstance(blob, bytes) or len(blob) % 4 or len(blob) != 4 * (dimension or len(blob) // 4):
        raise Unreadable(f"a vector of {dimension} numbers cannot be read from {blob!r:.40}")
    return np.frombuffer(blob, np.float32)


def text_number(text: str) -> int:
    """64 bits that name a text a vector was made of."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def to_row(item: Item, scope_id: int, content: int | None) -> tuple[Any, ...]:
    """content: its `content_number` where it is open."""
    values, provenance = item.values, item.provenance
    return (
        int(item.id[1:]),
        scope_id,
        item.kind.value,
        item.text,
        item.key,
        item.event_time,
        item.written_at,
        item.valid_from,
        item.valid_to,
        item.ended_at,
        item.expires_at,
        item.superseded_by,
        json.dumps([[link.target, link.relation] for link in item.links]) if item.links else "",
        provenance.source,
        provenance.session,
        provenance.turn,
        provenance.speaker,
        provenance.date,
        float(item.trust),
        item.status.value,
        int(item.deleted),
        item.revision,
        values.shown,
        values.credited,
        values.total,
        values.total_squared,
        values.propensity_total,
        json.dumps(dict(item.metadata), ensure_ascii=False, sort_keys=True) if item.metadata else "",
        content,
    )


def differ_in_values_alone(before: Item, after: Item) -> bool:
    """Whether `after` is `before` with other value statistics, as a credit leaves it."""
    return before.values is not after.values and all(
        getattr(before, name) is getattr(after, name) for name in _BESIDE_VALUES
    )


def to_credit(item: Item) -> tuple[Any, ...]:
    """What CREDIT writes."""
    values = item.values
    return (
        values.shown,
        values.credited,
        values.total,
        values.total_squared,
        values.propensity_total,
        int(item.id[1:]),
    )


def to_item(row: Sequence[Any], scope: Scope) -> Item:
    """The inverse of `to_row`, for a row selected with SELECT. Raises Unreadable."""
    try:
        return _item(row, scope)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise Unreadable(f"item m{row[0]} cannot be read: {error!r:.80}") from error


def _item(row: Sequence[Any], scope: Scope) -> Item:
    provenance = row[13:18]
    values = row[22:27]
    return Item(
        id=f"m{row[0]}",
        text=row[3],
        kind=_KINDS[row[2]],
        key=row[4],
        scope=scope,
        event_time=row[5],
        written_at=row[6],
        valid_from=row[7],
        valid_to=row[8],
        ended_at=row[9],
        expires_at=row[10],
        superseded_by=row[11],
        links=tuple(Link(target, relation) for target, relation in json.loads(row[12])) if row[12] else (),
        provenance=Provenance(*provenance) if provenance != ("", "", -1, "", "") else UNKNOWN,
        trust=row[18],
        status=_STATUSES[row[19]],
        deleted=bool(row[20]),
        revision=row[21],
        values=ValueStatistics(*values) if values[0] else UNTRIED,
        metadata=json.loads(row[27]) if row[27] else {},
    )


def image(text: str | None) -> Item | None:
    """An item from the image the journal keeps. Raises Unreadable."""
    if text is None:
        return None
    with readable("an image in the journal"):
        return from_record(json.loads(text))
