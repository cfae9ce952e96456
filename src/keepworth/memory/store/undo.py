"""Undo: which journal entries count, and the items as they are without those that do not.

Rollback is replay without the rolled-back entries. A rollback is itself an entry, so it can be rolled back. Only the items that
the entries concern, and whatever those depend on, are replayed.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING

from keepworth.memory.errors import Purged, UnknownEpisode
from keepworth.memory.item import Item, Scope, duplicate_key
from keepworth.memory.operations import Credit, execute
from keepworth.memory.store import rows
from keepworth.memory.store.connection import AMONG, AnyConnection, among, first, scalar, select
from keepworth.memory.store.rows import Entry
from keepworth.memory.store.schema import CREATED, OF_KIND
from keepworth.memory.store.transaction import Transaction

Ranges = tuple[tuple[int, int], ...]
_MAKING = ("ADD", "UPDATE", "SUPERSEDE", "MERGE")


def newest_purge(connection: AnyConnection) -> int:
    """Return the number of the newest journal entry that erased something, or 0."""
    return scalar(connection, f"SELECT max(seq) FROM events WHERE {OF_KIND} AND kind = 'PURGE'") or 0


@dataclass(frozen=True, slots=True)
class Rollback:
    """The result of a rollback. `id` is what to give to `rollback` to undo it. `cancelled` journal entries stopped counting and
    `restored` ones count again; `changed` are the ids of items that differ now; `no_ops` are (number, reason) of entries that
    still count but no longer apply."""

    id: str
    cancelled: int
    restored: int
    changed: tuple[str, ...]
    no_ops: tuple[tuple[int, str], ...]


def ranges_of(numbers: Iterable[int]) -> Ranges:
    """Return the runs of consecutive numbers as (first, last)."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return tuple((low, high) for low, high in runs)


def within(number: int, ranges: Ranges) -> bool:
    """Return whether the number lies in one of the ranges, which are sorted."""
    index = bisect_right(ranges, number, key=itemgetter(0)) - 1
    return index >= 0 and number <= ranges[index][1]


def active_ranges(rollbacks: Iterable[tuple[int, Ranges]]) -> Ranges:
    """Return the ranges of cancelled entries, given (entry number, ranges) of every rollback. A newer one may cancel older
    ones."""
    active: Ranges = ()
    for seq, ranges in sorted(rollbacks, reverse=True):
        if not within(seq, active):
            merged: list[tuple[int, int]] = []
            for low, high in sorted([*active, *ranges]):
                if merged and low <= merged[-1][1] + 1:
                    merged[-1] = (merged[-1][0], max(merged[-1][1], high))
                else:
                    merged.append((low, high))
            active = tuple(merged)
    return active


def cancelled(connection: AnyConnection, until: int | None = None) -> Ranges:
    """Return the ranges of journal entries that do not count as of entry `until` (None: now)."""
    return active_ranges(rollbacks_in(connection, until))


def rollbacks_in(connection: AnyConnection, until: int | None = None) -> list[tuple[int, Ranges]]:
    entries = select(connection, f"SELECT seq, payload FROM events WHERE {OF_KIND} AND kind = 'ROLLBACK'")
    with rows.readable("a rollback in the journal"):
        return [
            (seq, tuple((low, high) for low, high in json.loads(payload)["ranges"]))
            for seq, payload in entries
            if until is None or seq <= until
        ]


class ReplayView:
    """Items in a dictionary, for a replay. It records every item and content that operations asked for."""

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.scope = Scope()
        self.asked_contents: set[int] = set()
        self.asked_items: set[int] = set()
        self._open: dict[bytes, set[int]] = {}

    def get(self, id: str) -> Item | None:
        number = rows.number_of(id)
        if number is not None:
            self.asked_items.add(number)
        item = self.items.get(id)
        return item if item is not None and self.scope.contains(item.scope) else None

    def duplicates_of(self, item: Item) -> list[str]:
        self.asked_contents.add(rows.content_number(item))
        return [f"m{n}" for n in sorted(self._open.get(duplicate_key(item), ()))]

    def put(self, item: Item) -> None:
        before, number = self.items.pop(item.id, None), int(item.id[1:])
        if before is not None and before.open:
            self._open[duplicate_key(before)].discard(number)
        self.items[item.id] = item
        if item.open:
            self._open.setdefault(duplicate_key(item), set()).add(number)


