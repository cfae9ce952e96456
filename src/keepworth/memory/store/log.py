"""What happened in use: episodes, what searches considered and showed with what probability, and what was rewarded.

Inside an episode a decision is durable before the search returns. Outside, decisions are collected and committed
together by a background thread; those of the last moments are lost if the process is killed. What is erased meanwhile, by
whatever handle, does not come back with them: their questions are left out.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from keepworth.episodes.episode import (
    Decision,
    DecisionKind,
    Episode,
    MemoryEvent,
    Operation,
    OperationKind,
    ParseStatus,
    RewardTerm,
    Shown,
    StopReason,
)
from keepworth.memory.errors import ClosedEpisode, InvalidText, MemoryProblem, UnknownEpisode
from keepworth.memory.item import Scope, whose
from keepworth.memory.operations import Credit
from keepworth.memory.store import forking, notes, undo
from keepworth.memory.store.candidates import packed, unpacked
from keepworth.memory.store.connection import AMONG, AnyConnection, among, first, scalar, select
from keepworth.memory.store.rows import OF_SCOPE, PARAMETERS, REWARD, SCOPE, from_json, readable
from keepworth.memory.store.schema import OF_KIND
from keepworth.memory.store.transaction import Transaction

if TYPE_CHECKING:
    from keepworth.memory.store.store import Store
    from keepworth.memory.store.transaction import Transaction

    ScopeLookup = Callable[[int], Scope]

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
    """Writes decisions at once, or together with others a moment later."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._closed = False
        self._begin()
        forking.register(self)
        _OPEN.add(self)

    def _begin(self) -> None:
        self._waiting: list[Callable[[], Logged]] = []
        self._since = 0  # the newest purge when the first of them began to wait
        self._wake = threading.Condition()
        self._flushing = threading.Lock()
        self._thread: threading.Thread | None = None

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
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_keep_flushing, args=(weakref.ref(self),), name="keepworth-decisions", daemon=True
                )
                self._thread.start()
            if len(self._waiting) >= LARGEST_BATCH:
                self._wake.notify()

    def flush(self) -> None:
        """Commit what is waiting; also what another thread is committing is on file when this returns."""
        with self._flushing:
            with self._wake:
                entries, self._waiting, since = self._waiting, [], self._since
            if entries:
                self._written([entry() for entry in entries], since)

    def _written(self, entries: Sequence[Logged], since: int) -> None:
        """A search that succeeded must not fail later for its log; rewards for what cannot be logged will be refused."""
        try:
            self.write(entries, since)
        except Exception as error:
            # Of a value that nothing can hold one decision is the reason: the others are sound.
            if isinstance(error, MemoryProblem) and not isinstance(error, InvalidText):
                _LOG.warning("%d decisions could not be logged: %s", len(entries), error)
            elif len(entries) == 1:
                _LOG.warning("decision %s could not be logged: %r", entries[0].decision.id, error)
            else:
                for entry in entries:
                    self._written([entry], since)

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

    def after_fork(self, *, child: bool) -> None:
        if child:
            # What came since is the parent's, and so is the thread.
            self._begin()

    def _insert(self, transaction: Transaction, entries: Sequence[Logged], since: int | None) -> None:
        newest = newest_purge(transaction.connection)
        if newest:
            entries = [entry for entry in entries if not is_erased(transaction.connection, entry.episode)]
            waited = since is not None and newest > since
            entries = [each for entry in entries for each in _without_erased(transaction.connection, entry, waited)]
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


SELECT = "SELECT id, kind, query, candidates, chosen, propensity, policy, step"
KINDS = {kind.value: kind for kind in DecisionKind}
IN_EPISODE = "episode = ? AND episode <> ''"
"""SQL: the second half is what lets SQLite use the index, which holds no rows outside episodes."""


class EpisodeDraws(dict[str, tuple[float, bool]]):
    """What an episode showed and withheld: by item, with which probability it was to be shown, 1 where chance had no part in it,
    and whether it was, at the first choice that says so. last: the number of the latest choice that was read."""

    last = 0

    def note(self, shown: Collection[str], odds: Mapping[str, float]) -> None:
        for id, p in odds.items():
            self.setdefault(id, (p, id in shown))
        for id in shown:
            self.setdefault(id, (1.0, True))

    def read(self, connection: AnyConnection, number: int) -> None:
        """What is on file of the episode of this number, counted from 0, since it was last read."""
        query = (
            "SELECT n, chosen, CASE WHEN details LIKE '%\"odds\"%' THEN json_extract(details, '$.odds') END FROM decisions "
            "WHERE episode = (SELECT id FROM episodes WHERE rowid = ?) AND episode <> '' AND n > ? ORDER BY n"
        )
        for last, chosen, odds in select(connection, query, (number + 1, self.last)):
            self.note(from_json(chosen), from_json(odds or "{}"))
            self.last = last


