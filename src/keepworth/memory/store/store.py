"""Store: one memory file. The journal, the view made from it at every moment of the past, and how it is searched.

By words, see `words.py`. By meaning, a matrix of all vectors is kept in memory and follows the journal.

Nothing here knows about users' verbs (see `memory.py`) or agents' overlays (see `overlay.py`).
"""

from __future__ import annotations

import json
import logging
import os
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from keepworth.episodes.episode import Operation, OperationKind
from keepworth.episodes.model import EncoderIdentity
from keepworth.memory.errors import (
    EncoderMismatch,
    InvalidFilter,
    MemoryProblem,
    NotAMemoryFile,
    Purged,
    ScopeFull,
    UnknownSnapshot,
)
from keepworth.memory.item import (
    EVERYWHERE,
    HASH_MODULUS,
    Clock,
    Item,
    Scope,
    Status,
    content_digest,
    duplicate_key,
    now,
)
from keepworth.memory.operations import Act, Draft, OperationOutcome, draft_problem
from keepworth.memory.scan import Scan
from keepworth.memory.search.columns import MetadataColumns, corrected
from keepworth.memory.search.index import (
    CorpusStatistics,
    DenseIndex,
    Embedder,
    InvertedIndex,
    Stamp,
)
from keepworth.memory.search.scan import best
from keepworth.memory.search.scope_words import LARGEST, ScopeWords
from keepworth.memory.search.search import Ranked
from keepworth.memory.search.terms import only_latin, terms_and_languages
from keepworth.memory.search.where import ITEM, MISSING, Field, Filter, with_facts
from keepworth.memory.store import blocks, forking, notes, opening, rows, schema, undo
from keepworth.memory.store.backend import Backend
from keepworth.memory.store.connection import AMONG, AnyConnection, among, first, scalar, select
from keepworth.memory.store.full_text import CURRENT, WHOLE_TEXT
from keepworth.memory.store.rows import VECTORS, image
from keepworth.memory.store.transaction import (
    PARTS,
    Changed,
    Transaction,
    changed_since,
    erased_since,
    indexed_text,
)
from keepworth.memory.store.words import LEAST, RankedTexts, ScopeSums, WordStatistics, admit, proposed, scores

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from keepworth.memory.search.columns import Mask

    Vectors = npt.NDArray[np.float32]

Result = TypeVar("Result")
_LOG = logging.getLogger("keepworth.memory")
PASSED_STATES = 1024
"""Entries of the journal behind the dense index whose names are remembered: a search that began before others wrote sees one."""
SCOPES = 1024
"""Scopes whose names, and whose ids, are remembered."""


@dataclass(slots=True)
class CorpusState:
    """What a file says after its newest entry: asked once, and again when there is a newer one.

    state: what tells it from another; seq: of the newest entry; documents, words: current items of all scopes, and words in them;
    tail: the current items that the full-text index does not hold yet, as (scope id, text, its terms) by row number; languages:
    those of which there are stems among the terms."""

    state: tuple[Any, ...]
    seq: int
    documents: int
    words: int
    tail: Mapping[int, tuple[int, str, frozenset[str]]]
    languages: frozenset[str]


# Subqueries: one row also where there is no event, or no set any more.
NAMED = f"lower(hex(coalesce({rows.FORGOTTEN}, '')))"
"""SQL for the name of the state that an event led to."""
_STATE = (
    "SELECT e.seq, e.chain, (SELECT through FROM indexed), (SELECT made FROM vector_sets WHERE id = ?) FROM (SELECT 1) AS one "
    "LEFT JOIN (SELECT seq, chain FROM events ORDER BY seq DESC LIMIT 1) AS e ON true"
)


FORESEEN = 16
"""Acts in one transaction from which their duplicates are looked up together."""


LAST_ROW = 2**63 - 1
"""The largest number that a row can have."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One line of an item's history: what the journal did to it, and what it was before and after."""

    seq: int
    at: str
    kind: str
    episode: str
    source: str
    before: Item | None
    after: Item | None


@dataclass(frozen=True, slots=True)
class Difference:
    """An item that two snapshots show differently; None where it is not there."""

    id: str
    before: Item | None
    after: Item | None


