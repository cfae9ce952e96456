"""Decisions as the file keeps them: what each search considered and showed, with what probability.

Inside an episode a decision is durable before the search returns. Outside, decisions are collected and committed
together by a background thread; those of the last moments are lost if the process is killed. What is erased meanwhile, by
whatever handle, does not come back with them: their questions are left out.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from keepworth.episodes.episode import Decision, DecisionKind
from keepworth.memory.errors import InvalidText, MemoryProblem
from keepworth.memory.item import Scope
from keepworth.memory.store.candidates import packed, unpacked
from keepworth.memory.store.connection import AMONG, AnyConnection, among, first, scalar, select
from keepworth.memory.store.rows import OF_SCOPE, from_json, readable
from keepworth.memory.store.schema import OF_KIND
from keepworth.memory.store.transaction import Transaction

if TYPE_CHECKING:
    from keepworth.memory.store.store import Store

_LOG = logging.getLogger("keepworth.memory")
FLUSH_SECONDS = 0.2
"""How long a decision outside an episode may wait. Every commit makes readers look at the file anew, so not for each search."""
LARGEST_BATCH = 512
_INSERT = "INSERT INTO decisions VALUES(NULL,?,?,?,?,?,?,?,?,?,?,?,?,?)"
SELECT = "SELECT id, kind, query, candidates, chosen, propensity, policy, step"
KINDS = {kind.value: kind for kind in DecisionKind}
IN_EPISODE = "episode = ? AND episode <> ''"
"""SQL: the second half is what lets SQLite use the index, which holds no rows outside episodes."""


@dataclass(frozen=True, slots=True)
class Logged:
    """A decision with when it was made, for whom, and in which episode ("" outside one).

    details: JSON, what the policy knew; vector: of the query, as the policy packs it."""

    at: str
    scope: Scope
    episode: str
    decision: Decision
    details: str = ""
    vector: bytes | None = None


class DecisionLog:
    """Writes decisions at once, or together with others a moment later."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.closed = False
        self._waiting: list[Callable[[], Logged]] = []
        self._since = 0  # the newest purge when the first of them began to wait
        self._wake = threading.Condition()
        self._flushing = threading.Lock()
        self._thread: threading.Thread | None = None
        _OPEN.add(self)

    def write(self, entries: Sequence[Logged], since: int | None = None) -> None:
        """Durable when this returns. since: the newest purge when the first of them began to wait; None if they did not."""
        if entries:
            self._store.change(entries[0].scope, lambda transaction: self._insert(transaction, entries, since))

    def later(self, entry: Callable[[], Logged]) -> None:
        """Committed with others within a moment, and made only then."""
        with self._wake:
            if not self._waiting:
                with self._store.database.reading() as connection:
                    self._since = newest_purge(connection)
            self._waiting.append(entry)
            flushed = self._thread is not None or self._start()
            if len(self._waiting) >= LARGEST_BATCH:
                self._wake.notify()
        if not flushed:
            self.flush()

    def _start(self) -> bool:
        """Whether there is a thread now: a process that ends, or may have no more of them, gets none."""
        thread = threading.Thread(
            target=_keep_flushing, args=(weakref.ref(self),), name="keepworth-decisions", daemon=True
        )
        with contextlib.suppress(RuntimeError):
            thread.start()
            self._thread = thread
        return self._thread is not None

    def flush(self) -> None:
        """Commit what is waiting; also what another thread is committing is on file when this returns."""
        if self._store.database.forked:
            return  # what waits is the parent's, and so may be the lock
        with self._flushing:
            with self._wake:
                entries, self._waiting, since = self._waiting, [], self._since
            made = []
            for entry in entries:
                try:
                    made.append(entry())
                except Exception as error:
                    # What a policy noted may be nothing that can be written; the others are sound.
                    _LOG.warning("a decision could not be logged: %r", error)
            if made:
                self._written(made, since)

    def _written(self, entries: Sequence[Logged], since: int) -> None:
        """A search that succeeded must not fail later for its log; rewards for what cannot be logged will be refused."""
        try:
            self.write(entries, since)
        except Exception as error:
            # Of a value that nothing can hold one decision is the reason: the others are sound.
            if len(entries) == 1 or (isinstance(error, MemoryProblem) and not isinstance(error, InvalidText)):
                _LOG.warning("%d decisions could not be logged: %r", len(entries), error)
            else:
                for entry in entries:
                    self._written([entry], since)

    def wait(self, seconds: float) -> None:
        with self._wake:
            if not self.closed:
                self._wake.wait(seconds)

    def close(self) -> None:
        with self._wake:
            self.closed = True
            self._wake.notify_all()
        self.flush()

    def _insert(self, transaction: Transaction, entries: Sequence[Logged], since: int | None) -> None:
        newest = newest_purge(transaction.connection)
        if newest:
            entries = [entry for entry in entries if not is_erased(transaction.connection, entry.episode)]
            waited = since is not None and newest > since
            entries = [logged for entry in entries for logged in _without_erased(transaction.connection, entry, waited)]
        transaction.connection.executemany(_INSERT, [_row(transaction, entry) for entry in entries])


