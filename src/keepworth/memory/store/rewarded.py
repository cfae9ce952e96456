"""What was rewarded, in order, with the choices that led to it: what a policy learns from."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keepworth.episodes.decision import Decision
from keepworth.memory.scope import Scope
from keepworth.memory.store import decision_log, undo
from keepworth.memory.store.database import first, scalar, select
from keepworth.memory.store.journal_entry import PARAMETERS, REWARD
from keepworth.memory.store.rows import readable
from keepworth.memory.store.schema import OF_KIND

if TYPE_CHECKING:
    from collections.abc import Callable

    import apsw

    from keepworth.memory.store.transaction import Transaction

    ScopeLookup = Callable[[int], Scope]

NAME = "experience"
"""Of the notes in the journal that belong to what is learned."""
OWN = "own:"
"""Before a person's name, in the source of what stands on that person's word."""


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
    """An episode as far as it went. rewards: (value, whose) of those that were for the whole of it, in order."""

    id: str
    scope: Scope
    task: str
    person: str
    choices: tuple[Choice, ...]
    rewards: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class News:
    """One entry of the journal that concerns what is learned. what: "reward", "promote" or "demote"; value, by: of a reward;
    decision: the one that it is for, "" where it is for all of an episode; items: how many were shown until then, -1 where
    that is not on file; policy: of a promotion."""

    seq: int
    scope: Scope
    what: str
    episode: str = ""
    decision: str = ""
    value: float = 0.0
    by: str = ""
    items: int = -1
    policy: str = ""


class Cancelled:
    """Which entries of the journal were rolled back."""

    def __init__(self, ranges: undo.Ranges) -> None:
        merged: list[list[int]] = []
        for low, high in sorted(ranges):
            if merged and low <= merged[-1][1] + 1:
                merged[-1][1] = max(merged[-1][1], high)
            else:
                merged.append([low, high])
        self._lows, self._highs = [each[0] for each in merged], [each[1] for each in merged]

    def __contains__(self, seq: int) -> bool:
        place = bisect_right(self._lows, seq) - 1
        return place >= 0 and seq <= self._highs[place]


NOTHING = Cancelled(())
"""Of entries that are newer than the last rollback."""


def cancelled(connection: apsw.Connection) -> Cancelled:
    return Cancelled(undo.active_ranges(undo.rollbacks_in(connection)))


def head(connection: apsw.Connection) -> int:
    return scalar(connection, "SELECT max(seq) FROM events") or 0


def turned_back(connection: apsw.Connection, since: int) -> bool:
    """Whether something was rolled back or erased after entry `since`, or another policy was chosen."""
    query = (
        f"SELECT 1 FROM events WHERE {OF_KIND} AND kind IN ('ROLLBACK', 'PURGE', 'PARAMETERS') AND seq > ? AND (kind <> "
        "'PARAMETERS' OR (payload IS NOT NULL AND json_extract(payload, '$.what') IN ('promote', 'demote'))) LIMIT 1"
    )
    return scalar(connection, query, (since,)) is not None


def promotions(connection: apsw.Connection, scope_of: ScopeLookup, scope: Scope, gone: Cancelled) -> list[str]:
    """The policies that were promoted in just this scope and not demoted since, the latest last."""
    promoted: list[str] = []
    query = (
        f"SELECT seq, scope, payload FROM events WHERE {OF_KIND} AND kind = 'PARAMETERS' AND payload IS NOT NULL AND "
        "json_extract(payload, '$.name') = ? AND json_extract(payload, '$.what') IN ('promote', 'demote') ORDER BY seq"
    )
    for seq, home, payload in select(connection, query, (NAME,)):
        if seq in gone or scope_of(home) != scope:
            continue
        body = json.loads(payload)
        if body["what"] == "promote":
            promoted.append(body["policy"])
        elif promoted:
            promoted.pop()
    return promoted


def news(
    connection: apsw.Connection, scope: Scope, gone: Cancelled, since: int = 0, newest: int | None = None
) -> list[News]:
    """The rewards inside `scope` after entry `since` that count, in order. newest: at most so many, the latest."""
    homes = _inside(connection, scope)
    found: list[News] = []
    noted: dict[str, int] = {}
    notes = (
        f"SELECT seq, scope, episode, payload FROM events WHERE {OF_KIND} AND kind = 'PARAMETERS' AND seq > ? AND payload "
        "IS NOT NULL AND json_extract(payload, '$.name') = ? AND json_extract(payload, '$.what') = 'reward'"
    )
    for seq, home, episode, payload in select(connection, notes, (since, NAME)):
        if seq not in gone and home in homes:
            # The first versions wrote this after the credit, and it is the whole of it.
            body = json.loads(payload)
            noted[episode] = seq
            found.append(News(seq, homes[home], "reward", episode, "", float(body["reward"]), body.get("by", "")))
    rewards = (
        f"SELECT seq, scope, episode, payload FROM events WHERE {OF_KIND} AND kind = 'REWARD' AND seq > ? AND payload IS NOT "
        "NULL ORDER BY seq DESC"
    )
    cursor = connection.execute(rewards, (since,))
    for seq, home, episode, payload in cursor:
        if newest is not None and len(found) >= newest:
            break
        if seq in gone or home not in homes or seq < noted.get(episode, 0):
            continue
        with readable(f"journal entry {seq}"):
            body = json.loads(payload)
            value, by = float(body["value"]), _person(body.get("source", ""))
        decision, items = body.get("decision", ""), len(body.get("items", ()))
        found.append(News(seq, homes[home], "reward", episode, decision, value, by, items))
    cursor.close()
    return sorted(found, key=lambda each: each.seq)


def record(
    connection: apsw.Connection,
    scope_of: ScopeLookup,
    id: str,
    gone: Cancelled | None = None,
    *,
    until: int | None = None,
    items: int = -1,
) -> Record | None:
    """An episode, with what was said of it before entry `until`, and the choices that showed its first `items` items (-1: all);
    None where there is none of this id. gone: see `cancelled`."""
    row = first(connection, "SELECT scope, task, person FROM episodes WHERE id = ? AND outcome <> 'erased'", (id,))
    if row is None:
        return None
    gone = cancelled(connection) if gone is None else gone
    choices = {choice.decision.id: choice for choice in _choices(connection, "episode = ?", id)}
    if items >= 0:
        choices = _first(choices, items)
    waiting, last = list(choices), list[str]()
    actions: dict[str, str] = {}
    steps: dict[str, float] = {}
    rewards: list[tuple[float, str]] = []
    entries = "SELECT seq, kind, payload FROM events WHERE episode = ? AND payload IS NOT NULL ORDER BY seq"
    for seq, kind, payload in select(connection, entries, (id,)):
        if (until is not None and seq >= until) or seq in gone or kind not in (REWARD, PARAMETERS):
            continue
        body = json.loads(payload)
        if kind == REWARD:
            if not body.get("decision"):
                rewards.append((float(body["value"]), _person(body.get("source", ""))))
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
    told = tuple(
        Choice(each.decision, each.details, each.vector, actions.get(name, ""), steps.get(name, math.nan))
        for name, each in choices.items()
    )
    return Record(id, scope_of(row[0]), row[1], row[2], told, tuple(rewards))


def single(connection: apsw.Connection, decision: str) -> Choice | None:
    """One decision, of an episode or outside."""
    return next(_choices(connection, "id = ?", decision), None)


def acted(connection: apsw.Connection, scope: Scope) -> list[str]:
    """Episodes inside `scope` in which something was done and that have no reward yet, oldest first."""
    gone, homes = cancelled(connection), _inside(connection, scope)
    query = (
        f"SELECT seq, kind, scope, episode, payload FROM events WHERE {OF_KIND} AND kind IN ('PARAMETERS', 'REWARD')"
        " AND episode <> '' AND payload IS NOT NULL ORDER BY seq"
    )
    waiting: dict[str, None] = {}
    for seq, kind, home, episode, payload in select(connection, query):
        if seq in gone or home not in homes:
            continue
        body = json.loads(payload)
        what = "reward" if kind == REWARD and not body.get("decision") else body.get("what")
        if what == "act" and body.get("name") == NAME:
            waiting[episode] = None
        elif what == "reward":
            waiting.pop(episode, None)
    return list(waiting)


def rewarders(connection: apsw.Connection, scope: Scope) -> list[str]:
    """Who rewarded something inside `scope`, by name."""
    homes = _inside(connection, scope)
    found = select(connection, "SELECT DISTINCT source, scope FROM events WHERE source > 'own:' AND source < 'own;'")
    return sorted({_person(source) for source, home in found if home in homes})


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


def _choices(connection: apsw.Connection, where: str, value: str) -> Iterator[Choice]:
    query = f"{decision_log.SELECT}, details, vector FROM decisions WHERE {where} ORDER BY n"
    for row in select(connection, query, (value,)):
        with readable(f"decision {row[0]!r:.40}"):
            yield Choice(decision_log.decision(row), json.loads(row[8]) if row[8] else {}, row[9])


def _inside(connection: apsw.Connection, scope: Scope) -> dict[int, Scope]:
    """The scopes inside `scope`, by number."""
    listed = select(connection, "SELECT id, tenant, user, agent, session FROM scopes")
    return {id: home for id, *parts in listed if scope.contains(home := Scope(*parts))}


def _person(source: str) -> str:
    """On whose word a reward stands; "" for the program's own."""
    return source[len(OWN) :] if source.startswith(OWN) else ""
