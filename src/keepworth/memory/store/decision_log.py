"""What searches considered, showed, and with what probability: rows of the store, so that reward can find them.

Inside an episode a decision is durable before the search returns. Outside, decisions are collected and committed
together by a background thread; those of the last moments are lost if the process is killed. What is erased meanwhile, by
whatever handle, does not come back with them: their questions are left out.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from keepworth.episodes.decision import Decision, DecisionKind
from keepworth.memory.errors import MemoryProblem
from keepworth.memory.scope import Scope
from keepworth.memory.store import forking
from keepworth.memory.store.database import first, scalar, select
from keepworth.memory.store.rows import readable
from keepworth.memory.store.transaction import Transaction

if TYPE_CHECKING:
    import apsw

    from keepworth.memory.store.store import Store

_LOG = logging.getLogger("keepworth.memory")
FLUSH_SECONDS = 0.2
"""How long a decision outside an episode may wait. Every commit makes readers look at the file anew, so not for each search."""
LARGEST_BATCH = 512
_INSERT = "INSERT INTO decisions VALUES(NULL,?,?,?,?,?,?,?,?,?,?,?,?,?)"


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
    """keep: how many decisions keep their candidate lists; older ones keep only what was shown. None keeps all."""

    def __init__(self, store: Store, *, keep: int | None = None) -> None:
        self._store = store
        self._keep = keep
        self._closed = False
        self._begin()
        forking.register(self)
        _OPEN.add(self)

    def _begin(self) -> None:
        self._waiting: list[Logged] = []
        self._since = 0  # the newest purge when the first of them began to wait
        self._wake = threading.Condition()
        self._flushing = threading.Lock()
        self._thread: threading.Thread | None = None

    def write(self, entries: Sequence[Logged], since: int | None = None) -> None:
        """Durable when this returns. since: the newest purge when the first of them began to wait; None if they did not."""
        if entries:
            self._store.change(entries[0].scope, lambda transaction: self._insert(transaction, entries, since))

    def later(self, entry: Logged) -> None:
        """Committed with others within a moment."""
        with self._wake:
            if not self._waiting:
                with self._store.database.reading() as connection:
                    self._since = newest_purge(connection)
            self._waiting.append(entry)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_keep_flushing, args=(weakref.ref(self),), name="keepworth-decisions", daemon=True
                )
                self._thread.start()
                _flush_where_exit_is_skipped()
            if len(self._waiting) >= LARGEST_BATCH:
                self._wake.notify()

    def flush(self) -> None:
        """Commit what is waiting; also what another thread is committing is on file when this returns."""
        with self._flushing:
            with self._wake:
                entries, self._waiting, since = self._waiting, [], self._since
            if not entries:
                return
            try:
                self.write(entries, since)
            except MemoryProblem as problem:
                # A search that succeeded must not fail later for its log; rewards for these decisions will be refused.
                _LOG.warning("%d decisions could not be logged: %s", len(entries), problem)

    def wait(self, seconds: float) -> None:
        with self._wake:
            if not self._closed:
                self._wake.wait(seconds)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        self.flush()

    def before_fork(self) -> None:
        """So that they are on file should the parent end at once, as daemons' do. What cannot be written stays the parent's."""
        if self._closed:
            return
        with self._wake:
            entries, self._waiting, since = self._waiting, [], self._since
        try:
            self.write(entries, since)
        except MemoryProblem:
            with self._wake:
                self._waiting[:0] = entries

    def after_fork(self, *, child: bool) -> None:
        if child:
            # What came since is the parent's, and so is the thread.
            self._begin()

    def _insert(self, transaction: Transaction, entries: Sequence[Logged], since: int | None) -> None:
        newest = newest_purge(transaction.connection)
        if newest:
            waited = since is not None and newest > since
            entries = [each for entry in entries for each in _without_erased(transaction.connection, entry, waited)]
        transaction.connection.executemany(_INSERT, [_row(transaction, entry) for entry in entries])
        if self._keep is not None:
            last = scalar(transaction.connection, "SELECT max(n) FROM decisions")
            transaction.connection.execute(
                "UPDATE decisions SET candidates = '[]', details = '' WHERE n <= ? AND n > ? AND candidates <> '[]'",
                (last - self._keep, last - self._keep - len(entries) - LARGEST_BATCH),
            )


def newest_purge(connection: apsw.Connection) -> int:
    """The number of the newest entry that erased something; 0 where nothing was erased."""
    return scalar(connection, "SELECT max(seq) FROM events WHERE kind = 'PURGE'") or 0


def _without_erased(connection: apsw.Connection, entry: Logged, waited: bool) -> list[Logged]:
    """The entry as erasing would have left it. waited: something was erased after the search and before this."""
    if waited:
        known = "SELECT 1 FROM scopes WHERE tenant = ? AND user = ? AND agent = ? AND session = ?"
        if scalar(connection, known, entry.scope.parts()) is None:
            return []  # a scope that is erased, and nobody has written under its names since
    else:
        listed = json.dumps([int(id[1:]) for id, _ in entry.decision.candidates])
        any_erased = "SELECT 1 FROM tombstones WHERE n IN (SELECT value FROM json_each(?)) LIMIT 1"
        waited = scalar(connection, any_erased, (listed,)) is not None
    erased = replace(entry, decision=replace(entry.decision, query=""), details="", vector=None)
    return [erased] if waited else [entry]


def find(connection: apsw.Connection, id: str) -> tuple[Decision, str, int] | None:
    """(decision, episode, scope id), or None."""
    row = first(connection, f"{SELECT}, episode, scope FROM decisions WHERE id = ?", (id,))
    return None if row is None else (decision(row), row[8], row[9])


def of_episode(connection: apsw.Connection, episode: str) -> list[Decision]:
    return [
        decision(row) for row in select(connection, f"{SELECT} FROM decisions WHERE episode = ? ORDER BY n", (episode,))
    ]


SELECT = "SELECT id, kind, query, candidates, chosen, propensity, policy, step"


def decision(row: tuple[Any, ...]) -> Decision:
    with readable(f"decision {row[0]!r:.40}"):
        return Decision(
            id=row[0],
            kind=DecisionKind(row[1]),
            query=row[2],
            candidates=tuple((id, score) for id, score in json.loads(row[3])),
            chosen=tuple(json.loads(row[4])),
            propensity=row[5],
            policy=row[6],
            step=row[7],
        )


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
        json.dumps([[id, round(score, 6)] for id, score in decision.candidates]),
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
_FINALIZED: set[int] = set()


@atexit.register
def _flush_at_exit() -> None:
    for log in list(_OPEN):
        if not log.closed:
            log.flush()


def _flush_where_exit_is_skipped() -> None:
    """A process that `multiprocessing` forked ends without `atexit`, and calls its own finalizers instead."""
    util = sys.modules.get("multiprocessing.util")
    process = sys.modules.get("multiprocessing.process")
    if util is None or process is None or process.parent_process() is None or os.getpid() in _FINALIZED:
        return
    _FINALIZED.add(os.getpid())
    util.Finalize(None, _flush_at_exit, exitpriority=10)
