"""Items that say the same in another spelling: finding them, and merging them at once or in the background.

A cosine finds what may be the same and decides nothing: "Ana owes Bob 50 dollars" and "Bob owes Ana 50 dollars" have one of 0.97.
Two items are the same only where they say the same words in the same order (see `said`), about the same time, with the same
metadata. So numbers in digits or words, negations, names and who does what to whom always tell items apart, and a paraphrase
that changes a word is kept: what is kept twice costs a line, what is dropped wrongly is lost.

The older item stays, and only where it is trusted as much as the newer one; that is closed and points to it. Both are journal
entries, the second with the source "near-duplicates", so that `rollback(source="near-duplicates")` takes all merges back.
"""

from __future__ import annotations

import logging
import re
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from keepworth.episodes.episode import Operation, OperationKind
from keepworth.memory.errors import InvalidFilter, MemoryProblem, NoEncoder
from keepworth.memory.item import Item, ItemKind, Provenance, Scope, folded, indented_alike
from keepworth.memory.operations import Draft
from keepworth.memory.store import forking
from keepworth.memory.store.connection import AnyConnection, scalar

if TYPE_CHECKING:
    from keepworth.memory.store.store import Store
    from keepworth.memory.store.transaction import Transaction

_LOG = logging.getLogger("keepworth.memory")
SOURCE = "near-duplicates"
SAME_FROM = 0.95
SECONDS = 2.0
BATCH = 128
NEIGHBOURS = 8
OPENERS = frozenset(
    [
        "the",
        "my",
        "your",
        "his",
        "her",
        "its",
        "our",
        "their",
        "he",
        "she",
        "it",
        "they",
        "we",
        "you",
        "this",
        "these",
        "those",
        "there",
        "when",
        "if",
        "while",
        "because",
        "do",
        "does",
        "did",
        "is",
        "are",
        "was",
        "were",
        "has",
        "have",
        "had",
        "always",
        "never",
        "every",
        "each",
        "please",
        "not",
        "user",
    ]
)
"""Words that are the same with a capital where they begin a text. Most others may be a name with it, and none without."""
_SPELLED = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', **dict.fromkeys("\u2010\u2011\u2013\u2014\u2212", "-")}
)
_FULL_STOP = re.compile(r"(?<=[^\W_])\.+$")
"""Behind a letter or a digit: elsewhere it may be a name, as in "pip install -e ." and "cd .."."""
_SHORT = {"won't": "will not", "shan't": "shall not", "can't": "cannot", "ain't": "ain't"}
_SHORT_ENDS = {"n't": "not", "'m": "am", "'re": "are", "'ve": "have", "'ll": "will"}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two open items of one scope that say the same in another spelling: the one that stays, the newer one, their cosine."""

    older: str
    newer: str
    cosine: float


def cosine_bound(dedupe: bool | float) -> float:
    """The cosine that a `dedupe=` option stands for. Raises InvalidFilter."""
    value = SAME_FROM if dedupe is True else dedupe
    if not isinstance(value, (int, float)) or not 0.0 < value <= 1.0:
        raise InvalidFilter(f"dedupe is True, or a cosine in (0, 1], got {dedupe!r:.40}: leave it out for none")
    return float(value)


def wording(text: str) -> tuple[str, ...]:
    """What is said, as words in order: two texts say the same where these are equal. Typographic quotes and dashes, "isn't" and
    "is not", a capital on a first word such as "the", and a full stop at the end make no difference; everything else does.

    >>> wording("The cat isn’t in.") == wording("the cat is not in")
    True
    >>> wording("The cat is in") == wording("Is the cat in")
    False
    """
    words: list[str] = []
    for word in _FULL_STOP.sub("", folded(text).translate(_SPELLED)).split():
        words.extend(_in_full(word))
    if words and words[0].istitle() and words[0].lower() in OPENERS:
        words[0] = words[0].lower()
    return tuple(words)


def _in_full(word: str) -> list[str]:
    """A contraction in full; anything else as it is."""
    lower = word.lower()
    if "'" not in word or word[1:] != lower[1:]:
        return [word]
    full = _SHORT.get(lower)
    for end, meaning in _SHORT_ENDS.items():
        if full is None and lower.endswith(end) and len(lower) > len(end):
            full = f"{lower.removesuffix(end)} {meaning}"
    return (word[0] + full[1:]).split() if full is not None else [word]


def may_be_same(older: Item, newer: Item) -> bool:
    """Whether a cosine above the bound makes these the same: all but the spelling has to agree, and the one that stays is trusted
    as much as the one that goes."""
    return (
        older.scope == newer.scope
        and older.kind is newer.kind
        and older.kind not in (ItemKind.EPISODE, ItemKind.CASE)
        and older.status is newer.status
        and older.trust >= newer.trust
        and older.metadata == newer.metadata
        and all(getattr(older, name) == getattr(newer, name) for name in _TIMES)
        and indented_alike(older.text, newer.text)
        and wording(older.text) == wording(newer.text)
        and wording(older.key) == wording(newer.key)
    )


_TIMES = ("event_time", "valid_from", "valid_to", "expires_at")


def near_duplicates(
    store: Store, scope: Scope, *, threshold: float = SAME_FROM, after: int = 0, until: int | None = None
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
        matches = store.view(scope).by_meaning(np.stack([vectors[item.id][0] for item in items]), NEIGHBOURS)
        near = [
            [(id, cosine) for id, cosine in found if cosine >= threshold and int(id[1:]) < int(item.id[1:])]
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
    which one is closed by now, by an earlier merge or by somebody else, or of which the newer is trusted more, is left alone."""
    listed = list(pairs)

    def work(transaction: Transaction) -> list[Pair]:
        time = store.clock()
        return [pair for pair in listed if merge_two(transaction, pair.older, pair.newer, now=time)]

    return list(store.change(scope, work)) if listed else []


def merge_two(transaction: Transaction, older: str, newer: str, *, now: str, episode: str = "") -> bool:
    """Close `newer` in favour of `older`, as one journal entry; False where that cannot be."""
    stays, goes = transaction.get(older), transaction.get(newer)
    if stays is None or goes is None or stays.trust < goes.trust:
        return False
    # A merge into the wording of one of its targets leaves that target as it is and closes the others.
    act = Operation(OperationKind.MERGE, (older, newer), stays.text)
    draft = Draft(kind=stays.kind, key=stays.key, scope=stays.scope, provenance=Provenance(SOURCE))
    return transaction.perform(act, draft, now=now, episode=episode).applied


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
            target=_keep_merging, args=(weakref.ref(self),), name="keepworth-near", daemon=True
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
                store.database.write(lambda connection: self._note(connection, head))
            return merged

    def _note(self, connection: AnyConnection, head: int) -> None:
        # The name says whose it is: where everything of theirs was erased it must not come back.
        parts = [(name, value) for name, value in asdict(self._scope).items() if value or name == "tenant"]
        inside = " AND ".join(f"{name} = ?" for name, _ in parts)
        connection.execute(
            f"INSERT OR REPLACE INTO facts_of_file SELECT ?, ? WHERE EXISTS (SELECT 1 FROM scopes WHERE {inside})",
            (self._name, str(head), *(value for _, value in parts)),
        )

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
