"""Conversion of items, acts and journal entries to rows and back, and the hash chain over the journal.

The chain value of an event is stored with it and depends on all events before it. It names a state of the memory: two files, such
as one and a copy of it that diverged, share a value only as far as their journals agree. What is derived from the journal carries
the value of the entry it was made at.

chain(event) = digest(chain(event before), salt, event) || salt. The salt is random, and erased together with an event's text:
what is left then proves no guess of the text, and later events still build on it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.memory.errors import NotAMemoryFile
from keepworth.memory.item import (
    UNKNOWN,
    UNTRIED,
    Item,
    ItemKind,
    Link,
    Provenance,
    Scope,
    Status,
    ValueStatistics,
    duplicate_key,
    encoder_of_trees,
    from_record,
)
from keepworth.memory.operations import Act, Assignment, Credit, Draft
from keepworth.records.episode import Operation, OperationKind

if TYPE_CHECKING:
    from keepworth.base.arrays import Vectors
COLUMNS = (
    "n, scope, kind, text, key, event_time, written_at, valid_from, valid_to, ended_at, expires_at, superseded_by, links, "
    "source, source_session, turn, speaker, date, trust, status, deleted, revision, shown, credited, total, "
    "total_squared, propensity_total, metadata, content"
)
_NEWS = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS.split(", ")[1:])
INSERT = f"INSERT INTO items({COLUMNS}) VALUES({','.join('?' * (COLUMNS.count(',') + 1))})"
REPLACE = f"{INSERT} ON CONFLICT(n) DO UPDATE SET {_NEWS}"
"""For a row that may exist: as it could change a foreign key, it takes SQLite twice as long as INSERT."""
SELECT = f"SELECT {COLUMNS.rsplit(',', 1)[0]} FROM items"
figures = attrgetter(*(part.name for part in fields(ValueStatistics)))
CREDIT = "UPDATE items SET shown=?, credited=?, total=?, total_squared=?, propensity_total=? WHERE n = ?"
_KINDS = {kind.value: kind for kind in ItemKind}
_all_but_values = attrgetter(*(part.name for part in fields(Item) if part.name != "values"))
_STATUSES = {status.value: status for status in Status}
_texts_of_item = attrgetter(*COLUMNS.split(", ")[3:12])
_PROVENANCE = tuple(part.name for part in fields(Provenance))
_origin = attrgetter(*_PROVENANCE)


class Unreadable(NotAMemoryFile):
    """A value in the file that this package did not write: the file is damaged."""


@contextlib.contextmanager
def readable(what: str) -> Iterator[None]:
    """Inside this context, raises Unreadable where reading `what` fails."""
    try:
        yield
    except (KeyError, TypeError, ValueError, RecursionError, OverflowError, AttributeError) as error:
        raise Unreadable(f"{what} cannot be read: {error!r:.80}") from error


_scan = json.JSONDecoder().raw_decode


def from_json(text: str) -> Any:
    """Do what `json.loads` does in half the time, as it does not look for white space around the value."""
    if type(text) is not str:
        return json.loads(text)
    value, end = _scan(text)
    return value if end == len(text) else json.loads(text)


def number_of(id: object) -> int | None:
    """Return the row number of an id such as "m17", or None for anything that is not one."""
    if not isinstance(id, str) or not id.startswith("m") or len(id) > 19 or not id.isascii():
        return None
    digits = id[1:]
    return int(digits) if digits.isdigit() and digits[0] != "0" else None


def content_number(item: Item) -> int:
    """Return 64 bits of an item's duplicate key, signed as SQLite wants them. Rows that share them are compared in full."""
    return number_of_key(duplicate_key(item))


def number_of_key(key: bytes) -> int:
    """Return the content number of items with this duplicate key."""
    return int.from_bytes(key[:8], "little", signed=True)


def to_scope(row: Sequence[Any] | None, id: int) -> Scope:
    """Return the scope of a row with its four parts. Raises Unreadable."""
    if row is None:
        raise Unreadable(f"scope {id} is missing")
    with readable(f"scope {id}"):
        return Scope(*row)


def to_vectors(blob: Any, dimension: int) -> Vectors:
    """Return the stored vectors of an item: that of its text, and that of each part of a long one. Shape (1 + parts, dimension).
    Raises Unreadable."""
    if not isinstance(blob, bytes) or not blob or len(blob) % (4 * dimension):
        raise Unreadable(f"vectors of {dimension} numbers cannot be read from {blob!r:.40}")
    return np.frombuffer(blob, np.float32).reshape(-1, dimension)


