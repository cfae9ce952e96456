"""Episodes in the file: they are begun, ended and listed here, and put together again with what happened in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from keepworth.memory.errors import UnknownEpisode
from keepworth.memory.item import SIGNAL, Scope, signal_of
from keepworth.memory.operations import Credit
from keepworth.memory.signals import divide, find_channel, read_weight
from keepworth.memory.store import notes, traces
from keepworth.memory.store.connection import AMONG, AnyConnection, among, first, scalar, select
from keepworth.memory.store.decision_log import IN_EPISODE, Logged, insert, of_episode
from keepworth.memory.store.log import counting
from keepworth.memory.store.rows import REWARD, SCOPE, from_json, inside, of_scopes, readable, to_scope
from keepworth.memory.store.schema import OF_KIND
from keepworth.memory.store.undo import newest_purge
from keepworth.records.episode import (
    Decision,
    DecisionKind,
    Episode,
    Exchange,
    MemoryEvent,
    Operation,
    OperationKind,
    ParseStatus,
    RewardTerm,
    Shown,
    StopReason,
)

if TYPE_CHECKING:
    from keepworth.memory.store.store import Store
    from keepworth.memory.store.transaction import Transaction

SEARCHES_OF_PERSON, SEARCHES_OF_ALL = 50, 10_000
"""How many searches before a rewarded one are looked at: those of the same person, among those of all people."""


def begin(
    store: Store,
    scope: Scope,
    id: str,
    task: str,
    person: str = "",
    *,
    began: str,
    explore: bool = True,
    searches: Sequence[Logged] = (),
    since: int | None = None,
) -> int:
    """Begin an episode, and return its number, counted from 0; -1, with nothing written, if something was erased since it was
    searched in.

    Args:
        store: The memory.
        scope: That of the episode.
        id: Its new id.
        task: What is attempted.
        person: The user whom it serves; "" for the program itself.
        began: When it began.
        explore: Whether the policy may try things.
        searches: What was searched in it already; it is written in the same transaction.
        since: The newest journal entry before that was searched; None where nothing was.
    """

    def work(transaction: Transaction) -> int:
        if since is not None and newest_purge(transaction.connection) > since:
            return -1
        row: int = scalar(
            transaction.connection,
            "INSERT INTO episodes(id, scope, task, began, person) VALUES(?,?,?,?,?) RETURNING rowid",
            (id, transaction.scope_row(scope).id, task, began, person),
        )
        if not explore:
            notes.keep_steady(transaction.connection, id, store.clock())
        if (trace := traces.current()) is not None:
            traces.join(transaction.connection, trace, id, store.clock())
        if searches:
            insert(transaction, searches, None)
        return row - 1

    return store.change(scope, work)


def record(store: Store, scope: Scope, id: str, task: str, person: str, began: str, ended: str) -> bool:
    """Record an episode that took place elsewhere, such as in the log of another program. Return whether it is new;
    what was erased under this id is not.

    Args:
        store: The memory.
        scope: That of the episode.
        id: The name by which it is rewarded and listed.
        task: What was attempted.
        person: The user whom it served; "" for the program itself.
        began, ended: The two times, as ISO 8601.
    """

    def work(transaction: Transaction) -> bool:
        if scalar(transaction.connection, "SELECT count(*) FROM episodes WHERE id = ?", (id,)):
            return False
        transaction.connection.execute(
            "INSERT INTO episodes(id, scope, task, began, person, ended, outcome) VALUES(?,?,?,?,?,?,'completed')",
            (id, transaction.scope_row(scope).id, task, began, person, ended),
        )
        return True

    return store.change(scope, work)


def shown_under(connection: AnyConnection, ids: Sequence[str]) -> list[tuple[str, str]]:
    """Return, for ids of decisions and of episodes, the searches that showed something, each with its episode, in order."""
    listed = among(ids)
    query = f"SELECT id, episode FROM decisions WHERE kind = ? AND chosen <> '[]' AND (id {AMONG} OR episode {AMONG}) ORDER BY n"
    return list(select(connection, query, (DecisionKind.SEARCH.value, listed, listed)))


def tasks_of_others(connection: AnyConnection) -> list[tuple[str, str, str]]:
    """Return (id, task, beginning) of the episodes that did not come from a log."""
    learned = f"SELECT substr(name, {len(notes.LEARNED) + 1}) FROM facts_of_file WHERE {notes.BEGINNING}"
    query = f"SELECT id, task, began FROM episodes WHERE outcome <> 'erased' AND id NOT IN ({learned}) ORDER BY rowid"
    return list(select(connection, query, notes.beginning(notes.LEARNED)))


def begun(connection: AnyConnection) -> int:
    """Return how many episodes were begun, which is the number of the next one."""
    return scalar(connection, "SELECT max(rowid) FROM episodes") or 0


def end(store: Store, scope: Scope, id: str, outcome: str) -> None:
    """End an episode without a reward, unless it is erased.

    Args:
        store: The memory.
        scope: That of the episode.
        id: The name by which it is rewarded and listed.
        outcome: How it ended, in words; "" if nobody said.
    """

    def work(transaction: Transaction) -> None:
        transaction.connection.execute(
            "UPDATE episodes SET ended = ?, outcome = ? WHERE id = ? AND outcome <> 'erased'",
            (store.clock(), outcome, id),
        )

    store.change(scope, work)


def completed(transaction: Transaction, episode: str, now: str) -> None:
    """Note in a transaction that an episode has its reward.

    Args:
        transaction: The transaction that writes the reward.
        episode: The id of the episode.
        now: The present, as ISO 8601.
    """
    transaction.connection.execute("UPDATE episodes SET ended = ?, outcome = 'completed' WHERE id = ?", (now, episode))


def episodes_in(connection: AnyConnection, scope: Scope, after: int, limit: int, nobody: bool = False) -> list[str]:
    """Return the ids of episodes in the order in which they were begun.

    Args:
        connection: A connection to the memory.
        scope: Only what is inside it counts.
        after: The number, counted from 0, above which they are listed.
        limit: The most ids.
        nobody: Whether only scopes without a user count.
    """
    within, values = of_scopes(scope, nobody)
    query = f"SELECT id FROM episodes WHERE rowid - 1 > ? AND outcome <> 'erased' AND {within} ORDER BY rowid LIMIT ?"
    return [id for (id,) in select(connection, query, (after, *values, limit))]


LAST = 2**62
"""A number above that of any episode."""


@dataclass(frozen=True, slots=True)
class EpisodeSummary:
    """An episode in one line of a list."""

    id: str
    task: str
    scope: Scope
    person: str
    began: str
    ended: str
    outcome: str
    searches: int  # how many choices were logged in it
    shown: int  # how many items they showed
    reward: float | None  # the latest one for the whole episode that was not rolled back
    receipt: bool  # whether it was a call through the gateway of which a receipt is on file
    trace: str  # that of OpenTelemetry in which it was begun, "" if none is known


def summaries(
    connection: AnyConnection,
    scope_of: Callable[[int], Scope],
    scope: Scope,
    before: int,
    limit: int,
    nobody: bool = False,
    words: str = "",
) -> list[EpisodeSummary]:
    """Return the newest episodes, newest first.

    Args:
        connection: A connection to the memory.
        scope_of: It returns the scope with an id.
        scope: Only what is inside it counts.
        before: The number, counted from 0, below which they are listed.
        limit: The most episodes.
        nobody: Whether only scopes without a user count.
        words: Words that the task has to have, all of them; "" for any task.
    """
    within, values = of_scopes(scope, nobody)
    for word in words.split():
        escaped = re.sub(r"([\\%_])", r"\\\1", word)
        within, values = f"{within} AND lower(task) LIKE lower(?) ESCAPE '\\'", [*values, f"%{escaped}%"]
    listed = select(
        connection,
        "SELECT id, task, scope, person, began, ended, outcome FROM episodes WHERE rowid - 1 < ? AND outcome <> 'erased' "
        f"AND {within} ORDER BY rowid DESC LIMIT ?",
        (before, *values, limit),
    )
    of = f"episode {AMONG} AND episode <> ''"
    ids = among([row[0] for row in listed])
    counted = select(
        connection,
        f"SELECT episode, count(*), sum(json_array_length(chosen)) FROM decisions WHERE {of} GROUP BY episode",
        (ids,),
    )
    counts = {episode: (searches, shown or 0) for episode, searches, shown in counted}
    receipts = notes.bodies(connection, notes.RECEIPT, [row[0] for row in listed])
    begun_in = notes.bodies(connection, traces.TRACE, [row[0] for row in listed])
    rewards = {
        entry.episode: float(entry.body["value"])
        for entry in counting(connection, f"{of} AND kind = '{REWARD}'", (ids,))
        if entry.what == "reward" and "value" in entry.body
    }
    return [
        EpisodeSummary(
            id,
            task,
            scope_of(home),
            *(*more, *counts.get(id, (0, 0)), rewards.get(id), id in receipts, begun_in.get(id, {}).get("trace", "")),
        )
        for id, task, home, *more in listed
    ]


def totals(connection: AnyConnection, scope: Scope, nobody: bool = False) -> tuple[int, int]:
    """Return how many current items and episodes there are.

    Args:
        connection: A connection to the memory.
        scope: Only what is inside it counts.
        nobody: Whether only scopes without a user count.
    """
    where, values = inside(scope, nobody)
    items = scalar(connection, f"SELECT sum(count) FROM scopes WHERE {where}", values) or 0
    within, values = of_scopes(scope, nobody)
    query = f"SELECT count(*) FROM episodes WHERE outcome <> 'erased' AND {within}"
    return items, scalar(connection, query, values) or 0


def acted(connection: AnyConnection, scope: Scope, nobody: bool = False) -> list[str]:
    """Return the episodes with an act and no reward, oldest first.

    Args:
        connection: A connection to the memory.
        scope: Only what is inside it counts.
        nobody: Whether only scopes without a user count.
    """
    within, values = of_scopes(scope, nobody)
    waiting, over = dict[str, None](), set[str]()
    for entry in counting(connection, f"{OF_KIND} AND episode <> '' AND {within}", values):
        if entry.what == "act":
            waiting[entry.episode] = None
        elif entry.what == "reward":
            over.add(entry.episode)
    return [episode for episode in waiting if episode not in over]


def done_in(connection: AnyConnection, episode: str) -> tuple[int, list[str], str | None, int]:
    """Return the progress of an episode that is resumed: (searches, ids of the searches without an act, last act, acts)."""
    query = f"SELECT id FROM decisions WHERE {IN_EPISODE} AND kind = ? ORDER BY n"
    choices = [id for (id,) in select(connection, query, (episode, DecisionKind.SEARCH.value))]
    acts = [entry.body for entry in counting(connection, IN_EPISODE, (episode,)) if entry.what == "act"]
    over = {id for body in acts for id in body.get("decisions", ())}
    return len(choices), [id for id in choices if id not in over], acts[-1]["action"] if acts else None, len(acts)


def signals_in(connection: AnyConnection, episode: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the searches of an episode that showed something, and its signals as (search, name of the signal), in order."""
    query = f"SELECT id FROM decisions WHERE {IN_EPISODE} AND kind = ? AND chosen <> '[]' ORDER BY n"
    searches = [id for (id,) in select(connection, query, (episode, DecisionKind.SEARCH.value))]
    entries = counting(connection, f"{IN_EPISODE} AND kind = '{REWARD}' AND source LIKE '{SIGNAL}%'", (episode,))
    return searches, [(entry.body.get("decision", ""), signal_of(entry.source)) for entry in entries]


