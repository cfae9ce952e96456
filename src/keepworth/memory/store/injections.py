"""What a gateway put into prompts: kept so that it is sent again as it was, and can be asked for afterwards.

Under the digest of a conversation up to one of its messages lies the block that was put before that message. Under an episode lie
its receipt (which items were in the bytes that went upstream) and, until they are written, the words that its turn began with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from keepworth.memory.item import Scope, later, timestamp
from keepworth.memory.store.connection import AnyConnection, first, select
from keepworth.memory.store.requests import NOTE
from keepworth.memory.store.transaction import erased_since

if TYPE_CHECKING:
    from keepworth.memory.store.store import Store

KEPT_SECONDS = 30 * 24 * 3600.0
_BLOCK, _RECEIPT, _TURN = "block ", "receipt ", "turn "
Json = Mapping[str, Any]


def blocks(store: Store, digests: Sequence[str]) -> dict[str, Json]:
    """What was put before the messages of these digests, where something is known of them."""
    names = json.dumps([_BLOCK + digest for digest in digests])
    query = "SELECT name, value FROM facts_of_file WHERE name IN (SELECT value FROM json_each(?))"
    with store.database.reading() as connection:
        return {name.removeprefix(_BLOCK): json.loads(value) for name, value in select(connection, query, (names,))}


def begin_turn(
    store: Store, digest: str, block: Json, episode: str, receipt: Json, turn: Json | None, *, since: int
) -> bool:
    """Note, in one transaction, what is about to be sent. turn: what is to be written of it once it was answered. since: the
    newest entry of the journal when memory was asked. False, and nothing noted, where something was erased after it, which the
    block may quote."""
    until = later(timestamp(store.clock()), KEPT_SECONDS)
    rows: list[tuple[str, Json]] = [
        (_BLOCK + digest, {**block, "until": until}),
        (_RECEIPT + episode, {**receipt, "until": until}),
    ]
    if turn is not None:
        rows.append((_TURN + episode, turn))

    def work(connection: AnyConnection) -> bool:
        if erased_since(connection, since):
            return False
        put = "INSERT OR REPLACE INTO facts_of_file VALUES(?, ?)"
        connection.executemany(put, [(name, json.dumps(body, ensure_ascii=False)) for name, body in rows])
        if digest < "04":  # on one turn of 64
            kept = " OR ".join(f"name GLOB '{each}*'" for each in (_BLOCK, _RECEIPT))
            over = f"({kept}) AND json_extract(value, '$.until') < ?"
            connection.execute(f"DELETE FROM facts_of_file WHERE {over}", (timestamp(store.clock()),))
        return True

    return store.database.write(work)


def keep_block(store: Store, digest: str, block: Json, *, since: int) -> None:
    """Note one more name for what is in prompts: what an upstream keeps of a conversation. since: as for `begin_turn`."""
    body = {**block, "until": later(timestamp(store.clock()), KEPT_SECONDS)}

    def work(connection: AnyConnection) -> None:
        if erased_since(connection, since):
            return
        put = "INSERT OR REPLACE INTO facts_of_file VALUES(?, ?)"
        connection.execute(put, (_BLOCK + digest, json.dumps(body, ensure_ascii=False)))

    store.database.write(work)


def receipt(store: Store, episode: str) -> Json | None:
    """Of an episode; None where there is none, or none any more."""
    with store.database.reading() as connection:
        row = first(connection, "SELECT value FROM facts_of_file WHERE name = ?", (_RECEIPT + episode,))
    return None if row is None else json.loads(row[0])


def with_receipt(connection: AnyConnection, episodes: Sequence[str]) -> set[str]:
    """Those of the episodes that have one."""
    names = json.dumps([_RECEIPT + each for each in episodes])
    found = select(
        connection, "SELECT name FROM facts_of_file WHERE name IN (SELECT value FROM json_each(?))", (names,)
    )
    return {name.removeprefix(_RECEIPT) for (name,) in found}


def waiting_turn(store: Store, episode: str) -> Json | None:
    """What is to be written of an episode; None where nothing is any more."""
    with store.database.reading() as connection:
        row = first(connection, "SELECT value FROM facts_of_file WHERE name = ?", (_TURN + episode,))
    return None if row is None else json.loads(row[0])


def waiting_turns(store: Store) -> list[tuple[str, Json]]:
    """(episode, what is to be written of it) where that did not happen: the process was killed before."""
    with store.database.reading() as connection:
        found = select(
            connection, "SELECT name, value FROM facts_of_file WHERE name GLOB ? ORDER BY name", (f"{_TURN}*",)
        )
    return [(name.removeprefix(_TURN), json.loads(value)) for name, value in found]


class _TurnIsOver(Exception):
    """Another wrote what was said in this turn, or it was erased."""


@contextmanager
def ending_turn(store: Store, episode: str) -> Iterator[Callable[[], None]]:
    """Inside, whatever is written is written together with the note that this turn is done: once, however often it is begun, and
    not at all where it was erased meanwhile. What is given ends it where nothing was to be written."""

    over = False

    def done(connection: AnyConnection) -> None:
        nonlocal over
        gone = first(connection, "DELETE FROM facts_of_file WHERE name = ? RETURNING name", (_TURN + episode,))
        if not over and gone is None:
            raise _TurnIsOver
        over = True

    def end(connection: AnyConnection) -> None:
        connection.execute("DELETE FROM facts_of_file WHERE name = ?", (_TURN + episode,))

    reset = NOTE.set(done)
    try:
        yield lambda: None if over else store.database.write_later(end)
    except _TurnIsOver:
        pass
    finally:
        NOTE.reset(reset)


def forget_blocks(connection: AnyConnection, whose: Scope | None) -> None:
    """They quote what is remembered: all go when something is erased. Conversations that go on lose what a provider cached.
    whose: of whom everything is erased, turns that are being answered too; the turns of others are theirs, and are still
    written."""
    connection.execute(f"DELETE FROM facts_of_file WHERE name GLOB '{_BLOCK}*'")
    waiting = f"SELECT name, value FROM facts_of_file WHERE name GLOB '{_TURN}*'"
    turns = [] if whose is None else list(select(connection, waiting))
    over = [name for name, value in turns if whose is not None and whose.contains(Scope(*json.loads(value)["scope"]))]
    connection.executemany("DELETE FROM facts_of_file WHERE name = ?", [(name,) for name in over])