def withdrawals(connection: AnyConnection, scope: Scope) -> list[tuple[int, str]]:
    """(newest entry of the journal then, item) for each item that a keeper gave up inside `scope`, in order."""
    homes = among(_inside(connection, scope))
    query = (
        f"SELECT chosen, details FROM decisions WHERE kind = '{DecisionKind.WRITE.value}' AND policy LIKE 'keeper:%' AND "
        f"details <> '' AND scope {AMONG} ORDER BY n"
    )
    return [
        (from_json(details)["head"], from_json(chosen)[0]) for chosen, details in select(connection, query, (homes,))
    ]


def questions(connection: AnyConnection, scope: Scope) -> dict[str, tuple[str, Scope]]:
    """What was last searched for inside `scope`, and where: by the id of the search, and by that of its episode."""
    homes, asked = _inside(connection, scope), dict[str, tuple[str, Scope]]()
    query = "SELECT id, episode, query, scope FROM decisions WHERE query <> '' ORDER BY n"
    for id, episode, text, home in select(connection, query):
        if home in homes:
            asked[id] = asked[episode] = (text, homes[home])
    asked.pop("", None)
    return asked


def decision(row: tuple[Any, ...]) -> Decision:
    with readable(f"decision {row[0]!r:.40}"):
        return _decision(row)


def _decision(row: tuple[Any, ...]) -> Decision:
    id, kind, query, candidates, chosen, propensity, policy, step, *_ = row
    return Decision(id, KINDS[kind], query, unpacked(candidates), tuple(from_json(chosen)), propensity, policy, step)


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


@atexit.register
def _flush_at_exit() -> None:
    for log in list(_OPEN):
        if not log.closed:
            log.flush()


TOGETHER = 1000
"""Rewards whose choices are read with one query."""
_CHOICE = f"{SELECT}, details, vector"
NAME = "experience"
"""Of the notes in the journal that belong to what is learned."""


@dataclass(frozen=True, slots=True)
class Choice:
    """details: what the policy knew, {} where it is not on file; vector: of the query, as the policy packed it.

    action: what was done then, "" where nobody said; reward: of this step alone, nan where it has none of its own."""

    decision: Decision
    details: Mapping[str, Any]
    vector: bytes | None
    action: str = ""
    reward: float = math.nan


@dataclass(frozen=True, slots=True)
class Record:
    """An episode as far as it went. rewards: (value, whose) of those that were for the whole of it, in order; of one that was
    erased the value is nan."""

    id: str
    scope: Scope
    task: str
    person: str
    choices: tuple[Choice, ...]
    rewards: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class News:
    """A reward in the journal. by: who gave it; decision: the one that it is for, "" where it is for all of an episode; items:
    how many were shown until then, -1 where that is not on file."""

    seq: int
    scope: Scope
    episode: str = ""
    decision: str = ""
    value: float = 0.0
    by: str = ""
    items: int = -1


cancelled = undo.cancelled
NOTHING: undo.Ranges = ()
"""Of entries that are newer than the last rollback."""


def news_since(connection: AnyConnection, since: int) -> tuple[int, bool]:
    """The newest entry of the journal, and whether anything that concerns what is learned was written after entry `since`."""
    query = f"SELECT (SELECT max(seq) FROM events), EXISTS(SELECT 1 FROM events WHERE {OF_KIND} AND seq > ?)"
    newest, any_ = first(connection, query, (since,))
    return newest or 0, bool(any_)


def turned_back(connection: AnyConnection, since: int) -> bool:
    """Whether something was rolled back or erased after entry `since`."""
    query = f"SELECT 1 FROM events WHERE {OF_KIND} AND kind IN ('ROLLBACK', 'PURGE') AND seq > ? LIMIT 1"
    return scalar(connection, query, (since,)) is not None