def searches_before(connection: AnyConnection, about: Rewarded, person: str) -> Iterator[str]:
    """Yield the ids of the searches before a rewarded one, the latest first, that served the person who rewards it.

    Args:
        connection: A connection to the memory.
        about: What was rewarded.
        person: Who rewards it.

    Yields:
        At most `SEARCHES_OF_PERSON` ids of other searches of the same scope and person that showed something, among the
            `SEARCHES_OF_ALL` before; none if what was rewarded served another person. Searches in which the policy tries nothing
            are left out, as programs look at these.
    """
    of = f"d.id = ? OR (d.{IN_EPISODE})"
    query = (
        "SELECT min(d.n), coalesce(max(e.person), '') FROM decisions d LEFT JOIN episodes e ON e.id = d.episode "
        f"WHERE {of}"
    )
    target = about.decision or about.episode
    number, served = select(connection, query, (target, target))[0]
    if number is None or (person != served and (served or person != about.scope.user)):
        return
    query = (
        "SELECT d.id, d.episode, d.details FROM decisions d LEFT JOIN episodes e ON e.id = d.episode "
        "WHERE d.n < ? AND d.n >= ? AND d.scope = (SELECT scope FROM decisions WHERE n = ?) AND coalesce(e.person, '') = ? "
        "AND d.kind = ? AND d.chosen <> '[]' AND (d.episode = '' OR d.episode <> ?) ORDER BY d.n DESC LIMIT ?"
    )
    values = (number, number - SEARCHES_OF_ALL, number, served, DecisionKind.SEARCH.value, about.episode)
    for id, episode, details in select(connection, query, (*values, SEARCHES_OF_PERSON)):
        explores = (
            notes.explores(connection, episode) if episode else not (details and from_json(details).get("steady"))
        )
        if explores:
            yield id