class Store:
    """Thread-safe; several processes may open one file. path: a file, or ":memory:".

    max_items: how many current items a scope may hold that is written to. scan: looks through what is written."""

    max_items: int | None = None
    scan: Scan | None = None

    def __init__(
        self,
        path: str | os.PathLike[str] = ":memory:",
        *,
        embedder: Embedder | None = None,
        durability: str = "process",
        read_only: bool = False,
        index: str = "exact",
        clock: Clock = now,
    ) -> None:
        if index != "exact":
            raise InvalidFilter(
                f"index must be 'exact', got {index!r:.40}: leave it out; the exact search opens at once"
            )
        self.database: Backend = opening.opened(path, durability=durability, read_only=read_only)
        self.embedder = embedder
        self.clock = clock
        self._scope_names: dict[int, Scope] = {}
        self._inside: dict[tuple[Scope, bool], frozenset[int] | None] = {}
        self.set_id: int | None = None
        self._begin()
        forking.register(self)
        with self.database.reading() as connection:
            facts = dict(select(connection, "SELECT name, value FROM facts_of_file WHERE name IN ('store', 'erasing')"))
        if "store" not in facts:
            self.database.close()
            raise NotAMemoryFile(f"{self.database.path} is damaged (it has no name of its own): restore a backup")
        self._store_id = str(facts["store"])
        if "erasing" in facts and not self.database.read_only:
            from keepworth.memory.store.purge import finish

            finish(self)
        self.use(embedder)

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._words_lock = threading.Lock()
        self._to_keep = False  # whether there are blocks of vectors to write
        self._unfit: list[blocks.Range] = []
        self._forget()

    def _forget(self) -> None:
        """Everything that can be made again from the file."""
        self._dense: DenseIndex | None = None
        self._dense_stamp: Stamp | None = None
        self._passed: dict[int, Stamp] = {}
        self._scope_words = ScopeWords()
        self._passed_words: dict[int, str] = {}
        self._columns = MetadataColumns()
        self._dense_at: tuple[Any, ...] = ()
        self._scope_count = -1
        self._inside.clear()
        self._scope_names.clear()
        self.word_counts = WordStatistics()
        self.ranked_texts = RankedTexts()
        self._scope_sums = ScopeSums()
        self._corpus: CorpusState | None = None

    def before_fork(self) -> None:
        """The database waits for who is inside."""

    def after_fork(self, *, child: bool) -> None:
        if child:
            # Another thread may have been in the middle of a change to it, or have held its lock.
            self._begin()
            if self.embedder is not None:
                self.embedder.unlocked()

    def _with_index(self, use: Callable[[AnyConnection, DenseIndex], Result]) -> Result | None:
        """What `use` makes of the vectors; None where there are none."""
        with self.database.reading() as connection:
            if self.set_id is None and not self._find_set(connection):
                return None
            result = use(connection, self._synced(connection))
        if self._to_keep:
            self._to_keep = False
            self.write_blocks()
        return result

    def near(
        self, vectors: Vectors, count: int, scope: Scope, nobody: bool = False, where: Filter | None = None
    ) -> list[list[tuple[int, float]]] | None:
        """Per query the `count` best (item number, cosine) of current items; None where there are no vectors."""
        return self._with_index(
            lambda connection, index: index.search(
                vectors,
                count,
                (scope, nobody),
                self._scope_ids(connection, scope, nobody),
                self.mask(connection, where),
            )
        )

    def vectors_for(self, items: Sequence[Item]) -> dict[str, Vectors]:
        """Vectors of items as they are given, which need not be as they are now; made again where not on file. Shapes
        (1 + parts of a long text, dimension)."""
        out: dict[str, Vectors] = {}
        missing = []
        with self.database.reading() as connection:
            dimension = scalar(connection, "SELECT dimension FROM vector_sets WHERE id = ?", (self.set_id,))
            for item in items:
                n, number = int(item.id[1:]), rows.text_number(item.searched_text)
                row = None
                if self.set_id is not None:
                    row = first(
                        connection,
                        f"SELECT vector FROM {VECTORS.format(self.set_id)} WHERE n=? AND hash=?"
                        " UNION ALL SELECT vector FROM former_vectors WHERE set_id=? AND n=? AND hash=?",
                        (n, number, self.set_id, n, number),
                    )
                if row is None:
                    missing.append(item)
                else:
                    out[item.id] = rows.to_vectors(row[0], dimension)
        if missing and self.embedder is not None:
            fresh = self.embedder.in_parts([item.searched_text for item in missing])
            out.update((item.id, vector) for item, vector in zip(missing, fresh, strict=True))
        return out

    def serve(self, set_id: int, embedder: Embedder) -> None:
        """Answer from another vector set from here on."""
        self.set_id = set_id
        self.embedder = embedder
        self.reset_caches()

    def stamp(self, connection: AnyConnection) -> Stamp:
        """Of the vector set in use, in the state this connection sees."""
        # Subqueries: one row also where there is no event, or no set any more.
        seq, name, made, model, dimension = first(
            connection,
            f"SELECT e.seq, e.name, s.made, s.model, s.dimension FROM (SELECT 1) AS one LEFT JOIN vector_sets s ON s.id = ? "
            f"LEFT JOIN (SELECT seq, {NAMED} AS name FROM events ORDER BY seq DESC LIMIT 1) AS e ON true",
            (self.set_id,),
        )
        if made is None:
            raise EncoderMismatch(
                f"the vectors of {self.database.path} were made anew with another encoder meanwhile: open the memory again, "
                "with that one"
            )
        assert self.set_id is not None
        return Stamp(self._store_id, self.set_id, made, model, dimension, seq or 0, name or "")

    def leads_to(self, connection: AnyConnection, earlier: Stamp, now: Stamp) -> bool:
        """Whether the journal, as this connection sees it, went through the state `earlier` on its way to `now`."""
        if replace(earlier, head=now.head, chain=now.chain) != now or earlier.head > now.head:
            return False
        if earlier.head == now.head:
            return earlier.chain == now.chain
        found = first(connection, f"SELECT {NAMED} FROM events WHERE seq = ?", (earlier.head,))
        return (found[0] if found is not None else "") == earlier.chain

    def _synced(self, connection: AnyConnection) -> DenseIndex:
        """The dense index, brought up to the journal's head as this connection sees it."""
        with self._lock:
            state = self.corpus(connection).state
            if self._dense is not None and self._dense_at == state:
                return self._dense
            now, known = self.stamp(connection), self._dense_stamp
            if self._dense is not None and known is not None and self._passed.get(now.head) == now:
                # Another thread's look at the file is newer and brought the index further. What it has more is not to be read
                # from here, so that nothing is shown which this connection does not see.
                return self._dense
            if self._dense is None or known is None or not self.leads_to(connection, known, now):
                self._dense, known = self._loaded(connection, now), now
                self._passed.clear()
            if now.head > known.head:
                self._follow(connection, known.head)
                self._pass(connection, known, now)
            self._dense_stamp, self._dense_at = now, state
            return self._dense

    def _pass(self, connection: AnyConnection, earlier: Stamp, now: Stamp) -> None:
        """Note the states that the dense index went through."""
        self._passed[earlier.head] = earlier
        names = f"SELECT seq, {NAMED} FROM events WHERE seq > ? ORDER BY seq"
        for seq, name in select(connection, names, (max(earlier.head, now.head - PASSED_STATES),)):
            self._passed[seq] = replace(now, head=seq, chain=name)
        while len(self._passed) > PASSED_STATES:
            self._passed.pop(next(iter(self._passed)))

    def write_blocks(self) -> None:
        """Write blocks of vectors that no block holds yet, and again what does not fit, so that the next process reads those. One
        at a time: who writes meanwhile waits for no more."""
        unfit, self._unfit = self._unfit, []
        if self.set_id is None or self.database.read_only:
            return
        set_id = self.set_id
        try:
            for span in unfit:
                self.database.write(lambda connection, span=span: blocks.write_block(connection, set_id, span))  # type: ignore[misc]
            while self.database.write(lambda connection: blocks.extend(connection, set_id, 1)):
                pass
        except MemoryProblem as problem:  # the search itself is answered
            _LOG.warning("the vectors of %s could not be written in blocks: %s", self.database.path, problem)

    def _loaded(self, connection: AnyConnection, now: Stamp) -> DenseIndex:
        """The vectors of all current items."""
        block, self._unfit, loose = blocks.load(connection, now.vector_set, now.made, now.dimension)
        if self._unfit:
            _LOG.warning("blocks of vectors in %s are damaged and written again", self.database.path)
        self._to_keep = connection.in_file and (bool(self._unfit) or loose >= 2 * blocks.ITEMS)
        return DenseIndex(now.dimension, block if block.size else None)

    def _follow(self, connection: AnyConnection, since: int) -> None:
        """Apply to the dense index what the journal says changed after entry `since`."""
        import numpy as np

        assert self._dense is not None
        assert self.set_id is not None
        changed = select(
            connection,
            "SELECT DISTINCT c.n, i.scope, v.vector, i.content IS NOT NULL AND i.status = 'active' "
            f"FROM changes c LEFT JOIN items i USING(n) LEFT JOIN {VECTORS.format(self.set_id)} v USING(n) "
            "WHERE c.seq > ? AND c.changed",
            (since,),
        )
        gone = [n for n, _, vector, current in changed if not current or vector is None]
        if gone:
            self._dense.drop(gone)
        fresh = [(n, scope, vector) for n, scope, vector, current in changed if current and vector is not None]
        fresh.sort()
        if fresh:
            parts = [rows.to_vectors(vector, self._dense.dimension) for _, _, vector in fresh]
            listed = [(n, scope) for (n, scope, _), each in zip(fresh, parts, strict=True) for _ in each]
            self._dense.put([n for n, _ in listed], [scope for _, scope in listed], np.concatenate(parts))

    def corpus(self, connection: AnyConnection) -> CorpusState:
        """What the file says, as this connection sees it."""
        return self.database.once(connection, ("corpus", self.set_id), lambda: self._corpus_now(connection))

    def _corpus_now(self, connection: AnyConnection) -> CorpusState:
        state = first(connection, _STATE, (self.set_id,))
        before = self._corpus  # one read: another thread may put its own there meanwhile
        if before is not None and before.state == state:
            return before
        documents, words = self._scope_sums.at(connection, state)
        known, tail = before.tail if before is not None else {}, {}
        languages = {str(name) for (name,) in select(connection, "SELECT name FROM languages")}
        newest = f"SELECT n, scope, key, text FROM items WHERE n > (SELECT through FROM indexed) AND {CURRENT}"
        for n, scope, key, text in select(connection, newest):
            whole = f"{key}\n{text}" if key else text
            row = known.get(n)
            if row is None or row[1] != whole:
                listed, own = terms_and_languages(whole)
                row = (scope, whole, frozenset(listed))
                languages |= own
            elif before is not None:
                languages |= before.languages
            tail[n] = row
        corpus = self._corpus = CorpusState(state, state[0] or 0, documents, words, tail, frozenset(languages))
        return corpus

    def words_in(
        self,
        connection: AnyConnection,
        corpus: CorpusState,
        inside: frozenset[int],
        *,
        at_once: bool = False,
        exact: bool = False,
    ) -> ScopeWords | None:
        """The words of these scopes, as of what this connection sees or of somewhat later (exact: not later); None where they
        are not held. at_once: hold them at the first question, where the index of the file cannot tell them from others."""
        held, ids = self._scope_words, tuple(sorted(inside))
        if not held.asked_before(ids) and not at_once:
            return None
        with self._words_lock:
            name = self._name_of(connection, corpus.seq)
            if (corpus.seq, name) != (held.head, held.name) and self._passed_words.get(corpus.seq) != name:
                self._follow_words(connection, corpus.seq, name)
            if (corpus.seq, name) != (held.head, held.name):
                # It is ahead of what this connection sees, which may not read the whole of a scope for it.
                return None if exact or held.missing(ids) else held
            for id in held.missing(ids):
                size = scalar(connection, "SELECT count FROM scopes WHERE id = ?", (id,))
                if size is None or size > LARGEST:
                    return None
                texts = select(connection, f"SELECT n, {WHOLE_TEXT} FROM items WHERE scope = ? AND {CURRENT}", (id,))
                held.put(id, texts, only_latin(corpus.languages))
        return held

    def words_at_hand(self, scope: Scope, nobody: bool = False) -> bool:
        """Whether the words of a scope are held, as far as is known without a look at the file."""
        inside = self._inside.get((scope, nobody))
        return inside is not None and not self._scope_words.missing(inside)

    def _follow_words(self, connection: AnyConnection, seq: int, name: str) -> None:
        """Bring the words of scopes to entry `seq`, or drop them where the journal does not lead there."""
        held = self._scope_words
        at = first(connection, f"SELECT {NAMED} FROM events WHERE seq = ?", (held.head,)) if held.head > 0 else None
        leads = held.head == 0 or (at is not None and str(at[0]) == held.name and held.head < seq)
        erased = leads and changed_since(connection, held.head).erased
        if not leads or erased or seq - held.head > PASSED_STATES:
            held.clear()
            self._passed_words.clear()
        else:
            changed = (
                f"SELECT DISTINCT c.n, i.scope, CASE WHEN {CURRENT} THEN {WHOLE_TEXT} END FROM changes c "
                "LEFT JOIN items i USING(n) WHERE c.seq > ? AND c.changed"
            )
            for n, scope, said in select(connection, changed, (held.head,)):
                if scope is None:  # its creation was undone, and nothing says whose it was
                    held.clear()
                    self._passed_words.clear()
                    break
                held.change(scope, n, said)
            self._passed_words[max(held.head, 0)] = held.name
            names = select(connection, f"SELECT seq, {NAMED} FROM events WHERE seq > ? ORDER BY seq", (held.head,))
            self._passed_words.update(names)
            while len(self._passed_words) > PASSED_STATES:
                self._passed_words.pop(next(iter(self._passed_words)))
        held.head, held.name = seq, name

    def mask(self, connection: AnyConnection, where: Filter | None) -> Mask | None:
        """By item number: whether an item is current and meets what `where` says of metadata, as this connection sees it, or is
        one that it lets through. None where it says nothing of metadata."""
        if where is None or where.tree is None:
            return None
        return self.database.once(connection, ("mask", where), lambda: self._mask(connection, where))

    def _mask(self, connection: AnyConnection, where: Filter) -> Mask:
        import numpy as np

        assert where.tree is not None
        seq = self.corpus(connection).seq
        name = self._name_of(connection, seq)
        columns = self._columns
        with columns.lock:
            later = columns.changed_after(seq, name)
            if later is None and columns.head < seq:
                self._follow_columns(connection, columns, seq, name)
                later = []
            missing = columns.missing(where.tree)
            if later is None or (later and missing):
                # It is ahead of what this connection sees, and what that is it cannot tell: read it for this once.
                columns, later = MetadataColumns(), []
                columns.start(seq, name)
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

    def _follow_columns(self, connection: AnyConnection, columns: MetadataColumns, seq: int, name: str) -> None:
        """Bring the columns to entry `seq`, or let them begin anew where the journal does not lead there."""
        head = columns.head
        if head < 0 or self._name_of(connection, head) != columns.name or erased_since(connection, head):
            columns.start(seq, name)
            return
        changes = select(
            connection,
            f"SELECT max(c.seq), c.n, CASE WHEN {CURRENT} THEN i.metadata END, i.kind, {schema.WHEN} "
            "FROM changes c LEFT JOIN items i USING(n) "
            "WHERE c.seq > ? AND c.changed GROUP BY c.n, i.n ORDER BY 1",
            (head,),
        )
        known: dict[str, Any] = {}
        with rows.readable("metadata"):
            columns.follow([(at, n, _facts(known, *said)) for at, n, *said in changes], seq, name)
        names = f"SELECT seq, {NAMED} FROM events WHERE seq > ? ORDER BY seq"
        columns.passed.update(select(connection, names, (max(head, seq - PASSED_STATES),)))
        while len(columns.passed) > PASSED_STATES:
            columns.passed.pop(next(iter(columns.passed)))

    def _name_of(self, connection: AnyConnection, seq: int) -> str:
        """Of the state that entry `seq` led to."""
        found = first(connection, f"SELECT {NAMED} FROM events WHERE seq = ?", (seq,)) if seq else None
        return "" if found is None else str(found[0])

    def store_id(self) -> str:
        """Names this memory. A backup and an import have a name of their own."""
        return self._store_id

    def reset_caches(self) -> None:
        """Forget everything that can be made again from the file."""
        with self._lock:
            self._forget()

    def scope_named(self, connection: AnyConnection, id: int) -> Scope:
        """The scope of an integer id."""
        scope = self._scope_names.get(id)
        if scope is None:
            row = first(connection, f"SELECT {rows.SCOPE} FROM scopes WHERE id=?", (id,))
            if len(self._scope_names) >= SCOPES:
                self._scope_names.clear()
            scope = self._scope_names[id] = rows.to_scope(row, id)
        return scope

    def _scope_ids(self, connection: AnyConnection, scope: Scope, nobody: bool = False) -> frozenset[int] | None:
        """Ids of the scopes inside `scope`; None where it holds the whole file. nobody: of those without a person alone."""
        with self._lock:
            count = self.database.once(connection, "scopes", lambda: scalar(connection, "SELECT max(id) FROM scopes"))
            if count != self._scope_count:
                self._inside.clear()
                self._scope_count = count
            if (scope, nobody) not in self._inside:
                ids = frozenset(id for each in scope.each() for id in _inside(connection, each, nobody))
                # No further than it takes to see that there are others: this is asked anew after each new scope.
                everything = scalar(
                    connection, "SELECT count(*) FROM (SELECT 1 FROM scopes LIMIT ?) AS known", (len(ids) + 1,)
                )
                if len(self._inside) >= SCOPES:
                    self._inside.clear()
                self._inside[scope, nobody] = None if ids and len(ids) == everything else ids
            return self._inside[scope, nobody]

    def _serving_set(self, identity: EncoderIdentity | None) -> int | None:
        with self.database.reading() as connection:
            row = first(connection, "SELECT id, model, dimension, normalised FROM vector_sets WHERE state = 'serving'")
        if row is not None:
            found = EncoderIdentity(row[1], row[2], bool(row[3]))
            if identity is not None and found != identity:
                raise EncoderMismatch(
                    f"{self.database.path} holds vectors of {found.model!r} ({found.dimension} dimensions), but was opened with "
                    f"{identity.model!r} ({identity.dimension}): open it with the old encoder, or run "
                    f"`keepworth memory reembed` to make vectors with the new one"
                )
            return int(row[0])
        if identity is None or self.database.read_only:
            return None

        def work(connection: AnyConnection) -> int:
            again = first(connection, "SELECT id FROM vector_sets WHERE state = 'serving'")
            if again is not None:
                return int(again[0])
            id: int = scalar(
                connection,
                "INSERT INTO vector_sets(model, dimension, normalised, state, made) VALUES(?,?,?,'serving',?) RETURNING id",
                (identity.model, identity.dimension, int(identity.normalised), uuid.uuid4().hex),
            )
            schema.create_vectors(connection, id)
            return id

        return self.database.write(work)

    def use(self, embedder: Embedder | None) -> None:
        """Encode and search with `embedder` from here on. Raises EncoderMismatch where the file has vectors of another."""
        try:
            self.set_id = self._serving_set(embedder.identity if embedder is not None else None)
        except BaseException:
            self.database.close()
            raise
        self.embedder = embedder

    def _find_set(self, connection: AnyConnection) -> bool:
        """A reader may open a file before anyone has written vectors to it: look again."""
        if self.embedder is None:
            return False
        row = first(connection, "SELECT id, model, dimension, normalised FROM vector_sets WHERE state = 'serving'")
        if row is None:
            return False
        if EncoderIdentity(row[1], row[2], bool(row[3])) != self.embedder.identity:
            raise EncoderMismatch(
                f"{self.database.path} now has vectors of {row[1]!r}: open it again, with that encoder"
            )
        self.set_id = int(row[0])
        return True

    def encoder_identity(self) -> EncoderIdentity | None:
        """Of the vectors on file; None where there are none yet."""
        with self.database.reading() as connection:
            row = first(connection, "SELECT model, dimension, normalised FROM vector_sets WHERE state = 'serving'")
        return None if row is None else EncoderIdentity(row[0], row[1], bool(row[2]))

    def encode(self, texts: Iterable[str]) -> dict[str, bytes]:
        """Vectors for `perform`, made before the write lock is taken: of each text, and of each part of a long one. Empty
        without an encoder."""
        listed = list(dict.fromkeys(texts))
        if self.embedder is None or not listed:
            return {}
        return {text: each.tobytes() for text, each in zip(listed, self.embedder.in_parts(listed), strict=True)}

    def perform(
        self,
        scope: Scope,
        acts: Sequence[tuple[Act, Draft]],
        *,
        episode: str = "",
        vectors: Mapping[str, bytes] | None = None,
    ) -> list[OperationOutcome]:
        """Carry out `acts` in order in one durable transaction. vectors: see `encode`; texts without one are found by words."""

        return [outcome for outcome, _ in self.perform_and_read(scope, acts, episode=episode, vectors=vectors)]

    def perform_and_read(
        self,
        scope: Scope,
        acts: Sequence[tuple[Act, Draft]],
        *,
        episode: str = "",
        vectors: Mapping[str, bytes] | None = None,
    ) -> list[tuple[OperationOutcome, Item | None]]:
        """As `perform`, with the item each outcome names, as the transaction leaves it."""

        def work(transaction: Transaction) -> list[tuple[OperationOutcome, Item | None]]:
            time = self.clock()
            if len(acts) >= FORESEEN:
                transaction.foresee(
                    (act.text, draft)
                    for act, draft in acts
                    if isinstance(act, Operation)
                    and act.kind is OperationKind.ADD
                    and draft_problem(act.text, draft) is None
                )
            outcomes = [transaction.perform(act, draft, now=time, episode=episode) for act, draft in acts]
            return [(outcome, transaction.get(outcome.item) if outcome.item else None) for outcome in outcomes]

        done: list[tuple[OperationOutcome, Item | None]] = self.change(scope, work, vectors, bounded=True)
        return done

    def change(
        self,
        scope: Scope,
        work: Callable[[Transaction], Any],
        vectors: Mapping[str, bytes] | None = None,
        *,
        bounded: bool = False,
    ) -> Any:
        """Run `work` on a transaction of its own. bounded: hold it to `max_items`; raises ScopeFull where there are more than
        that, and more than there were: then nothing is written."""
        return self.database.write(self._in_transaction(scope, work, vectors, bounded))

    def change_later(self, scope: Scope, work: Callable[[Transaction], Any]) -> None:
        """As `change`, of what is not read back at once: see `Database.write_later`."""
        self.database.write_later(self._in_transaction(scope, work, None, False))

    def _in_transaction(
        self,
        scope: Scope,
        work: Callable[[Transaction], Any],
        vectors: Mapping[str, bytes] | None,
        bounded: bool,
    ) -> Callable[[AnyConnection], Any]:
        note = notes.NOTE.get()

        def inside(connection: AnyConnection) -> Any:
            transaction = Transaction(connection, scope, set_id=self.set_id, vectors=vectors)
            transaction.scan, transaction.encode = self.scan, self.encode
            most = self.max_items if bounded else None
            before = 0 if most is None else self._count(connection, scope)
            result = work(transaction)
            transaction.finish()
            # A rewrite quotes what it rewrites, so it does not outlive it.
            quoting = [number for id in transaction.bereaved if (number := rows.number_of(id)) is not None]
            if quoting:
                undo.take_back(transaction, quoting, now=self.clock(), why="quotes an item that was deleted")
            if most is not None and self._count(connection, scope) > max(most, before):
                raise ScopeFull(
                    f"this scope may hold {most} items: delete some, or raise max_items; nothing was written"
                )
            if note is not None:
                note(connection)
            return result

        return inside

    def _count(self, connection: AnyConnection, scope: Scope) -> int:
        """Current items of a scope, inside a transaction."""
        parts = [part for part in ("user", "agent", "session") if getattr(scope, part)]
        where = " AND ".join(f'"{part}" = ?' for part in ["tenant", *parts])
        values = [getattr(scope, part) for part in ["tenant", *parts]]
        return scalar(connection, f"SELECT sum(count) FROM scopes WHERE {where}", values) or 0

    def head(self) -> int:
        """The newest entry of the journal; 0 before the first."""
        with self.database.reading() as connection:
            return self.database.once(
                connection, "head", lambda: scalar(connection, "SELECT max(seq) FROM events") or 0
            )

    def changed_since(self, seq: int) -> Changed:
        """What entries after number `seq` changed."""
        with self.database.reading() as connection:
            return changed_since(connection, seq)

    def fetch(self, scope: Scope, ids: Sequence[str]) -> dict[str, Item | None]:
        """Items by id, in the order asked for; None for what is not in `scope`, whoever's it is."""
        out: dict[str, Item | None] = dict.fromkeys(ids)
        numbers = [number for number in map(rows.number_of, out) if number is not None]
        if not numbers:
            return out
        with self.database.reading() as connection:
            if len(numbers) == 1:
                found = select(connection, f"{rows.SELECT} WHERE n = ?", numbers)
            else:
                found = select(connection, f"{rows.SELECT} WHERE n {AMONG}", (among(numbers),))
            for row in found:
                home = self._scope_names.get(row[1]) or self.scope_named(connection, row[1])
                if home == scope or scope.contains(home):
                    out[f"m{row[0]}"] = rows.to_item(row, home)
        return out

    def changed_at(self, ids: Sequence[str]) -> dict[str, str]:
        """When each of these items was last written to, rewards aside. Those that stayed as they were made are left out."""
        numbers = [number for number in map(rows.number_of, ids) if number is not None]
        if not numbers:
            return {}
        with self.database.reading() as connection:
            listed = select(
                connection,
                f"SELECT n, max(at) FROM touches JOIN events USING(seq) WHERE n {AMONG} AND changed AND kind <> 'REWARD' "
                "GROUP BY n",
                (among(numbers),),
            )
            return {f"m{n}": at for n, at in listed}

    def items(
        self,
        scope: Scope,
        *,
        after: int = 0,
        limit: int = LAST_ROW,
        current: bool = False,
        closed: bool = False,
        where: Filter | None = None,
        newest: bool = False,
    ) -> Iterator[Item]:
        """Items in order of writing, those after row `after`: all, the current ones, or those neither current nor deleted. where:
        of the current ones, those whose metadata meet it. newest: the other way round, those before row `after`, from the last
        where that is 0."""
        with self.database.reading() as connection:
            mask = self.mask(connection, where) if current else None
            inside = self._scope_ids(connection, scope)
            which = "n < ?" if newest else "n > ?"
            values: list[Any] = [(after or LAST_ROW) if newest else after]
            if inside is not None:
                which += f" AND scope {AMONG}"
                values.append(among(sorted(inside)))
            if current:
                which += f" AND {CURRENT}"
            if closed:
                which += f" AND {schema.CLOSED}"
            if mask is not None:
                which += f" AND {admit(connection, mask, 'n')}"
            order = "n DESC" if newest else "n"
            found = select(connection, f"{rows.SELECT} WHERE {which} ORDER BY {order} LIMIT ?", (*values, limit))
            listed = [rows.to_item(row, self.scope_named(connection, row[1])) for row in found]
        return iter(listed)

    def with_status(self, scope: Scope, status: Status, after: int = 0) -> Iterator[Item]:
        """Open items of a status, after row `after`, in order of writing."""
        query = "SELECT n FROM items WHERE n > ? AND content IS NOT NULL AND status = ? ORDER BY n"
        with self.database.reading() as connection:
            ids = [f"m{n}" for (n,) in select(connection, query, (after, status.value))]
        return (item for item in self.fetch(scope, ids).values() if item is not None)

    def with_content(self, scope: Scope, item: Item) -> list[str]:
        """Ids of open items that are exact duplicates of `item`."""
        key = duplicate_key(item)
        with self.database.reading() as connection:
            numbers = select(connection, "SELECT n FROM items WHERE content = ?", (rows.content_number(item),))
        found = self.fetch(scope, [f"m{n}" for (n,) in numbers])
        return [id for id, other in found.items() if other is not None and other.open and duplicate_key(other) == key]

    def sums(self, scope: Scope) -> tuple[int, int, int]:
        """(content sum, current items, their words) of a scope."""
        with self.database.reading() as connection:
            inside = self._scope_ids(connection, scope)
            if inside is None:
                found = select(connection, "SELECT total, count, words FROM scopes")
            else:
                query = f"SELECT total, count, words FROM scopes WHERE id {AMONG}"
                found = select(connection, query, (among(sorted(inside)),))
        return (
            sum(int.from_bytes(total, "little") for total, _, _ in found),
            sum(count for _, count, _ in found),
            sum(words_ for _, _, words_ in found),
        )

    def scope_tokens(self, connection: AnyConnection, scope: Scope) -> list[list[str]] | None:
        """The full-text tokens every row in `scope` has, or, where that is several, every row in each: [] where that is no
        token, None where nobody ever wrote in any."""
        listed = [tokens for each in scope.each() if (tokens := _tokens_of(connection, each)) is not None]
        return ([] if [] in listed else listed) if listed else None

    def view(self, scope: Scope) -> ScopeView:
        """The items of a scope as they are at each moment."""
        return ScopeView(self, scope)

    def base(self, scope: Scope, snapshot: str | None = None) -> Snapshot:
        """The memory at a snapshot (None: now), for a bank to stand on. Raises UnknownSnapshot, Purged."""
        position = self.head() if snapshot is None else self.position_of(snapshot)
        self.refuse_purged(position)
        return Snapshot(self, scope, position)

    def refuse_purged(self, position: int) -> None:
        """Raise Purged where something was erased after journal entry `position`."""
        query = f"SELECT at FROM events WHERE {schema.OF_KIND} AND kind = 'PURGE' AND seq > ? LIMIT 1"
        with self.database.reading() as connection:
            row = self.database.once(connection, ("purged", position), lambda: first(connection, query, (position,)))
        if row is not None:
            raise Purged(
                f"something was erased on purpose at {row[0]}: take a later snapshot, as s{position} cannot be seen any more"
            )

    def position_of(self, snapshot: str) -> int:
        digits = snapshot[1:] if isinstance(snapshot, str) and snapshot[:1] == "s" else ""
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 18 or int(digits) > self.head():
            raise UnknownSnapshot(
                f"{snapshot!r:.60} is no snapshot of {self.database.path}: take one that `snapshot()` gave"
            )
        return int(digits)

    def images_at(self, scope: Scope, position: int) -> dict[int, Item | None]:
        """What every item of `scope` that changed after journal entry `position` was at that point."""
        with self.database.reading() as connection:
            earliest = (
                "SELECT c.n, c.before FROM changes c JOIN (SELECT n, min(seq) AS seq FROM changes WHERE seq > ? AND changed "
                "GROUP BY n) AS earliest ON c.n = earliest.n AND c.seq = earliest.seq WHERE c.seq > ?"
            )
            out: dict[int, Item | None] = {}
            for n, before in select(connection, earliest, (position, position)):
                past = image(before)
                if past is None:
                    row = first(connection, "SELECT scope FROM events WHERE seq = ?", (n,))
                    if row is not None and scope.contains(self.scope_named(connection, row[0])):
                        out[n] = None
                elif scope.contains(past.scope):
                    out[n] = past
        return out

    def history(self, scope: Scope, id: str) -> list[Revision]:
        """Everything that happened to an item, oldest first; [] for an id that `scope` does not hold."""
        number = rows.number_of(id)
        if number is None:
            return []
        with self.database.reading() as connection:
            listed = select(
                connection,
                "SELECT e.seq, e.at, e.kind, e.episode, e.source, c.before, e.scope FROM changes c JOIN events e USING(seq) "
                "WHERE c.n = ? AND c.changed ORDER BY c.seq",
                (number,),
            )
            present = self.fetch(EVERYWHERE, [id])[id] if not scope.tenant else self.fetch(scope, [id])[id]
        states = [image(row[5]) for row in listed] + [present]
        known = [state for state in states if state is not None]
        if not known or not all(scope.contains(state.scope) for state in known):
            return []
        return [
            Revision(seq, at, kind, episode, source, states[number], states[number + 1])
            for number, (seq, at, kind, episode, source, _, _) in enumerate(listed)
        ]

    def diff(self, scope: Scope, one: str, other: str) -> list[Difference]:
        """Items that differ between two snapshots, in order of writing."""
        earlier, later = self.base(scope, one), self.base(scope, other)
        with self.database.reading():
            touched = self.images_at(scope, min(earlier.position or 0, later.position or 0))
            out = []
            for n in sorted(touched):
                before, after = earlier.get(f"m{n}"), later.get(f"m{n}")
                if before != after:
                    out.append(Difference(f"m{n}", before, after))
        return out

    def entries(self, where: str = "true", values: tuple[object, ...] = ()) -> list[rows.Entry]:
        """Journal entries. `where` is SQL of the caller's own making, never of a user's."""
        with self.database.reading() as connection:
            return undo.entries(connection, lambda id: self.scope_named(connection, id), where, values)

    def put_parameters(self, scope: Scope, name: str, body: bytes) -> int:
        """Keep a new version of something learned; part of every later snapshot. Returns its version."""
        payload = json.dumps({"name": name})
        return int(
            self.change(
                scope,
                lambda transaction: transaction.write_event(
                    rows.PARAMETERS, scope, payload, now=self.clock(), body=body
                ),
            )
        )

    def parameters(self, scope: Scope, name: str, snapshot: str | None = None) -> tuple[int, bytes] | None:
        """(version, body) of the newest `name` in `scope` that counts at a snapshot (None: now), or None."""
        position = self.head() if snapshot is None else self.position_of(snapshot)
        with self.database.reading() as connection:
            cancelled = undo.active_ranges(undo.rollbacks_in(connection, position))
            found = select(
                connection,
                "SELECT seq, scope, payload, body FROM events "
                "WHERE kind = 'PARAMETERS' AND payload IS NOT NULL AND seq <= ? ORDER BY seq DESC",
                (position,),
            )
            for seq, home, payload, body in found:
                mine = self.scope_named(connection, home) == scope and json.loads(payload)["name"] == name
                if mine and not undo.within(seq, cancelled):
                    return seq, body
        return None

    def close(self) -> None:
        self.database.close()


