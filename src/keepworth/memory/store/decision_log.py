"""The log of decisions in the file: what each search considered and showed, and with what probability.

Inside an episode a decision is durable before the search returns. Outside, decisions are collected and committed together by a
background thread; the newest are lost if the process is killed. If something is erased while decisions wait, through whatever
handle, their queries are left out of the log.

The candidates of a decision, the items that a search considered, are read in three forms: "[]" (none, or dropped by `compact`);
JSON `[["m7", 0.25], ...]`, for what the packed form cannot hold; and the packed form, which is written otherwise: four bytes for
the number of each item, then four for each score in millionths, lowest byte first. It takes some two fifths of the bytes of JSON.
In Postgres, whose columns have one type, the packed form is text: \\x and its bytes in hexadecimal digits.
"""

from __future__ import annotations

import atexit
import json
import logging
import re
import struct
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from keepworth.memory.errors import InvalidText, MemoryProblem
from keepworth.memory.item import Scope
from keepworth.memory.store import traces
from keepworth.memory.store.connection import AMONG, AnyConnection, among, scalar, select
from keepworth.memory.store.rows import OF_SCOPE, from_json, number_of, readable
from keepworth.memory.store.transaction import Transaction
from keepworth.memory.store.undo import newest_purge
from keepworth.records.episode import Decision, DecisionKind

if TYPE_CHECKING:
    from keepworth.memory.store.store import Store

_LOG = logging.getLogger("keepworth.memory")
FLUSH_SECONDS = 0.2
"""Most seconds that a decision outside an episode waits. They share commits, each of which makes readers look at the file
anew."""
_INSERT = "INSERT INTO decisions VALUES(NULL,?,?,?,?,?,?,?,?,?,?,?,?,?)"
SELECT = "SELECT id, kind, query, candidates, chosen, propensity, policy, step"
KINDS = {kind.value: kind for kind in DecisionKind}
IN_EPISODE = "episode = ? AND episode <> ''"
"""SQL condition for the rows of an episode. Its second half lets SQLite use the index, which holds no rows outside episodes."""
TEXTS = "texts"
"""The name in the details of a decision of the digests of the texts that reworded items had, by id."""
Pairs = Sequence[tuple[str, float]]
DIGITS = 6
"""Decimal places of a stored score."""
_ONE = 10**DIGITS
_WIDTH = 8
"""Bytes of a candidate in the packed form."""
_NAMED = re.compile(r'"m(\d+)"')


@dataclass(frozen=True, slots=True)
class Logged:
    """A decision with its time, its scope, and its episode ("" outside one).

    `details` is JSON of what the policy knew, `vector` the query's vector as the policy packs it, `trace` that within which the
    search was made."""

    at: str
    scope: Scope
    episode: str
    decision: Decision
    details: str = ""
    vector: bytes | None = None
    trace: traces.TraceContext | None = None


