"""Whether the journal of a memory leads to its tables, in memory that grows with what was changed and not with all there is.

Most entries create an item that no other entry concerns. Such an entry is carried out alone, on nothing. The others, which depend
on one another, are carried out together, twice: without what was rolled back, and as it happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.errors import NotAMemoryFile
from keepworth.memory.item import Item, Scope
from keepworth.memory.operations import draft_problem, execute, new_item
from keepworth.memory.store import rows, undo
from keepworth.memory.store.connection import AMONG, AnyConnection, among, first, scalar, select
from keepworth.memory.store.database import Database
from keepworth.memory.store.rows import Entry, image
from keepworth.memory.store.schema import CREATED
from keepworth.memory.store.transaction import Transaction
from keepworth.records.episode import Operation, OperationKind

if TYPE_CHECKING:
    from keepworth.base.arrays import Bools
    from keepworth.memory.store.store import Store

NAMED = 5
"""Most items or entries that one message names."""
_MET_ELSEWHERE = (
    "SELECT seq FROM touches UNION ALL SELECT n FROM touches UNION ALL SELECT n FROM tombstones"
    " UNION ALL SELECT n FROM items WHERE content IN"
    " (SELECT content FROM items WHERE content IS NOT NULL GROUP BY content HAVING count(*) > 1)"
    " UNION ALL SELECT n FROM items WHERE content IN"
    f" (SELECT content FROM events WHERE content IS NOT NULL AND applied <> {CREATED})"
    " UNION ALL SELECT n FROM items WHERE content IN (SELECT content FROM former_contents)"
)
"""SQL for the entries that concern other items than the one that they created, and the items that other entries concern."""


def name_wrong(what: str, wrong: list[str]) -> Iterator[str]:
    """Yield the message that names the first of what is wrong, if there is something."""
    if wrong:
        more = f" and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
        yield f"{what} {', '.join(wrong[:NAMED])}{more}"


def all_items(store: Store, connection: AnyConnection) -> Iterator[tuple[Item, int | None]]:
    """Read all items in order, each with the number by which its duplicates are found."""
    homes = _Homes(store, connection)
    for row in connection.execute(f"SELECT {rows.COLUMNS} FROM items ORDER BY n"):
        yield rows.to_item(row, homes[row[1]]), row[-1]


class _Homes(dict[int, Scope]):
    """The scopes of a memory by their ids, each read once."""

    def __init__(self, store: Store, connection: AnyConnection) -> None:
        self._store, self._connection = store, connection

    def __missing__(self, id: int) -> Scope:
        self[id] = self._store.scope_named(self._connection, id)
        return self[id]


def replay_problems(store: Store, connection: AnyConnection) -> Iterator[str]:
    """Replay the journal, without what was rolled back and then as it happened, and compare the results with the tables."""
    cancelled = undo.cancelled(connection)
    alone = _candidates(connection, cancelled)
    listed, items = _tangled(store, connection, alone)
    erased = {f"m{n}" for (n,) in select(connection, "SELECT n FROM tombstones")}
    while True:
        view = undo.replay(entry for entry in listed if not undo.within(entry.seq, cancelled))[0]
        # What these ask for are mostly one another; others, which are sound by themselves, are replayed with them.
        same = select(connection, f"SELECT n FROM items WHERE content {AMONG}", (among(sorted(view.asked_contents)),))
        lone = {n for n in view.asked_items | {n for (n,) in same} if n < len(alone) and alone[n]}
        if not lone:
            break
        alone[sorted(lone)] = False
        listed += undo.entries(
            connection, lambda id: store.scope_named(connection, id), f"seq {AMONG}", (among(sorted(lone)),)
        )
        listed.sort(key=lambda entry: entry.seq)
        for row in select(connection, f"{rows.SELECT} WHERE n {AMONG}", (among(sorted(lone)),)):
            items[f"m{row[0]}"] = rows.to_item(row, store.scope_named(connection, row[1]))
    ids = sorted(set(items) | (set(view.items) - erased), key=lambda id: int(id[1:]))
    differing = [id for id in ids if items.get(id) != view.items.get(id)]
    yield from name_wrong("items: the journal does not lead to what the view holds of", differing)
    fresh = Database(":memory:")
    try:
        yield from fresh.write(lambda empty: _carry_out(connection, empty, listed, items, erased))
    except NotAMemoryFile as error:
        if isinstance(
            error.__cause__, rows.Unreadable
        ):  # in this journal, not in the empty memory that it is carried out in
            raise error.__cause__ from None
        raise
    finally:
        fresh.close()


def _candidates(connection: AnyConnection, cancelled: undo.Ranges) -> Bools:
    """Return, by its number, whether an entry created an item and the tables name no other entry that concerns this item."""
    out = np.zeros(1 + (scalar(connection, "SELECT max(seq) FROM events") or 0), bool)
    for (seq,) in connection.execute(f"SELECT seq FROM events WHERE kind = 'ADD' AND applied = {CREATED}"):
        out[seq] = True
    for (number,) in connection.execute(_MET_ELSEWHERE):
        if 0 <= number < len(out):
            out[number] = False
    for low, high in cancelled:
        out[max(0, low) : high + 1] = False
    return out


def _tangled(store: Store, connection: AnyConnection, alone: Bools) -> tuple[list[Entry], dict[str, Item]]:
    """Carry out each entry that stands alone by itself, and clear its mark if that does not lead to its item. Returns the other
    entries, and the items that no marked entry created."""
    listed, items, there = list[Entry](), dict[str, Item](), all_items(store, connection)
    homes = _Homes(store, connection)
    item, content = next(there, (None, None))
    query = "SELECT seq, at, kind, scope, episode, source, payload, applied, reason, content FROM events ORDER BY seq"
    for seq, at, kind, scope, episode, source, payload, applied, reason, number in connection.execute(query):
        entry = Entry(seq, at, kind, homes[scope], episode, source, payload, bool(applied), reason)
        while item is not None and int(item.id[1:]) < entry.seq:
            items[item.id] = item
            item, content = next(there, (None, None))
        created = item if item is not None and int(item.id[1:]) == entry.seq else None
        if alone[entry.seq] and (created is None or not _leads_to(entry, number, created, content)):
            alone[entry.seq] = False
        if not alone[entry.seq]:
            listed.append(entry)
        elif created is not None:
            item, content = next(there, (None, None))
    while item is not None:
        items[item.id] = item
        item, content = next(there, (None, None))
    return listed, items


def _leads_to(entry: Entry, number: int | None, item: Item, content: int | None) -> bool:
    """Return whether an entry, by itself, creates an item and asks for nothing else.

    Args:
        entry: The entry.
        number: That by which it looked for duplicates, on file.
        item: The item of its number.
        content: The number by which the item's duplicates are found, on file.
    """
    decoded = entry.act()
    if decoded is None:
        return False
    act, draft = decoded
    if (
        isinstance(act, Operation)
        and act.kind is OperationKind.ADD
        and not act.targets
        and (draft.deduplicate, draft.copies) == (True, 1)
        and draft_problem(act.text, draft) is None
    ):  # the usual case: what `execute` comes to, in half the time
        alike = new_item(act.text, draft, new_id=item.id, now=entry.at) == item
        return alike and number == content == rows.content_number(item)
    view = undo.ReplayView()
    view.scope = entry.scope
    execute(view, act, draft, new_id=item.id, now=entry.at)
    expected = {number} if number is not None else set()
    return (
        view.items.get(item.id) == item
        and len(view.items) == 1
        and not view.asked_items
        and view.asked_contents == expected
        and expected <= {content}
    )


def _carry_out(
    connection: AnyConnection,
    empty: AnyConnection,
    listed: Iterable[Entry],
    items: dict[str, Item],
    erased: set[str],
) -> list[str]:
    """Replay entries as it happened in an empty memory and return where the tables differ from the result.

    What cannot be done again, such as a rollback or what concerned an erased item, is taken from the images that follow."""
    of_erased = {seq for (seq,) in select(connection, "SELECT seq FROM changes WHERE n IN (SELECT n FROM tombstones)")}
    touched = groupby(
        connection.execute("SELECT seq, n, before FROM touches WHERE changed ORDER BY seq, n"), key=itemgetter(0)
    )
    reached, images = next(touched, (0, iter(())))
    later = "SELECT before FROM touches WHERE n = ? AND seq > ? AND changed ORDER BY seq LIMIT 1"
    transaction = Transaction(empty, Scope(), set_id=None)
    wrong, done, numbers = [], [], []
    for entry in listed:
        numbers.append(entry.seq)
        while reached and reached < entry.seq:
            reached, images = next(touched, (0, iter(())))
        here = [(f"m{n}", before) for _, n, before in images] if reached == entry.seq else []
        for id, before in here:
            if id not in erased and transaction.load(id) != image(before):
                wrong.append(f"{id} before entry {entry.seq}")
        transaction.seq, transaction.scope = entry.seq, entry.scope
        decoded = None if entry.seq in of_erased else entry.act()
        if decoded is not None:
            done.append(entry.seq)
            transaction.perform(*decoded, now=entry.at, episode=entry.episode)
            continue
        for id in {*(id for id, _ in here), f"m{entry.seq}"} - erased:
            follows = first(connection, later, (int(id[1:]), entry.seq))
            item = image(follows[0]) if follows else items.get(id)
            if item != transaction.load(id):
                transaction.replace(id, item)
        transaction.write_event(entry.kind, entry.scope, "", now=entry.at)
    transaction.flush_journal()

    again = set(done)

    def differing(query: str, limited: str) -> tuple[list[int], list[int]]:
        """Return the first columns of the rows that are missing, and of those that should not be there, among the entries."""
        there = set(select(connection, f"{query} WHERE {limited}", (among(numbers),)))
        expected = set(select(empty, query))
        return sorted({row[0] for row in expected - there}), sorted({row[0] for row in there - expected})

    of_entries = f"seq {AMONG}"
    unlike = {seq for seqs in differing("SELECT seq, content, applied <> 0 FROM events", of_entries) for seq in seqs}
    lost = again.intersection(differing("SELECT seq, n, changed FROM changes", of_entries)[0])
    # Only of items whose entry is marked as their creation: for others the former number is in the journal itself.
    created = {
        seq
        for (seq,) in select(
            connection, f"SELECT seq FROM events WHERE applied = {CREATED} AND seq {AMONG}", (among(numbers),)
        )
    }
    former = [f"m{n}" for n in differing("SELECT n, content FROM former_contents", f"n {AMONG}")[0] if n in created]
    return [
        *name_wrong("table touches: not what the journal leads to:", wrong),
        *name_wrong("table touches: not all that the entry concerns:", [f"entry {seq}" for seq in sorted(lost)]),
        *name_wrong(
            "table events: the number by which duplicates were looked for, or what became of it, is wrong of",
            [f"entry {seq}" for seq in sorted(unlike & again)],
        ),
        *name_wrong(
            "table former_contents: what it said before is missing of", [id for id in former if id not in erased]
        ),
    ]