def _metadata_in(
    connection: AnyConnection, which: str, numbers: Sequence[int] = ()
) -> list[tuple[int, Mapping[str, Any] | None]]:
    """Number and metadata of the items that SQL names. numbers: its parameter, as JSON."""
    known: dict[str, Any] = {}
    values = (among(numbers),) if numbers else ()
    found = select(connection, f"SELECT n, metadata, kind, {schema.WHEN} FROM items {which}", values)
    with rows.readable("metadata"):
        return [(n, _facts(known, *said)) for n, *said in found]


def _column_in(connection: AnyConnection, field: Field) -> tuple[npt.NDArray[np.int64], list[str], list[Any]] | None:
    """What all current items have under a name, put together by SQLite: their numbers, the texts of their values, and the values
    of the distinct texts. None where the name has to be looked for item by item."""
    import numpy as np

    path: tuple[str, ...] = ()
    if field.inside == (ITEM,):
        said = {"kind": "kind", "when": schema.WHEN}[field.name]
    elif not field.inside and field.name.isprintable() and not set('."\\') & set(field.name):
        said, path = "coalesce(CASE WHEN metadata <> '' THEN metadata -> ? END, '')", (f'$."{field.name}"',)
    else:
        return None
    query = f"SELECT group_concat(n), group_concat({said}, char(30)) FROM items {schema.BY_CURRENT}"
    with rows.readable("metadata"):
        numbers, joined = first(connection, query, path)
        if numbers is None:
            return np.zeros(0, np.int64), [], []
        texts = joined.split("\x1e")  # which no text of JSON has
        distinct = list(dict.fromkeys(texts))
        if field.inside:
            return np.fromstring(numbers, np.int64, sep=","), texts, distinct
        read = json.loads(f"[{','.join(text or 'null' for text in distinct)}]")
        values = [value if text else MISSING for text, value in zip(distinct, read, strict=True)]
        return np.fromstring(numbers, np.int64, sep=","), texts, values


