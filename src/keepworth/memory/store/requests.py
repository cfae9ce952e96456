"""Requests that came over a network, noted in the very transactions that carry them out: one that comes again is not done again.

A caller that hears no answer asks once more, under the same name. That the first one was carried out is on file exactly if
what it wrote is. The answer itself is put there afterwards: where the process was killed in between, it is known that the request
was carried out, and not what was answered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepworth.memory.item import later, timestamp
from keepworth.memory.store.connection import AnyConnection, first

if TYPE_CHECKING:
    from keepworth.memory.store.store import Store

NOTE: ContextVar[Callable[[AnyConnection], None] | None] = ContextVar("NOTE", default=None)
"""What is noted in every transaction of this context."""
KEPT_SECONDS = 24 * 3600.0
LARGEST_ANSWER = 65_536
"""Characters: a longer answer is not kept."""
_PREFIX = "request "


@dataclass(frozen=True, slots=True)
class NotedRequest:
    """digest: of what was asked; answer: None where it is not known any more."""

    digest: str
    answer: str | None


def noted_request(store: Store, name: str) -> NotedRequest | None:
    """The request of this name; None where nothing was carried out under it in the last day."""
    with store.database.reading() as connection:
        row = first(connection, "SELECT value FROM facts_of_file WHERE name = ?", (_PREFIX + name,))
    if row is None:
        return None
    body = json.loads(row[0])
    if body["until"] < timestamp(store.clock()):
        return None
    return NotedRequest(body["digest"], body.get("answer"))


@contextmanager
def noting(store: Store, name: str, digest: str) -> Iterator[None]:
    """Inside, whatever is written is written together with the note that this request was carried out."""
    body = json.dumps({"until": _until(store), "digest": digest})

    def note(connection: AnyConnection) -> None:
        connection.execute("INSERT OR REPLACE INTO facts_of_file VALUES(?, ?)", (_PREFIX + name, body))

    reset = NOTE.set(note)
    try:
        yield
    finally:
        NOTE.reset(reset)


def keep_answer(store: Store, name: str, digest: str, answer: str) -> None:
    """What was answered, for whoever asks again; notes of more than a day ago go. Where nothing was written there is no note."""
    if len(answer) > LARGEST_ANSWER:
        return
    body = json.dumps({"until": _until(store), "digest": digest, "answer": answer})

    def work(connection: AnyConnection) -> None:
        connection.execute("UPDATE facts_of_file SET value = ? WHERE name = ?", (body, _PREFIX + name))
        if name < "08":  # names are digests: on one request of 32
            over = f"name GLOB '{_PREFIX}*' AND json_extract(value, '$.until') < ?"
            connection.execute(f"DELETE FROM facts_of_file WHERE {over}", (timestamp(store.clock()),))

    store.database.write(work)


def _until(store: Store) -> str:
    return later(timestamp(store.clock()), KEPT_SECONDS)


def forget_answers(connection: AnyConnection) -> None:
    """Answers quote what is remembered: those of all requests go when something is erased. That they were carried out stays."""
    connection.execute(f"UPDATE facts_of_file SET value = json_remove(value, '$.answer') WHERE name GLOB '{_PREFIX}*'")
