"""Facts that are stored by name beside the journal, most of them JSON with the time until which it is kept, or work to be done.

* A request that came over a network is recorded in the very transactions that carry it out. A client that gets no answer asks
  again under the same name: the record exists exactly if what the request wrote does. The answer is added afterwards, so if the
  process is killed in between, it is known that the request was carried out, but not with which answer. Of several processes
  that carry it out at once, one writes.
* That an episode was begun with `explore=False` is kept, for a process that continues it.
* What a gateway inserts into prompts is kept, so that it is sent again unchanged and can be asked for. A block is stored under
  the digest of the conversation up to the message that it precedes. Under an episode are stored its receipt (which items were in
  the bytes that went upstream, and their lines) and, until they are written, the words that its turn began with. For the calls
  themselves see `kept_calls`.
* Of each turn that was read in the log of another program, its size is kept under its episode, so that it counts once.
* Of each evaluation that came by OpenTelemetry and became a reward, its digest is kept, so that it counts once; and under each
  scope, how many of each evaluator became a reward, came again, named nothing that is known, or had no score that is a reward.
* How many times a model was asked today what a message means, in all and for each person, whose name stands there as a digest.
* Of each trial of a policy, the journal entry after which it began is kept under the names of the two policies.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from keepworth.memory.item import Scope, later, new_id, timestamp
from keepworth.memory.store.connection import AMONG, AnyConnection, among, scalar, select
from keepworth.memory.store.undo import newest_purge

if TYPE_CHECKING:
    from keepworth.memory.store.store import Store

Json = Mapping[str, Any]
REQUEST_SECONDS = 24 * 3600.0
BLOCK_SECONDS = 30 * 24 * 3600.0
LARGEST_ANSWER = 65_536
"""Most characters of an answer that is kept."""
REQUEST, BLOCK, RECEIPT, TURN, STEADY, LEARNED = "request ", "block ", "receipt ", "turn ", "steady ", "read "
EVALUATED, TALLY, TRIAL = "evaluation ", "evaluators ", "trial "
"""The kinds of notes, which are prefixes of their names."""
NOTE: ContextVar[Callable[[AnyConnection], None] | None] = ContextVar("NOTE", default=None)
"""What every transaction of this context calls, to write a note as part of it."""
USUAL_RANGE = (0.0, 1.0)
"""The range of rewards of a memory for which none was declared."""
MODEL_CALLS = "model calls"
"""The name of the fact that says how many times a model was asked on a day, and for whom."""
_RANGE = "reward range"
"""The name of the fact that holds the range of rewards."""
UNFINISHED = "erasing"
"""The name of the fact that something was erased and the work outside the tables is still to be done."""
BEGINNING = "name >= ? AND name < ?"
"""SQL condition for facts whose names begin alike; `beginning` makes its parameters."""


def beginning(prefix: str) -> tuple[str, str]:
    """Return the parameters of BEGINNING for a prefix."""
    return prefix, prefix + "\U0010ffff"


def keep(connection: AnyConnection, name: str, text: str) -> None:
    """Store a fact under a name, in place of an earlier one.

    Args:
        connection: A connection to the memory.
        name: What the fact is looked up by.
        text: The fact, most often as JSON.
    """
    put = "INSERT INTO facts_of_file VALUES(?, ?) ON CONFLICT(name) DO UPDATE SET value = excluded.value"
    connection.execute(put, (name, text))


def fact(connection: AnyConnection, name: str) -> str | None:
    """Return the text of a fact, or None if there is none of this name."""
    text: str | None = scalar(connection, "SELECT value FROM facts_of_file WHERE name = ?", (name,))
    return text


def drop(connection: AnyConnection, names: Iterable[str]) -> None:
    """Delete facts by name."""
    connection.executemany("DELETE FROM facts_of_file WHERE name = ?", [(name,) for name in names])


def body(store: Store, kind: str, name: str) -> Json | None:
    """Return the body of a note, or None if there is none of this name, or none any more.

    Args:
        store: The memory.
        kind: The beginning of its name, which stands for the kind of note.
        name: The rest of its name.
    """
    with store.database.reading() as connection:
        read: Json | None = json.loads(fact(connection, kind + name) or "null")
    return read


def reward_range(store: Store, given: tuple[float, float] | None) -> tuple[float, float]:
    """Return the range of rewards in this memory: the one that is given, which is noted on file, or else the one on file, or 0
    to 1."""
    with store.database.reading() as connection:
        low, high = json.loads(fact(connection, _RANGE) or "null") or USUAL_RANGE
    if given is not None and tuple(given) != (low, high):
        low, high = map(float, given)
        if not store.database.read_only:
            store.database.write(lambda connection: keep_range(connection, (low, high)))
    return low, high


def keep_range(connection: AnyConnection, given: Sequence[float]) -> None:
    """Note the range of rewards on file."""
    keep(connection, _RANGE, json.dumps(list(map(float, given))))


class NotedTrial(NamedTuple):
    """A trial of a policy: its name, that of the policy in force, the journal entry after which the trial began, the number of
    rewards before and their mean on the scale 0 to 1, and what the trial may cost, as a part of the range of rewards."""

    policy: str
    replaces: str
    since: int
    before: tuple[int, float]
    loss: float


def begin_trial(
    store: Store, policy: str, replaces: str, loss: float, sum_up: Callable[[AnyConnection], tuple[int, float]]
) -> NotedTrial:
    """Return a trial, which is noted on file the first time, or when it may come to cost something else.

    Args:
        store: The memory.
        policy: The name of the policy on trial.
        replaces: The name of the one in force.
        loss: What it may cost.
        sum_up: It returns the number of rewards so far, and their mean.
    """
    name = f"{TRIAL}{policy}\n{replaces}"
    with store.database.reading() as connection:
        noted = json.loads(fact(connection, name) or "null")
        if noted is None:
            noted = {"since": store.head(), "before": sum_up(connection), "loss": math.nan}
    if noted["loss"] != loss and not store.database.read_only:
        noted["loss"] = loss
        store.database.write(lambda connection: keep(connection, name, json.dumps(noted)))
    return NotedTrial(policy, replaces, noted["since"], noted["before"], loss)


def trials(connection: AnyConnection) -> list[NotedTrial]:
    """Return the trials of policies on file, the one that began last first."""
    noted = ((*name.split("\n"), body) for name, body in list_notes(connection, TRIAL))
    listed = [
        NotedTrial(policy, replaces, body["since"], body["before"], body["loss"]) for policy, replaces, body in noted
    ]
    return sorted(listed, key=lambda trial: -trial.since)


def list_notes(connection: AnyConnection, prefix: str) -> list[tuple[str, Any]]:
    """Return (rest of the name, body) of the notes whose names begin with `prefix`, ordered by name."""
    query = f"SELECT name, value FROM facts_of_file WHERE {BEGINNING} ORDER BY name"
    facts = select(connection, query, beginning(prefix))
    return [(name.removeprefix(prefix), json.loads(value)) for name, value in facts]


def bodies(connection: AnyConnection, kind: str, names: Sequence[str]) -> dict[str, Any]:
    """Return the bodies of those notes that there are, by their names.

    Args:
        connection: A connection to the memory.
        kind: The beginning of their names, which stands for the kind of note.
        names: The rest of their names.
    """
    query = f"SELECT name, value FROM facts_of_file WHERE name {AMONG}"
    facts = select(connection, query, (among([kind + name for name in names]),))
    return {name.removeprefix(kind): json.loads(value) for name, value in facts}


SWEEP, SWEPT = 16, 32
"""Of so many notes one looks for notes that are over, among so many of its neighbours. As names are random, all are looked at."""


def drop_over(connection: AnyConnection, prefix: str, name: str, time: str) -> None:
    """Now and then, delete notes whose time is over, for a cost that does not grow with their number.

    Args:
        connection: A connection to the memory.
        prefix: The beginning of their names, which stands for the kind of note.
        name: The rest of the name of the note that was written; those that stand beside it are looked at.
        time: The present, as ISO 8601.
    """
    turn, backwards = divmod(zlib.crc32(name.encode()), 2)
    if turn % SWEEP:
        return
    first, end = beginning(prefix)
    here = ("<= ? AND name >=", "name DESC", first) if backwards else (">= ? AND name <", "name", end)
    there = f"SELECT name FROM facts_of_file WHERE name {here[0]} ? ORDER BY {here[1]} LIMIT ?"
    over = f"DELETE FROM facts_of_file WHERE name IN ({there}) AND json_extract(value, '$.until') < ?"
    connection.execute(over, (prefix + name, here[2], SWEPT, timestamp(time)))


@contextmanager
def _in_every_transaction(note: Callable[[AnyConnection], None]) -> Iterator[None]:
    reset = NOTE.set(note)
    try:
        yield
    finally:
        NOTE.reset(reset)


class RequestUnderWay(Exception):
    """Raised inside a transaction, which then writes nothing, if another process has begun to carry out the same request."""


class _NothingLeft(Exception):
    """Raised inside a transaction, which then writes nothing, if a turn was already ended elsewhere or was erased."""


# Requests.


@dataclass(frozen=True, slots=True)
class NotedRequest:
    """The record of a request: the digest of what it asked for, and the answer, or None if that is not known."""

    digest: str
    answer: str | None


def noted_request(store: Store, name: str) -> NotedRequest | None:
    """Return the record of the request with this name, or None if none was carried out in the last day."""
    noted = body(store, REQUEST, name)
    if noted is None or noted["until"] < timestamp(store.clock()):
        return None
    return NotedRequest(noted["digest"], noted.get("answer"))


@contextmanager
def noting(store: Store, name: str, digest: str) -> Iterator[None]:
    """Inside this context, every write also records, in its transaction, that a request was carried out. Writes raise
    RequestUnderWay if another process has done so in the last day.

    Args:
        store: The memory.
        name: The name of the request, which its client drew.
        digest: That of what the request asks for.
    """
    time = timestamp(store.clock())
    body = {"until": later(time, REQUEST_SECONDS), "digest": digest, "by": new_id("r")}
    text = json.dumps(body)

    def note(connection: AnyConnection) -> None:
        there = json.loads(fact(connection, REQUEST + name) or "null")
        if there is not None and there.get("by") != body["by"] and there["until"] >= time:
            raise RequestUnderWay
        keep(connection, REQUEST + name, text)

    with _in_every_transaction(note):
        yield


def keep_answer(store: Store, name: str, digest: str, answer: str) -> None:
    """Add the answer to a request's record, for clients that ask again; do nothing if the request wrote nothing. Now
    and then it also deletes records that are more than a day old.

    Args:
        store: The memory.
        name: The name of the request, which its client drew.
        digest: That of what the request asks for.
        answer: The body of the answer.
    """
    if len(answer) > LARGEST_ANSWER:
        return
    text = json.dumps({"until": later(timestamp(store.clock()), REQUEST_SECONDS), "digest": digest, "answer": answer})

    def work(connection: AnyConnection) -> None:
        connection.execute("UPDATE facts_of_file SET value = ? WHERE name = ?", (text, REQUEST + name))
        drop_over(connection, REQUEST, name, store.clock())

    store.database.write(work)


def forget_answers(connection: AnyConnection) -> None:
    """Delete the answers of all requests, as they may quote what is erased. The records of the requests stay."""
    _forget_part(connection, REQUEST, "answer")


def _forget_part(connection: AnyConnection, kind: str, part: str) -> None:
    """Delete one part of the bodies of all notes of a kind."""
    query = f"UPDATE facts_of_file SET value = json_remove(value, '$.{part}') WHERE {BEGINNING}"
    connection.execute(query, beginning(kind))


# Episodes in which the policy tries nothing.


def keep_steady(connection: AnyConnection, episode: str, time: str) -> None:
    """Note that the policy tries nothing in an episode, which another process may continue in the next month.

    Args:
        connection: A connection to the memory.
        episode: The id of the episode.
        time: The present, as ISO 8601.
    """
    keep(connection, STEADY + episode, json.dumps({"until": later(timestamp(time), BLOCK_SECONDS)}))
    drop_over(connection, STEADY, episode, time)


def explores(connection: AnyConnection, episode: str) -> bool:
    """Return whether the policy may try things in an episode."""
    return fact(connection, STEADY + episode) is None


# What was read in logs.


def keep_learned(store: Store, episode: str, size: int) -> None:
    """Note how much of a turn was learned from, as an episode.

    Args:
        store: The memory.
        episode: The id of the episode.
        size: The size of the turn's log so far.
    """
    store.database.write(lambda connection: keep(connection, LEARNED + episode, json.dumps(size)))


# Calls to a model.


def count_model_call(store: Store, most: int, person: str = "") -> bool:
    """Count a call to a model that says what messages mean. Returns whether it may be made: not if there were so many today, and
    not for a person who had half of those that the others left, so that nobody uses up the calls of all.

    Args:
        store: The memory.
        most: The most calls in a day (UTC).
        person: Whose message it is; "" if nobody is named, which is not bound to half.
    """
    day = timestamp(store.clock())[:10]
    name = hashlib.sha256(person.encode()).hexdigest()[:16] if person else ""

    def count(connection: AnyConnection) -> bool:
        counted = json.loads(fact(connection, MODEL_CALLS) or "{}")
        calls: dict[str, int] = counted.get("made", {}) if counted.get("day") == day else {}
        made = calls.get(name, 0)
        left = most - (sum(calls.values()) - made)
        may = made < (math.ceil(left / 2) if name else left)
        if may:
            keep(connection, MODEL_CALLS, json.dumps({"day": day, "made": {**calls, name: made + 1}}))
        return may

    return store.database.write(count)


# What evaluators sent.

MOST_EVALUATORS = 200
"""The most evaluators that are counted for a scope."""


def keep_evaluated(connection: AnyConnection, digests: Iterable[str], time: str) -> None:
    """Note evaluations that became rewards, so that each counts once in the next month.

    Args:
        connection: A connection to the memory.
        digests: Those of the evaluations.
        time: The present, as ISO 8601.
    """
    until = json.dumps({"until": later(timestamp(time), BLOCK_SECONDS)})
    for digest in digests:
        keep(connection, EVALUATED + digest, until)
        drop_over(connection, EVALUATED, digest, time)


def keep_evaluations(
    connection: AnyConnection, scope: Scope, digests: Iterable[str], counts: Mapping[str, Mapping[str, int]], time: str
) -> None:
    """Note evaluations that became rewards, and add to the counts of their evaluators.

    Args:
        connection: A connection to the memory.
        scope: That of who sent them.
        digests: Those of the evaluations that became rewards.
        counts: By what became of evaluations, and by the name of the evaluator, how many.
        time: The present.
    """
    keep_evaluated(connection, digests, time)
    name = TALLY + json.dumps(scope.parts())
    tally = json.loads(fact(connection, name) or "{}")
    for what, numbers in counts.items():
        for evaluator, number in numbers.items():
            if evaluator in tally or len(tally) < MOST_EVALUATORS:
                row = tally.setdefault(evaluator, {})
                row[what] = row.get(what, 0) + number
    keep(connection, name, json.dumps(tally, ensure_ascii=False))


def tallies(connection: AnyConnection, scope: Scope, nobody: bool = False) -> dict[str, Counter[str]]:
    """Return the counts of each evaluator, by what became of what it sent.

    Args:
        connection: A connection to the memory.
        scope: Only what was sent for somebody inside it counts.
        nobody: Whether only scopes without a user count.
    """
    sums = dict[str, Counter[str]]()
    for name, tally in list_notes(connection, TALLY):
        home = Scope(*json.loads(name))
        if scope.contains(home) and not (nobody and home.user):
            for evaluator, row in tally.items():
                sums.setdefault(evaluator, Counter()).update(row)
    return sums


def forget_tallies(connection: AnyConnection, whose: Scope) -> None:
    """Delete the counts of evaluators of a scope that is erased."""
    listed = [name for name, _ in list_notes(connection, TALLY) if whose.contains(Scope(*json.loads(name)))]
    drop(connection, [TALLY + name for name in listed])


# What a gateway put into prompts.


def begin_turn(
    store: Store, digest: str, block: Json, episode: str, receipt: Json, turn: Json | None, *, since: int
) -> bool:
    """Store, in one transaction, what is about to be sent. Returns False, with nothing stored, if something was erased
    meanwhile, as the block may quote it.

    Args:
        store: The memory.
        digest: That of the conversation up to here.
        block: The block of memory that the turn shows.
        episode: The id of the turn's episode.
        receipt: What the rendered prompt held.
        turn: What is to be written to the memory once the turn was answered; None for nothing.
        since: The newest journal entry when the memory was searched.
    """
    until = later(timestamp(store.clock()), BLOCK_SECONDS)
    notes_of_turn = {BLOCK + digest: {**block, "until": until}, RECEIPT + episode: {**receipt, "until": until}}
    if turn is not None:
        notes_of_turn[TURN + episode] = dict(turn)

    def work(connection: AnyConnection) -> bool:
        if newest_purge(connection) > since:
            return False
        for name, noted in notes_of_turn.items():
            keep(connection, name, json.dumps(noted, ensure_ascii=False))
        drop_over(connection, BLOCK, digest, store.clock())
        drop_over(connection, RECEIPT, episode, store.clock())
        return True

    return store.database.write(work)


def keep_block(store: Store, digest: str, block: Json, *, since: int) -> None:
    """Store a block under one more digest. Does nothing if something was erased meanwhile, as in `begin_turn`.

    Args:
        store: The memory.
        digest: That of a conversation, such as the one with the model's answer.
        block: The block of memory.
        since: The newest journal entry when the memory was searched.
    """
    noted = {**block, "until": later(timestamp(store.clock()), BLOCK_SECONDS)}

    def work(connection: AnyConnection) -> None:
        if newest_purge(connection) <= since:
            keep(connection, BLOCK + digest, json.dumps(noted, ensure_ascii=False))

    store.database.write(work)


def waiting_turns(store: Store) -> list[tuple[str, Json]]:
    """Return (episode, what is to be written of its turn) for turns that were left unwritten, as by a killed process."""
    with store.database.reading() as connection:
        return list_notes(connection, TURN)


@contextmanager
def ending_turn(store: Store, episode: str) -> Iterator[Callable[[], None]]:
    """Inside this context, the first write also ends the turn, in the same transaction, so that it is written only once.

    Yields a function that ends the turn if there was nothing to write. If the turn was ended elsewhere or erased, the first write
    leaves the context, writing nothing and raising nothing."""
    name, over = TURN + episode, False

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
    """Delete all blocks and the lines in receipts, as they may quote what is erased; the provider's cache of conversations that
    continue no longer fits them. With `whose`, a scope that is erased as a whole, also deletes the turns in it that are still to
    be written."""
    connection.execute(f"DELETE FROM facts_of_file WHERE {BEGINNING}", beginning(BLOCK))
    _forget_part(connection, RECEIPT, "lines")
    turns = [] if whose is None else list_notes(connection, TURN)
    drop(
        connection,
        [TURN + name for name, body in turns if whose is not None and whose.contains(Scope(*body["scope"]))],
    )