def _facts(known: dict[str, Any], text: str | None, kind: str, when: str) -> Mapping[str, Any] | None:
    """What filters ask of an item, of metadata as the file holds them; None for none. known: what was read before, as many items
    have the same."""
    if text is None:
        return None
    found: Mapping[str, Any] | None = known.get(text)
    if found is None:
        found = known[text] = rows.from_json(text) if text else {}
    return with_facts(found, kind, when)


def _inside(connection: AnyConnection, scope: Scope, nobody: bool) -> list[int]:
    where, values = ["tenant = ?"], [scope.tenant]
    if nobody:
        where.append("\"user\" = ''")
    for part in ("user", "agent", "session"):
        if getattr(scope, part):
            where.append(f'"{part}" = ?')
            values.append(getattr(scope, part))
    return [id for (id,) in select(connection, f"SELECT id FROM scopes WHERE {' AND '.join(where)}", values)]


def _tokens_of(connection: AnyConnection, scope: Scope) -> list[str] | None:
    out = []
    for letter, part in PARTS:
        name = getattr(scope, part)
        if name:
            query = "SELECT id FROM names WHERE tenant=? AND part=? AND name=?"
            row = first(connection, query, (scope.tenant, part, name))
            if row is None:
                return None
            out.append(f"{letter}{row[0]}")
    return out