VECTORS = "vectors_{:d}"
"""Name of the table with the vectors of a set, by the set's id."""
SEARCHED = "coalesce(nullif(i.key, ''), i.text)"
"""SQL for the text that an item `i` has a vector of: see `Item.searched_text`."""
NEW_VECTOR = "ON CONFLICT(n) DO UPDATE SET hash = excluded.hash, vector = excluded.vector"
"""SQL that replaces a row of such a table if the item already has one."""
SCOPE = 'tenant, "user", agent, session'
"""The columns that name a scope."""
OF_SCOPE = 'tenant = ? AND "user" = ? AND agent = ? AND session = ?'


def inside(scope: Scope, nobody: bool = False) -> tuple[str, list[str]]:
    """Return an SQL condition for the scopes inside `scope`, with `nobody` only for those without a user, and its parameters."""
    conditions, values = list[str](), list[str]()
    for member in scope.members():
        parts = ["tenant", *(part for part in ("user", "agent", "session") if getattr(member, part))]
        conditions.append(" AND ".join(f'"{part}" = ?' for part in parts))
        values += [getattr(member, part) for part in parts]
    where = f"({' OR '.join(conditions)})"
    return (f"{where} AND \"user\" = ''" if nobody else where), values


def of_scopes(scope: Scope, nobody: bool = False) -> tuple[str, list[str]]:
    """Return an SQL condition for rows of the scopes inside `scope`, as `inside` does, and its parameters."""
    where, values = inside(scope, nobody)
    return f"scope IN (SELECT id FROM scopes WHERE {where})", values


def text_number(text: str) -> int:
    """Return a 64-bit hash of a text that a vector is made of."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def to_row(item: Item, scope_id: int, content: int | None, metadata: str) -> tuple[Any, ...]:
    """Return the row of an item.

    Args:
        item: What is stored, with its scope and times.
        scope_id: The number of its scope in the file.
        content: Its `content_number`; None if it is not open.
        metadata: Its metadata, as text.
    """
    return (
        int(item.id[1:]),
        scope_id,
        item.kind.value,
        *_texts_of_item(item),
        json.dumps([[link.target, link.relation] for link in item.links]) if item.links else "",
        *_origin(item.provenance),
        float(item.trust),
        item.status.value,
        int(item.deleted),
        item.revision,
        *figures(item.values),
        metadata,
        content,
    )


def differ_in_values_alone(before: Item, after: Item) -> bool:
    """Return whether only the value statistics of `after` differ from those of `before`, as after a reward."""
    return before.values is not after.values and all(map(is_, _all_but_values(before), _all_but_values(after)))


def to_item(row: Sequence[Any], scope: Scope) -> Item:
    """Return the item of a row selected with SELECT; the inverse of `to_row`. Raises Unreadable."""
    provenance = row[13:18]
    values = row[22:27]
    try:
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
            metadata=from_json(row[27]) if row[27] else {},
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise Unreadable(f"item m{row[0]} cannot be read: {error!r:.80}") from error


def image(text: str | None) -> Item | None:
    """Return the item of an image in the journal, None for None. Raises Unreadable."""
    if text is None:
        return None
    with readable("an image in the journal"):
        return from_record(json.loads(text))


ASSIGN = "ASSIGN"
REWARD = "REWARD"
ROLLBACK = "ROLLBACK"
PURGE = "PURGE"
PARAMETERS = "PARAMETERS"
_DRAFTED = tuple(part.name for part in fields(Draft) if part.name not in ("scope", "rules"))
"""Fields of a draft that the journal leaves out where they are usual; its scope is that of the entry."""
_drafted = attrgetter(*_DRAFTED)
_USUAL = _drafted(Draft())
_READ: Mapping[str, Callable[[Any], Any]] = {
    "kind": ItemKind,
    "status": Status,
    "provenance": lambda parts: Provenance(**parts),
}
"""How fields are read that are no plain data."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A journal entry. `seq` is its position, `at` its time, `scope` where it was written; `payload` is None after a purge."""

    seq: int
    at: str
    kind: str
    scope: Scope
    episode: str
    source: str
    payload: str | None
    applied: bool
    reason: str

    def act(self) -> tuple[Act, Draft] | None:
        """Return the act that a replay carries out, or None for a purged entry or one about the journal itself."""
        if self.payload is None or self.kind in (ROLLBACK, PURGE, PARAMETERS):
            return None
        with readable(f"journal entry {self.seq}"):
            return decoded(self.kind, self.payload, self.scope)