def news(
    connection: AnyConnection, scope: Scope, gone: undo.Ranges, since: int = 0, newest: int | None = None
) -> list[News]:
    """The rewards inside `scope` after entry `since` that count, in order. newest: at most so many, the latest."""
    homes: dict[int, Scope] | None = None  # read where there are rewards: a file may hold very many
    listed: list[News] = []
    noted: dict[str, int] = {}
    notes = (
        f"SELECT seq, scope, episode, payload FROM events WHERE {OF_KIND} AND kind = 'PARAMETERS' AND seq > ? AND payload "
        "IS NOT NULL AND json_extract(payload, '$.name') = ? AND json_extract(payload, '$.what') = 'reward'"
    )
    for seq, home, episode, payload in select(connection, notes, (since, NAME)):
        homes = _inside(connection, scope) if homes is None else homes
        if not undo.within(seq, gone) and home in homes:
            # The first versions wrote this after the credit, and it is the whole of it.
            body = json.loads(payload)
            noted[episode] = seq
            listed.append(News(seq, homes[home], episode, "", float(body["reward"]), body.get("by", "")))
    rewards = (
        f"SELECT seq, scope, episode, payload FROM events WHERE {OF_KIND} AND kind = 'REWARD' AND seq > ? AND payload IS NOT "
        "NULL ORDER BY seq DESC"
    )
    cursor = connection.execute(rewards, (since,))
    for seq, home, episode, payload in cursor:
        if newest is not None and len(listed) >= newest:
            break
        homes = _inside(connection, scope) if homes is None else homes
        if undo.within(seq, gone) or home not in homes or seq < noted.get(episode, 0):
            continue
        with readable(f"journal entry {seq}"):
            body = from_json(payload)
            value, by = float(body["value"]), whose(body.get("source", ""))
        decision, items = body.get("decision", ""), len(body.get("items", ()))
        listed.append(News(seq, homes[home], episode, decision, value, by, items))
    cursor.close()
    return sorted(listed, key=lambda each: each.seq)


def record(
    connection: AnyConnection,
    scope_of: ScopeLookup,
    id: str,
    gone: undo.Ranges | None = None,
    *,
    until: int | None = None,
    items: int = -1,
) -> Record | None:
    """An episode, with what was said of it before entry `until`, and the choices that showed its first `items` items (-1: all);
    None where there is none of this id. gone: see `cancelled`."""
    on_file = _OnFile(connection, [id], [])
    gone = cancelled(connection) if gone is None else gone
    return on_file.record(id, scope_of, gone, until=until, items=items)


def with_choices(
    connection: AnyConnection, scope_of: ScopeLookup, listed: Sequence[News], gone: undo.Ranges
) -> Iterator[tuple[News, Callable[[], tuple[str, str, list[Choice]]]]]:
    """Rewards, each with a function that says what it is about: the task, for whom it is, and the choices. Many are read with
    one query; what cannot be read is an error of the function, and of that reward alone."""
    for begin in range(0, len(listed), TOGETHER):
        part = listed[begin : begin + TOGETHER]
        on_file = _OnFile(connection, {each.episode for each in part}, {each.decision for each in part})
        for each in part:
            yield each, partial(on_file.about, each, scope_of, gone)