def replay(entries: Iterable[Entry], only: set[int] | None = None) -> tuple[ReplayView, list[tuple[int, str]]]:
    """Carry out `entries`, in order, on an empty view. Returns the view, and (number, reason) of entries that once applied and
    here do not.

    `only` are the item numbers whose rewards count; a reward concerns each of its items alone, so others need not be there.
    """
    view = ReplayView()
    no_ops = []
    for entry in entries:
        decoded = entry.act()
        if decoded is None:
            continue
        act, draft = decoded
        if isinstance(act, Credit) and only is not None:
            act = replace(act, items=tuple((id, p) for id, p in act.items if rows.number_of(id) in only))
        view.scope = entry.scope
        outcome = execute(view, act, draft, new_id=f"m{entry.seq}", now=entry.at)
        if entry.applied and not outcome.applied:
            no_ops.append((entry.seq, outcome.reason))
    return view, no_ops


def entries(
    connection: AnyConnection, scope_of: ScopeLookup, where: str, values: tuple[object, ...] = ()
) -> list[Entry]:
    """Return journal entries in order.

    Args:
        connection: A connection to the memory.
        scope_of: It returns the scope with an id.
        where: An SQL condition, which never comes from a user.
        values: Its parameters.
    """
    query = (
        f"SELECT seq, at, kind, scope, episode, source, payload, applied, reason FROM events WHERE {where} ORDER BY seq"
    )
    return [
        Entry(seq, at, kind, scope_of(scope), episode, source, payload, bool(applied), reason)
        for seq, at, kind, scope, episode, source, payload, applied, reason in select(connection, query, values)
    ]


def rollback(
    store: Store,
    scope: Scope,
    *,
    target: str = "",
    sources: Sequence[str] = (),
    since: str = "",
    numbers: Sequence[int] = (),
) -> Rollback:
    """Undo one of four things.

    Args:
        store: The memory.
        scope: Only what happened inside it is undone.
        target: The id of an episode, or of a rollback.
        sources: Undo what came from one of them.
        since: The name of a snapshot: undo everything after it.
        numbers: Undo the entries of the journal with these numbers.
    """
    position = store.position_of(since) if since else 0
    if not isinstance(target, str):
        raise UnknownEpisode(f"no episode or rollback {target!r:.80} in this memory: give its id as text")
    again = rows.number_of("m" + target[1:]) if target[:1] == "r" else None

    def work(transaction: Transaction) -> Rollback:
        connection = transaction.connection
        value: int | str
        if again is not None:
            where, value = "kind = 'ROLLBACK' AND seq = ?", again
        elif target:
            row = first(connection, "SELECT scope FROM episodes WHERE id = ?", (target,))
            if row is None or not scope.contains(transaction.scope_of(row[0])):
                raise UnknownEpisode(_unknown(store, "episode or rollback", target))
            where, value = "episode = ? AND episode <> ''", target
        elif numbers:
            where, value = f"seq {AMONG}", among(numbers)
        elif sources:
            where, value = f"source {AMONG} AND kind <> 'ROLLBACK'", among(sources)
        else:
            where, value = "seq > ?", position
        matching = select(connection, f"SELECT seq, scope FROM events WHERE {where}", (value,))
        inside = [seq for seq, home in matching if scope.contains(transaction.scope_of(home))]
        listed = ", ".join(map(str, numbers))
        if not inside and (again is not None or numbers):
            raise UnknownEpisode(_unknown(store, "entry" if numbers else "rollback", listed or target))
        named = f"source {', '.join(sources[:3])}{' and others' if len(sources) > 3 else ''}"
        reason = target or (f"entry {listed}" if numbers else "") or (named if sources else f"since {since}")
        return _roll_back(transaction, ranges_of(inside), now=store.clock(), reason=reason, scope=scope)

    return store.change(scope, work)


def _unknown(store: Store, what: str, id: str) -> str:
    path = store.database.path
    return f"no {what} {id!r:.80} in this scope of {path}: take what `.id` or `rollback` gave; nothing was undone"


def _roll_back(transaction: Transaction, cancel: Ranges, *, now: str, reason: str, scope: Scope) -> Rollback:
    """Make the items what they would be had the entries in `cancel` never been written, and journal that."""
    connection = transaction.connection
    older = rollbacks_in(connection)
    was = active_ranges(older)
    will_be = active_ranges([*older, (transaction.seq, cancel)])
    moved = _moved(cancel, older, was, will_be)
    _refuse_purged(connection, cancel, moved, will_be)
    view, members, no_ops = _replayed_closure(transaction, moved, will_be)
    changed = []
    tombstones = {n for (n,) in select(connection, "SELECT n FROM tombstones")}
    for n in sorted(members - tombstones):
        id = f"m{n}"
        target, present = view.items.get(id), transaction.load(id)
        if target == present:
            continue
        transaction.replace(id, target)
        changed.append(id)
    payload = json.dumps({"ranges": cancel, "reason": reason})
    seq = transaction.write_event(rows.ROLLBACK, scope, payload, now=now, source=reason)
    stopped = sum(within(seq_, will_be) for seq_ in moved)
    return Rollback(f"r{seq}", stopped, len(moved) - stopped, tuple(changed), tuple(no_ops))


