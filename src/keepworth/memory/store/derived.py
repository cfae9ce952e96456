"""What a process caches of a memory: vectors, words of scopes, columns of metadata, and counts.

All of it can be made again from the file, and follows the journal to the state that a connection sees when it asks: a `Follower`
knows at which state a cache stands, and lets it follow to a later one or be built anew.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.memory.errors import MemoryProblem
from keepworth.memory.item import Scope
from keepworth.memory.search import first_pass
from keepworth.memory.search.columns import MetadataColumns, corrected
from keepworth.memory.search.first_pass import FirstPass
from keepworth.memory.search.index import Block, DenseIndex, RankedTexts, VectorIndex, Within, counts_spellings
from keepworth.memory.search.scope_words import LARGEST, ScopeWords
from keepworth.memory.search.terms import only_latin, terms_and_languages
from keepworth.memory.search.where import ITEM, MISSING, Field, Filter, with_facts
from keepworth.memory.store import blocks, rows, schema
from keepworth.memory.store.connection import AMONG, AnyConnection, WordRanker, among, first, scalar, select
from keepworth.memory.store.full_text import CURRENT, WHOLE_TEXT
from keepworth.memory.store.rows import NAMED, VECTORS
from keepworth.memory.store.undo import newest_purge
from keepworth.memory.store.words import WordStatistics

if TYPE_CHECKING:
    from keepworth.base.arrays import Numbers, Vectors
    from keepworth.memory.search.columns import Mask
    from keepworth.memory.store.backend import Backend
    from keepworth.memory.store.store import Store


_LOG = logging.getLogger("keepworth.memory")


@dataclass(slots=True)
class CorpusState:
    """Facts about all scopes together after the newest journal entry, which has number `seq` and led to the state `name`. They
    are read once per entry: `state` changes whenever one of them may have changed."""

    state: tuple[Any, ...]
    seq: int
    name: str
    documents: int  # current items
    words: int  # in them
    # By number, the items that the full-text index lacks: scope, text, terms.
    tail: Mapping[int, tuple[int, str, frozenset[str]]]
    languages: frozenset[str]  # that have stems among the terms


# Subqueries, so that there is one row even without an event or a vector set.
_STATE = (
    f"SELECT e.seq, {NAMED}, (SELECT through FROM indexed), (SELECT made FROM vector_sets WHERE id = ?) FROM (SELECT 1) AS one "
    "LEFT JOIN (SELECT seq, chain FROM events ORDER BY seq DESC LIMIT 1) AS e ON true"
)

LACKING = 8
"""Most blocks without codes whose codes a search makes for itself."""
MOST_CANDIDATES = 5000
"""Most items that a first pass is asked for; whoever wants more has all of them scored."""
FEW = 5000
"""Most items whose vectors are read from their rows sooner than all vectors from blocks."""
_COUNT = f"SELECT coalesce(sum(count), 0) FROM scopes WHERE id {AMONG}"

_FOLLOWED = f"c.changed AND NOT EXISTS (SELECT 1 FROM events AS e WHERE e.seq = c.seq AND e.kind = '{rows.REWARD}')"
"""SQL condition for the changes `c` that vectors, words and columns follow: not rewards, which change no text or metadata."""


RANKED_FROM = 8
"""Number of searches among many rows from which on the lengths of rows are held: to read them takes as long as so many."""
SMALL = 64
"""Number of items up to which the words of scopes are held from their first search on."""
PASSED_STATES = 1024
"""Number of states before the newest whose names are remembered: a search that began before others wrote sees one of them."""


class Follower:
    """How far a cache has followed the journal: to entry `head` (-1 before it began), which led to the state `name`."""

    def __init__(self, database: Backend) -> None:
        self._database = database
        self.head, self.name = -1, ""
        self._passed: dict[int, str] = {}

    def reach(
        self,
        connection: AnyConnection,
        seq: int,
        name: str,
        follow: Callable[[int], bool],
        begin: Callable[[], object],
        *,
        anew: bool = False,
    ) -> bool:
        """Bring a cache to the state that a connection sees. Returns False if the cache is ahead of this connection, as
        another thread saw a newer state; this one must not read what was added.

        Args:
            connection: A connection to the memory.
            seq: The journal's newest entry that it sees.
            name: The name of the state after that entry.
            follow: It takes in what changed after an entry, and returns False where it cannot.
            begin: It builds the cache anew.
            anew: Whether the cache has to be built anew in any case.
        """
        if not anew and (self.head, self.name) == (seq, name):
            return True
        if not anew and self._passed.get(seq) == name:
            return False
        # Whether the cache's state is a past state of the journal that this connection sees.
        passed = 0 <= self.head <= seq and self.passed(connection, self.head, self.name)
        if not anew and passed and (self.unchanged(connection, self.head) or follow(self.head)):
            self._passed[self.head] = self.name
            self._passed.update(self._names_after(connection, max(self.head, seq - PASSED_STATES)))
            while len(self._passed) > PASSED_STATES:
                self._passed.pop(next(iter(self._passed)))
        else:
            begin()
            self._passed = {}
        self.head, self.name = seq, name
        return True

    # Several caches follow in one search, mostly from the same entry, so these are read once.

    def unchanged(self, connection: AnyConnection, since: int) -> bool:
        """Return whether no entry after number `since` changed an item, such as entries that note what an agent did."""
        turned_back = f"SELECT 1 FROM events WHERE {schema.OF_KIND} AND kind IN ('ROLLBACK', 'PURGE') AND seq > ?"
        query = f"SELECT EXISTS(SELECT 1 FROM changes WHERE seq > ?) OR EXISTS({turned_back})"
        changed = self._database.once(connection, (query, since), lambda: scalar(connection, query, (since, since)))
        return not changed

    def passed(self, connection: AnyConnection, seq: int, name: str) -> bool:
        """Return whether the journal that a connection sees was once in a state.

        Args:
            connection: A connection to the memory.
            seq: The number of the entry after which that was.
            name: The name of the state.
        """
        return self._name_of(connection, seq) == name

    def _name_of(self, connection: AnyConnection, seq: int) -> str:
        query = f"SELECT {NAMED} FROM events WHERE seq = ?"
        return self._database.once(connection, (query, seq), lambda: scalar(connection, query, (seq,)) or "")

    def _names_after(self, connection: AnyConnection, seq: int) -> list[tuple[int, str]]:
        query = f"SELECT seq, {NAMED} FROM events WHERE seq > ? ORDER BY seq"
        return self._database.once(connection, (query, seq), lambda: select(connection, query, (seq,)))


_SUMS = "SELECT id, count, words FROM scopes"


class ScopeSums:
    """The number of current items in all scopes, and of the words in them. Thread-safe. The sums of each scope are cached, so
    that an update costs no more than what has changed: reading those of 10,000 users anew would double the time of a search."""

    def __init__(self, database: Backend) -> None:
        self._lock = threading.Lock()
        self.follower = Follower(database)
        self._of_scope: dict[int, tuple[int, int]] = {}
        self._documents = self._words = 0

    def at(self, connection: AnyConnection, seq: int, name: str) -> tuple[int, int]:
        """Return (items, words) as a connection sees them.

        Args:
            connection: A connection to the memory.
            seq: The journal's newest entry that it sees.
            name: The name of the state after that entry.
        """
        with self._lock:
            follow, begin = partial(self._follow, connection), partial(self._begin, connection)
            if self.follower.reach(connection, seq, name, follow, begin):
                return self._documents, self._words
        documents, words = first(connection, "SELECT coalesce(sum(count), 0), coalesce(sum(words), 0) FROM scopes")
        return int(documents), int(words)

    def _begin(self, connection: AnyConnection) -> None:
        self._of_scope, self._documents, self._words = {}, 0, 0
        self._read(select(connection, _SUMS))

    def _follow(self, connection: AnyConnection, since: int) -> bool:
        query = "SELECT DISTINCT i.scope FROM changes c LEFT JOIN items i USING(n) WHERE c.seq > ?"
        changed = [id for (id,) in select(connection, query, (since,))]
        # An item whose creation was undone has no row, so its scope is not known.
        if None in changed or newest_purge(connection) > since:
            return False
        self._read(select(connection, f"{_SUMS} WHERE id {AMONG}", (among(changed),)))
        return True

    def _read(self, listed: Iterable[tuple[int, int, int]]) -> None:
        for id, count, words in listed:
            before = self._of_scope.get(id, (0, 0))
            self._of_scope[id] = (count, words)
            self._documents += count - before[0]
            self._words += words - before[1]


class HeldVectors:
    """An index over vectors that follows the journal: vectors themselves, or their codes. `of` is the set that it holds."""

    __slots__ = ("at", "index", "of")

    def __init__(self, database: Backend) -> None:
        self.index: VectorIndex | None = None
        self.at = Follower(database)
        self.of: tuple[Any, ...] = ()


class Derived:
    """All caches of one store. Thread-safe. When something is erased, the whole object is replaced: see `Store.reset_caches`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.database = store.database
        self._lock = threading.RLock()
        self._words_lock = threading.Lock()
        self._vectors = HeldVectors(self.database)
        self._codes = HeldVectors(self.database)
        self._coding: threading.Thread | None = None
        self._asked = False  # whether there was a search by meaning yet that scored all items
        self._to_keep = False  # whether there are blocks of vectors to write
        self._unfit: list[blocks.Range] = []
        self._lacking: list[int] = []  # the last numbers of the blocks whose codes did not fit
        self.scope_words = ScopeWords()
        self.words_at = Follower(self.database)
        self._columns = MetadataColumns()
        self._columns_at = Follower(self.database)
        self.word_counts = WordStatistics()
        self._ranker: WordRanker | None = None
        self._ranker_at = Follower(self.database)
        self._ranker_through = 0  # up to which row of the full-text index it has followed
        self._ranked = 0  # how many searches wanted it
        self.ranked_texts = RankedTexts()
        self._scope_sums = ScopeSums(self.database)
        self._corpus: CorpusState | None = None

    # Facts about all scopes together.

    def corpus(self, connection: AnyConnection) -> CorpusState:
        """Return the facts about all scopes together, as this connection sees them."""
        return self.database.once(connection, ("corpus", self._store.set_id), lambda: self._corpus_now(connection))

    def _corpus_now(self, connection: AnyConnection) -> CorpusState:
        state = first(connection, _STATE, (self._store.set_id,))
        before = self._corpus  # read once, as another thread may replace it meanwhile
        if before is not None and before.state == state:
            return before
        seq, name = state[0] or 0, state[1]
        documents, words = self._scope_sums.at(connection, seq, name)
        if before is not None and self._only_noted(connection, before, state):
            corpus = self._corpus = replace(before, state=state, seq=seq, name=name)
            return corpus
        read, tail = before.tail if before is not None else {}, {}
        languages = {str(name) for (name,) in select(connection, "SELECT name FROM languages")}
        newest = f"SELECT n, scope, key, text FROM items WHERE n > (SELECT through FROM indexed) AND {CURRENT}"
        for n, scope, key, text in select(connection, newest):
            whole = f"{key}\n{text}" if key else text
            row = read.get(n)
            if row is None or row[1] != whole:
                listed, spoken = terms_and_languages(whole)
                row = (scope, whole, frozenset(listed))
                languages |= spoken
            elif before is not None:
                languages |= before.languages
            tail[n] = row
        corpus = self._corpus = CorpusState(state, seq, name, documents, words, tail, frozenset(languages))
        return corpus

    def _only_noted(self, connection: AnyConnection, before: CorpusState, state: tuple[Any, ...]) -> bool:
        """Return whether nothing of an earlier state has changed in this one but its newest entry."""
        if not (0 < before.seq <= (state[0] or 0) and before.state[2:] == state[2:]):
            return False
        journal = self._scope_sums.follower
        return journal.passed(connection, before.seq, before.name) and journal.unchanged(connection, before.seq)

    # Vectors.

    def near(
        self,
        vectors: Vectors,
        count: int,
        scope: Scope,
        nobody: bool = False,
        where: Filter | None = None,
        *,
        exact: bool = False,
    ) -> list[list[tuple[int, float]]]:
        """Return, for each query, the best current items as (item number, cosine).

        Args:
            vectors: Those of the queries, of shape (queries, dimension).
            count: The most items.
            scope: Only what is inside it counts.
            nobody: Whether only scopes without a user count.
            where: A filter; None for all items.
            exact: Whether all items are scored, however many there are.
        """
        with self.database.reading() as connection:
            if self._store.set_id is None and not self._store.find_set(connection):
                return [[] for _ in vectors]
            ids, mask = self._store.scope_ids(connection, scope, nobody), self.mask(connection, where)
            within = Within(ids, mask, (scope, nobody))
            result = None
            # The first search among few items reads their vectors alone.
            few = None if self._asked or self._codes.index is not None else self._few(connection, within)
            if few is None and not exact and count <= MOST_CANDIDATES and self._coded(connection, begin=self._asked):
                result = self._near_by_codes(connection, vectors, count, within)
            elif not self._asked:
                self._asked = True
                result = self._once(connection, vectors, count, within, few)
            if result is None:
                try:
                    index = self._synced(connection, self._vectors, coded=False)
                except MemoryError:  # they are too many to be held: they are read again, a block at a time
                    result = self._once(connection, vectors, count, within, None)
                    if result is None:
                        raise
                else:
                    assert isinstance(index, DenseIndex)
                    result = index.search(vectors, count, within)
        if self._to_keep:
            self._to_keep, lacking, self._lacking = False, self._lacking, []
            self.write_blocks()
            self._write_codes(lacking)
        return result

    def _few(self, connection: AnyConnection, within: Within) -> tuple[str, str] | None:
        """Return the SQL condition on the rows of vectors, with its parameter, by which the items that a search may return
        are read if they are few; None if they are many."""
        if within.mask is not None and np.count_nonzero(within.mask) <= FEW:
            return f"v.n {AMONG}", among(np.flatnonzero(within.mask).tolist())
        ids = within.scope_ids
        if ids is not None and scalar(connection, _COUNT, (among(sorted(ids)),)) <= FEW:
            return f"i.scope {AMONG}", among(sorted(ids))
        return None

    def _once(
        self,
        connection: AnyConnection,
        vectors: Vectors,
        count: int,
        within: Within,
        few: tuple[str, str] | None,
    ) -> list[list[tuple[int, float]]] | None:
        """Answer the first search by meaning and keep no vectors, because the process may end after it.

        Few vectors are read from their rows. Many are scored as they are read, block by block.

        Args:
            connection: A connection to the memory.
            vectors: Those of the queries.
            count: The most items.
            within: Those that may be returned.
            few: Which rows are read, see `_few`.

        Returns:
            The best items for each query; None without blocks, where it is best to keep what is read.
        """
        if few is None and not blocks.covered(connection):
            return None
        set_id, dimension = self._vector_set(connection)

        def search(block: Block) -> list[list[tuple[int, float]]]:
            return DenseIndex(dimension, block).search(vectors, count, within)

        if few is not None:
            block = Block(dimension)
            blocks.append_rows(block, connection, set_id, few[0], few[1:])
            return search(block)
        lines: list[list[tuple[int, float]]] = [[] for _ in vectors]
        block, read = Block(dimension, blocks.ITEMS), list[blocks.Part]()
        for part in blocks.append_all(connection, set_id, self.corpus(connection).state[3], block):
            for line, best in zip(lines, search(block), strict=True):
                line += best
            read.append(part)
            block.size = 0
        self._note_read(connection, read)
        return [sorted(line, key=lambda one: -one[1])[:count] for line in lines]

    def _vector_set(self, connection: AnyConnection) -> tuple[int, int]:
        """Return the id and the dimension of the vectors in use. Raises EncoderMismatch if others have replaced them."""
        id = self._store.set_id
        dimension = scalar(connection, "SELECT dimension FROM vector_sets WHERE id = ?", (id,))
        if id is None or dimension is None:
            raise self.database.made_anew()
        return id, dimension

    def has_codes(self) -> bool:
        """Return whether searches by meaning start with a first pass by now."""
        with self.database.reading() as connection:
            return self._store.set_id is not None and self._coded(connection, begin=False)

    def _coded(self, connection: AnyConnection, *, begin: bool) -> bool:
        """Return whether a search starts with a first pass by codes: in a large memory whose codes are there.

        Those that a file lacks, such as one of an earlier version, are made on another thread, and searches are exact until then.

        Args:
            connection: A connection to the memory.
            begin: Whether that thread may be started.
        """
        if self._store.exact or self.corpus(connection).documents < first_pass.FROM:
            return False
        if not connection.in_file:
            return self.database.in_memory
        if self._codes.index is not None:
            return True
        lacking = blocks.uncoded(connection)
        if len(lacking) <= LACKING or (begin and self.database.read_only):
            return True
        if begin and self._coding is None:
            self._coding = threading.Thread(
                target=self._write_codes, args=(lacking,), name="keepworth-codes", daemon=True
            )
            self._coding.start()
        return False

    def _write_codes(self, lasts: Sequence[int]) -> None:
        """Write the codes that blocks lack, if they can be written."""
        if self.database.read_only:
            return
        try:
            self._write_codes_of(lasts)
        except MemoryProblem as problem:  # it was closed, or there is no room: searches stay exact
            _LOG.warning("codes of vectors could not be written to %s: %s", self.database.path, problem)

    def _write_codes_of(self, lasts: Sequence[int]) -> None:
        """Write the codes of blocks, a few blocks in a transaction, so that other writers wait for those only."""
        set_id = self._store.set_id
        if set_id is None:
            return
        for start in range(0, len(lasts), blocks.TOGETHER):
            some = lasts[start : start + blocks.TOGETHER]
            self.database.write(lambda connection, some=some: blocks.write_codes(connection, set_id, some))  # type: ignore[misc]

    def write_all_codes(self) -> None:
        """Write the codes that blocks of a large memory lack, and take the vectors out of blocks that have codes."""
        with self.database.reading() as connection:
            large = self._store.set_id is not None and blocks.is_large(connection)
            lasts = blocks.uncoded(connection, or_with_vectors=True) if large else []
        self._write_codes_of(lasts)

    def _near_by_codes(
        self, connection: AnyConnection, vectors: Vectors, count: int, within: Within
    ) -> list[list[tuple[int, float]]]:
        """Score the items that a first pass names by their vectors, as this connection sees them."""
        index, corpus = self._synced(connection, self._codes, coded=True), self.corpus(connection)
        assert isinstance(index, FirstPass)
        listed = index.candidates(vectors, count, within)
        with self._lock:
            # Then all that it names are current items of the scopes; where it is ahead by now, their rows tell.
            here = (self._codes.at.head, self._codes.at.name) == (corpus.seq, corpus.name)
        set_id, dimension = self._vector_set(connection)
        numbers = sorted(set(chain.from_iterable(listed)))
        block = Block(dimension, len(numbers))
        blocks.append_rows(block, connection, set_id, f"v.n {AMONG}", (among(numbers),), looked_up=not here)
        return DenseIndex(dimension, block).search(vectors, count, Within() if here else within)

    def _synced(self, connection: AnyConnection, held: HeldVectors, *, coded: bool) -> VectorIndex:
        """Return an index over vectors, brought up to the newest journal entry that this connection sees, or beyond."""
        with self._lock:
            corpus = self.corpus(connection)
            served = (self._store.set_id, corpus.state[3])
            anew = held.index is None or held.of != served
            follow = partial(self._follow, connection, held)
            load = partial(self._load, connection, corpus.state[3], held, coded)
            if held.at.reach(connection, corpus.seq, corpus.name, follow, load, anew=anew):
                held.of = served
            assert held.index is not None
            return held.index

    def _load(self, connection: AnyConnection, made: str, held: HeldVectors, coded: bool) -> None:
        """Build an index over all current items from the file."""
        set_id, dimension = self._vector_set(connection)
        block, read = blocks.load(connection, set_id, made, dimension, coded=coded)
        if coded:
            self._vectors = HeldVectors(self.database)  # those of the searches before, if they were exact
            self._lacking = [span[1] for span, _ in read if span]
            self._to_keep = bool(self._lacking) or (connection.in_file and read[-1][1] >= 2 * blocks.ITEMS)
        else:
            self._note_read(connection, read)
        model = scalar(connection, "SELECT model FROM vector_sets WHERE id = ?", (set_id,))
        by_signs = not counts_spellings(str(model))
        held.index = FirstPass(dimension, block, by_signs=by_signs) if coded else DenseIndex(dimension, block)

    def _note_read(self, connection: AnyConnection, parts: Sequence[blocks.Part]) -> None:
        """Note which blocks were damaged, and whether there are blocks to write."""
        self._unfit = [span for span, _ in parts if span]
        if self._unfit:
            _LOG.warning("blocks of vectors in %s are damaged and written again", self.database.path)
        self._to_keep = connection.in_file and (bool(self._unfit) or sum(n for _, n in parts) >= 2 * blocks.ITEMS)

    def _follow(self, connection: AnyConnection, held: HeldVectors, since: int) -> bool:
        """Update an index over vectors with what changed after journal entry `since`."""
        index = held.index
        assert index is not None
        assert self._store.set_id is not None
        changed = select(
            connection,
            "SELECT DISTINCT c.n, i.scope, v.vector, i.content IS NOT NULL AND i.status = 'active' "
            f"FROM changes c LEFT JOIN items i USING(n) LEFT JOIN {VECTORS.format(self._store.set_id)} v USING(n) "
            f"WHERE c.seq > ? AND {_FOLLOWED}",
            (since,),
        )
        gone = [n for n, _, vector, current in changed if not current or vector is None]
        if gone:
            index.drop(gone)
        fresh = [(n, scope, vector) for n, scope, vector, current in changed if current and vector is not None]
        fresh.sort()
        if fresh:
            parts = [rows.to_vectors(vector, index.dimension) for _, _, vector in fresh]
            listed = [(n, scope) for (n, scope, _), part in zip(fresh, parts, strict=True) for _ in part]
            index.put([n for n, _ in listed], [scope for _, scope in listed], np.concatenate(parts))
        return True

    def write_blocks(self) -> None:
        """Write new blocks of vectors and rewrite rejected ones, so that the next process loads faster. Each block has its own
        transaction, so that other writers wait for one block only."""
        unfit, self._unfit = self._unfit, []
        if self._store.set_id is None or self.database.read_only:
            return
        set_id = self._store.set_id
        try:
            for span in unfit:
                self.database.write(lambda connection, span=span: blocks.write_block(connection, set_id, span))  # type: ignore[misc]
            while self.database.write(lambda connection: blocks.extend(connection, set_id, 1)):
                pass
        except MemoryProblem as problem:  # the search itself has succeeded
            _LOG.warning("the vectors of %s could not be written in blocks: %s", self.database.path, problem)

    # Words of scopes.

    def words_in(
        self,
        connection: AnyConnection,
        corpus: CorpusState,
        inside: frozenset[int],
        *,
        at_once: bool = False,
    ) -> ScopeWords | None:
        """Return the words of some scopes, or None if they are not held in memory. The words may be of a newer state
        than this connection sees.

        Reading them whole pays from the second search on, and from the first one if there are few items.

        Args:
            connection: A connection to the memory.
            corpus: The state of all items that this connection sees.
            inside: The ids of the scopes.
            at_once: Whether they are always read at the first search, as the full-text index cannot tell these scopes
                from others.
        """
        held, ids = self.scope_words, tuple(sorted(inside))
        before = held.note_search(ids)
        if not before and not at_once and not self._are_small(connection, ids):
            return None
        with self._words_lock:
            follow = partial(self._follow_words, connection, corpus.seq)
            if not self.words_at.reach(connection, corpus.seq, corpus.name, follow, held.clear):
                # The cache is newer than what this connection sees, so a scope read here would not fit in.
                return None if held.missing(ids) else held
            for id in held.missing(ids):
                size = scalar(connection, "SELECT count FROM scopes WHERE id = ?", (id,))
                if size is None or size > LARGEST or not held.has_room(size, before):
                    return None
                texts = select(connection, f"SELECT n, {WHOLE_TEXT} FROM items WHERE scope = ? AND {CURRENT}", (id,))
                held.put(id, texts, only_latin(corpus.languages))
        return held

    def _are_small(self, connection: AnyConnection, ids: tuple[int, ...]) -> bool:
        """Return whether reading all items of these scopes costs no more than a search in the index of everybody's."""
        if len(ids) > SMALL:
            return False
        count = scalar(connection, f"SELECT sum(count) FROM scopes WHERE id {AMONG}", (among(ids),))
        return (count or 0) <= SMALL

    def _follow_words(self, connection: AnyConnection, seq: int, since: int) -> bool:
        """Update the words of scopes with what changed after entry `since`. Returns False if that is too much or cannot be
        told."""
        if seq - since > PASSED_STATES or newest_purge(connection) > since:
            return False
        changed = (
            f"SELECT DISTINCT c.n, i.scope, CASE WHEN {CURRENT} THEN {WHOLE_TEXT} END FROM changes c "
            f"LEFT JOIN items i USING(n) WHERE c.seq > ? AND {_FOLLOWED}"
        )
        listed = select(connection, changed, (since,))
        # An item whose creation was undone has no row, so its scope is not known.
        if any(scope is None for _, scope, _ in listed):
            return False
        for n, scope, text in listed:
            self.scope_words.change(scope, n, text)
        return True

    def word_ranker(self, connection: AnyConnection, corpus: CorpusState) -> WordRanker | None:
        """Return what ranks rows of the full-text index as this connection sees it; None at the first searches, as the
        process may end after them, and where another thread has seen a newer state.

        Args:
            connection: A connection to the memory.
            corpus: The state of all items that this connection sees.
        """
        if not connection.in_file:
            return None
        with self._words_lock:
            self._ranked += 1
            if self._ranked < RANKED_FROM:
                return None
            if self._ranker is None:
                self._ranker = connection.full_text.ranker()
            ranker, through = self._ranker, int(corpus.state[2])
            if ranker is None:
                return None
            follow, begin = partial(self._follow_lengths, connection), partial(self._begin_lengths, connection, through)
            if not self._ranker_at.reach(connection, corpus.seq, corpus.name, follow, begin):
                return None
            if through > self._ranker_through:
                ranker.read(connection, "id > ? AND id <= ?", (self._ranker_through, through))
                self._ranker_through = through
            return ranker

    def _begin_lengths(self, connection: AnyConnection, through: int) -> None:
        assert self._ranker is not None
        self._ranker.begin(connection)
        self._ranker_through = through

    def _follow_lengths(self, connection: AnyConnection, since: int) -> bool:
        """Read anew the rows of the full-text index that changed after entry `since`. Returns False if something was erased."""
        assert self._ranker is not None
        if newest_purge(connection) > since:
            return False
        query = f"SELECT DISTINCT c.n FROM changes c WHERE c.seq > ? AND c.n <= ? AND {_FOLLOWED}"
        changed = [n for (n,) in select(connection, query, (since, self._ranker_through))]
        if changed:
            self._ranker.read(connection, f"id {AMONG}", (among(changed),))
        return True

    # Columns of metadata.

    def mask(self, connection: AnyConnection, where: Filter | None) -> Mask | None:
        """Return, by item number, whether an item is current and its metadata meet `where`, or `where` exempts it. None if
        `where` asks nothing of metadata."""
        if where is None or where.tree is None:
            return None
        return self.database.once(connection, ("mask", where), lambda: self._mask(connection, where))

    def _mask(self, connection: AnyConnection, where: Filter) -> Mask:
        assert where.tree is not None
        corpus, columns = self.corpus(connection), self._columns
        with columns.lock:
            follow, begin = partial(self._follow_columns, connection), partial(columns.start, corpus.seq)
            there = self._columns_at.reach(connection, corpus.seq, corpus.name, follow, begin)
            later = [] if there else columns.changed_after(corpus.seq)
            missing = columns.missing(where.tree)
            if later is None or (later and missing):
                # The cache is newer than what this connection sees and cannot go back: use fresh columns for this call.
                columns, later = MetadataColumns(), []
                missing = columns.missing(where.tree)
            for field in list(missing) if connection.in_file else ():
                if (column := _column_in(connection, field)) is not None:
                    columns.take(field, *column)
                    missing.remove(field)
            if missing:
                which = schema.BY_CURRENT if connection.in_file else f"WHERE {CURRENT}"
                columns.build(missing, _metadata_in(connection, which))
            mask = columns.mask(where.tree)
        if later:
            rows_ = dict(_metadata_in(connection, f"WHERE {CURRENT} AND n {AMONG}", later))
            mask = corrected(mask, where.tree, rows_, later)
        let = [number for number in map(rows.number_of, where.but) if number is not None]
        if let:
            if max(let) >= len(mask):
                mask = np.concatenate([mask, np.zeros(max(let) + 1 - len(mask), bool)])
            mask[let] = True
        return mask

    def _follow_columns(self, connection: AnyConnection, since: int) -> bool:
        """Update the columns with what changed after journal entry `since`. Returns False if something was erased since."""
        if newest_purge(connection) > since:
            return False
        changes = select(
            connection,
            f"SELECT max(c.seq), c.n, CASE WHEN {CURRENT} THEN i.metadata END, i.kind, {schema.WHEN} "
            "FROM changes c LEFT JOIN items i USING(n) "
            f"WHERE c.seq > ? AND {_FOLLOWED} GROUP BY c.n, i.n ORDER BY 1",
            (since,),
        )
        decoded: dict[str, Any] = {}
        with rows.readable("metadata"):
            self._columns.follow([(entry, n, _facts(decoded, *fields)) for entry, n, *fields in changes])
        return True


