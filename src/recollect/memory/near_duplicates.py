"""Items that say nearly the same in other words: finding them, and merging them in the background.

Cosines alone would take "moved to Oslo in 2024" and "moved to Oslo in 2025" for the same. So two texts also have to agree in
every number and every negation; items with a key have to agree in their text; and what happened twice (episodes, cases)
happened twice. The older item stays, the newer is closed and points to it; every merge is a journal entry with the source
"near-duplicates", so that `rollback(source="near-duplicates")` takes them all back.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from recollect.episodes.operation import Operation, OperationKind
from recollect.memory import forking
from recollect.memory.database import scalar
from recollect.memory.errors import InvalidFilter, MemoryProblem, NoEncoder
from recollect.memory.item import Item, ItemKind, Provenance, folded
from recollect.memory.lexical import tokens
from recollect.memory.operations import Draft
from recollect.memory.scope import Scope

if TYPE_CHECKING:
    from recollect.memory.store import Store

_LOG = logging.getLogger("recollect.memory")
SOURCE = "near-duplicates"
LIKENESS = 0.95
SECONDS = 2.0
BATCH = 128
NEIGHBOURS = 8
NEGATIONS = frozenset(
    ["not", "no", "never", "none", "nothing", "nobody", "neither", "nor", "without", "cannot", "t"]  # t: isn't, don't
)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two open items of one scope that say nearly the same: ids of the one that stays and of the newer one, and the cosine."""

    older: str
    newer: str
    cosine: float


def likeness(dedupe: bool | float) -> float:
    """The cosine that a `dedupe=` option stands for. Raises InvalidFilter."""
    value = LIKENESS if dedupe is True else dedupe
    if not isinstance(value, (int, float)) or not 0.0 < value <= 1.0:
        raise InvalidFilter(f"dedupe is True, or a cosine in (0, 1], got {dedupe!r:.40}")
    return float(value)


def agree(one: str, other: str) -> bool:
    """Whether two texts have the same numbers, in order, and the same negations."""
    return _marks(one) == _marks(other)


def _marks(text: str) -> tuple[list[str], list[str]]:
    words = tokens(text)
    numbers = [word for word in words if any(character.isdigit() for character in word)]
    return numbers, sorted(word for word in words if word in NEGATIONS)


def may_be_same(one: Item, other: Item) -> bool:
    """Whether a cosine above the bound makes these the same: everything but the wording has to agree."""
    return (
        one.scope == other.scope
        and one.kind is other.kind
        and one.kind not in (ItemKind.EPISODE, ItemKind.CASE)
        and one.metadata == other.metadata
        and one.expires_at == other.expires_at
        and (folded(one.text) == folded(other.text) if one.key or other.key else agree(one.text, other.text))
    )


def near_duplicates(
    store: Store, scope: Scope, *, threshold: float = LIKENESS, after: int = 0, until: int | None = None
) -> Iterator[Pair]:
    """For each current item of `scope` written after row `after` (and up to row `until`), the older one most like it, where
    that may be the same. Each item appears as `newer` once at most. Costs one row of a matrix product per item.
    """
    if store.embedder is None:
        raise NoEncoder("near-duplicates are found by their vectors: open the memory with an encoder")
    while True:
        part = list(store.items(scope, after=after, limit=BATCH, current=True))
        part = [item for item in part if until is None or int(item.id[1:]) <= until]
        if not part:
            return
        after = int(part[-1].id[1:])
        yield from _in_part(store, part, threshold)