def _moved(cancel: Ranges, older: list[tuple[int, Ranges]], was: Ranges, will_be: Ranges) -> list[int]:
    """Return the entries that counted and no longer will, or the reverse."""
    spans = list(cancel)
    for seq, ranges in older:
        if within(seq, was) != within(seq, will_be):
            spans.extend(ranges)
    spanned = {seq for low, high in spans for seq in range(low, high + 1)}
    return sorted(seq for seq in spanned if within(seq, was) != within(seq, will_be))


def _refuse_purged(connection: AnyConnection, cancel: Ranges, moved: list[int], will_be: Ranges) -> None:
    for seq, at in select(connection, f"SELECT seq, at FROM events WHERE {OF_KIND} AND kind = 'PURGE'"):
        if within(seq, cancel):
            raise Purged(f"something was erased on purpose at {at}: memory can be taken back to later moments alone")
    back = among([seq for seq in moved if not within(seq, will_be)])
    row = first(connection, f"SELECT n FROM tombstones WHERE n {AMONG} LIMIT 1", (back,))
    if row is not None:
        raise Purged(f"this would bring back m{row[0]}, which was erased on purpose: undo what came after that alone")


def _replayed_closure(
    transaction: Transaction, moved: list[int], cancelled: Ranges
) -> tuple[ReplayView, set[int], list[tuple[int, str]]]:
    """Replay what the moved entries concern, and more until the replay asks for nothing outside it. Returns the view, the
    numbers of the items replayed, and the no-ops."""
    connection = transaction.connection
    members = _numbers(connection, f"SELECT DISTINCT n FROM changes WHERE seq {AMONG}", moved)
    # An entry that found a duplicate may have come to create an item since, by an earlier rollback.
    members |= set(moved)
    contents: set[int] = set()
    while True:
        # An entry that looked for duplicates of what a member says, or said, may find others without it.
        contents |= _numbers(
            connection,
            f"SELECT content FROM items WHERE n {AMONG} AND content IS NOT NULL"
            f" UNION SELECT content FROM former_contents WHERE n {AMONG}",
            members,
        )
        chosen = _numbers(connection, f"SELECT DISTINCT seq FROM changes WHERE n {AMONG}", members)
        chosen |= _numbers(
            connection,
            f"SELECT seq FROM events WHERE content {AMONG} AND applied <> {CREATED}"
            # The entry that created an item looked for the content that the item has, or has had.
            f" UNION SELECT n FROM items WHERE content {AMONG}"
            f" UNION SELECT n FROM former_contents WHERE content {AMONG}",
            contents,
        )
        chosen = {seq for seq in chosen | members if not within(seq, cancelled)}
        listed = entries(connection, transaction.scope_of, f"seq {AMONG}", (among(sorted(chosen)),))
        view, no_ops = replay(listed, members)
        expanding = [entry.seq for entry in listed if entry.kind != rows.REWARD and entry.act() is not None]
        wider = members | _numbers(connection, f"SELECT DISTINCT n FROM changes WHERE seq {AMONG}", expanding)
        wider |= {n for n in view.asked_items if n <= transaction.seq}
        # An entry that creates no item here may have created one that exists at present.
        wider |= {entry.seq for entry in listed if entry.kind in _MAKING}
        wider |= {number for number in (rows.number_of(id) for id in view.items) if number is not None}
        richer = contents | view.asked_contents
        if wider == members and richer == contents:
            break
        members, contents = wider, richer
    shaped = (
        f"SELECT 1 FROM tombstones t JOIN events e ON e.seq = t.n WHERE e.payload IS NOT NULL AND t.n {AMONG} LIMIT 1"
    )
    if first(connection, shaped, (among(sorted(members)),)) is None:
        return view, members, no_ops
    # What is left of an erased item has no content number, so all entries are replayed to find what depends on it.
    everything = entries(connection, transaction.scope_of, "true", ())
    concerned = {entry.seq for entry in listed}
    view, all_no_ops = replay(entry for entry in everything if not within(entry.seq, cancelled))
    no_ops = [(seq, reason) for seq, reason in all_no_ops if seq in concerned]
    replayed = (rows.number_of(id) for id in view.items)
    members = {n for n in replayed if n is not None} | {n for (n,) in select(connection, "SELECT n FROM items")}
    return view, members, no_ops


def _numbers(connection: AnyConnection, query: str, values: Iterable[int]) -> set[int]:
    """Return the numbers that a query selects; `values` are the parameter of each AMONG in it."""
    return {n for (n,) in select(connection, query, [among(sorted(values))] * query.count(AMONG))}


if TYPE_CHECKING:
    from collections.abc import Callable

    from keepworth.memory.store.store import Store

    ScopeLookup = Callable[[int], Scope]