@dataclass(frozen=True, slots=True)
class Begun:
    """An episode as it was begun. `number` is counted from 0 in its file."""

    scope: Scope
    task: str
    person: str
    number: int


def begun_as(store: Store, scope: Scope, id: object) -> Begun | None:
    """Return an episode, or None if there is none with this id in the scope.

    Args:
        store: The memory.
        scope: Only what is inside it counts.
        id: Its id; anything else than the text of one stands for no episode.
    """
    if not isinstance(id, str) or not id.isascii():
        return None
    query = "SELECT scope, task, person, rowid - 1 FROM episodes WHERE id = ? AND outcome <> 'erased'"
    with store.database.reading() as connection:
        row = first(connection, query, (id,))
        home = None if row is None else store.scope_named(connection, row[0])
    return Begun(home, *row[1:]) if home is not None and scope.contains(home) else None


@dataclass(frozen=True, slots=True)
class Rewarded:
    """What a reward is about: a whole episode, or one decision. `decision` is "" for a whole episode. `shown` are the items that
    were shown, each with the probability with which it was."""

    scope: Scope
    episode: str
    decision: str
    shown: tuple[tuple[str, float], ...]
    person: str = ""


def rewarded(store: Store, scope: Scope, target: str) -> Rewarded:
    """Return what a decision or an episode showed. Raises UnknownEpisode.

    Args:
        store: The memory.
        scope: Only what is inside it counts.
        target: The id of either.
    """
    query = f"SELECT d.id, chosen, propensity, episode, scope, {SCOPE} FROM decisions d LEFT JOIN scopes s ON s.id = d.scope"
    with store.database.reading() as connection:
        named = isinstance(target, str) and target.isascii()
        listed = select(connection, f"{query} WHERE d.id = ?", (target,)) if named else []
        home = to_scope(listed[0][5:], listed[0][4]) if listed else None
        if home is not None and scope.contains(home):
            episode, decision, person = listed[0][3], target, ""
        else:
            begun = begun_as(store, scope, target)
            if begun is None:
                raise UnknownEpisode(
                    "the search was not logged, so no reward reaches it: search in an episode, or open it without log='off'"
                    if target == ""
                    else f"no episode or decision {target!r:.80} in this memory: take the `id` of an episode, or the `decision` "
                    "of a logged search"
                )
            home, episode, decision, person = begun.scope, target, "", begun.person
            listed = select(connection, f"{query} WHERE {IN_EPISODE} ORDER BY n", (target,))
        shown: list[tuple[str, float]] = []
        for id, chosen, propensity, *_ in listed:
            with readable(f"decision {id!r:.40}"):
                shown += [(item, propensity) for item in from_json(chosen)]
    return Rewarded(home, episode, decision, tuple(shown), person)