ALWAYS_IN_FORCE = f"{CURRENT} AND expires_at = '' AND valid_from = '' AND valid_to = ''"
REMEMBERED = 5000


@dataclass(slots=True)
class ScopeView:
    """The items of a scope as they are at each moment: what a search of a store ranks. What it read of items it remembers."""

    store: Store
    scope: Scope
    nobody: bool = False
    _fetched: dict[str, Item | None] = field(default_factory=dict)
    _plain: set[str] = field(default_factory=set)

    @property
    def on_file(self) -> bool:
        return not self.store.words_at_hand(self.scope, self.nobody)

    def fetch(self, ids: Sequence[str]) -> dict[str, Item | None]:
        missing = [id for id in ids if id not in self._fetched]
        if missing:
            if len(self._fetched) > REMEMBERED:
                self._fetched, missing = {}, list(ids)
            self._fetched.update(self.store.fetch(self.scope, missing))
        return {id: self._fetched[id] for id in ids}

    def doubtful(self, ids: Sequence[str]) -> list[str]:
        """Most items are as they were written; telling those takes no more than a look at some columns."""
        query = f"SELECT n FROM items WHERE n {AMONG} AND {ALWAYS_IN_FORCE}"
        unknown = [int(id[1:]) for id in ids if id not in self._plain and id not in self._fetched]
        if unknown:
            if len(self._plain) > REMEMBERED:
                self._plain.clear()
            with self.store.database.reading() as connection:
                self._plain.update(f"m{n}" for (n,) in select(connection, query, (among(unknown),)))
        return [id for id in ids if id not in self._plain]

    def forget(self, id: str) -> None:
        self._fetched.pop(id, None)
        self._plain.discard(id)

    def languages(self) -> frozenset[str]:
        """Of the whole store."""
        with self.store.database.reading() as connection:
            return self.store.corpus(connection).languages

    def statistics(self, terms: Sequence[str]) -> CorpusStatistics:
        """Of the whole store."""
        with self.store.database.reading() as connection:
            return self.store.word_counts.of(connection, self.store.corpus(connection), terms)

    def by_words(
        self,
        terms: Sequence[str],
        count: int,
        hidden: Collection[str] = (),
        statistics: CorpusStatistics | None = None,
        where: Filter | None = None,
    ) -> Ranked:
        """Candidates by the full-text index and the rows that it does not hold yet, ranked by BM25 of the whole query. hidden:
        ids that are left out; statistics: those to rank with, where more than the store is ranked together. where: as of a
        `Corpus`."""
        store = self.store
        with store.database.reading() as connection:
            corpus, inside = store.corpus(connection), store._scope_ids(connection, self.scope, self.nobody)
            known = statistics or store.word_counts.of(connection, corpus, terms)
            mask = store.mask(connection, where)
            if inside is not None and (statistics is None or not hidden):
                # What a bank stands on is asked for as it was at one moment, so nothing newer will do.
                exact = statistics is not None
                held = store.words_in(connection, corpus, inside, at_once=self.nobody, exact=exact)
                best_ = None if held is None else held.scores(sorted(inside), terms, known, count + len(hidden), mask)
                if best_ is not None and not (exact and held is not None and held.head != corpus.seq):
                    return [(f"m{n}", score) for n, score in best_ if f"m{n}" not in hidden][:count]
            tokens = [] if self.scope == EVERYWHERE else store.scope_tokens(connection, self.scope)
            if tokens is None:
                return []
            share = store.sums(self.scope)[1] / max(1, known.documents) if tokens else 1.0
            proposed_rows = proposed(connection, known, tokens, share, max(2 * count, LEAST), corpus.seq, mask)
            found = select(
                connection,
                f"SELECT n, scope, {WHOLE_TEXT} FROM items WHERE n {AMONG}",
                (among(proposed_rows),),
            )
        found += [(n, home, text) for n, (home, text, words) in corpus.tail.items() if not words.isdisjoint(terms)]
        texts = {n: text for n, home, text in found if inside is None or home in inside}
        if mask is not None:
            texts = {n: text for n, text in texts.items() if n < len(mask) and mask[n]}
        scored = scores(texts, terms, known, store.ranked_texts, only_latin(corpus.languages))
        ranked = sorted(scored, key=lambda pair: (-pair[1], pair[0]))
        return [(f"m{n}", score) for n, score in ranked if score > 0 and f"m{n}" not in hidden][:count]

    def vectors_of(self, items: Sequence[Item]) -> dict[str, Vectors]:
        """As of a `Corpus`."""
        return self.store.vectors_for(items)

    def by_meaning(
        self, vectors: Vectors, count: int, hidden: Collection[str] = (), where: Filter | None = None
    ) -> list[Ranked]:
        found = self.store.near(vectors, count + len(hidden), self.scope, self.nobody, where)
        if found is None:
            return [[] for _ in vectors]
        return [[(f"m{n}", score) for n, score in line if f"m{n}" not in hidden][:count] for line in found]