def _metadata_in(
    connection: AnyConnection, which: str, numbers: Sequence[int] = ()
) -> list[tuple[int, Mapping[str, Any] | None]]:
    """Return number and metadata of the items that `which`, the end of an SQL query, selects. `numbers` become its parameter."""
    decoded: dict[str, Any] = {}
    values = (among(numbers),) if numbers else ()
    listed = select(connection, f"SELECT n, metadata, kind, {schema.WHEN} FROM items {which}", values)
    with rows.readable("metadata"):
        return [(n, _facts(decoded, *fields)) for n, *fields in listed]


def _column_in(connection: AnyConnection, field: Field) -> tuple[Numbers, list[str], list[Any]] | None:
    """Read what all current items have under one name of their metadata, or as kind or time, put together by SQLite: the items'
    numbers, the texts of their values, and the values of the distinct texts. None where items have to be read one by one."""
    path: tuple[str, ...] = ()
    if field.inside == (ITEM,):
        value_of = {"kind": "kind", "when": schema.WHEN}[field.name]
    elif not field.inside and field.name.isprintable() and not set('."\\') & set(field.name):
        value_of, path = "coalesce(CASE WHEN metadata <> '' THEN metadata -> ? END, '')", (f'$."{field.name}"',)
    else:
        return None
    query = f"SELECT group_concat(n), group_concat({value_of}, char(30)) FROM items {schema.BY_CURRENT}"
    with rows.readable("metadata"):
        numbers, joined = first(connection, query, path)
        if numbers is None:
            return np.zeros(0, np.int64), [], []
        texts = joined.split("\x1e")  # JSON text never holds this character
        distinct = list(dict.fromkeys(texts))
        if field.inside:
            return np.fromstring(numbers, np.int64, sep=","), texts, distinct
        read = json.loads(f"[{','.join(text or 'null' for text in distinct)}]")
        values = [value if text else MISSING for text, value in zip(distinct, read, strict=True)]
        return np.fromstring(numbers, np.int64, sep=","), texts, values


def _facts(decoded: dict[str, Any], text: str | None, kind: str, when: str) -> Mapping[str, Any] | None:
    """Return what filters read of an item: its metadata, kind and time; None if `text` is None. `decoded` caches metadata by
    their text, as many items have the same."""
    if text is None:
        return None
    metadata: Mapping[str, Any] | None = decoded.get(text)
    if metadata is None:
        metadata = decoded[text] = rows.from_json(text) if text else {}
    return with_facts(metadata, kind, when)