class _OnFile:
    """Some episodes and decisions as they are on file. Only those that somebody asks for are decoded."""

    def __init__(self, connection: AnyConnection, episodes: Collection[str], decisions: Collection[str]) -> None:
        def read(query: str, ids: Collection[str]) -> list[tuple[Any, ...]]:
            return select(connection, query.format(AMONG), (among(ids),)) if ids else []

        episodes = [id for id in episodes if id]
        known = read("SELECT id, scope, task, person FROM episodes WHERE id {} AND outcome <> 'erased'", episodes)
        self._episodes: dict[str, tuple[int, str, str]] = {id: (home, task, person) for id, home, task, person in known}
        self._choices: dict[str, list[tuple[Any, ...]]] = {}
        inside = f"{_CHOICE}, episode FROM decisions WHERE episode {{}} AND episode <> '' ORDER BY n"
        for *row, episode in read(inside, self._episodes):
            self._choices.setdefault(episode, []).append(tuple(row))
        self._entries: dict[str, list[tuple[int, str, str | None]]] = {}
        written = (
            "SELECT episode, seq, kind, payload FROM events WHERE episode {} AND episode <> '' AND "
            f"(kind = '{REWARD}' OR (kind = '{PARAMETERS}' AND payload IS NOT NULL)) ORDER BY seq"
        )
        for episode, seq, kind, payload in read(written, self._episodes):
            self._entries.setdefault(episode, []).append((seq, kind, payload))
        alone = read(f"{_CHOICE} FROM decisions WHERE id {{}}", [id for id in decisions if id])
        self._alone: dict[str, tuple[Any, ...]] = {row[0]: row for row in alone}

    def about(self, each: News, scope_of: ScopeLookup, gone: undo.Ranges) -> tuple[str, str, list[Choice]]:
        """The task, for whom it is, and the choices that a reward is about."""
        items = -1 if each.decision else each.items
        found = self.record(each.episode, scope_of, gone, until=each.seq, items=items) if each.episode else None
        task, person = (found.task, found.person) if found is not None else ("", "")
        choices = list(found.choices) if found is not None else []
        if each.decision:
            # What is said of this choice comes before the reward of its step.
            choices = [replace(choice, reward=math.nan) for choice in choices if choice.decision.id == each.decision]
            row = None if choices else self._alone.get(each.decision)
            choices = choices if row is None else [_choice(row)]
        return task, person, choices

    def record(
        self, id: str, scope_of: ScopeLookup, gone: undo.Ranges, *, until: int | None = None, items: int = -1
    ) -> Record | None:
        """See `record`."""
        if id not in self._episodes:
            return None
        home, task, person = self._episodes[id]
        choices = {choice.decision.id: choice for choice in map(_choice, self._choices.get(id, ()))}
        if items >= 0:
            choices = _first(choices, items)
        waiting, last = list(choices), list[str]()
        actions: dict[str, str] = {}
        steps: dict[str, float] = {}
        rewards: list[tuple[float, str]] = []
        for seq, kind, payload in self._entries.get(id, ()):
            if (until is not None and seq >= until) or undo.within(seq, gone):
                continue
            body: dict[str, Any] = {"value": math.nan} if payload is None else from_json(payload)
            if kind == REWARD:
                if not body.get("decision"):
                    rewards.append((float(body["value"]), whose(body.get("source", ""))))
            elif body.get("name") == NAME:
                if body["what"] == "act":
                    last = [each for each in body.get("decisions", waiting[:1]) if each in choices]
                    waiting = [each for each in waiting if each not in last]
                    actions.update(dict.fromkeys(last, body["action"]))
                elif body["what"] == "step":
                    steps.update(dict.fromkeys(last, float(body["reward"])))
                elif body["what"] == "reward":
                    # Until format 4 a note stood beside the credit, which was written first.
                    rewards = [(float(body["reward"]), body.get("by", ""))]
        acted = tuple(
            Choice(each.decision, each.details, each.vector, actions.get(name, ""), steps.get(name, math.nan))
            for name, each in choices.items()
        )
        return Record(id, scope_of(home), task, person, acted, tuple(rewards))


def credited(choices: Sequence[Choice], value: float) -> list[tuple[Choice, float, float]]:
    """Each choice with its reward, its own or the common one, and its weight: 1 over how many share that."""
    shared = sum(not math.isfinite(choice.reward) for choice in choices)
    return [(c, c.reward, 1.0) if math.isfinite(c.reward) else (c, value, 1.0 / shared) for c in choices]


def single(connection: AnyConnection, decision: str) -> Choice | None:
    """One decision, of an episode or outside."""
    row = first(connection, f"{_CHOICE} FROM decisions WHERE id = ?", (decision,))
    return None if row is None else _choice(row)


def acted(connection: AnyConnection, scope: Scope, nobody: bool = False) -> list[str]:
    """Episodes inside `scope` in which something was done and that have no reward yet, oldest first. nobody: without a person."""
    gone, homes = cancelled(connection), _inside(connection, scope, nobody)
    query = (
        f"SELECT seq, kind, scope, episode, payload FROM events WHERE {OF_KIND} AND (kind = 'REWARD' OR (kind = 'PARAMETERS' AND "
        "payload IS NOT NULL)) AND episode <> '' ORDER BY seq"
    )
    waiting: dict[str, None] = {}
    over = set[str]()
    for seq, kind, home, episode, payload in select(connection, query):
        if undo.within(seq, gone) or home not in homes:
            continue
        body = {} if payload is None else json.loads(payload)
        what = "reward" if kind == REWARD and not body.get("decision") else body.get("what")
        if what == "act" and body.get("name") == NAME:
            waiting[episode] = None
        elif what == "reward":
            over.add(episode)
    return [episode for episode in waiting if episode not in over]