class Snapshot:
    """The items of a scope as they were after journal entry `position`.

    While the store stands there, rows are read as they are. What changed since is put back from the images that the journal keeps
    of everything before it changed."""

    __slots__ = ("_drift", "_drift_head", "position", "scope", "store", "view")

    def __init__(self, store: Store, scope: Scope, position: int) -> None:
        self.store = store
        self.scope = scope
        self.position = position
        self.view = ScopeView(store, scope)
        self._drift = _Drift({})
        self._drift_head = position

    @property
    def next_number(self) -> int:
        return self.position + 1

    @property
    def content_sum(self) -> int:
        total, _, _ = self.store.sums(self.scope)
        for n, before in self._drifted().images.items():
            present = self._row(n)
            total -= content_digest(present) if present is not None else 0
            total += content_digest(before) if before is not None else 0
        return total % HASH_MODULUS

    def __len__(self) -> int:
        _, count, _ = self.store.sums(self.scope)
        for n, before in self._drifted().images.items():
            present = self._row(n)
            count += int(before is not None and before.current) - int(present is not None and present.current)
        return count

    def get(self, id: str) -> Item | None:
        return self.fetch((id,))[id]

    def fetch(self, ids: Sequence[str]) -> dict[str, Item | None]:
        """What did not drift is what it was at the position."""
        images = self._drifted().images
        out: dict[str, Item | None] = dict.fromkeys(ids)
        numbers = {id: number for id in ids if (number := rows.number_of(id)) is not None and number <= self.position}
        there = self.view.fetch([id for id, number in numbers.items() if number not in images])
        for id, number in numbers.items():
            out[id] = images[number] if number in images else there[id]
        return out

    def doubtful(self, ids: Sequence[str]) -> list[str]:
        """What did not drift is as the store says now."""
        images = self._drifted().ids
        here = set(self.view.doubtful([id for id in ids if id not in images]))
        return [id for id in ids if id in images or id in here]

    def duplicates_of(self, item: Item) -> list[str]:
        drift = self._drifted()
        key = duplicate_key(item)
        past = [
            before.id for before in drift.images.values() if before and before.open and duplicate_key(before) == key
        ]
        return past + [id for id in self.store.with_content(self.scope, item) if int(id[1:]) not in drift.images]

    def items(self) -> Iterator[Item]:
        drift = self._drifted()
        merged = {item.id: item for item in self.store.items(self.scope)}
        for n, before in drift.images.items():
            if before is None:
                merged.pop(f"m{n}", None)
            else:
                merged[f"m{n}"] = before
        return iter(sorted(merged.values(), key=lambda item: int(item.id[1:])))

    def closed(self) -> Iterator[Item]:
        drift = self._drifted()
        for item in self.store.items(self.scope, closed=True):
            if int(item.id[1:]) not in drift.images:
                yield item
        for before in drift.images.values():
            if before is not None and not before.current and not before.deleted:
                yield before

    def vectors_for(self, items: Sequence[Item]) -> dict[str, Vectors]:
        return self.store.vectors_for(items)

    def languages(self) -> frozenset[str]:
        return self.view.languages() | self._drifted().languages

    def statistics(self, terms: Sequence[str]) -> CorpusStatistics:
        """Of the whole store, corrected for what drifted in this scope."""
        live = self.view.statistics(terms)
        drift = self._drifted()
        return drift.corrected(live, terms) if drift.images else live

    def by_words(
        self,
        terms: Sequence[str],
        count: int,
        hidden: frozenset[str],
        statistics: CorpusStatistics,
        where: Filter | None = None,
    ) -> Ranked:
        drift = self._drifted()
        ranked = self.view.by_words(terms, count, hidden | drift.ids, statistics, where)
        if not drift.images:
            return ranked
        ranked.extend(pair for pair in drift.lexical(terms, statistics) if pair[0] not in hidden and pair[1] > 0)
        return sorted(ranked, key=lambda pair: (-pair[1], int(pair[0][1:])))[:count]

    def by_meaning(
        self, vectors: Vectors, count: int, hidden: frozenset[str], where: Filter | None = None
    ) -> list[Ranked]:
        drift = self._drifted()
        found = self.view.by_meaning(vectors, count, hidden | drift.ids, where)
        past = {id: vector for id, vector in drift.vectors(self.store).items() if id not in hidden}
        if not past:
            return found
        return [
            sorted(
                [
                    *line,
                    *((id, float((before @ vector).max())) for id, before in past.items()),
                ],
                key=lambda pair: -pair[1],
            )[:count]
            for line, vector in zip(found, vectors, strict=True)
        ]

    def _row(self, number: int) -> Item | None:
        return self.store.fetch(self.scope, [f"m{number}"])[f"m{number}"]

    def _drifted(self) -> _Drift:
        """What the items that changed since the position were at the position."""
        head = self.store.head()
        if head != self._drift_head:
            self.store.refuse_purged(self.position)
            images = self.store.images_at(self.scope, self.position)
            present = self.store.fetch(self.scope, [f"m{n}" for n in images])
            self._drift = _Drift(images, [item for item in present.values() if item is not None])
            for id in self._drift.ids:
                self.view.forget(id)
            self._drift_head = head
        return self._drift