class DecisionLog:
    """Writes decisions to the file, at once or together with others a moment later."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[Callable[[], Logged]] = []
        self._since = 0  # number of the newest purge when the first of them was queued
        self._queue = threading.Lock()
        self._flushing = threading.Lock()
        self._timer: threading.Timer | None = None
        _OPEN.add(self)

    def write(self, entries: Sequence[Logged], since: int | None = None) -> None:
        """Write decisions durably. `since` is the number of the newest purge when the first was queued, None if none was."""
        if entries:
            self._store.change(entries[0].scope, lambda transaction: insert(transaction, entries, since))

    def later(self, entry: Callable[[], Logged]) -> None:
        """Queue a decision, which `entry` makes just before it is committed together with others."""
        with self._queue:
            if not self._waiting:
                with self._store.database.reading() as connection:
                    self._since = newest_purge(connection)
            self._waiting.append(entry)
            if self._timer is not None:
                return
            self._timer = threading.Timer(FLUSH_SECONDS, self._flush_waiting)
            self._timer.daemon = True
        try:
            self._timer.start()
        except RuntimeError:  # a process that ends, or may have no more threads
            self._flush_waiting()

    def _flush_waiting(self) -> None:
        self._timer = None
        self.flush()

    def flush(self) -> None:
        """Commit all queued decisions, and wait for those that another thread is committing."""
        if self._store.database.forked:
            return  # the queue belongs to the parent, one of whose threads may hold the lock
        with self._flushing:
            with self._queue:
                entries, self._waiting, since = self._waiting, [], self._since
            made = []
            for entry in entries:
                try:
                    made.append(entry())
                except Exception as error:
                    # A policy's details may be impossible to write; the other decisions are sound.
                    _LOG.warning("a decision could not be logged: %r", error)
            batches = [made]
            for batch in batches:
                try:
                    self.write(batch, since)
                except Exception as error:
                    # A search that succeeded must not fail later for its log. If one decision may hold a value that cannot be
                    # stored, the others are written one by one. Rewards for decisions that were not logged will be refused.
                    if len(batch) == 1 or (isinstance(error, MemoryProblem) and not isinstance(error, InvalidText)):
                        _LOG.warning("%d decisions could not be logged: %r", len(batch), error)
                    else:
                        batches += [[one] for one in batch]


def insert(transaction: Transaction, entries: Sequence[Logged], since: int | None) -> None:
    """Insert decisions, without those that were erased and without what they may quote of what was.

    Args:
        transaction: The transaction that writes.
        entries: The decisions.
        since: The number of the newest purge when the first was made, where they waited since; None if they did not wait.
    """
    newest = newest_purge(transaction.connection)
    if newest:
        entries = [entry for entry in entries if not is_erased(transaction.connection, entry.episode)]
        waited = since is not None and newest > since
        entries = [logged for entry in entries for logged in _without_erased(transaction.connection, entry, waited)]
    values = [
        (
            entry.decision.id,
            entry.at,
            transaction.scope_row(entry.scope).id,
            entry.episode,
            entry.decision.step,
            entry.decision.kind.value,
            entry.decision.query,
            packed(entry.decision.candidates),
            json.dumps(entry.decision.chosen),
            entry.decision.propensity,
            entry.decision.policy,
            entry.details,
            entry.vector,
        )
        for entry in entries
    ]
    transaction.connection.executemany(_INSERT, values)
    for entry in entries:
        if entry.trace is not None:
            traces.join(transaction.connection, entry.trace, entry.decision.id, entry.at)


def shorten(connection: AnyConnection, through: int) -> None:
    """Drop the candidates and the details of the decisions with row number up to `through`, except for which text each reworded
    item had that was chosen."""
    worded = (
        f"SELECT n, chosen, details FROM decisions WHERE n <= ? AND candidates <> '[]' AND details LIKE '%\"{TEXTS}\"%'"
    )
    shortened = list[tuple[str, int]]()
    for n, chosen, body in select(connection, worded, (through,)):
        numbers = named(chosen)  # an erasure finds a decision by these alone once its candidates are gone
        texts = {id: digest for id, digest in from_json(body).get(TEXTS, {}).items() if number_of(id) in numbers}
        if texts:
            shortened.append((json.dumps({TEXTS: texts}), n))
    query = "UPDATE decisions SET candidates = '[]', details = '' WHERE n <= ? AND candidates <> '[]'"
    connection.execute(query, (through,))
    connection.executemany("UPDATE decisions SET details = ? WHERE n = ?", shortened)


def is_erased(connection: AnyConnection, episode: str) -> bool:
    """Return whether this episode was erased; nothing that still happens in it is written."""
    return episode != "" and scalar(connection, "SELECT outcome FROM episodes WHERE id = ?", (episode,)) == "erased"


def _without_erased(connection: AnyConnection, entry: Logged, waited: bool) -> list[Logged]:
    """Return the decision without what a purge would have removed from it: its query, details and vector if it may quote what
    was erased; [] if its scope was erased. `waited` says whether something was erased after the search."""
    if waited:
        if scalar(connection, f"SELECT 1 FROM scopes WHERE {OF_SCOPE}", entry.scope.parts()) is None:
            return []  # the scope is erased, and nothing was written under its names since
    else:
        considered = among([int(id[1:]) for id, _ in entry.decision.candidates])
        waited = scalar(connection, f"SELECT 1 FROM tombstones WHERE n {AMONG} LIMIT 1", (considered,)) is not None
    erased = replace(entry, decision=replace(entry.decision, query=""), details="", vector=None)
    return [erased] if waited else [entry]


def of_episode(connection: AnyConnection, episode: str) -> list[Decision]:
    return [
        decision(row)
        for row in select(connection, f"{SELECT} FROM decisions WHERE {IN_EPISODE} ORDER BY n", (episode,))
    ]


def decision(row: tuple[Any, ...]) -> Decision:
    """Return the decision in a row of SELECT, which may have more columns. Raises rows.Unreadable."""
    id, kind, query, candidates, chosen, propensity, policy, step, *_ = row
    with readable(f"decision {id!r:.40}"):
        considered = unpacked(candidates)
        return Decision(id, KINDS[kind], query, considered, tuple(from_json(chosen)), propensity, policy, step)


def packed(pairs: Pairs) -> str | bytes:
    """Return the stored form of (id, score) pairs: packed where possible, else JSON."""
    if not pairs:
        return "[]"
    try:
        numbers = [number_of(id) for id, _ in pairs]
        return struct.pack(f"<{len(pairs)}I{len(pairs)}i", *numbers, *[round(score * _ONE) for _, score in pairs])
    except (struct.error, ValueError, OverflowError):  # another id, or a number too large or not finite
        return as_json(pairs)


def unpacked(candidates: str | bytes) -> tuple[tuple[str, float], ...]:
    """Return the pairs that `packed` was given, scores with DIGITS places. Raises ValueError or TypeError for anything else."""
    candidates = _plain(candidates)
    if isinstance(candidates, str):
        return tuple([(item, score) for item, score in from_json(candidates)])
    count, rest = divmod(len(candidates), _WIDTH)
    if rest:
        raise ValueError("the last candidate is cut off")
    values = struct.unpack(f"<{count}I{count}i", candidates)
    return tuple([(f"m{number}", score / _ONE) for number, score in zip(values[:count], values[count:], strict=True)])


def named(listed: str | bytes) -> set[int]:
    """Return the item numbers in a list of candidates, or in a JSON list of ids, also where the row is damaged."""
    listed = _plain(listed)
    if isinstance(listed, str):
        return set(map(int, _NAMED.findall(listed)))
    return {number for (number,) in struct.iter_unpack("<I", listed[: len(listed) // _WIDTH * _WIDTH // 2])}


def _plain(listed: str | bytes) -> str | bytes:
    """Return the packed form as bytes, also where Postgres has it as text; leaves JSON as it is."""
    return bytes.fromhex(listed[2:]) if isinstance(listed, str) and listed.startswith("\\x") else listed


def as_json(pairs: Pairs) -> str:
    """Return pairs as JSON, which is for exports and for what cannot be packed."""
    return json.dumps([[id, round(score, DIGITS)] for id, score in pairs])


_OPEN: weakref.WeakSet[DecisionLog] = weakref.WeakSet()


@atexit.register
def _flush_at_exit() -> None:
    for log in list(_OPEN):
        log.flush()
