"""Rewards in the journal, and the decisions that they are about: what a policy learns from."""

from __future__ import annotations

import json
import math
import threading
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from keepworth.base.errors import UnknownName
from keepworth.memory.errors import InvalidFilter, InvalidPolicy
from keepworth.memory.item import EVERYWHERE, Scope, channel_of, learned, whose
from keepworth.memory.operations import Credit
from keepworth.memory.store import undo
from keepworth.memory.store.connection import AMONG, AnyConnection, among, first, scalar, select
from keepworth.memory.store.decision_log import IN_EPISODE, SELECT, decision
from keepworth.memory.store.rows import PARAMETERS, REWARD, SCOPE, from_json, inside, of_scopes, readable
from keepworth.memory.store.schema import CREATED, OF_KIND
from keepworth.records.episode import Decision, OperationKind

if TYPE_CHECKING:
    from keepworth.memory.store.transaction import Transaction

TOGETHER = 1000
"""Number of rewards whose decisions are read with one query."""
_CHOICE = f"{SELECT}, details, vector"
NAME = "experience"
"""The name of the journal entries, of kind PARAMETERS, that record acts and the rewards of steps."""
cancelled = undo.cancelled
NOTHING: undo.Ranges = ()
"""The cancelled entries among those that are newer than the last rollback: none."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision and what came of it. `details` is what the policy knew ({} if not on file), `vector` the query's vector as the
    policy packed it, `action` what was done then ("" if unknown), `reward` that of this step alone (nan if it has none)."""

    decision: Decision
    details: Mapping[str, Any]
    vector: bytes | None
    action: str = ""
    reward: float = math.nan


@dataclass(frozen=True, slots=True)
class Record:
    """An episode up to some journal entry. `home` is the id of its scope; `rewards` are (value, name of the rewarder) for the
    whole of it, in order; the value of an erased one is nan."""

    id: str
    home: int
    task: str
    person: str
    choices: tuple[Choice, ...]
    rewards: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class News:
    """A reward in the journal. `by` names who gave it, `source` that person or the program's channel; `decision` is the one that
    it is for ("" for a whole episode); `items` is how many items the episode had shown by then (-1 if not on file)."""

    seq: int
    scope: Scope
    episode: str = ""
    decision: str = ""
    value: float = 0.0
    by: str = ""
    items: int = -1
    source: str = ""

    @property
    def holder(self) -> str:
        """Return in whose share of what is remembered the reward is: of who gave it, or of the user in whose scope it is."""
        return self.by or self.scope.user


def news_since(connection: AnyConnection, since: int) -> tuple[int, bool, bool]:
    """Return the number of the newest journal entry, whether any entry after `since` concerns what is learned (an act does not
    before it is rewarded), and whether one of them rolled something back or erased it."""
    after = f"EXISTS(SELECT 1 FROM events WHERE {OF_KIND} AND seq > ? AND kind IN"
    back = "'ROLLBACK', 'PURGE'"
    query = f"SELECT (SELECT max(seq) FROM events), {after} ({back}, '{REWARD}')), {after} ({back}))"
    newest, taught, turned_back = first(connection, query, (since, since))
    return newest or 0, bool(taught), bool(turned_back)


def news(
    connection: AnyConnection,
    scope: Scope,
    gone: undo.Ranges,
    since: int = 0,
    newest: int | None = None,
    among_these: Sequence[int] | None = None,
) -> list[News]:
    """Return the rewards inside `scope` after entry `since` and outside `gone`, in order.

    Args:
        connection: A connection to the memory.
        scope: Only rewards inside it count.
        gone: The ranges of entries that are rolled back.
        since: The number of the entry after which they are read.
        newest: Return at most so many of the last ones, of which each person has a share: see `_shared_window`.
        among_these: Numbers of the entries to look at, if they are known.
    """
    listed: list[News] = []
    where, names = inside(scope)
    if among_these is not None:
        where, names = f"{where} AND seq {AMONG}", [*names, among(among_these)]
    rewards = f"""FROM events JOIN scopes ON scopes.id = events.scope WHERE {OF_KIND} AND kind = '{REWARD}' AND seq > ?
        AND payload IS NOT NULL AND {where}"""
    window = None if newest is None else _shared_window(connection, rewards, (since, *names), gone, newest)
    cursor = connection.execute(f"SELECT seq, episode, payload, {SCOPE} {rewards} ORDER BY seq", (since, *names))
    for seq, episode, payload, *home in cursor:
        if undo.within(seq, gone) or (window is not None and seq not in window):
            continue
        with readable(f"journal entry {seq}"):
            body = from_json(payload)
            value, source = float(body["value"]), body.get("source", "")
        decision, items = body.get("decision", ""), len(body.get("items", ()))
        listed.append(News(seq, Scope(*home), episode, decision, value, whose(source), items, source))
    return listed


