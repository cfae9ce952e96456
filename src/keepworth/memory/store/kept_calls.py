"""Calls of a model as they were sent and answered, from which a model can be trained; a gateway keeps the last one of each turn.

The calls of a conversation repeat all that was said before. So each message of a call, and each of its other long parts, such as
its tools, is stored once, under a digest, and a call is a list of digests. A message stays as long as a call that has it may: as
each call would have to write all its messages again otherwise, it is kept for up to `SLACK` longer. Where something is erased,
the messages go that no call has any more.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from keepworth.memory.item import Scope, later, timestamp
from keepworth.memory.store.connection import AMONG, AnyConnection, among, select
from keepworth.memory.store.notes import BEGINNING, beginning, bodies, body, drop, drop_over, keep
from keepworth.memory.store.undo import newest_purge

if TYPE_CHECKING:
    from keepworth.memory.store.store import Store

Json = Mapping[str, Any]
CALL, MESSAGE = "sent ", "message "
"""The kinds of notes, which are prefixes of their names."""
CALL_SECONDS, SLACK = 180 * 24 * 3600.0, 30 * 24 * 3600.0
LARGEST = 262_144
"""Most characters of a call, with its answer, that is kept."""
SHORT = 64
"""A part of up to so many characters stands in the call itself, as its digest takes no less room."""


def keep_call(store: Store, episode: str, call: Json, scope: Scope, items: Iterable[str], *, since: int) -> None:
    """Store the last call of an episode as it was sent and answered, in place of an earlier one. Does nothing if it is
    too long.

    Args:
        store: The memory.
        episode: The id of the episode.
        call: It has a `request` and a `response`.
        scope: That of the caller.
        items: The ids of the items that it showed.
        since: The journal entry after which nothing may have been erased; else nothing is stored.
    """
    parts: dict[str, str] = {}

    def part(value: Any) -> Any:
        """Return the digest of a part, or a list with the part itself if that is short."""
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if len(text) <= SHORT:
            return [value]
        name = base64.urlsafe_b64encode(hashlib.blake2b(_bytes(text), digest_size=12).digest()).decode()
        parts[name] = text
        return name

    request = call["request"]
    lists = {name: list(map(part, value)) for name, value in request.items() if isinstance(value, list)}
    singles = {name: part(value) for name, value in request.items() if name not in lists}
    text = json.dumps({"lists": lists, "singles": singles, "response": call["response"]}, ensure_ascii=False)
    if len(text) + sum(map(len, parts.values())) > LARGEST:
        return
    time = timestamp(store.clock())
    until, longer = later(time, CALL_SECONDS), later(time, CALL_SECONDS + SLACK)
    noted = json.dumps({"until": until, "scope": scope.parts(), "items": sorted(items), **_packed(text)})

    def work(connection: AnyConnection) -> None:
        if newest_purge(connection) > since:
            return
        query = f"SELECT name, json_extract(value, '$.until') FROM facts_of_file WHERE name {AMONG}"
        there = dict(select(connection, query, (among([MESSAGE + name for name in parts]),)))
        for name, text in parts.items():
            if there.get(MESSAGE + name, "") < until:
                keep(connection, MESSAGE + name, json.dumps({"until": longer, **_packed(text)}, ensure_ascii=False))
                drop_over(connection, MESSAGE, name, time)
        keep(connection, CALL + episode, noted)
        drop_over(connection, CALL, episode, time)

    store.database.write(work)


PAGE = 256
"""So many calls are read at once."""


def read_call(store: Store, episode: str) -> Json | None:
    """Return the last call of an episode as it was sent and answered, or None if it is not on file, or not whole."""
    noted = body(store, CALL, episode)
    if noted is None:
        return None
    call = json.loads(_unpacked(noted))
    if "request" in call:  # as it was kept before its messages had names
        return dict(call)
    names = list(_names(call))
    with store.database.reading() as connection:
        there = {name: _unpacked(noted) for name, noted in bodies(connection, MESSAGE, names).items()}
    if len(there) < len(set(names)):
        return None

    def whole(part: Any) -> Any:
        return json.loads(there[part]) if isinstance(part, str) else part[0]

    request = {name: [whole(part) for part in parts] for name, parts in call["lists"].items()}
    singles = {name: whole(part) for name, part in call["singles"].items()}
    return {"request": {**request, **singles}, "response": call["response"]}


def forget_calls(connection: AnyConnection, whose: Scope | None, users: Iterable[str], ids: Iterable[str]) -> None:
    """Delete the calls that may quote what is erased, and the messages that no other call has.

    Args:
        connection: A connection to the memory.
        whose: The scope that is erased as a whole, with all its calls; None if none is.
        users: The persons who had an erased item, who may have said it in other words.
        ids: The ids of erased items; the calls that showed one go.
    """
    persons, erased, gone, left = set(users), set(ids), list[str](), set[str]()
    for name, noted in _calls(connection):
        scope = Scope(*noted["scope"])
        if (whose is not None and whose.contains(scope)) or scope.user in persons or erased & set(noted["items"]):
            gone.append(name)
        else:
            left.update(_names(json.loads(_unpacked(noted))))
    stored = select(connection, f"SELECT name FROM facts_of_file WHERE {BEGINNING}", beginning(MESSAGE))
    drop(connection, [*gone, *(name for (name,) in stored if name.removeprefix(MESSAGE) not in left)])


def _calls(connection: AnyConnection) -> Iterator[tuple[str, Json]]:
    """Yield the name of each note with a call, and the note, a few at a time."""
    last, end = beginning(CALL)
    query = "SELECT name, value FROM facts_of_file WHERE name > ? AND name < ? ORDER BY name LIMIT ?"
    while page := select(connection, query, (last, end, PAGE)):
        yield from ((name, json.loads(value)) for name, value in page)
        last = page[-1][0]


def _names(call: Json) -> Iterable[str]:
    """Yield the digests in a call."""
    for parts in (*call.get("lists", {}).values(), call.get("singles", {}).values()):
        yield from (part for part in parts if isinstance(part, str))


def _packed(text: str) -> dict[str, str]:
    """Return a text as a field of a note, compressed where that is shorter."""
    packed = base64.b64encode(zlib.compress(_bytes(text))).decode()
    return {"call": packed} if len(packed) < len(text.encode("utf-8", "replace")) else {"text": text}


def _unpacked(noted: Json) -> str:
    if "text" in noted:
        return str(noted["text"])
    return zlib.decompress(base64.b64decode(noted["call"])).decode("utf-8", "surrogatepass")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
