"""Messages that a writer failed at: kept in the file until it has read them, or was asked often enough.

The words themselves are items, marked. Here lies what it takes to ask again: the messages, whose they are, and how often it was
tried. A turn that is read leaves in the very transaction that writes what was found in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from keepworth.memory.item import ItemKind, Provenance, Scope, Status, later, timestamp
from keepworth.memory.operations import Draft
from keepworth.memory.store.connection import AnyConnection, first, scalar, select
from keepworth.memory.store.requests import NOTE

if TYPE_CHECKING:
    from keepworth.memory.store.store import Store

_PREFIX = "unread "
_TEXTS = ("key", "event_time", "valid_from", "valid_to", "expires_at", "trust", "deduplicate")


class AlreadyRead(Exception):
    """Another process was faster; nothing was written."""


@dataclass(frozen=True, slots=True)
class UnreadTurn:
    """items: ids of those that hold its words; fields: of the items that are to be made (see `Draft`); said_at, due: canonical
    times; tried: how often the writer was asked again."""

    id: str
    messages: tuple[Mapping[str, Any], ...]
    items: tuple[str, ...]
    fields: Mapping[str, Any]
    episode: str
    said_at: str
    due: str
    tried: int = 0

    def draft(self, tenant: str) -> Draft:
        plain = {name: self.fields[name] for name in _TEXTS}
        return Draft(
            kind=ItemKind(self.fields["kind"]),
            status=Status(self.fields["status"]),
            scope=replace(Scope(*self.fields["scope"]), tenant=tenant),
            provenance=Provenance(self.fields["source"]),
            metadata=self.fields["metadata"],
            **plain,
        )


def turn(
    messages: Sequence[Mapping[str, Any]],
    items: Sequence[str],
    draft: Draft,
    episode: str,
    time: str,
    id: str,
    seconds: float,
) -> UnreadTurn:
    """A turn that was said at `time`, to be read in `seconds`."""
    fields = {
        **{name: getattr(draft, name) for name in _TEXTS},
        "kind": draft.kind.value,
        "status": draft.status.value,
        "scope": list(draft.scope.parts()),
        "source": draft.provenance.source,
        "metadata": dict(draft.metadata),
    }
    at = timestamp(time)
    words = tuple({"role": each.get("role", "user"), "content": each.get("content")} for each in messages)
    return UnreadTurn(id, words, tuple(items), fields, episode, draft.event_time or at, later(at, seconds))


def put(connection: AnyConnection, waiting: UnreadTurn) -> None:
    body = {name: getattr(waiting, name) for name in UnreadTurn.__dataclass_fields__ if name != "id"}
    text = json.dumps(body, ensure_ascii=False, default=str)
    connection.execute("INSERT OR REPLACE INTO facts_of_file VALUES(?, ?)", (_PREFIX + waiting.id, text))


def turns(store: Store, until: str = "") -> list[UnreadTurn]:
    """Those that are due at the canonical time `until`, oldest first; all of them where it is ""."""
    with store.database.reading() as connection:
        listed = select(
            connection,
            "SELECT name, value FROM facts_of_file WHERE name GLOB ? ORDER BY json_extract(value, '$.due'), name",
            (f"{_PREFIX}*",),
        )
    read = [(name.removeprefix(_PREFIX), json.loads(value)) for name, value in listed]
    return [
        UnreadTurn(id, tuple(body.pop("messages")), tuple(body.pop("items")), **body)
        for id, body in read
        if not until or body["due"] <= until
    ]


def seconds_to_next(store: Store, time: str) -> float | None:
    """Until one is due; None where none waits."""
    query = "SELECT min(json_extract(value, '$.due')) FROM facts_of_file WHERE name GLOB ?"
    with store.database.reading() as connection:
        due = scalar(connection, query, (f"{_PREFIX}*",))
    return None if due is None else (datetime.fromisoformat(due) - datetime.fromisoformat(time)).total_seconds()


@contextmanager
def once(store: Store, waiting: UnreadTurn) -> Iterator[None]:
    """Inside, whatever is written is written together with the note that this turn was read. Raises AlreadyRead."""

    def done(connection: AnyConnection) -> None:
        if first(connection, "SELECT 1 FROM facts_of_file WHERE name = ?", (_PREFIX + waiting.id,)) is None:
            raise AlreadyRead
        _drop(waiting)(connection)

    reset = NOTE.set(done)
    try:
        yield
    finally:
        NOTE.reset(reset)


def end(store: Store, waiting: UnreadTurn) -> None:
    """Where nothing was to be written."""
    store.database.write(_drop(waiting))


def _drop(waiting: UnreadTurn) -> Callable[[AnyConnection], None]:
    def work(connection: AnyConnection) -> None:
        connection.execute("DELETE FROM facts_of_file WHERE name = ?", (_PREFIX + waiting.id,))

    return work


def forget_unread(connection: AnyConnection, ids: str) -> None:
    """Those that quote one of the items of these ids (a JSON list), or that no item vouches for, are not read any more."""
    connection.execute(
        f"DELETE FROM facts_of_file WHERE name GLOB '{_PREFIX}*' AND (json_array_length(value, '$.items') = 0 OR EXISTS("
        "SELECT 1 FROM json_each(facts_of_file.value, '$.items') AS one WHERE one.value IN (SELECT value FROM json_each(?))))",
        (ids,),
    )
