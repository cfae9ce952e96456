"""StoreFile: an open file, its scopes, and the vectors and caches that searches by meaning need."""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from keepworth.episodes.encoder import EncoderIdentity
from keepworth.memory.errors import EncoderMismatch, NotAMemoryFile
from keepworth.memory.item import Item
from keepworth.memory.scope import Scope
from keepworth.memory.search.dense import Block, DenseIndex
from keepworth.memory.search.embedding import Embedder
from keepworth.memory.search.quantised import check_kind
from keepworth.memory.stamp import Stamp, Unfit
from keepworth.memory.store import chain, forking, rows, schema, words
from keepworth.memory.store.database import Database, first, scalar, select
from keepworth.memory.store.schema import vector_table
from keepworth.memory.timestamp import Clock, now

if TYPE_CHECKING:
    import apsw
    import numpy as np
    import numpy.typing as npt

    from keepworth.memory.search.sidecar import Sidecar

    Vectors = npt.NDArray[np.float32]

Result = TypeVar("Result")
_LOG = logging.getLogger("keepworth.memory")
SIDECAR_LATE = 20_000
"""Journal entries that are always followed rather than read anew."""


SCOPES = 1024
"""Scopes whose names, and whose ids, are remembered."""


class StoreFile:
    """Thread-safe; several processes may open one file. path: a file, or ":memory:"."""

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
            check_kind(index)
        self._index = index
        self.database = Database(path, durability=durability, read_only=read_only)
        self.embedder = embedder
        self.clock = clock
        self._scope_names: dict[int, Scope] = {}
        self._inside: dict[Scope, list[int] | None] = {}
        self._set_id: int | None = None
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
        self._to_keep = False  # whether what lies beside the file should be made again
        self._distrusted = False  # whether it was damaged and could not be replaced
        self._forget()

    def _forget(self) -> None:
        """Everything that can be made again from the file."""
        self._dense: DenseIndex | None = None
        self._dense_stamp: Stamp | None = None
        self._scope_count = -1
        self._inside.clear()
        self._scope_names.clear()
        self._word_counts = words.WordStatistics()
        self._tail: tuple[object, words.Tail] | None = None

    def before_fork(self) -> None:
        """The database waits for who is inside."""

    def after_fork(self, *, child: bool) -> None:
        if child:
            # Another thread may have been in the middle of a change to it, or have held its lock.
            self._begin()
            if self.embedder is not None:
                self.embedder.unlocked()

    def dense(self, scope: Scope, queries: Vectors, count: int) -> list[list[tuple[int, float]]]:
        """Per query the best current items of the scope as (row number, cosine). queries: (q, dimension), unit rows."""

        def work(connection: apsw.Connection) -> Callable[[], list[list[tuple[int, float]]]]:
            if self._set_id is None and not self._find_set(connection):
                return lambda: [[] for _ in queries]
            index = self._synced(connection)
            inside = self._scope_ids(connection, scope)
            return lambda: index.search(queries, count, scope, inside)

        return self._with_vectors(work)

    def _with_vectors(self, work: Callable[[apsw.Connection], Callable[[], Result]]) -> Result:
        """What the function returns that `work` returns, called outside the read transaction. Where vectors that lie beside the
        file turn out to be damaged, they are dropped, and it is done again with those of the file."""
        while True:
            try:
                with self.database.reading() as connection:
                    finish = work(connection)
                result = finish()
            except Unfit as problem:
                self._distrust(problem)
                continue
            if self._to_keep:
                self._to_keep = False
                self._keep()
            return result

    def vectors_for(self, items: Sequence[Item]) -> dict[str, Vectors]:
        """Vectors of items as they are given, which need not be as they are now; made again where not on file."""
        out: dict[str, Vectors] = {}
        missing = []
        with self.database.reading() as connection:
            for item in items:
                n, number = int(item.id[1:]), rows.text_number(item.searched_text)
                row = None
                if self._set_id is not None:
                    row = first(
                        connection,
                        f"SELECT vector FROM {vector_table(self._set_id)} WHERE n=? AND hash=?"
                        " UNION ALL SELECT vector FROM former_vectors WHERE set_id=? AND n=? AND hash=?",
                        (n, number, self._set_id, n, number),
                    )
                if row is None:
                    missing.append(item)
                else:
                    dimension = None if self.embedder is None else self.embedder.identity.dimension
                    out[item.id] = rows.to_vector(row[0], dimension)
        if missing and self.embedder is not None:
            fresh = self.embedder([item.searched_text for item in missing])
            out.update((item.id, vector) for item, vector in zip(missing, fresh, strict=True))
        return out

    def dense_index(self, *, packed: bool = False) -> tuple[DenseIndex, Stamp]:
        """The index as of now, and the state of the memory it is of. packed: without rows that no longer count."""

        def work(connection: apsw.Connection) -> Callable[[], tuple[DenseIndex, Stamp]]:
            with self._lock:
                index = self._synced(connection)
                if packed:
                    index.pack()
                    if self._index != "exact":
                        index.accelerate(self._index)
                assert self._dense_stamp is not None
                both = (index, self._dense_stamp)
            return lambda: both

        return self._with_vectors(work)

    def serve(self, set_id: int, embedder: Embedder) -> None:
        """Answer from another vector set from here on."""
        self._set_id = set_id
        self.embedder = embedder
        self.reset_caches()

    def stamp(self, connection: apsw.Connection) -> Stamp:
        """Of the vector set in use, in the state this connection sees."""
        # Subqueries: one row also where there is no event, or no set any more.
        seq, link, made, model, dimension = first(
            connection,
            "SELECT e.seq, e.chain, s.made, s.model, s.dimension FROM (SELECT 1) LEFT JOIN vector_sets s ON s.id = ? "
            "LEFT JOIN (SELECT seq, chain FROM events ORDER BY seq DESC LIMIT 1) e",
            (self._set_id,),
        )
        if made is None:
            raise EncoderMismatch(
                f"the vectors of {self.database.path} were made anew with another encoder meanwhile: open the memory again, "
                "with that one"
            )
        assert self._set_id is not None
        return Stamp(self._store_id, self._set_id, made, model, dimension, seq or 0, chain.named(link).hex())

    def leads_to(self, connection: apsw.Connection, earlier: Stamp, now: Stamp) -> bool:
        """Whether the journal, as this connection sees it, went through the state `earlier` on its way to `now`."""
        if not earlier.same_vectors(now) or earlier.head > now.head:
            return False
        if earlier.head == now.head:
            return earlier.chain == now.chain
        link = scalar(connection, "SELECT chain FROM events WHERE seq = ?", (earlier.head,))
        return chain.named(link).hex() == earlier.chain

    def lay_out(self, index: DenseIndex, stamp: Stamp) -> Path | None:
        """Write the vectors, and the index that proposes them, beside the file; None where there are none. Raises OSError."""
        from keepworth.memory.search.sidecar import remove_sidecar, write_sidecar

        place = self.database.place
        if not len(index):
            remove_sidecar(place)
            return None
        target = write_sidecar(place, stamp, index)
        with self.database.reading() as connection:
            erased = scalar(connection, "SELECT 1 FROM events WHERE kind = 'PURGE' AND seq > ?", (stamp.head,))
        if erased:
            # Somebody erased something while it was written: what is erased there must not be left here.
            remove_sidecar(place)
        self._distrusted = False
        return target

    def _synced(self, connection: apsw.Connection) -> DenseIndex:
        """The dense index, brought up to the journal's head as this connection sees it."""
        with self._lock:
            now = self.stamp(connection)
            known = self._dense_stamp
            if self._dense is None or known is None or not self.leads_to(connection, known, now):
                self._dense, known = self._loaded(connection, now)
                self._take_index(self._dense, known)
            if now.head > known.head:
                self._follow(connection, known.head)
            self._dense_stamp = now
            if self._index != "exact" and self._dense.accelerate(self._index):
                self._to_keep = True
            return self._dense

    def _take_index(self, index: DenseIndex, stamp: Stamp) -> None:
        """Use the proposing index that is kept beside the file, where it was made from just these rows."""
        if self._index == "exact" or self.database.in_memory:
            return
        from keepworth.memory.search.index_file import read_index

        try:
            proposer = read_index(self.database.place, self._index, stamp, index.arrays()[0])
        except Unfit as problem:
            _LOG.info("the index beside %s is not used and made again: %s", self.database.path, problem)
            return
        if proposer is not None:
            index.propose_with(proposer)

    def _keep(self) -> None:
        """Put the index and the vectors it was made from beside the file, so that the next one to open it need not build."""
        if self.database.in_memory or self.database.read_only:
            return
        try:
            self.lay_out(*self.dense_index())
        except OSError as error:
            _LOG.warning("the index of %s could not be kept and will be built again: %s", self.database.path, error)

    def _distrust(self, problem: Unfit) -> None:
        """Forget vectors that came from beside the file and are damaged; read those in the file from here on."""
        with self._lock:
            _LOG.warning("the vectors beside %s are not used and made again: %s", self.database.path, problem)
            self._distrusted = self._to_keep = True
            self._dense = self._dense_stamp = None

    def _loaded(self, connection: apsw.Connection, now: Stamp) -> tuple[DenseIndex, Stamp]:
        """The vectors that lie beside the file, where they are of an earlier state of this very memory, else those in it; and
        the state they are of."""
        beside = self._beside(connection, now)
        # Where more was written since than the file holds, following the journal costs more than it saves.
        if beside is not None and now.head - beside.stamp.head <= max(beside.block.size, SIDECAR_LATE):
            return DenseIndex(now.dimension, beside.block), beside.stamp
        table = vector_table(now.vector_set)
        size = scalar(connection, f"SELECT count(*) FROM {table}")
        block = Block.empty(now.dimension, max(size, 1))
        row = 0
        for n, scope, vector in connection.execute(
            f"SELECT v.n, i.scope, v.vector FROM {table} v JOIN items i USING(n) "
            "WHERE i.content IS NOT NULL AND i.status = 'active' ORDER BY v.n"
        ):
            block.numbers[row], block.scopes[row] = n, scope
            block.matrix[row] = rows.to_vector(vector, now.dimension)
            row += 1
        block.alive[:row] = True
        block.size = row
        return DenseIndex(now.dimension, block if row else None), now

    def _beside(self, connection: apsw.Connection, now: Stamp) -> Sidecar | None:
        if self.database.in_memory or self._distrusted:
            return None
        from keepworth.memory.search.sidecar import read_sidecar

        try:
            beside = read_sidecar(self.database.place)
            if beside is not None and not self.leads_to(connection, beside.stamp, now):
                raise Unfit("they are not of an earlier state of it")
        except Unfit as problem:
            _LOG.warning("the vectors beside %s are not used and made again: %s", self.database.path, problem)
            self._to_keep = True
            return None
        return beside

    def _follow(self, connection: apsw.Connection, since: int) -> None:
        """Apply to the dense index what the journal says changed after entry `since`."""
        import numpy as np

        assert self._dense is not None
        assert self._set_id is not None
        changed = select(
            connection,
            "SELECT DISTINCT c.n, i.scope, v.vector, i.content IS NOT NULL AND i.status = 'active' "
            f"FROM changes c LEFT JOIN items i USING(n) LEFT JOIN {vector_table(self._set_id)} v USING(n) "
            "WHERE c.seq > ? AND c.changed",
            (since,),
        )
        self._dense.drop(n for n, _, vector, current in changed if not current or vector is None)
        fresh = [(n, scope, vector) for n, scope, vector, current in changed if current and vector is not None]
        fresh.sort()
        if fresh:
            matrix = np.stack([rows.to_vector(vector, self._dense.dimension) for _, _, vector in fresh])
            self._dense.put([n for n, _, _ in fresh], [scope for _, scope, _ in fresh], matrix)

    def tail(self, connection: apsw.Connection) -> words.Tail:
        """What the full-text index does not hold yet, as this connection sees it."""
        state = first(connection, "SELECT (SELECT max(seq) FROM events), through FROM indexed")
        known = self._tail  # one read: another thread may put its own there meanwhile
        if known is None or known[0] != state:
            known = self._tail = (state, words.Tail(connection, known[1] if known is not None else None))
        return known[1]

    def unindexed(self, scope: Scope, terms: Sequence[str]) -> dict[int, str]:
        """Texts of `scope` with any of `terms` that the full-text index does not hold yet, by row number."""
        with self.database.reading() as connection:
            return self.tail(connection).candidates(terms, self._scope_ids(connection, scope))

    def store_id(self) -> str:
        """Names this memory. A backup and an import have a name of their own."""
        return self._store_id

    def reset_caches(self) -> None:
        """Forget everything that can be made again from the file."""
        with self._lock:
            self._forget()

    def scope_named(self, connection: apsw.Connection, id: int) -> Scope:
        """The scope of an integer id."""
        scope = self._scope_names.get(id)
        if scope is None:
            row = first(connection, "SELECT tenant, user, agent, session FROM scopes WHERE id=?", (id,))
            if len(self._scope_names) >= SCOPES:
                self._scope_names.clear()
            scope = self._scope_names[id] = rows.to_scope(row, id)
        return scope

    def _scope_ids(self, connection: apsw.Connection, scope: Scope) -> list[int] | None:
        """Ids of the scopes inside `scope`; None where it holds the whole file."""
        with self._lock:
            count = scalar(connection, "SELECT max(id) FROM scopes")
            if count != self._scope_count:
                self._inside.clear()
                self._scope_count = count
            if scope not in self._inside:
                where, values = ["tenant = ?"], [scope.tenant]
                for part in ("user", "agent", "session"):
                    if getattr(scope, part):
                        where.append(f"{part} = ?")
                        values.append(getattr(scope, part))
                found = select(connection, f"SELECT id FROM scopes WHERE {' AND '.join(where)} ORDER BY id", values)
                ids: list[int] = [id for (id,) in found]
                everything = scalar(connection, "SELECT count(*) FROM scopes")
                if len(self._inside) >= SCOPES:
                    self._inside.clear()
                self._inside[scope] = None if ids and len(ids) == everything else ids
            return self._inside[scope]

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

        def work(connection: apsw.Connection) -> int:
            again = first(connection, "SELECT id FROM vector_sets WHERE state = 'serving'")
            if again is not None:
                return int(again[0])
            connection.execute(
                "INSERT INTO vector_sets(model, dimension, normalised, state, made) VALUES(?,?,?,'serving',?)",
                (identity.model, identity.dimension, int(identity.normalised), uuid.uuid4().hex),
            )
            id = connection.last_insert_rowid()
            schema.create_vectors(connection, id)
            return id

        return self.database.write(work)

    @property
    def set_id(self) -> int | None:
        return self._set_id

    def use(self, embedder: Embedder | None) -> None:
        """Encode and search with `embedder` from here on. Raises EncoderMismatch where the file has vectors of another."""
        try:
            self._set_id = self._serving_set(embedder.identity if embedder is not None else None)
        except BaseException:
            self.database.close()
            raise
        self.embedder = embedder

    def _find_set(self, connection: apsw.Connection) -> bool:
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
        self._set_id = int(row[0])
        return True

    def encoder_identity(self) -> EncoderIdentity | None:
        """Of the vectors on file; None where there are none yet."""
        with self.database.reading() as connection:
            row = first(connection, "SELECT model, dimension, normalised FROM vector_sets WHERE state = 'serving'")
        return None if row is None else EncoderIdentity(row[0], row[1], bool(row[2]))

    def encode(self, texts: Iterable[str]) -> dict[str, bytes]:
        """Vectors for `perform`, made before the write lock is taken. Empty without an encoder."""
        listed = list(dict.fromkeys(texts))
        if self.embedder is None or not listed:
            return {}
        return {text: vector.tobytes() for text, vector in zip(listed, self.embedder(listed), strict=True)}

    def close(self) -> None:
        self.database.close()