def done_in(connection: AnyConnection, episode: str) -> tuple[int, list[str], str | None, int]:
    """(searches, the choices that wait for an act, the last act, acts) of an episode that is gone on with."""
    query = "SELECT id FROM decisions WHERE episode = ? AND episode <> '' AND kind = ? ORDER BY n"
    choices = [id for (id,) in select(connection, query, (episode, DecisionKind.SEARCH.value))]
    gone = cancelled(connection)
    said = "payload IS NOT NULL ORDER BY seq"
    notes = f"SELECT seq, payload FROM events WHERE episode = ? AND episode <> '' AND kind = ? AND {said}"
    bodies = [
        json.loads(body) for seq, body in select(connection, notes, (episode, PARAMETERS)) if not undo.within(seq, gone)
    ]
    acts = [body for body in bodies if body.get("name") == NAME and body.get("what") == "act"]
    over = {id for body in acts for id in body.get("decisions", ())}
    return len(choices), [id for id in choices if id not in over], acts[-1]["action"] if acts else None, len(acts)


def rewards_of(connection: AnyConnection, episode: str) -> list[tuple[int, str, float]]:
    """(number, source, value) of the rewards for the whole of an episode that count."""
    query = "SELECT seq, source, payload FROM events WHERE episode = ? AND episode <> '' AND kind = 'REWARD'"
    found = select(connection, query, (episode,))
    gone = cancelled(connection) if found else NOTHING
    read = [(seq, source, from_json(payload or "{}")) for seq, source, payload in found if not undo.within(seq, gone)]
    return [(seq, source, body.get("value", 0.0)) for seq, source, body in read if not body.get("decision")]


def rewarders(connection: AnyConnection, scope: Scope) -> list[str]:
    """Who rewarded something inside `scope`, by name."""
    homes = _inside(connection, scope)
    found = select(connection, "SELECT DISTINCT source, scope FROM events WHERE source > 'own:' AND source < 'own;'")
    return sorted({whose(source) for source, home in found if home in homes})


def completed(transaction: Transaction, episode: str, now: str) -> None:
    transaction.connection.execute("UPDATE episodes SET ended = ?, outcome = 'completed' WHERE id = ?", (now, episode))


def note(transaction: Transaction, scope: Scope, now: str, what: str, episode: str = "", **body: Any) -> int:
    """An entry of the journal about what is learned; it belongs to its episode and is rolled back with it. Its number."""
    payload = json.dumps({"name": NAME, "what": what, **body}, ensure_ascii=False, separators=(",", ":"))
    return transaction.write_event(PARAMETERS, scope, payload, now=now, episode=episode)


def _first(choices: Mapping[str, Choice], items: int) -> dict[str, Choice]:
    """Those that a reward for so many items was about: later ones had not been made yet."""
    kept, shown = {}, 0
    for id, choice in choices.items():
        shown += len(choice.decision.chosen)
        if shown > items:
            break
        kept[id] = choice
    return kept


def _choice(row: tuple[Any, ...]) -> Choice:
    with readable(f"decision {row[0]!r:.40}"):
        return Choice(_decision(row), from_json(row[8]) if row[8] else {}, row[9])


def _inside(connection: AnyConnection, scope: Scope, nobody: bool = False) -> dict[int, Scope]:
    """The scopes inside `scope`, by number. nobody: those without a person."""
    listed = select(connection, f"SELECT id, {SCOPE} FROM scopes")
    return {id: home for id, *parts in listed if scope.contains(home := Scope(*parts)) and not (nobody and home.user)}


def begin(store: Store, scope: Scope, id: str, task: str, person: str = "") -> int:
    """The number of the new episode, counted from 0. Raises ClosedEpisode where there is one of this id."""

    def work(transaction: Transaction) -> int:
        if first(transaction.connection, "SELECT 1 FROM episodes WHERE id = ?", (id,)) is not None:
            raise ClosedEpisode(f"episode {id!r:.80} was begun before: nothing of it was written again.")
        row: int = scalar(
            transaction.connection,
            "INSERT INTO episodes(id, scope, task, began, person) VALUES(?,?,?,?,?) RETURNING rowid",
            (id, transaction.book.row(scope).id, task, store.clock(), person),
        )
        return row - 1

    number: int = store.change(scope, work)
    return number