def concerned_by(store: Store, id: str) -> list[tuple[str, ...]]:
    """Return, for each operation of an episode in order, the items that it names and the one that it may have created."""
    made = (OperationKind.ADD, OperationKind.SUPERSEDE, OperationKind.MERGE)
    acts = [(entry.seq, decoded[0]) for entry in store.entries(IN_EPISODE, (id,)) if (decoded := entry.act())]
    return [
        (*act.targets, *((f"m{seq}",) if act.kind in made else ())) for seq, act in acts if isinstance(act, Operation)
    ]


def assembled(store: Store, scope: Scope, id: str, seen: Scope | None = None) -> Episode:
    """Put an episode together from the file, rolled-back operations included. It has no segments, as a memory records no model
    calls. Raises UnknownEpisode.

    Args:
        store: The memory.
        scope: Only what is inside it counts.
        id: The id of the episode.
        seen: The scope whose items are listed as shown; None for `scope`.
    """
    if not isinstance(id, str) or not id.isascii():
        raise UnknownEpisode(f"no episode {id!r:.80} in this memory: take the text that it gave as an id")
    with store.database.reading() as connection:
        row = first(connection, "SELECT scope, task, ended, outcome FROM episodes WHERE id = ?", (id,))
        if row is None or not scope.contains(store.scope_named(connection, row[0])):
            raise UnknownEpisode(
                f"no episode {id!r:.80} in this scope of {store.database.path}: take the `.id` of one, or one of `episodes()`"
            )
        decisions = of_episode(connection, id)
        entries = store.entries(IN_EPISODE, (id,))
        shown = _shown(store, seen or scope, decisions)
        acts = [entry.body for entry in counting(connection, IN_EPISODE, (id,)) if entry.what == "act"]
    query_of = {decision.id: decision.query for decision in decisions}
    exchanges = [
        Exchange("\n".join(query_of.get(at, "") for at in act["decisions"]), act["action"]) for act in acts if act
    ]
    rewards, operations = [], []
    for entry in entries:
        decoded = entry.act()
        if decoded is None:
            continue
        act, _ = decoded
        if isinstance(act, Credit):
            rewards.append(RewardTerm(name=act.source or "reward", value=act.value, scorer=act.source))
        elif isinstance(act, Operation):
            result = "applied" if entry.applied else f"no-op: {entry.reason}"
            operations.append(MemoryEvent(act, ParseStatus.OK, result))
    _, task, ended, outcome = row
    return Episode(
        id=id,
        task=task,
        role="",
        question="",
        segments=(),
        answer="",
        expected=(),
        rewards=_weighed(rewards),
        stop=StopReason.COMPLETED if ended and outcome in ("", "completed") else StopReason.ABORTED,
        memory_snapshot=f"s{entries[0].seq - 1}" if entries else f"s{store.head()}",
        policy_version=0,
        shown=shown,
        decisions=tuple(decisions),
        operations=tuple(operations),
        exchanges=tuple(exchanges),
        errors=(outcome,) if outcome.startswith("stopped by") else (),
    )


def _weighed(rewards: Sequence[RewardTerm]) -> tuple[RewardTerm, ...]:
    """Return the rewards of an episode with signals and evaluations weighed among each other: they count nothing beside a reward
    that somebody gave, else the last of each channel by its weight, together as one reward."""
    weights = [read_weight(reward.scorer) for reward in rewards]
    last = {find_channel(reward.scorer): place for place, reward in enumerate(rewards) if weights[place] < 1.0}
    if not last:
        return tuple(rewards)
    counting = [] if 1.0 in weights else sorted(last.values())
    parts = dict(zip(counting, divide([weights[place] for place in counting]), strict=True))
    return tuple(
        replace(reward, weight=parts.get(place, 0.0)) if weights[place] < 1.0 else reward
        for place, reward in enumerate(rewards)
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