def shorten(connection: AnyConnection, through: int) -> None:
    """Take the candidates from decisions up to `through`."""
    query = "UPDATE decisions SET candidates = '[]', details = '' WHERE n <= ? AND candidates <> '[]'"
    connection.execute(query, (through,))


def newest_purge(connection: AnyConnection) -> int:
    """The number of the newest entry that erased something; 0 where nothing was erased."""
    return scalar(connection, f"SELECT max(seq) FROM events WHERE {OF_KIND} AND kind = 'PURGE'") or 0


def is_erased(connection: AnyConnection, episode: str) -> bool:
    """Whether this episode was erased, with everything that is of it: what still happens in it is not written any more."""
    return episode != "" and scalar(connection, "SELECT outcome FROM episodes WHERE id = ?", (episode,)) == "erased"


def _without_erased(connection: AnyConnection, entry: Logged, waited: bool) -> list[Logged]:
    """The entry as erasing would have left it. waited: something was erased after the search and before this."""
    if waited:
        if scalar(connection, f"SELECT 1 FROM scopes WHERE {OF_SCOPE}", entry.scope.parts()) is None:
            return []  # a scope that is erased, and nobody has written under its names since
    else:
        considered = among([int(id[1:]) for id, _ in entry.decision.candidates])
        waited = scalar(connection, f"SELECT 1 FROM tombstones WHERE n {AMONG} LIMIT 1", (considered,)) is not None
    erased = replace(entry, decision=replace(entry.decision, query=""), details="", vector=None)
    return [erased] if waited else [entry]


def find(connection: AnyConnection, id: str) -> tuple[Decision, str, int] | None:
    """(decision, episode, scope id), or None."""
    row = first(connection, f"{SELECT}, episode, scope FROM decisions WHERE id = ?", (id,))
    return None if row is None else (decision(row), row[8], row[9])


def of_episode(connection: AnyConnection, episode: str) -> list[Decision]:
    return [
        decision(row)
        for row in select(connection, f"{SELECT} FROM decisions WHERE {IN_EPISODE} ORDER BY n", (episode,))
    ]


def decision(row: tuple[Any, ...]) -> Decision:
    """A row of SELECT, whatever comes after its columns. Raises rows.Unreadable."""
    id, kind, query, candidates, chosen, propensity, policy, step, *_ = row
    with readable(f"decision {id!r:.40}"):
        considered = unpacked(candidates)
        return Decision(id, KINDS[kind], query, considered, tuple(from_json(chosen)), propensity, policy, step)


def _row(transaction: Transaction, entry: Logged) -> tuple[Any, ...]:
    decision = entry.decision
    return (
        decision.id,
        entry.at,
        transaction.book.row(entry.scope).id,
        entry.episode,
        decision.step,
        decision.kind.value,
        decision.query,
        packed(decision.candidates),
        json.dumps(decision.chosen),
        decision.propensity,
        decision.policy,
        entry.details,
        entry.vector,
    )


def _keep_flushing(reference: weakref.ref[DecisionLog]) -> None:
    """Holds the log only while it works, so that a forgotten memory can be collected."""
    while True:
        log = reference()
        if log is None or log.closed:
            return
        log.wait(FLUSH_SECONDS)
        if log.closed:
            return
        log.flush()
        del log


_OPEN: weakref.WeakSet[DecisionLog] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_OPEN.clear)  # what waits is the parent's to write


@atexit.register
def _flush_at_exit() -> None:
    for log in list(_OPEN):
        if not log.closed:
            log.flush()