def begun(connection: AnyConnection) -> int:
    """How many episodes were begun: the number of the next."""
    return scalar(connection, "SELECT max(rowid) FROM episodes") or 0


def episodes_in(connection: AnyConnection, scope: Scope, after: int, limit: int, nobody: bool = False) -> list[str]:
    """Ids of those inside `scope` with a number, counted from 0, above `after`, in order."""
    homes = among(_inside(connection, scope, nobody))
    query = (
        f"SELECT id FROM episodes WHERE rowid - 1 > ? AND outcome <> 'erased' AND scope {AMONG} ORDER BY rowid LIMIT ?"
    )
    return [id for (id,) in select(connection, query, (after, homes, limit))]


LAST = 2**62
"""A number that no episode reaches."""


@dataclass(frozen=True, slots=True)
class EpisodeSummary:
    """An episode in one line. searches: choices that were logged in it; shown: items in them; reward: the latest for the whole of
    it that counts, None where there is none; receipt: whether it was a call through the gateway, of which it is known what was
    sent."""

    id: str
    task: str
    scope: Scope
    person: str
    began: str
    ended: str
    outcome: str
    searches: int
    shown: int
    reward: float | None
    receipt: bool


def summaries(
    connection: AnyConnection, scope_of: ScopeLookup, scope: Scope, before: int, limit: int, nobody: bool = False
) -> list[EpisodeSummary]:
    """Episodes inside `scope` with a number, counted from 0, below `before`, the newest first."""
    homes = among(_inside(connection, scope, nobody))
    listed = select(
        connection,
        "SELECT id, task, scope, person, began, ended, outcome FROM episodes WHERE rowid - 1 < ? AND outcome <> 'erased' "
        f"AND scope {AMONG} ORDER BY rowid DESC LIMIT ?",
        (before, homes, limit),
    )
    of = f"WHERE episode {AMONG} AND episode <> ''"
    ids = among([row[0] for row in listed])
    counted = select(
        connection,
        f"SELECT episode, count(*), sum(json_array_length(chosen)) FROM decisions {of} GROUP BY episode",
        (ids,),
    )
    counts = {episode: (searches, shown or 0) for episode, searches, shown in counted}
    receipts = notes.with_receipt(connection, [row[0] for row in listed])
    gone, rewards = cancelled(connection), dict[str, float]()
    for seq, episode, payload in select(
        connection, f"SELECT seq, episode, payload FROM events {of} AND kind = '{REWARD}' ORDER BY seq", (ids,)
    ):
        body = from_json(payload or "{}")
        if not undo.within(seq, gone) and "value" in body and not body.get("decision"):
            rewards[episode] = float(body["value"])
    return [
        EpisodeSummary(
            id,
            task,
            scope_of(home),
            person,
            began,
            ended,
            outcome,
            *counts.get(id, (0, 0)),
            rewards.get(id),
            id in receipts,
        )
        for id, task, home, person, began, ended, outcome in listed
    ]


def totals(connection: AnyConnection, scope: Scope, nobody: bool = False) -> tuple[int, int]:
    """How many current items and how many episodes there are inside `scope`. nobody: without a person."""
    homes = among(_inside(connection, scope, nobody))
    items = scalar(connection, f"SELECT sum(count) FROM scopes WHERE id {AMONG}", (homes,)) or 0
    query = f"SELECT count(*) FROM episodes WHERE outcome <> 'erased' AND scope {AMONG}"
    return items, scalar(connection, query, (homes,)) or 0


def end(store: Store, scope: Scope, id: str, outcome: str) -> None:
    def work(transaction: Transaction) -> None:
        transaction.connection.execute(
            "UPDATE episodes SET ended = ?, outcome = ? WHERE id = ? AND outcome <> 'erased'",
            (store.clock(), outcome, id),
        )

    store.change(scope, work)


@dataclass(frozen=True, slots=True)
class Begun:
    """What was said when an episode was begun. number: counted from 0 in its file."""

    scope: Scope
    task: str
    person: str
    number: int


