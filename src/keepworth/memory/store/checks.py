"""Checks of a memory: compares everything that is derived from the journal with the journal, and says in words what is wrong."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.memory.errors import NotAMemoryFile
from keepworth.memory.item import EVERYWHERE, HASH_MODULUS, Item, Scope, content_digest
from keepworth.memory.search.chunks import PART
from keepworth.memory.search.index import of_eight_bits
from keepworth.memory.search.terms import term_count
from keepworth.memory.store import blocks, rows, schema, undo
from keepworth.memory.store.connection import AnyConnection, first, scalar, select
from keepworth.memory.store.database import Database
from keepworth.memory.store.decision_log import unpacked
from keepworth.memory.store.full_text import CURRENT
from keepworth.memory.store.rows import VECTORS, image
from keepworth.memory.store.transaction import Transaction, tokens_of

if TYPE_CHECKING:
    from keepworth.memory.store.store import Store

NAMED = 5
"""Most items or entries that one message names."""
QUESTIONS, NEAREST = 100, 10
"""Number of questions at which the first pass of searches is measured, and of items that are looked for."""
TOGETHER = 1000
"""Number of vectors that are looked at together."""


def check(store: Store, *, deep: bool = True, report: Callable[[str], None] = lambda part: None) -> list[str]:
    """Return a message for each problem of the memory, or [] if it is sound; change nothing.

    It always checks: the database's own integrity; each scope's count, words and content hash; the numbers by which
    duplicates are found; which rows the full-text index holds; which current items have no vector; the tombstones;
    the blocks of vectors.

    Args:
        store: The memory.
        deep: Whether it also checks the journal's chain; the journal replayed as it happened, against every image it
            keeps, and without what was rolled back, against every item with its values; every word of the full-text
            index; every vector; every decision, also against the rewards that name it.
        report: It gets the name of what is being checked, as it may take minutes.
    """
    problems: list[str] = []
    with store.database.reading() as connection:
        try:
            with store.database.translated():
                problems.extend(_problems(store, connection, deep, report))
        except NotAMemoryFile as damage:
            problems.append(str(damage))
    return problems


@dataclass(frozen=True, slots=True)
class FirstPassRecall:
    """How much the first pass of searches by meaning finds: the share of the ten nearest items, at so many questions. logged: how
    many of these are of the log; the others are items."""

    share: float
    questions: int
    logged: int

    def __str__(self) -> str:
        return (
            f"Searches by meaning begin with a first pass: it finds {100 * self.share:.1f} % of the ten nearest items, at "
            f"{self.logged} questions of the log and {self.questions - self.logged} items."
        )


def first_pass_recall(store: Store) -> FirstPassRecall | None:
    """Return how much of what an exact search finds the first pass finds: at the newest questions of the memory's own log, and at
    items if these are few. None where searches score all items."""
    if not store.derived.has_codes():
        return None
    with store.database.reading() as connection:
        dimension = scalar(connection, "SELECT dimension FROM vector_sets WHERE id = ?", (store.set_id,))
        # As a policy packs the vector of a question: two bytes that name the set, and eight bits a number.
        logged_vectors = "SELECT vector FROM decisions WHERE length(vector) = ? ORDER BY n DESC LIMIT ?"
        logs = select(connection, logged_vectors, (dimension + 2, QUESTIONS))
        listed = [of_eight_bits(np.frombuffer(body, np.int8, offset=2)) for (body,) in logs]
        logged, table = len(listed), VECTORS.format(store.set_id)
        apart = max(1, (scalar(connection, f"SELECT max(n) FROM {table}") or 0) // QUESTIONS)
        every = f"SELECT vector FROM {table} WHERE n % ? = 0 LIMIT ?"
        for (body,) in select(connection, every, (apart, QUESTIONS - logged)):
            listed.append(rows.to_vectors(body, dimension)[0])
    questions = np.stack(listed)
    shares = []
    ways = (store.derived.near(questions, NEAREST, EVERYWHERE, exact=exact) for exact in (True, False))
    for right, near in zip(*ways, strict=True):
        least = right[-1][1] - 1e-6
        shares.append(sum(score >= least for _, score in near) / len(right))
    return FirstPassRecall(float(np.mean(shares)), len(listed), logged)


def _problems(store: Store, connection: AnyConnection, deep: bool, report: Callable[[str], None]) -> Iterator[str]:
    report("the pages of the file")
    damaged = store.database.damage(connection)
    yield from damaged
    if damaged:
        return
    report("the items")
    items = dict(_all_items(store, connection))
    report(f"the sums and numbers of {len(items):,} items")
    shallow = [
        *_scope_problems(store, connection, items),
        *_table_problems(connection, items),
        *_row_problems(connection),
    ]
    yield from shallow
    table, lacking = without_vector(connection)
    yield from _named(
        f"table {table}: no search by meaning finds {len(lacking)} of the current items, which have no vector until "
        "`keepworth memory compact` makes them:",
        lacking,
    )
    if deep and not shallow:
        report("the chain of the journal")
        yield from _chain_problems(connection)
        report("the journal, which is carried out again")
        yield from _journal_problems(store, connection, items)
        report("the log of decisions")
        yield from _decision_problems(connection)
        report("the words of the full-text index")
        wrong = connection.full_text.wrong(connection)
        yield from _named("full-text index words: it does not hold the words of", [f"m{n}" for n in sorted(wrong)])
        report("the vectors")
        yield from _vector_problems(connection, items)
    report("the blocks of vectors")
    yield from blocks.problems(connection)


def _all_items(store: Store, connection: AnyConnection) -> Iterator[tuple[str, Item]]:
    for row in connection.execute(f"{rows.SELECT} ORDER BY n"):
        item = rows.to_item(row, store.scope_named(connection, row[1]))
        yield item.id, item


def _scope_problems(store: Store, connection: AnyConnection, items: dict[str, Item]) -> Iterator[str]:
    sums: dict[Scope, list[int]] = defaultdict(lambda: [0, 0, 0])
    for item in items.values():
        mine = sums[item.scope]
        mine[0] = (mine[0] + content_digest(item)) % HASH_MODULUS
        if item.current:
            mine[1] += 1
            mine[2] += term_count(item.indexed_text)
    for id, total, count, words, tokens in select(connection, "SELECT id, total, count, words, tokens FROM scopes"):
        scope = store.scope_named(connection, id)
        stored, counted = (int.from_bytes(total, "little"), count, words), tuple(sums[scope])
        for what, one, other in zip(("content hash", "count of items", "count of words"), stored, counted, strict=True):
            if one != other:
                numbers = "" if what == "content hash" else f" ({one} where its items have {other})"
                yield f"table scopes: the {what} of {scope} is wrong{numbers}"
        expected = " ".join(tokens_of(connection, scope) or ())
        if tokens != expected:
            yield f"table scopes: the search tokens of {scope} are {tokens!r} where its names give {expected!r}"


def _table_problems(connection: AnyConnection, items: dict[str, Item]) -> Iterator[str]:
    """Check small tables, and columns that can be computed from others."""
    head = scalar(connection, "SELECT max(seq) FROM events") or 0
    if scalar(connection, "SELECT count(*) FROM events") != head or scalar(
        connection, "SELECT min(seq) FROM events"
    ) not in (None, 1):
        yield f"table events: entries are missing between 1 and {head}"
    through = first(connection, "SELECT count(*), max(through) FROM indexed")
    if through[0] != 1 or not 0 <= through[1] <= head:
        yield f"table indexed: it says {through[1]} of a journal of {head} entries"
    wrong = []
    for n, content in connection.execute("SELECT n, content FROM items"):
        item = items[f"m{n}"]
        if content != (rows.content_number(item) if item.open else None):
            wrong.append(item.id)
    yield from _named("table items: the number by which duplicates are found is wrong of", wrong)
    left = [f"m{n}" for (n,) in select(connection, "SELECT n FROM tombstones WHERE n IN (SELECT n FROM items)")]
    yield from _named("table tombstones: erased, and still there:", left)
    purged: set[int] = set()
    purges = dict(select(connection, "SELECT seq, payload FROM events WHERE kind = 'PURGE'"))
    with rows.readable("an erasure in the journal"):
        for payload in purges.values():
            purged.update(int(id[1:]) for id in json.loads(payload)["ids"])
    noted = dict(select(connection, "SELECT n, seq FROM tombstones"))
    yield from _named("table tombstones: erased, and not in it:", [f"m{n}" for n in sorted(purged - noted.keys())])
    stray = [f"m{n}" for n, seq in sorted(noted.items()) if seq not in purges or n >= seq]
    yield from _named("table tombstones: erased by no entry that erases:", stray)
    scopes = "(SELECT id FROM scopes)"
    for table in ("items", "events", "episodes", "decisions", "tombstones"):
        lost = scalar(connection, f"SELECT count(*) FROM {table} WHERE scope NOT IN {scopes}")
        if lost:
            yield f"table {table}: {lost} rows are of a scope that does not exist"


def _row_problems(connection: AnyConnection) -> Iterator[str]:
    where = f"{CURRENT} AND n <= (SELECT through FROM indexed)"
    # Not with NOT IN, for which Postgres compares every pair of rows when they exceed its working memory.
    missing = select(connection, f"SELECT n FROM items WHERE {where} EXCEPT SELECT rowid FROM words ORDER BY 1")
    extra = select(connection, f"SELECT rowid FROM words EXCEPT SELECT n FROM items WHERE {where} ORDER BY 1")
    yield from _named("full-text index words: missing are", [f"m{n}" for (n,) in missing])
    yield from _named("full-text index words: rows that belong to no item of its kind:", [f"m{n}" for (n,) in extra])


def without_vector(connection: AnyConnection) -> tuple[str, list[str]]:
    """Return the table of vectors that serves ("" if there is none), and the ids of the current items that have none in it."""
    served = first(connection, "SELECT id FROM vector_sets WHERE state = 'serving'")
    if served is None:
        return "", []
    table = VECTORS.format(served[0])
    where = f"{CURRENT} AND NOT EXISTS (SELECT 1 FROM {table} v WHERE v.n = items.n)"
    return table, [f"m{n}" for (n,) in select(connection, f"SELECT n FROM items WHERE {where} ORDER BY n")]


def _chain_problems(connection: AnyConnection) -> Iterator[str]:
    before: bytes | None = None
    wrong = []
    for *event, link in connection.execute(f"SELECT {rows.EVENT_COLUMNS}, chain FROM events ORDER BY seq"):
        if not rows.holds(before, event, link):
            wrong.append(f"entry {event[0]}")
        before = link
    yield from _named("journal: not what was written, by its chain:", wrong)


def journal_problems(store: Store, connection: AnyConnection) -> list[str]:
    """Return where the journal, as `connection` sees it, does not lead to the rows of the tables. Raises rows.Unreadable."""
    return [*_journal_problems(store, connection, dict(_all_items(store, connection))), *_decision_problems(connection)]


def _journal_problems(store: Store, connection: AnyConnection, items: dict[str, Item]) -> Iterator[str]:
    """Replay the journal, without what was rolled back and then as it happened, and compare the results with the tables."""
    erased = {f"m{n}" for (n,) in select(connection, "SELECT n FROM tombstones")}
    listed = undo.entries(connection, lambda id: store.scope_named(connection, id), "true", ())
    cancelled = undo.cancelled(connection)
    replayed = undo.replay(entry for entry in listed if not undo.within(entry.seq, cancelled))[0].items
    ids = sorted(set(items) | (set(replayed) - erased), key=lambda id: int(id[1:]))
    differing = [id for id in ids if items.get(id) != replayed.get(id)]
    yield from _named("items: the journal does not lead to what the view holds of", differing)
    fresh = Database(":memory:")
    try:
        yield from fresh.write(lambda empty: _carry_out(connection, empty, listed, items, erased))
    finally:
        fresh.close()


def _carry_out(
    connection: AnyConnection,
    empty: AnyConnection,
    listed: Iterable[rows.Entry],
    items: dict[str, Item],
    erased: set[str],
) -> list[str]:
    """Replay the journal as it happened in an empty memory and return where the tables differ from the result.

    What cannot be done again, such as a rollback or what concerned an erased item, is taken from the images that follow."""
    images: dict[str, deque[tuple[int, str | None]]] = defaultdict(deque)
    here: dict[int, list[str]] = defaultdict(list)
    for seq, n, before in connection.execute("SELECT seq, n, before FROM touches WHERE changed ORDER BY n, seq"):
        images[f"m{n}"].append((seq, before))
        here[seq].append(f"m{n}")
    of_erased = {seq for (seq,) in select(connection, "SELECT seq FROM changes WHERE n IN (SELECT n FROM tombstones)")}
    transaction = Transaction(empty, Scope(), set_id=None)
    wrong, done = [], []
    for entry in listed:
        for id in here[entry.seq]:
            _, before = images[id].popleft()
            if id not in erased and transaction.load(id) != image(before):
                wrong.append(f"{id} before entry {entry.seq}")
        transaction.seq, transaction.scope = entry.seq, entry.scope
        decoded = None if entry.seq in of_erased else entry.act()
        if decoded is not None:
            done.append(entry.seq)
            transaction.perform(*decoded, now=entry.at, episode=entry.episode)
            continue
        for id in {*here[entry.seq], f"m{entry.seq}"} - erased:
            item = image(images[id][0][1]) if images[id] else items.get(id)
            if item != transaction.load(id):
                transaction.replace(id, item)
        transaction.write_event(entry.kind, entry.scope, "", now=entry.at)
    transaction.flush_journal()

    again = set(done)

    def differing(query: str) -> tuple[list[int], list[int]]:
        """Return the first columns of the rows that are missing, and of those that should not be there."""
        there, expected = set(select(connection, query)), set(select(empty, query))
        return sorted({row[0] for row in expected - there}), sorted({row[0] for row in there - expected})

    unlike = {seq for part in differing("SELECT seq, content, applied <> 0 FROM events") for seq in part} & again
    lost = again.intersection(differing("SELECT seq, n, changed FROM changes")[0])
    # Only of items whose entry is marked as their creation: for others the former number is in the journal itself.
    created = {seq for (seq,) in select(connection, f"SELECT seq FROM events WHERE applied = {schema.CREATED}")}
    former = [f"m{n}" for n in differing("SELECT n, content FROM former_contents")[0] if n in created]
    return [
        *_named("table touches: not what the journal leads to:", wrong),
        *_named("table touches: not all that the entry concerns:", [f"entry {seq}" for seq in sorted(lost)]),
        *_named(
            "table events: the number by which duplicates were looked for, or what became of it, is wrong of",
            [f"entry {seq}" for seq in sorted(unlike)],
        ),
        *_named("table former_contents: what it said before is missing of", [id for id in former if id not in erased]),
    ]


def _decision_problems(connection: AnyConnection) -> Iterator[str]:
    wrong = []
    shown: dict[str, tuple[list[str], float]] = {}
    query = "SELECT id, candidates, chosen, propensity, episode FROM decisions"
    episodes = {id for (id,) in select(connection, "SELECT id FROM episodes")}
    for id, candidates, chosen, propensity, episode in connection.execute(query):
        try:
            listed, taken = [one for one, _ in unpacked(candidates)], json.loads(chosen)
            sound = 0.0 < propensity <= 1.0 and (not listed or set(taken) <= set(listed))
        except (ValueError, TypeError):
            sound, taken = False, []
        if not sound or (episode and episode not in episodes):
            wrong.append(id)
        shown[id] = (taken, propensity)
    yield from _named("table decisions: not what a search leaves:", wrong)
    unlike = []
    for seq, payload in connection.execute(
        "SELECT seq, payload FROM events WHERE kind = 'REWARD' AND payload IS NOT NULL"
    ):
        body = json.loads(payload)
        decision = shown.get(body.get("decision", ""))
        if decision is not None and body["items"] != [[id, decision[1]] for id in decision[0]]:
            unlike.append(f"{body['decision']} (entry {seq})")
    yield from _named("table decisions: not what was rewarded:", unlike)


def _vector_problems(connection: AnyConnection, items: dict[str, Item]) -> Iterator[str]:
    for set_id, dimension, state in select(connection, "SELECT id, dimension, state FROM vector_sets"):
        table = VECTORS.format(set_id)
        lost, stale, damaged = [], [], []
        rows_of = iter(connection.execute(f"SELECT n, hash, vector FROM {table} ORDER BY n"))
        while part := list(islice(rows_of, TOGETHER)):
            for n, number, _ in part:
                item = items.get(f"m{n}")
                if item is None:
                    lost.append(f"m{n}")
                elif state == "serving" and number != rows.text_number(item.searched_text):
                    stale.append(f"m{n}")
            damaged += _find_damaged([(n, vector) for n, _, vector in part], dimension)
        yield from _named(f"table {table}: vectors of what is no item:", lost)
        yield from _named(f"table {table}: vectors of another wording of", stale)
        yield from _named(f"table {table}: not vectors of length one:", damaged)
        query = "SELECT n, vector FROM former_vectors WHERE set_id = ?"
        former = iter(connection.execute(query, (set_id,)))
        damaged = []
        while part := list(islice(former, TOGETHER)):
            damaged += _find_damaged(part, dimension)
        yield from _named("table former_vectors: not vectors of length one:", damaged)


def _find_damaged(listed: Sequence[tuple[int, Any]], dimension: int) -> list[str]:
    """Return the ids of those rows that hold no vectors of length one. All are first looked at together, which is quicker."""
    if all(isinstance(vector, bytes) and len(vector) == 4 * dimension for _, vector in listed):
        vectors = np.frombuffer(b"".join(vector for _, vector in listed), np.float32).reshape(-1, dimension)
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
        if (np.abs(lengths - 1.0) < 1e-3).all():
            return []
    return [f"m{n}" for n, vector in listed if not _unit(vector, dimension)]


def _unit(blob: bytes, dimension: int) -> bool:
    if not isinstance(blob, bytes) or not blob or len(blob) % (4 * dimension):
        return False
    vectors = np.frombuffer(blob, np.float32).reshape(-1, dimension).astype(np.float64)
    lengths = np.linalg.norm(vectors, axis=1)
    least = np.full(len(lengths), PART)  # least length of a part's vector: how much longer depends on the encoder
    least[0] = 1.0
    # An encoder may return a vector of zeros, which matches nothing.
    return bool((((lengths > least - 1e-3) & (lengths < 1.0 + 1e-3)) | ~vectors.any(axis=1)).all())


def _named(what: str, wrong: list[str]) -> Iterator[str]:
    if wrong:
        more = f" and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
        yield f"{what} {', '.join(wrong[:NAMED])}{more}"