@dataclass(frozen=True, slots=True)
class RewardSum:
    """How many rewards there are, their sum, and when the last one came."""

    count: int = 0
    sum: float = 0.0
    last: str = ""


def sums_by_channel(connection: AnyConnection, scope: Scope, nobody: bool = False) -> dict[str, RewardSum]:
    """Return the rewards that are not rolled back, by their channel (see `item.channel_of`); "" is what people said.

    Args:
        connection: A connection to the memory.
        scope: Only what is inside it counts.
        nobody: Whether only scopes without a user count.
    """
    sums, gone, (where, names) = dict[str, RewardSum](), cancelled(connection), inside(scope, nobody)
    query = f"""SELECT seq, at, payload FROM events JOIN scopes ON scopes.id = events.scope
        WHERE {OF_KIND} AND kind = '{REWARD}' AND payload IS NOT NULL AND {where} ORDER BY seq"""
    for seq, at, payload in connection.execute(query, names):
        if undo.within(seq, gone):
            continue
        with readable(f"journal entry {seq}"):
            body = from_json(payload)
            source, value = body.get("source", ""), float(body["value"])
        channel = "" if learned(source) and whose(source) else channel_of(source)
        before = sums.get(channel, RewardSum())
        sums[channel] = RewardSum(before.count + 1, before.sum + value, at)
    return sums


def sum_up(connection: AnyConnection, bounds: tuple[float, float]) -> tuple[int, float]:
    """Return the number of all rewards, and their mean on the scale from the lowest to the highest of the bounds, drawn to the
    middle while there are few."""
    sums = sums_by_channel(connection, EVERYWHERE).values()
    earned, count, (low, high) = sum(one.sum for one in sums), sum(one.count for one in sums), bounds
    return count, min(1.0, max(0.0, (1.0 + (earned - low * count) / (high - low)) / (2.0 + count)))