def encoded(act: Act, draft: Draft) -> tuple[str, str]:
    """Return (kind, payload) of an act. Fields with their usual values are left out."""
    if isinstance(act, Assignment):
        return ASSIGN, _json({"target": act.target, "fields": dict(act.fields)})
    if isinstance(act, Credit):
        return REWARD, _json({"value": act.value, "items": act.items, "source": act.source, "decision": act.decision})
    body: dict[str, Any] = {}
    if act.targets:
        body["targets"] = act.targets
    if act.text:
        body["text"] = act.text
    if (drafted := _drafted(draft)) != _USUAL:
        listed = zip(_DRAFTED, drafted, _USUAL, strict=True)
        body |= {name: value for name, value, usual in listed if value is not usual and value != usual}
    if "provenance" in body:
        origin = zip(_PROVENANCE, _origin(draft.provenance), strict=True)
        body["provenance"] = {name: value for name, value in origin if value not in ("", -1)}
    body["rules"] = draft.rules
    return act.kind.value, _json(body)


def decoded(kind: str, payload: str, scope: Scope) -> tuple[Act, Draft]:
    """Return the act and the draft of an entry; the inverse of `encoded`.

    Args:
        kind: The kind of the entry.
        payload: Its JSON.
        scope: That of the entry.
    """
    body: dict[str, Any] = from_json(payload)
    if kind == ASSIGN:
        return Assignment(body["target"], body["fields"]), Draft(scope=scope)
    if kind == REWARD:
        items = tuple((id, propensity) for id, propensity in body["items"])
        return Credit(body["value"], items, body["source"], body["decision"]), Draft(scope=scope)
    drafted = {name: value for name, value in body.items() if name in _DRAFTED}
    for name, read in _READ.items():
        if name in drafted:
            drafted[name] = read(drafted[name])
    draft = Draft(scope=scope, rules=body.get("rules", 1), **drafted)
    return Operation(OperationKind(kind), tuple(body.get("targets", ())), body.get("text", "")), draft


_compact = encoder_of_trees(json.JSONEncoder(ensure_ascii=False, separators=(",", ":")))


def _json(body: object) -> str:
    text = _compact(body)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            # Text that is not valid Unicode, for which the act was not done, is kept in escapes.
            return json.dumps(body, separators=(",", ":"))
    return text


DIGEST = 16
SALT = 8

Fields = Sequence[object]
"""The values of EVENT_COLUMNS, as the table `events` has them."""

EVENT_COLUMNS = "seq, at, kind, scope, episode, source, payload, applied, reason, body"
FORGOTTEN = f"substr(chain, 1, {DIGEST})"
"""SQL for the chain of an event whose content was erased: without the salt."""
NAMED = f"lower(hex(coalesce({FORGOTTEN}, '')))"
"""SQL for the name of the state that an event led to."""


def linked(before: bytes | None, event: Fields, salt: bytes | None = None) -> bytes:
    """Return the chain value of an entry of the journal.

    Args:
        before: That of the entry before it; None if it has none.
        event: The fields of the entry.
        salt: The salt of the value; None to draw one.
    """
    if salt is None:
        salt = os.urandom(SALT)
    seq, at, kind, scope, episode, source, payload, applied, reason, body = event
    text = f"{seq}\0{at}\0{kind}\0{scope}\0{episode}\0{source}\0{applied}\0{reason}\0{payload}"
    start = salt if before is None else before[:DIGEST] + salt
    digest = hashlib.blake2b(start + text.encode("utf-8", "surrogatepass"), digest_size=DIGEST)
    if body is not None:
        digest.update(b"\0")
        digest.update(body)  # type: ignore[arg-type]
    return digest.digest() + salt


def holds(before: bytes | None, event: Fields, chain: bytes | None) -> bool:
    """Return whether a chain value is right. Also True where that cannot be told: for an imported entry, or an erased
    one.

    Args:
        before: The value of the entry before it; None if it has none.
        event: The fields of the entry.
        chain: The value on file.
    """
    if chain is None or (isinstance(chain, bytes) and len(chain) <= DIGEST):
        return True
    if not isinstance(chain, bytes) or not isinstance(event[-1], bytes | None):
        return False
    return linked(before, event, chain[DIGEST:]) == chain
