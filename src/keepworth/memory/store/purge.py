"""Erasing for good, which only `forget(purge_history=True)` and `erase` do.

The journal keeps its entries, so that everything else can still be undone, but not what they said: payloads, sources, reasons and
images of what is erased go, and so does the salt of their chain, so that no guess of the text can be proved. Rows, full text,
vectors and logged queries go. All of that is one transaction.

What has to be done outside it (files beside the memory, the slack of pages, the write-ahead log) is noted in it and done
afterwards, or when the memory is next opened if the process is killed in between: see `finish`.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keepworth.memory.errors import Busy, InvalidTime, StorageFailed, StorageFull, UnknownItem
from keepworth.memory.item import Scope, drop_memos, folded, indents, timestamp
from keepworth.memory.search.terms import asked_terms, terms
from keepworth.memory.store import blocks, rows
from keepworth.memory.store.connection import AMONG, AnyConnection, among, first, scalar, select
from keepworth.memory.store.decision_log import named
from keepworth.memory.store.full_text import CURRENT, WHOLE_TEXT
from keepworth.memory.store.kept_calls import forget_calls
from keepworth.memory.store.notes import UNFINISHED, drop, fact, forget_answers, forget_blocks, forget_tallies, keep
from keepworth.memory.store.rows import FORGOTTEN, VECTORS, image
from keepworth.memory.store.saved_state import forget_saved
from keepworth.memory.store.traces import forget_traces
from keepworth.memory.store.transaction import PARTS, Transaction

if TYPE_CHECKING:
    from keepworth.memory.store.store import Store

_LOG = logging.getLogger("keepworth.memory")
_SHAPE = (
    *("kind", "event_time", "valid_from", "valid_to", "expires_at", "status", "trust"),
    *("deduplicate", "copies", "rules"),
)
"""Fields of an erased operation that are kept where replaying an item that stays needs them."""


@dataclass(frozen=True, slots=True)
class Erased:
    """What was erased."""

    ids: tuple[str, ...]  # of the items
    # False if something (a reader in another process, a full disk, a file beside the memory of another user) kept old bytes on
    # disk: `compact`, or opening the memory again, finishes.
    log_emptied: bool
    queries: int = 0  # how many logged searches were deleted or lost their query
    nobody: bool = False  # whether nothing was ever written or asked under the names that were erased


def purge(store: Store, scope: Scope, ids: Sequence[str]) -> Erased:
    """Erase items, also rolled-back ones, with all their history and the queries that quote them. Raises UnknownItem,
    and then erases nothing.

    Args:
        store: The memory.
        scope: Only what is inside it counts.
        ids: The ids of the items.
    """

    def work(transaction: Transaction) -> _Gone:
        gone = _Gone(_number(transaction, id) for id in ids)
        _erase(store, transaction, scope, gone)
        return gone

    with store.database.sparing():
        return _done(store, store.change(scope, work), ids)


def erase(store: Store, scope: Scope, whose: Scope) -> Erased:
    """Erase everything that was written inside a scope, its names included.

    Args:
        store: The memory.
        scope: That of the handle.
        whose: The scope that is erased.
    """

    def work(transaction: Transaction) -> _Gone:
        connection = transaction.connection
        where, values = rows.inside(whose)
        homes = sorted(_column(connection, f"SELECT id FROM scopes WHERE {where}", *values))
        numbers = _column(connection, f"SELECT n FROM items WHERE scope {AMONG}", among(homes))
        # Items whose creation is undone at present have no row, but images.
        conditions = ["tenant", *(part for part in ("user", "agent", "session") if getattr(whose, part))]
        numbers |= set(
            _column(
                connection,
                "SELECT DISTINCT n FROM touches t WHERE before IS NOT NULL "
                "AND NOT EXISTS (SELECT 1 FROM items i WHERE i.n = t.n) AND "
                + " AND ".join(f"coalesce(json_extract(before, '$.scope.{part}'), '') = ?" for part in conditions),
                *values,
            )
        )
        gone = _Gone(numbers, homes, whose)
        if numbers or homes:
            _erase(store, transaction, scope, gone)
        else:  # no journal entry: it would bar the undo of everything before it, perhaps for a misspelt name
            _forget_notes(connection, gone)
        return gone

    with store.database.sparing():
        return _done(store, store.change(scope, work), None)


class _Gone:
    """What one purge erases, completed on the way: `numbers` of items, and ids (`homes`) of scopes that go as a whole, which are
    all inside `whose`."""

    def __init__(self, numbers: Iterable[int], homes: Sequence[int] = (), whose: Scope | None = None) -> None:
        self.numbers, self.whose = set(numbers), whose
        self.homes = list(homes)
        self.texts: set[str] = set()
        self.queries = 0


def _number(transaction: Transaction, id: str) -> int:
    number = rows.number_of(id)
    if number is not None:
        if transaction.get(id) is not None:
            return number
        item = transaction.last_image(number)
        if item is not None and transaction.load(id) is None and transaction.scope.contains(item.scope):
            return number
    raise UnknownItem(
        f"no item {id!r:.80} to erase in this scope: take an id that a search or a list gave; nothing was erased"
    )


def _erase(store: Store, transaction: Transaction, scope: Scope, gone: _Gone) -> None:
    connection = transaction.connection
    gone.numbers |= _repeats(connection, gone.numbers)
    numbers = among(sorted(gone.numbers))
    homes_of = _homes_and_wordings(transaction, gone)
    homes = {transaction.scope_of(id) for id in {*homes_of.values(), *gone.homes}}
    entries = _forget_events(connection, gone, transaction.seq)
    for n in sorted(gone.numbers):
        if transaction.load(f"m{n}") is not None:
            transaction.replace(f"m{n}", None)
    payload = json.dumps({"ids": [f"m{n}" for n in sorted(gone.numbers)]})
    seq = transaction.write_event(rows.PURGE, scope, payload, now=store.clock())
    transaction.finish()
    # Erased entries, too: the item that one would create in a replay is nothing that anybody wrote.
    dead = {**entries, **homes_of}
    connection.executemany(
        "INSERT INTO tombstones VALUES(?,?,?) ON CONFLICT DO NOTHING",
        [(n, home, seq) for n, home in sorted(dead.items())],
    )
    # The purge's own change rows, too, hold images of what it removed.
    connection.execute(f"UPDATE touches SET before = NULL WHERE n {AMONG}", (numbers,))
    connection.execute(f"DELETE FROM former_contents WHERE n {AMONG}", (numbers,))
    connection.execute(f"DELETE FROM former_vectors WHERE n {AMONG}", (numbers,))
    # Also the set that an interrupted `reembed` has begun.
    for (set_id,) in select(connection, "SELECT id FROM vector_sets"):
        connection.execute(f"DELETE FROM {VECTORS.format(set_id)} WHERE n {AMONG}", (numbers,))
    blocks.write_again(connection, gone.numbers)
    forget_saved(connection)
    connection.full_text.tidy(connection)
    if gone.homes:
        _forget_scopes(connection, gone)
    _forget_queries(connection, gone, homes)
    store.database.forget_samples(connection)
    _forget_notes(connection, gone, {home.user for home in homes})


def _forget_notes(connection: AnyConnection, gone: _Gone, users: Iterable[str] = ()) -> None:
    """Delete what servers noted of requests and prompts, and note that the work outside the tables is still to be done."""
    forget_answers(connection)
    forget_blocks(connection, gone.whose)
    if gone.whose is not None:
        forget_tallies(connection, gone.whose)
    forget_calls(connection, gone.whose, users, (f"m{n}" for n in gone.numbers))
    keep(connection, UNFINISHED, "1")


def _repeats(connection: AnyConnection, numbers: set[int]) -> set[int]:
    """Return the numbers of items that an undo removed and that said the same as one of these in the same scope: a rollback can
    bring them back."""
    contents = _column(
        connection,
        f"SELECT content FROM items WHERE n {AMONG} AND content IS NOT NULL"
        f" UNION SELECT content FROM former_contents WHERE n {AMONG}",
        among(sorted(numbers)),
        among(sorted(numbers)),
    )
    return _column(
        connection,
        f"SELECT n FROM former_contents f WHERE content {AMONG} AND NOT EXISTS (SELECT 1 FROM items i WHERE i.n = f.n)",
        among(sorted(contents)),
    )


def _homes_and_wordings(transaction: Transaction, gone: _Gone) -> dict[int, int]:
    """Return the scope ids of the items by number, and add every text and key that they ever had to `gone.texts`."""
    homes: dict[int, int] = {}
    for n in sorted(gone.numbers):
        before = _column(
            transaction.connection, "SELECT before FROM touches WHERE n = ? AND before IS NOT NULL ORDER BY seq", n
        )
        states = [*map(image, before), transaction.load(f"m{n}")]
        for item in states:
            if item is not None:
                gone.texts.update(text for text in (item.text, item.key) if text)
                homes[n] = transaction.scope_row(item.scope).id
    return homes


def _forget_events(connection: AnyConnection, gone: _Gone, by: int) -> dict[int, int]:
    """Remove from the journal what it says about the erased items, and nothing about others. `by` is the number of the erasing
    entry. Returns the entries that are void now, with the ids of their scopes."""
    # When a whole scope goes, so does what is left of items that were erased from it before.
    numbers = gone.numbers | _column(connection, f"SELECT n FROM tombstones WHERE scope {AMONG}", among(gone.homes))
    touched: dict[int, set[int]] = defaultdict(set)
    changed: dict[int, set[int]] = defaultdict(set)
    query = f"SELECT seq, n, changed FROM changes WHERE seq IN (SELECT seq FROM changes WHERE n {AMONG})"
    for seq, n, did in select(connection, query, (among(sorted(numbers)),)):
        touched[seq].add(n)
        if did:
            changed[seq].add(n)
    # An entry that found a duplicate may have come to create an item since, by a rollback.
    for n in numbers:
        touched[n].add(n)
        changed[n].add(n)
    kinds = dict(select(connection, f"SELECT seq, kind FROM events WHERE seq {AMONG}", (among(sorted(touched)),)))
    about_them_alone = {
        seq
        for seq in touched
        # The text of a merge into an item that stays, and did not change, is that item's.
        if changed[seq] <= numbers
        and not (changed[seq] and kinds[seq] in ("SUPERSEDE", "MERGE") and touched[seq] - numbers)
    }
    staying = _column(connection, f"SELECT n FROM items WHERE n {AMONG}", among(sorted(touched))) - numbers
    about_them_alone -= staying
    inside = _column(connection, f"SELECT seq FROM events WHERE scope {AMONG}", among(gone.homes))
    about_them_alone |= {seq for seq in inside if seq not in touched}
    # Replaying the items that stay needs those they were made from, and in turn those these were made from.
    needed = {n for seq in touched if seq not in about_them_alone for n in touched[seq] & numbers}
    before = -1
    while before != len(needed):
        before = len(needed)
        needed |= {n for seq in about_them_alone if touched[seq] & needed for n in touched[seq] & numbers}
    # An entry that made an erased item and closed others that stay is still replayed for these: it loses only its text. An item
    # that an undo made of an entry that was refused at first has the text of that entry, which stays.
    of_others = set(touched).difference(about_them_alone, staying)
    shapes = _Shapes(by)
    void: dict[int, int] = {}
    for seq in sorted(about_them_alone | of_others):
        kind, scope, payload = first(connection, "SELECT kind, scope, payload FROM events WHERE seq = ?", (seq,))
        shape = None
        if seq in of_others:
            wording_of = {seq} & touched[seq] or touched[seq] - changed[seq]
            if payload is None or kind not in ("UPDATE", "SUPERSEDE", "MERGE") or not wording_of <= numbers:
                continue
            shape = shapes.of(kind, json.loads(payload))
        elif kind == rows.PURGE:
            continue
        elif kind == rows.ROLLBACK:
            shape = {"ranges": json.loads(payload)["ranges"], "reason": ""}
        else:
            void[seq] = scope
            alone = bool(changed[seq]) or touched[seq] <= numbers
            if payload is not None and touched[seq] & needed and alone:
                shape = shapes.of(kind, json.loads(payload))
        connection.execute(
            "UPDATE events SET payload = ?, body = NULL, content = NULL, source = '', "
            f"reason = CASE applied WHEN 0 THEN '' ELSE 'applied' END, chain = {FORGOTTEN} WHERE seq = ?",
            (None if shape is None else json.dumps(shape, separators=(",", ":")), seq),
        )
    return void


class _Shapes:
    """Reduces journal entries to what they did, without their text. Each text, and each name and value of metadata, is replaced
    by a number, so that what was equal stays equal. Where lines are indented, so is the number, by the number of that layout."""

    def __init__(self, by: int) -> None:
        self._by = by
        self._numbers: dict[str, int] = {}
        self._layouts: dict[tuple[int, ...], int] = {}

    def of(self, kind: str, body: dict[str, Any]) -> dict[str, Any] | None:
        if kind in (rows.REWARD, "LINK"):
            return None  # no other entry depends on it
        if kind == rows.ASSIGN:
            fields = {name: value for name, value in body["fields"].items() if name != "metadata"}
            if "metadata" in body["fields"]:
                fields["metadata"] = self._metadata(body["fields"]["metadata"])
            return {"target": body["target"], "fields": fields}
        shape = {name: body[name] for name in ("targets", *_SHAPE) if name in body}
        for name in ("text", "key"):
            if body.get(name):
                layout = indents(body[name])
                indent = self._layouts.setdefault(layout, len(self._layouts) + 1)
                white = "\n" + " " * indent if any(layout) else " "
                shape[name] = f"[erased{white}{self._number(folded(body[name]))}]"
        if "metadata" in body:
            shape["metadata"] = self._metadata(body["metadata"])
        if date := body.get("provenance", {}).get("date"):
            # By it others ended. Of one that is no time it counts only that it is there.
            shape["provenance"] = {"date": "?"}
            with suppress(InvalidTime):
                shape["provenance"] = {"date": timestamp(date)}
        return shape

    def _metadata(self, metadata: dict[str, Any]) -> dict[str, str]:
        whole = {name: json.dumps(value, sort_keys=True) for name, value in metadata.items()}
        return {self._number(name): self._number(value) for name, value in whole.items()}

    def _number(self, value: str) -> str:
        return f"{self._by}.{self._numbers.setdefault(value, len(self._numbers))}"


def _forget_scopes(connection: AnyConnection, gone: _Gone) -> None:
    """Delete the searches in erased scopes, what their episodes were about, and their names. Their rows stay, as journal entries
    refer to them, under a random name; later writes under the old name begin a new scope."""
    homes = among(gone.homes)
    forget_traces(connection, gone.homes)
    gone.queries += scalar(connection, f"SELECT count(*) FROM decisions WHERE scope {AMONG}", (homes,))
    connection.execute(f"DELETE FROM decisions WHERE scope {AMONG}", (homes,))
    connection.execute(f"UPDATE episodes SET task = '', outcome = 'erased', person = '' WHERE scope {AMONG}", (homes,))
    names = select(connection, f"SELECT id, tenant FROM scopes WHERE id {AMONG}", (homes,))
    for id, tenant in names:
        nobody = f"[erased {id} {uuid.uuid4().hex[:8]}]"
        new = scalar(
            connection, "INSERT INTO names(tenant, part, name) VALUES(?, 'session', ?) RETURNING id", (tenant, nobody)
        )
        of_tenant = "SELECT id FROM names WHERE tenant = ? AND part = 'tenant' AND name = tenant"
        whole = [f"t{scalar(connection, of_tenant, (tenant,))}"] if tenant else []
        connection.execute(
            "UPDATE scopes SET \"user\" = '', agent = '', session = ?, tokens = ? WHERE id = ?",
            (nobody, " ".join([*whole, f"s{new}"]), id),
        )
    for _, part in PARTS:
        connection.execute(
            f"DELETE FROM names WHERE part = '{part}' AND NOT EXISTS "
            f'(SELECT 1 FROM scopes s WHERE s.tenant = names.tenant AND s."{part}" = names.name)'
        )


def _forget_queries(connection: AnyConnection, gone: _Gone, homes: set[Scope]) -> None:
    """Remove the queries of searches that considered an erased item or quote a word that only erased items held, and the tasks
    of episodes that quote one. Quotes are looked for in the scopes inside those of the items and around them."""
    scopes = {id: Scope(*parts) for id, *parts in select(connection, f"SELECT id, {rows.SCOPE} FROM scopes")}
    near = {id for id, scope in scopes.items() if any(scope.contains(home) or home.contains(scope) for home in homes)}
    theirs = _not_used({word for text in gone.texts for word in terms(text)}, connection)
    # Row by row, as the log may be larger than what this process can hold.
    asked = connection.execute("SELECT n, scope, query, candidates, chosen FROM decisions WHERE query <> ''")
    blank = [
        (n,)
        for n, home, query, candidates, chosen in asked
        if (home in near and not theirs.isdisjoint(asked_terms(query)))
        or not gone.numbers.isdisjoint(named(candidates) | named(chosen))
    ]
    connection.executemany("UPDATE decisions SET query = '', details = '', vector = NULL WHERE n = ?", blank)
    gone.queries += len(blank)
    tasks = connection.execute("SELECT id, scope, task FROM episodes WHERE task <> ''")
    quoting = [(id,) for id, home, task in tasks if home in near and not theirs.isdisjoint(asked_terms(task))]
    connection.executemany("UPDATE episodes SET task = '' WHERE id = ?", quoting)


def _not_used(words: set[str], connection: AnyConnection) -> set[str]:
    """Return those of `words` that no item holds any more."""
    aside = (
        f"SELECT {WHOLE_TEXT} FROM items WHERE NOT deleted AND (n > (SELECT through FROM indexed) OR NOT ({CURRENT}))"
    )
    used = {word for (text,) in connection.execute(aside) for word in terms(text) if word in words}
    return {word for word in words - used if not connection.full_text.holds(connection, word)}


def _done(store: Store, gone: _Gone, ids: Sequence[str] | None) -> Erased:
    if store.embedder is not None:
        for text in gone.texts:
            store.embedder.forget(text)
    drop_memos()
    store.reset_caches()
    order = [f"m{n}" for n in sorted(gone.numbers)] if ids is None else list(dict.fromkeys(ids))
    nobody = ids is None and not gone.homes and not gone.numbers
    return Erased(tuple(order), finish(store), gone.queries, nobody)


def finish(store: Store) -> bool:
    """Do what erasing has to do outside the tables: packs the database and empties the write-ahead log. Returns False where
    something prevented it, such as a reader in another process; then it is done the next time."""
    database = store.database
    if database.in_memory:
        return True
    try:
        with database.reading() as connection:
            noted = fact(connection, UNFINISHED)
        packed = noted != "1" or database.pack()
        if not database.truncate_log():
            return False
        if noted:
            database.write(lambda connection: drop(connection, [UNFINISHED]))
    except (Busy, StorageFull, StorageFailed) as problem:  # the erasure itself is written
        _LOG.warning(
            "erasing from %s is to be finished by `compact`, or when it is next opened: %s", database.path, problem
        )
        return False
    return packed


def is_tombstone(store: Store, scope: Scope, id: str) -> bool:
    """Return whether an item is erased.

    Args:
        store: The memory.
        scope: Only what is inside it counts.
        id: The id of the item.
    """
    number = rows.number_of(id)
    with store.database.reading() as connection:
        homes = select(connection, "SELECT scope FROM tombstones WHERE n = ?", (number,))
        return bool(homes) and scope.contains(store.scope_named(connection, homes[0][0]))


def _column(connection: AnyConnection, query: str, *values: object) -> set[Any]:
    return {value for (value,) in select(connection, query, values)}
