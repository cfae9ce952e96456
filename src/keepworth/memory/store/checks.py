"""Checks of a memory: compares everything that is derived from the journal with the journal, and says in words what is wrong."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.memory.errors import NotAMemoryFile
from keepworth.memory.item import EVERYWHERE, HASH_MODULUS, Scope, content_digest
from keepworth.memory.search.chunks import PART
from keepworth.memory.search.index import of_eight_bits
from keepworth.memory.search.terms import term_count
from keepworth.memory.store import blocks, rows
from keepworth.memory.store.connection import AMONG, AnyConnection, among, first, scalar, select
from keepworth.memory.store.decision_log import unpacked
from keepworth.memory.store.full_text import CURRENT
from keepworth.memory.store.journal_checks import all_items, name_wrong, replay_problems
from keepworth.memory.store.rows import SEARCHED, VECTORS
from keepworth.memory.store.transaction import tokens_of

if TYPE_CHECKING:
    from keepworth.memory.store.store import Store

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
    report("the items, with their sums and numbers")
    shallow = [*_item_problems(store, connection), *_table_problems(connection), *_row_problems(connection)]
    yield from shallow
    table, lacking = without_vector(connection)
    yield from name_wrong(
        f"table {table}: no search by meaning finds {len(lacking)} of the current items, which have no vector until "
        "`keepworth memory compact` makes them:",
        lacking,
    )
    if deep and not shallow:
        report("the chain of the journal")
        yield from _chain_problems(connection)
        report("the journal, which is carried out again")
        yield from replay_problems(store, connection)
        report("the log of decisions")
        yield from _decision_problems(connection)
        report("the words of the full-text index")
        wrong = connection.full_text.wrong(connection)
        yield from name_wrong("full-text index words: it does not hold the words of", [f"m{n}" for n in sorted(wrong)])
        report("the vectors")
        yield from _vector_problems(connection)
    report("the blocks of vectors")
    yield from blocks.problems(connection)


def _item_problems(store: Store, connection: AnyConnection) -> Iterator[str]:
    """Check the sums of each scope, and the numbers by which duplicates are found, against the items."""
    sums: dict[Scope, list[int]] = defaultdict(lambda: [0, 0, 0])
    wrong = []
    for item, content in all_items(store, connection):
        mine = sums[item.scope]
        mine[0] = (mine[0] + content_digest(item)) % HASH_MODULUS
        if item.current:
            mine[1] += 1
            mine[2] += term_count(item.indexed_text)
        if content != (rows.content_number(item) if item.open else None):
            wrong.append(item.id)
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
    yield from name_wrong("table items: the number by which duplicates are found is wrong of", wrong)


def _table_problems(connection: AnyConnection) -> Iterator[str]:
    """Check small tables, and columns that can be computed from others."""
    head = scalar(connection, "SELECT max(seq) FROM events") or 0
    if scalar(connection, "SELECT count(*) FROM events") != head or scalar(
        connection, "SELECT min(seq) FROM events"
    ) not in (None, 1):
        yield f"table events: entries are missing between 1 and {head}"
    through = first(connection, "SELECT count(*), max(through) FROM indexed")
    if through[0] != 1 or not 0 <= through[1] <= head:
        yield f"table indexed: it says {through[1]} of a journal of {head} entries"
    left = [f"m{n}" for (n,) in select(connection, "SELECT n FROM tombstones WHERE n IN (SELECT n FROM items)")]
    yield from name_wrong("table tombstones: erased, and still there:", left)
    purged: set[int] = set()
    purges = dict(select(connection, "SELECT seq, payload FROM events WHERE kind = 'PURGE'"))
    with rows.readable("an erasure in the journal"):
        for payload in purges.values():
            purged.update(int(id[1:]) for id in json.loads(payload)["ids"])
    noted = dict(select(connection, "SELECT n, seq FROM tombstones"))
    yield from name_wrong("table tombstones: erased, and not in it:", [f"m{n}" for n in sorted(purged - noted.keys())])
    stray = [f"m{n}" for n, seq in sorted(noted.items()) if seq not in purges or n >= seq]
    yield from name_wrong("table tombstones: erased by no entry that erases:", stray)
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
    yield from name_wrong("full-text index words: missing are", [f"m{n}" for (n,) in missing])
    yield from name_wrong(
        "full-text index words: rows that belong to no item of its kind:", [f"m{n}" for (n,) in extra]
    )


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
    yield from name_wrong("journal: not what was written, by its chain:", wrong)


def journal_problems(store: Store, connection: AnyConnection) -> list[str]:
    """Return where the journal, as `connection` sees it, does not lead to the rows of the tables. Raises rows.Unreadable."""
    return [*replay_problems(store, connection), *_decision_problems(connection)]


def _decision_problems(connection: AnyConnection) -> Iterator[str]:
    wrong = []
    query = "SELECT id, candidates, chosen, propensity, episode FROM decisions"
    episodes = {id for (id,) in select(connection, "SELECT id FROM episodes")}
    for id, candidates, chosen, propensity, episode in connection.execute(query):
        taken = _ids(chosen)
        try:
            listed = [one for one, _ in unpacked(candidates)]
            sound = taken is not None and 0.0 < propensity <= 1.0 and (not listed or set(taken) <= set(listed))
        except (ValueError, TypeError):
            sound = False
        if not sound or (episode and episode not in episodes):
            wrong.append(id)
    yield from name_wrong("table decisions: not what a search leaves:", wrong)
    unlike = []
    rewards = iter(
        connection.execute("SELECT seq, payload FROM events WHERE kind = 'REWARD' AND payload IS NOT NULL ORDER BY seq")
    )
    while part := [(seq, json.loads(payload)) for seq, payload in islice(rewards, TOGETHER)]:
        ids = among(sorted({body["decision"] for _, body in part if body.get("decision")}))
        named = select(connection, f"SELECT id, chosen, propensity FROM decisions WHERE id {AMONG}", (ids,))
        credited = {id: [[item, propensity] for item in _ids(chosen) or ()] for id, chosen, propensity in named}
        for seq, body in part:
            decision = body.get("decision", "")
            if decision in credited and body["items"] != credited[decision]:
                unlike.append(f"{decision} (entry {seq})")
    yield from name_wrong("table decisions: not what was rewarded:", unlike)


def _ids(chosen: str) -> list[str] | None:
    """Return the ids that a decision chose; None if they cannot be read."""
    try:
        ids: list[str] = json.loads(chosen)
        set(ids)
    except (ValueError, TypeError):
        return None
    return ids


def _vector_problems(connection: AnyConnection) -> Iterator[str]:
    for set_id, dimension, state in select(connection, "SELECT id, dimension, state FROM vector_sets"):
        table = VECTORS.format(set_id)
        lost, stale, damaged = [], [], []
        query = f"SELECT v.n, hash, vector, {SEARCHED} FROM {table} v LEFT JOIN items i ON i.n = v.n ORDER BY v.n"
        rows_of = iter(connection.execute(query))
        while part := list(islice(rows_of, TOGETHER)):
            for n, number, _, text in part:
                if text is None:
                    lost.append(f"m{n}")
                elif state == "serving" and number != rows.text_number(text):
                    stale.append(f"m{n}")
            damaged += _find_damaged([(n, vector) for n, _, vector, _ in part], dimension)
        yield from name_wrong(f"table {table}: vectors of what is no item:", lost)
        yield from name_wrong(f"table {table}: vectors of another wording of", stale)
        yield from name_wrong(f"table {table}: not vectors of length one:", damaged)
        query = "SELECT n, vector FROM former_vectors WHERE set_id = ?"
        former = iter(connection.execute(query, (set_id,)))
        damaged = []
        while part := list(islice(former, TOGETHER)):
            damaged += _find_damaged(part, dimension)
        yield from name_wrong("table former_vectors: not vectors of length one:", damaged)


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