def _in_part(store: Store, part: Sequence[Item], threshold: float) -> Iterator[Pair]:
    import numpy as np

    vectors = store.vectors_for(part)
    by_scope: dict[Scope, list[Item]] = {}
    for item in part:
        if item.id in vectors:
            by_scope.setdefault(item.scope, []).append(item)
    for scope, items in by_scope.items():
        matches = store.dense(scope, np.stack([vectors[item.id] for item in items]), NEIGHBOURS)
        near = [
            [(f"m{n}", cosine) for n, cosine in found if cosine >= threshold and n < int(item.id[1:])]
            for item, found in zip(items, matches, strict=True)
        ]
        known = store.fetch(scope, list({id for listed in near for id, _ in listed}))
        for item, listed in zip(items, near, strict=True):
            for id, cosine in listed:
                other = known[id]
                if other is not None and may_be_same(other, item):
                    yield Pair(id, item.id, cosine)
                    break


def merge(store: Store, scope: Scope, pairs: Iterable[Pair]) -> list[Pair]:
    """Close the newer item of each pair in favour of the older, in one transaction; returns those that were closed. A pair of
    which one is closed by now, by an earlier merge or by somebody else, is left alone."""
    listed = list(pairs)
    found = store.fetch(scope, [pair.older for pair in listed])
    draft = Draft(scope=scope, provenance=Provenance(SOURCE))
    acts, merging = [], []
    for pair in listed:
        older = found[pair.older]
        if older is not None:
            # A merge into the wording of one of its targets leaves that target as it is and closes the others.
            acts.append((Operation(OperationKind.MERGE, (pair.older, pair.newer), older.text), _like(older, draft)))
            merging.append(pair)
    outcomes = store.perform(scope, acts) if acts else []
    return [pair for pair, outcome in zip(merging, outcomes, strict=True) if outcome.applied]


def _like(older: Item, draft: Draft) -> Draft:
    return replace(draft, key=older.key, kind=older.kind, scope=older.scope)


class NearDuplicates:
    """Looks through what was written since it last looked, every few seconds, on a thread of its own. The place it came to is
    kept in the file, so that another process or the next opening goes on from there."""

    def __init__(self, store: Store, scope: Scope, threshold: float, *, seconds: float = SECONDS) -> None:
        self._store = store
        self._scope = scope
        self._threshold = threshold
        self._seconds = seconds
        self._name = f"{SOURCE} {'/'.join(scope.parts())}"
        self._begin()
        forking.register(self)

    def _begin(self) -> None:
        self._stop = threading.Event()
        self._one_at_a_time = threading.Lock()
        self._thread = threading.Thread(
            target=_keep_merging, args=(weakref.ref(self),), name="recollect-near", daemon=True
        )
        self._thread.start()

    def merge_new(self) -> list[Pair]:
        """Merge what came since the last time; returns what was merged."""
        with self._one_at_a_time:
            store = self._store
            with store.database.reading() as connection:
                query = "SELECT value FROM facts_of_file WHERE name = ?"
                done = int(scalar(connection, query, (self._name,)) or 0)
                head = store.head()
            merged: list[Pair] = []
            if head > done:
                pairs = list(near_duplicates(store, self._scope, threshold=self._threshold, after=done, until=head))
                merged = merge(store, self._scope, pairs) if pairs else []
                values = (self._name, str(head))
                store.database.write(
                    lambda connection: connection.execute("INSERT OR REPLACE INTO facts_of_file VALUES(?,?)", values)
                )
            return merged

    def before_fork(self) -> None:
        """A merge that is under way holds the database, which waits for it."""

    def after_fork(self, *, child: bool) -> None:
        if child and not self._stop.is_set() and not self._store.database.forked:
            self._begin()

    def wait(self) -> bool:
        """Until the next look; False once it is to stop."""
        return not self._stop.wait(self._seconds)

    def close(self) -> None:
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()


def _keep_merging(reference: weakref.ref[NearDuplicates]) -> None:
    """Holds the object only while it works, so that a forgotten memory can be collected."""
    while True:
        near = reference()
        if near is None or not near.wait():
            return
        try:
            near.merge_new()
        except MemoryProblem as problem:
            # It comes back to these items the next time; what was written is there, only not yet merged.
            _LOG.warning("near-duplicates could not be merged: %s", problem)
        del near