class _Drift:
    """Past states of a few items, by row number (None: was not there yet), and an index over the current ones."""

    __slots__ = ("_ids", "_index", "_present", "ids", "images")

    def __init__(self, images: dict[int, Item | None], present: Sequence[Item] = ()) -> None:
        self.images = images
        self.ids = frozenset(f"m{n}" for n in images)
        self._present = InvertedIndex()
        for live in present:
            if live.current:
                self._present.add(indexed_text(live))
        self._ids: list[str] = []
        self._index = InvertedIndex()
        for item in images.values():
            if item is not None and item.current:
                self._ids.append(item.id)
                self._index.add(indexed_text(item))

    def corrected(self, live: CorpusStatistics, terms: Sequence[str]) -> CorpusStatistics:
        """The live statistics with the present states taken out and the past ones put in."""
        import numpy as np

        nothing = np.zeros(0, np.intp)
        past, present = self._index.statistics(terms, nothing), self._present.statistics(terms, nothing)
        frequency = {
            term: live.frequency.get(term, 0) + past.frequency.get(term, 0) - present.frequency.get(term, 0)
            for term in terms
        }
        return CorpusStatistics(
            max(0, live.documents + past.documents - present.documents),
            max(0, live.words + past.words - present.words),
            {term: count for term, count in frequency.items() if count > 0},
        )

    @property
    def languages(self) -> frozenset[str]:
        return self._index.languages

    def lexical(self, terms: Sequence[str], statistics: CorpusStatistics) -> Ranked:
        if not self._ids:
            return []
        scores = self._index.scores(terms, statistics)
        return [(self._ids[row], float(scores[row])) for row in best(scores, len(self._ids))]

    def vectors(self, store: Store) -> dict[str, Vectors]:
        wanted = [item for item in self.images.values() if item is not None and item.current]
        return store.vectors_for(wanted) if wanted else {}