def begun_as(store: Store, scope: Scope, id: object) -> Begun | None:
    """The episode of this id; None where there is none inside `scope`."""
    if not isinstance(id, str) or not id.isascii():
        return None
    query = "SELECT scope, task, person, rowid - 1 FROM episodes WHERE id = ? AND outcome <> 'erased'"
    with store.database.reading() as connection:
        row = first(connection, query, (id,))
        home = None if row is None else store.scope_named(connection, row[0])
    return Begun(home, *row[1:]) if home is not None and scope.contains(home) else None


@dataclass(frozen=True, slots=True)
class Rewarded:
    """What a reward for an episode or a decision is about. decision: "" where it is for the whole episode."""

    scope: Scope
    episode: str
    decision: str
    shown: tuple[Decision, ...]
    person: str = ""


def rewarded(store: Store, scope: Scope, target: str) -> Rewarded:
    """What the episode or the decision of this id showed. Raises UnknownEpisode."""
    with store.database.reading() as connection:
        episode = begun_as(store, scope, target)
        if episode is not None:
            return Rewarded(episode.scope, target, "", tuple(of_episode(connection, target)), episode.person)
        one = find(connection, target) if isinstance(target, str) and target.isascii() else None
        home = None if one is None else store.scope_named(connection, one[2])
    if one is None or home is None or not scope.contains(home):
        raise UnknownEpisode(
            f"no episode or decision {target!r:.80} in this memory: take the `id` of an episode, or the `decision` of a logged "
            "search"
        )
    return Rewarded(home, one[1], target, (one[0],))


def concerned_by(store: Store, id: str) -> list[tuple[str, ...]]:
    """Of each operation of an episode, in the order of its record: the items that it names, and the one that it may have made."""
    found = []
    for entry in store.entries(IN_EPISODE, (id,)):
        decoded = entry.act()
        if decoded is not None and isinstance(decoded[0], Operation):
            act = decoded[0]
            made = (OperationKind.ADD, OperationKind.SUPERSEDE, OperationKind.MERGE)
            found.append((*act.targets, *((f"m{entry.seq}",) if act.kind in made else ())))
    return found


def assembled(store: Store, scope: Scope, id: str, seen: Scope | None = None) -> Episode:
    """Rolled-back entries are part of it: they happened. Model calls are no part of a memory: there are no segments."""
    if not isinstance(id, str) or not id.isascii():
        raise UnknownEpisode(f"no episode {id!r:.80} in this memory: take the text that it gave as an id")
    with store.database.reading() as connection:
        row = first(connection, "SELECT scope, task, began, ended, outcome FROM episodes WHERE id = ?", (id,))
        if row is None or not scope.contains(store.scope_named(connection, row[0])):
            raise UnknownEpisode(
                f"no episode {id!r:.80} in this scope of {store.database.path}: take the `.id` of one, or one of `episodes()`"
            )
        decisions = of_episode(connection, id)
        entries = store.entries(IN_EPISODE, (id,))
        shown = _shown(store, seen or scope, decisions)
    rewards, operations = [], []
    for entry in entries:
        decoded = entry.act()
        if decoded is None:
            continue
        act, _ = decoded
        if isinstance(act, Credit):
            rewards.append(RewardTerm(name=act.source or "reward", value=act.value, scorer=act.source))
        elif isinstance(act, Operation):
            outcome = "applied" if entry.applied else f"no-op: {entry.reason}"
            operations.append(MemoryEvent(act, ParseStatus.OK, outcome))
    _, task, _, ended, outcome = row
    return Episode(
        id=id,
        task=task,
        role="",
        question="",
        segments=(),
        answer="",
        expected=(),
        rewards=tuple(rewards),
        stop=StopReason.COMPLETED if ended and outcome in ("", "completed") else StopReason.ABORTED,
        memory_snapshot=f"s{entries[0].seq - 1}" if entries else f"s{store.head()}",
        policy_version=0,
        shown=shown,
        decisions=tuple(decisions),
        operations=tuple(operations),
        errors=(outcome,) if outcome.startswith("stopped by") else (),
    )


def _shown(store: Store, scope: Scope, decisions: list[Decision]) -> tuple[Shown, ...]:
    items = store.fetch(scope, [id for decision in decisions for id in decision.chosen])
    out = []
    for decision in decisions:
        scores = dict(decision.candidates)
        for id in decision.chosen:
            item = items.get(id)
            out.append(Shown(id, scores.get(id, 0.0), item.text if item is not None else "(erased)"))
    return tuple(out)
