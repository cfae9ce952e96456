"""Notes beside the journal: facts by name, most of them JSON that says until when it is kept, or what is still to be done.

* A request that came over a network is noted in the very transactions that carry it out. A caller that hears no answer asks
  once more, under the same name: that the first one was carried out is on file exactly if what it wrote is. The answer itself is
  put there afterwards: where the process was killed in between, it is known that the request was carried out, and not what was
  answered.
* What a gateway put into prompts is kept so that it is sent again as it was, and can be asked for afterwards. Under the digest of
  a conversation up to one of its messages lies the block that was put before that message. Under an episode lie its receipt
  (which items were in the bytes that went upstream) and, until they are written, the words that its turn began with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keepworth.memory.item import Scope, later, timestamp
from keepworth.memory.store.connection import AMONG, AnyConnection, among, scalar, select
from keepworth.memory.store.transaction import erased_since

if TYPE_CHECKING:
    from keepworth.memory.store.store import Store

Json = Mapping[str, Any]
REQUEST_SECONDS = 24 * 3600.0
BLOCK_SECONDS = 30 * 24 * 3600.0
LARGEST_ANSWER = 65_536
"""Characters: a longer answer is not kept."""
_REQUEST, _BLOCK, _RECEIPT, _TURN = "request ", "block ", "receipt ", "turn "
"""What names of notes begin with."""
NOTE: ContextVar[Callable[[AnyConnection], None] | None] = ContextVar("NOTE", default=None)
"""What is noted in every transaction of this context."""
_RANGE = "reward range"
"""The name of the fact that holds the range of rewards."""
BEGINNING = "name >= ? AND name < ?"
"""SQL for the facts whose names begin alike: see `beginning`."""


def beginning(prefix: str) -> tuple[str, str]:
    """The values of BEGINNING."""
    return prefix, prefix + "\U0010ffff"


def keep(connection: AnyConnection, name: str, text: str) -> None:
    """Put a fact in the place of what has its name."""
    put = "INSERT INTO facts_of_file VALUES(?, ?) ON CONFLICT(name) DO UPDATE SET value = excluded.value"
    connection.execute(put, (name, text))


def fact(connection: AnyConnection, name: str) -> str | None:
    """The text of a fact; None where there is none of this name."""
    text: str | None = scalar(connection, "SELECT value FROM facts_of_file WHERE name = ?", (name,))
    return text


def drop(connection: AnyConnection, names: Iterable[str]) -> None:
    """Take facts away."""
    connection.executemany("DELETE FROM facts_of_file WHERE name = ?", [(name,) for name in names])


def _body(store: Store, name: str) -> Any:
    with store.database.reading() as connection:
        text = fact(connection, name)
    return None if text is None else json.loads(text)


def reward_range(store: Store, given: tuple[float, float] | None) -> tuple[float, float]:
    """Return the range of rewards in this memory: the one that is given, which is noted on file, or else the one on file, or 0
    to 1."""
    low, high = _body(store, _RANGE) or (0.0, 1.0)
    if given is not None and tuple(given) != (low, high):
        low, high = map(float, given)
        if not store.database.read_only:
            store.database.write(lambda connection: keep(connection, _RANGE, json.dumps([low, high])))
    return low, high


def _beginning(connection: AnyConnection, prefix: str) -> list[tuple[str, Any]]:
    """(rest of the name, body) of notes, by name."""
    query = f"SELECT name, value FROM facts_of_file WHERE {BEGINNING} ORDER BY name"
    facts = select(connection, query, beginning(prefix))
    return [(name.removeprefix(prefix), json.loads(value)) for name, value in facts]


def _drop_over(connection: AnyConnection, prefix: str, time: str) -> None:
    over = f"DELETE FROM facts_of_file WHERE {BEGINNING} AND json_extract(value, '$.until') < ?"
    connection.execute(over, (*beginning(prefix), timestamp(time)))


@contextmanager
def _in_every_transaction(note: Callable[[AnyConnection], None]) -> Iterator[None]:
    reset = NOTE.set(note)
    try:
        yield
    finally:
        NOTE.reset(reset)


class _NothingLeft(Exception):
    """Another was faster, or what was to be done was erased; nothing was written."""


# Requests.


@dataclass(frozen=True, slots=True)
class NotedRequest:
    """digest: of what was asked; answer: None where it is not known any more."""

    digest: str
    answer: str | None


def noted_request(store: Store, name: str) -> NotedRequest | None:
    """The request of this name; None where nothing was carried out under it in the last day."""
    body = _body(store, _REQUEST + name)
    if body is None or body["until"] < timestamp(store.clock()):
        return None
    return NotedRequest(body["digest"], body.get("answer"))


@contextmanager
def noting(store: Store, name: str, digest: str) -> Iterator[None]:
    """Inside, whatever is written is written together with the note that this request was carried out."""
    text = json.dumps({"until": later(timestamp(store.clock()), REQUEST_SECONDS), "digest": digest})
    with _in_every_transaction(lambda connection: keep(connection, _REQUEST + name, text)):
        yield


def keep_answer(store: Store, name: str, digest: str, answer: str) -> None:
    """What was answered, for whoever asks again; notes of more than a day ago go. Where nothing was written there is no note."""
    if len(answer) > LARGEST_ANSWER:
        return
    body = json.dumps({"until": later(timestamp(store.clock()), REQUEST_SECONDS), "digest": digest, "answer": answer})

    def work(connection: AnyConnection) -> None:
        connection.execute("UPDATE facts_of_file SET value = ? WHERE name = ?", (body, _REQUEST + name))
        if name < "08":  # names are digests: on one request of 32
            _drop_over(connection, _REQUEST, store.clock())

    store.database.write(work)


def forget_answers(connection: AnyConnection) -> None:
    """Answers quote what is remembered: those of all requests go when something is erased. That they were carried out stays."""
    query = f"UPDATE facts_of_file SET value = json_remove(value, '$.answer') WHERE {BEGINNING}"
    connection.execute(query, beginning(_REQUEST))


# What a gateway put into prompts.


def blocks(store: Store, digests: Sequence[str]) -> dict[str, Json]:
    """What was put before the messages of these digests, where something is known of them."""
    query = f"SELECT name, value FROM facts_of_file WHERE name {AMONG}"
    with store.database.reading() as connection:
        facts = select(connection, query, (among([_BLOCK + digest for digest in digests]),))
    return {name.removeprefix(_BLOCK): json.loads(value) for name, value in facts}


def begin_turn(
    store: Store, digest: str, block: Json, episode: str, receipt: Json, turn: Json | None, *, since: int
) -> bool:
    """Note, in one transaction, what is about to be sent. turn: what is to be written of it once it was answered. since: the
    newest entry of the journal when memory was asked. False, and nothing noted, where something was erased after it, which the
    block may quote."""
    until = later(timestamp(store.clock()), BLOCK_SECONDS)
    bodies = {_BLOCK + digest: {**block, "until": until}, _RECEIPT + episode: {**receipt, "until": until}}
    if turn is not None:
        bodies[_TURN + episode] = dict(turn)

    def work(connection: AnyConnection) -> bool:
        if erased_since(connection, since):
            return False
        for name, body in bodies.items():
            keep(connection, name, json.dumps(body, ensure_ascii=False))
        if digest < "04":  # on one turn of 64
            for prefix in (_BLOCK, _RECEIPT):
                _drop_over(connection, prefix, store.clock())
        return True

    return store.database.write(work)


def keep_block(store: Store, digest: str, block: Json, *, since: int) -> None:
    """Note one more name for what is in prompts: what an upstream keeps of a conversation. since: as for `begin_turn`."""
    body = {**block, "until": later(timestamp(store.clock()), BLOCK_SECONDS)}

    def work(connection: AnyConnection) -> None:
        if not erased_since(connection, since):
            keep(connection, _BLOCK + digest, json.dumps(body, ensure_ascii=False))

    store.database.write(work)


def receipt(store: Store, episode: str) -> Json | None:
    """Of an episode; None where there is none, or none any more."""
    body: Json | None = _body(store, _RECEIPT + episode)
    return body


def with_receipt(connection: AnyConnection, episodes: Sequence[str]) -> set[str]:
    """Those of the episodes that have one."""
    query = f"SELECT name FROM facts_of_file WHERE name {AMONG}"
    facts = select(connection, query, (among([_RECEIPT + episode for episode in episodes]),))
    return {name.removeprefix(_RECEIPT) for (name,) in facts}


def waiting_turn(store: Store, episode: str) -> Json | None:
    """What is to be written of an episode; None where nothing is any more."""
    body: Json | None = _body(store, _TURN + episode)
    return body


def waiting_turns(store: Store) -> list[tuple[str, Json]]:
    """(episode, what is to be written of it) where that did not happen: the process was killed before."""
    with store.database.reading() as connection:
        return _beginning(connection, _TURN)


@contextmanager
def ending_turn(store: Store, episode: str) -> Iterator[Callable[[], None]]:
    """Inside, whatever is written is written together with the end of this turn: once, however often it is begun. What is given
    ends it where nothing was to be written. Nothing happens where another wrote what was said, or it was erased meanwhile."""
    name, over = _TURN + episode, False

    def end(connection: AnyConnection) -> None:
        nonlocal over
        if not over and fact(connection, name) is None:
            raise _NothingLeft
        drop(connection, [name])
        over = True

    try:
        with _in_every_transaction(end):
            yield lambda: None if over else store.database.write(lambda connection: drop(connection, [name]))
    except _NothingLeft:
        pass


def forget_blocks(connection: AnyConnection, whose: Scope | None) -> None:
    """They quote what is remembered: all go when something is erased. Conversations that go on lose what a provider cached.
    whose: of whom everything is erased, turns that are being answered too; the turns of others are theirs, and are still
    written."""
    connection.execute(f"DELETE FROM facts_of_file WHERE {BEGINNING}", beginning(_BLOCK))
    turns = [] if whose is None else _beginning(connection, _TURN)
    drop(
        connection,
        [_TURN + name for name, body in turns if whose is not None and whose.contains(Scope(*body["scope"]))],
    )