def _shared_window(
    connection: AnyConnection, rewards: str, values: Sequence[Any], gone: undo.Ranges, newest: int
) -> set[int] | None:
    """Return the entry numbers of the rewards to learn from, or None if there are at most `newest`. Whoever gave few keeps all of
    them, and the others keep equally many of their newest. What a later reward from the same source replaced takes no place, but
    what is replaced may not be more than what counts."""
    if scalar(connection, f"SELECT count(*) FROM (SELECT 1 {rewards} LIMIT {newest + 1}) AS counted", values) <= newest:
        return None
    columns = "seq, json_extract(payload, '$.source'), json_extract(payload, '$.decision'), \"user\""
    held, counting, there = dict[str, list[int]](), dict[str, list[int]](), set[tuple[str, str]]()
    for seq, source, about, user in connection.execute(f"SELECT {columns} {rewards} ORDER BY seq DESC", values):
        holder = whose(source or "") or user
        listed, places = held.setdefault(holder, []), counting.setdefault(holder, [])
        if undo.within(seq, gone) or len(places) == newest or len(listed) == 2 * newest:
            continue
        listed.append(seq)
        if not about or (source, about) not in there:
            there.add((source, about))
            places.append(len(listed))  # how many are read so that this one is
    left, window = newest, set[int]()
    for number, holder in enumerate(sorted(held, key=lambda name: len(counting[name]))):
        places = counting[holder]
        share = min(len(places), -(-left // (len(held) - number)))
        listed = held[holder][: 2 * share]
        window.update(listed if share == len(places) else listed[: places[share] - 1])
        left -= share
    return window


class RewardIndex:
    """Knows which entries of the journal are rewards, by the id of their scope, so that those of one person are read without a
    look at all others. It reads on from where it stopped."""

    def __init__(self) -> None:
        self._through = 0
        self._entries: dict[int, array[int]] = {}
        self._lock = threading.Lock()

    def inside(self, connection: AnyConnection, scope: Scope) -> list[int]:
        """Return the numbers of the rewards inside `scope`, whatever became of them, in order."""
        query = f"SELECT seq, scope FROM events WHERE {OF_KIND} AND kind = '{REWARD}' AND seq > ? ORDER BY seq"
        where, names = inside(scope)
        homes = select(connection, f"SELECT id FROM scopes WHERE {where}", names)
        with self._lock:
            for seq, home in select(connection, query, (self._through,)):
                self._entries.setdefault(home, array("q")).append(seq)
                self._through = seq
            return sorted(seq for (home,) in homes for seq in self._entries.get(home, ()))


def record(connection: AnyConnection, id: str) -> Record | None:
    """Return an episode, or None if there is none with this id."""
    return _OnFile(connection, [id], []).record(id, cancelled(connection))


class About(NamedTuple):
    """What a reward is about: the task and the person of its episode ("" if there is none), and choices."""

    task: str
    person: str
    choices: list[Choice]


def with_choices(connection: AnyConnection, listed: Sequence[News], gone: undo.Ranges) -> Iterator[tuple[News, About]]:
    """Yield each reward with what it is about. Many rewards are read with one query.

    Args:
        connection: A connection to the memory.
        listed: The rewards.
        gone: The ranges of entries that are rolled back.
    """
    for begin in range(0, len(listed), TOGETHER):
        part = listed[begin : begin + TOGETHER]
        on_file = _OnFile(connection, {reward.episode for reward in part}, {reward.decision for reward in part})
        for reward in part:
            yield reward, on_file.about(reward, gone)


class _OnFile:
    """The rows of some episodes and decisions."""

    def __init__(self, connection: AnyConnection, episodes: Collection[str], decisions: Collection[str]) -> None:
        self._episodes: dict[str, tuple[int, str, str]] = {}
        self._choices: dict[str, list[tuple[Any, ...]]] = {}
        self._entries: dict[str, list[tuple[int, str, str | None]]] = {}
        self._alone: dict[str, tuple[Any, ...]] = {}
        if single := [id for id in decisions if id]:
            alone = select(connection, f"{_CHOICE} FROM decisions WHERE id {AMONG}", (among(single),))
            self._alone = {row[0]: row for row in alone}
        if begun := [id for id in episodes if id]:
            query = f"SELECT id, scope, task, person FROM episodes WHERE id {AMONG} AND outcome <> 'erased'"
            self._episodes = {id: tuple(row) for id, *row in select(connection, query, (among(begun),))}
            there = (among(self._episodes),)
            query = f"{_CHOICE}, episode FROM decisions WHERE episode {AMONG} AND episode <> '' ORDER BY n"
            for *row, episode in select(connection, query, there):
                self._choices.setdefault(episode, []).append(tuple(row))
            query = (
                f"SELECT episode, seq, kind, payload FROM events WHERE episode {AMONG} AND episode <> '' AND "
                f"(kind = '{REWARD}' OR (kind = '{PARAMETERS}' AND payload IS NOT NULL)) ORDER BY seq"
            )
            for episode, seq, kind, payload in select(connection, query, there):
                self._entries.setdefault(episode, []).append((seq, kind, payload))

    def about(self, reward: News, gone: undo.Ranges) -> About:
        items = -1 if reward.decision else reward.items
        record = self.record(reward.episode, gone, until=reward.seq, items=items) if reward.episode else None
        task, person = (record.task, record.person) if record is not None else ("", "")
        choices = list(record.choices) if record is not None else []
        if reward.decision:
            # The reward of this very decision takes precedence over that of its step.
            choices = [replace(choice, reward=math.nan) for choice in choices if choice.decision.id == reward.decision]
            row = None if choices else self._alone.get(reward.decision)
            choices = choices if row is None else [_choice(row)]
        return About(task, person, choices)

    def record(self, id: str, gone: undo.Ranges, *, until: int | None = None, items: int = -1) -> Record | None:
        """Return an episode, or None if there is none with this id. Left out are cancelled entries (`gone`), acts and rewards
        from journal entry `until` on, and decisions after those that showed the first so many `items`, if that is not -1."""
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
            what, body = _read_entry(kind, payload)
            if what == "reward":
                rewards.append((float(body["value"]) if body else math.nan, whose(body.get("source", ""))))
            elif what == "act":
                # Earlier versions did not note which searches an act followed.
                last = [id for id in body.get("decisions", waiting[:1]) if id in choices]
                waiting = [id for id in waiting if id not in last]
                actions.update(dict.fromkeys(last, body["action"]))
            elif what == "step":
                steps.update(dict.fromkeys(last, float(body["reward"])))
        acted = tuple(
            Choice(choice.decision, choice.details, choice.vector, actions.get(name, ""), steps.get(name, math.nan))
            for name, choice in choices.items()
        )
        return Record(id, home, task, person, acted, tuple(rewards))


def single(connection: AnyConnection, decision: str) -> Choice | None:
    """Return a decision by its id, inside an episode or outside, or None."""
    row = first(connection, f"{_CHOICE} FROM decisions WHERE id = ?", (decision,))
    return None if row is None else _choice(row)


class LearnedEntry(NamedTuple):
    """A journal entry that policies learn from. `what` is "act", "step", "reward" (of a whole episode) or "choice" (the reward of
    one decision); `source` is who gave a reward; `body` is {} if it was erased."""

    seq: int
    what: str
    episode: str
    source: str
    body: Mapping[str, Any]


def counting(connection: AnyConnection, where: str, values: Sequence[Any] = ()) -> Iterator[LearnedEntry]:
    """Yield the entries to learn from that are not rolled back, in order.

    Args:
        connection: A connection to the memory.
        where: An SQL condition, never a user's.
        values: Its parameters.
    """
    query = (
        f"SELECT seq, kind, episode, source, payload FROM events WHERE {where} AND "
        f"(kind = '{REWARD}' OR (kind = '{PARAMETERS}' AND payload IS NOT NULL)) ORDER BY seq"
    )
    gone: undo.Ranges | None = None  # read only if there are entries
    for seq, kind, episode, source, payload in select(connection, query, values):
        gone = cancelled(connection) if gone is None else gone
        if undo.within(seq, gone):
            continue
        what, body = _read_entry(kind, payload)
        if what:
            yield LearnedEntry(seq, what, episode, source, body)


def _read_entry(kind: str, payload: str | None) -> tuple[str, dict[str, Any]]:
    """Return what an entry is for policies (see `LearnedEntry`; "" for nothing), and its body."""
    body: dict[str, Any] = {} if payload is None else from_json(payload)
    if kind == REWARD:
        return "choice" if body.get("decision") else "reward", body
    return body["what"] if body.get("name") == NAME else "", body


def rewards_of(connection: AnyConnection, episode: str) -> list[tuple[int, str, float]]:
    """Return (entry number, source, value) of the rewards for a whole episode that are not rolled back."""
    entries = counting(connection, f"{IN_EPISODE} AND kind = '{REWARD}'", (episode,))
    return [(entry.seq, entry.source, entry.body.get("value", 0.0)) for entry in entries if entry.what == "reward"]


def is_newest_reward(transaction: Transaction, since: int, credit: Credit, episode: str) -> bool:
    """Return whether a reward is the newest one of its decision, or else of its whole episode, that is not rolled back.

    Args:
        transaction: The transaction that reads.
        since: The entry after which rewards are looked at.
        credit: The reward.
        episode: The id of the episode.
    """
    transaction.flush_journal()
    where = "seq > ? AND kind = 'REWARD' AND payload IS NOT NULL AND episode = ?"
    query = f"SELECT seq, payload FROM events WHERE {where} ORDER BY seq"
    given = [(seq, from_json(payload)) for seq, payload in select(transaction.connection, query, (since, episode))]
    gone = undo.cancelled(transaction.connection) if given else ()
    mine = [body for seq, body in given if body.get("decision", "") == credit.decision and not undo.within(seq, gone)]
    return bool(mine) and (mine[-1]["value"], mine[-1].get("source", "")) == (credit.value, credit.source)


_FROM_A_SOURCE = "source <> '' AND kind <> 'ROLLBACK'"


def sources_of_rewarder(connection: AnyConnection, scope: Scope, person: str) -> list[str]:
    """Return the sources of a person's rewards: what that person said, and the signals about that person's turns.
    Raises InvalidPolicy if there are none.

    Args:
        connection: A connection to the memory.
        scope: Only what is inside it counts.
        person: The user who rewarded.
    """
    listed = {source: whose(source) for source in _sources(connection, scope, _FROM_A_SOURCE)}
    sources = sorted(source for source, name in listed.items() if person and name == person)
    if not sources:
        names = sorted({name for name in listed.values() if name})
        raise InvalidPolicy(
            f"{person!r:.60} rewarded nothing in this memory.",
            f"Known: {', '.join(names)}." if names else "No reward here has a name with it.",
        )
    return sources


def sources_named(connection: AnyConnection, scope: Scope, name: str) -> list[str]:
    """Return the sources that a name stands for: itself, and for a signal or an evaluator those of each person. Raises
    InvalidFilter where nothing is from it, whatever became of it.

    Args:
        connection: A connection to the memory.
        scope: Only what is inside it counts.
        name: A source, or the channel of several.
    """
    names = _sources(connection, scope, _FROM_A_SOURCE)
    sources = sorted(source for source in names if name in (source, channel_of(source)))
    if not sources:
        unknown = UnknownName("source", name, names, "this scope")
        raise InvalidFilter(
            unknown.message, unknown.fix if names else "Name a source when you write: nothing here has one."
        )
    return sources


def _sources(connection: AnyConnection, scope: Scope, where: str) -> set[str]:
    within, values = of_scopes(scope)
    return {name for (name,) in select(connection, f"SELECT source FROM events WHERE {where} AND {within}", values)}


def note(transaction: Transaction, scope: Scope, now: str, what: str, episode: str = "", **body: Any) -> int:
    """Write an entry to learn from, which belongs to its episode and is rolled back with it. Returns its number.

    Args:
        transaction: The transaction that writes.
        scope: That of the episode.
        now: The present, as ISO 8601.
        what: The kind of the entry, such as "act".
        episode: The id of the episode; "" for none.
        **body: What else it says.
    """
    payload = json.dumps({"name": NAME, "what": what, **body}, ensure_ascii=False, separators=(",", ":"))
    return transaction.write_event(PARAMETERS, scope, payload, now=now, episode=episode)


def _first(choices: Mapping[str, Choice], items: int) -> dict[str, Choice]:
    """Return the first choices, which together showed `items` items: a reward given then is not about later ones."""
    earlier, shown = {}, 0
    for id, choice in choices.items():
        shown += len(choice.decision.chosen)
        if shown > items:
            break
        earlier[id] = choice
    return earlier


def _choice(row: tuple[Any, ...]) -> Choice:
    with readable(f"decision {row[0]!r:.40}"):
        return Choice(decision(row), from_json(row[8]) if row[8] else {}, row[9])


class EpisodeDraws(dict[str, tuple[float, bool]]):
    """What an episode showed and withheld. By item id: the probability of being shown (1 if chance had no part), and whether it
    was, both at the first choice that tells. `last` is the row number of the latest choice that was read."""

    last = 0

    def note(self, shown: Collection[str], odds: Mapping[str, float]) -> None:
        for id, p in odds.items():
            self.setdefault(id, (p, id in shown))
        for id in shown:
            self.setdefault(id, (1.0, True))

    def read(self, connection: AnyConnection, number: int) -> None:
        """Take in the choices of the episode with this number, counted from 0, that were logged since the last call."""
        query = (
            "SELECT n, chosen, CASE WHEN details LIKE '%\"odds\"%' THEN json_extract(details, '$.odds') END FROM decisions "
            "WHERE episode = (SELECT id FROM episodes WHERE rowid = ?) AND episode <> '' AND n > ? ORDER BY n"
        )
        for last, chosen, odds in select(connection, query, (number + 1, self.last)):
            self.note(from_json(chosen), from_json(odds or "{}"))
            self.last = last


def trial_in(connection: AnyConnection, number: int) -> Mapping[str, Any]:
    """Return what the last search of the episode with this number, counted from 0, that was part of a trial of policies logged of
    that; {} if none was."""
    query = (
        "SELECT details FROM decisions WHERE episode = (SELECT id FROM episodes WHERE rowid = ?) AND episode <> '' "
        "AND details LIKE '%\"trial\"%' ORDER BY n DESC LIMIT 1"
    )
    details = scalar(connection, query, (number + 1,))
    return from_json(details or "{}").get("trial") or {}


def written_in(connection: AnyConnection, number: int, oldest: int, newest: int) -> list[str]:
    """Return the ids of the items that an episode wrote, in order. An item that existed before is listed each time it
    was written.

    Args:
        connection: A connection to the memory.
        number: The number of the episode, counted from 0.
        oldest, newest: How many of the first ones, and of the last ones, are returned at most.
    """
    written = dict[int, int]()
    for direction, most in (("ASC", oldest), ("DESC", newest)):
        query = (
            "SELECT seq, coalesce((SELECT n FROM touches WHERE touches.seq = events.seq LIMIT 1), seq) FROM events "
            "WHERE episode = (SELECT id FROM episodes WHERE rowid = ?) AND episode <> '' AND (applied = ? OR kind = ?) "
            f"ORDER BY seq {direction} LIMIT ?"
        )
        written.update(select(connection, query, (number + 1, CREATED, OperationKind.ADD.name, most)))
    return [f"m{written[seq]}" for seq in sorted(written)]
