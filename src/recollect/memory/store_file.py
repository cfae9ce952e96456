"""StoreFile: an open file, its scopes, and the vectors and caches that searches by meaning need."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.episodes.encoder import EncoderIdentity
from recollect.memory import rows, schema, words
from recollect.memory.database import Database, first, scalar, select
from recollect.memory.dense import Block, DenseIndex
from recollect.memory.embedding import Embedder
from recollect.memory.errors import EncoderMismatch
from recollect.memory.item import Item
from recollect.memory.moment import Clock, now
from recollect.memory.quantised import check_kind
from recollect.memory.schema import vector_table
from recollect.memory.scope import Scope

if TYPE_CHECKING:
    import apsw
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

_LOG = logging.getLogger("recollect.memory")
SIDECAR_LATE = 20_000
"""Journal entries that are always followed rather than read anew."""


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
        self._lock = threading.RLock()
        self._dense: DenseIndex | None = None
        self._dense_head = 0
        self._scope_names: dict[int, Scope] = {}
        self._scope_count = -1
        self._inside: dict[Scope, list[int] | None] = {}
        self._word_counts = words.WordStatistics()
        self._tail: tuple[object, words.Tail] | None = None
        self._set_id: int | None = None
        self.use(embedder)

    def dense(self, scope: Scope, queries: Vectors, count: int) -> list[list[tuple[int, float]]]:
        """Per query the best current items of the scope as (row number, cosine). queries: (q, dimension), unit rows."""
        with self.database.reading() as connection:
            if self._set_id is None and not self._find_set(connection):
                return [[] for _ in queries]
            index = self._synced(connection)
            inside = self._scope_ids(connection, scope)
        return index.search(queries, count, scope, inside)

    def vectors_for(self, items: Sequence[Item]) -> dict[str, Vectors]:
        """Vectors of items as they are given, which need not be as they are now; made again where not on file."""
        import numpy as np

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
                    out[item.id] = np.frombuffer(row[0], np.float32)
        if missing and self.embedder is not None:
            fresh = self.embedder([item.searched_text for item in missing])
            out.update((item.id, vector) for item, vector in zip(missing, fresh, strict=True))
        return out

    def dense_index(self, *, packed: bool = False) -> tuple[DenseIndex, int]:
        """The index as of now, and the journal entry it stands at. packed: without rows that no longer count."""
        with self.database.reading() as connection, self._lock:
            index = self._synced(connection)
            if packed:
                index.pack()
                if self._index != "exact":
                    index.accelerate(self._index)
            return index, self._dense_head

    def serve(self, set_id: int, embedder: Embedder) -> None:
        """Answer from another vector set from here on."""
        self._set_id = set_id
        self.embedder = embedder
        self.reset_caches()

    def _synced(self, connection: apsw.Connection) -> DenseIndex:
        """The dense index, brought up to the journal's head as this connection sees it."""
        with self._lock:
            head = scalar(connection, "SELECT max(seq) FROM events")
            head = head or 0
            if self._dense is None:
                self._dense, self._dense_head = self._loaded(connection)
                self._take_index(self._dense)
            if head > self._dense_head:
                self._follow(connection, self._dense_head)
                self._dense_head = head
            if self._index != "exact" and self._dense.accelerate(self._index):
                self._keep_index(self._dense)
            return self._dense

    def _take_index(self, index: DenseIndex) -> None:
        """Use the proposing index that is kept beside the file, where it was made from just these rows."""
        if self._index == "exact" or self.database.in_memory:
            return
        from recollect.memory.index_file import read_index, stamp

        assert self._set_id is not None
        made_from = stamp(self.store_id(), self._set_id, self._dense_head, index.arrays()[0])
        proposer = read_index(Path(self.database.path), made_from, self._index)
        if proposer is not None:
            index.propose_with(proposer)

    def _keep_index(self, index: DenseIndex) -> None:
        """Put the index and the vectors it was made from beside the file, so that the next one to open it need not build."""
        if self.database.in_memory or self.database.read_only:
            return
        from recollect.memory.sidecar import write_sidecar

        assert self._set_id is not None
        try:
            write_sidecar(Path(self.database.path), self.store_id(), self._set_id, self._dense_head, index)
        except OSError as error:
            _LOG.warning("the index of %s could not be kept and will be built again: %s", self.database.path, error)

    def _loaded(self, connection: apsw.Connection) -> tuple[DenseIndex, int]:
        import numpy as np

        from recollect.memory.sidecar import read_sidecar

        assert self._set_id is not None
        dimension = scalar(connection, "SELECT dimension FROM vector_sets WHERE id=?", (self._set_id,))
        head = scalar(connection, "SELECT max(seq) FROM events")
        if not self.database.in_memory:
            found = read_sidecar(Path(self.database.path), self.store_id(), self._set_id, dimension)
            # Where more was written since than the file holds, following the journal costs more than it saves.
            if found is not None and (head or 0) - found[1] <= max(found[0].size, SIDECAR_LATE):
                return DenseIndex(dimension, found[0]), found[1]
        table = vector_table(self._set_id)
        size = scalar(connection, f"SELECT count(*) FROM {table}")
        block = Block.empty(dimension, max(size, 1))
        row = 0
        for n, scope, vector in connection.execute(
            f"SELECT v.n, i.scope, v.vector FROM {table} v JOIN items i USING(n) "
            "WHERE i.content IS NOT NULL AND i.status = 'active' ORDER BY v.n"
        ):
            block.numbers[row], block.scopes[row] = n, scope
            block.matrix[row] = np.frombuffer(vector, np.float32)
            row += 1
        block.alive[:row] = True
        block.size = row
        return DenseIndex(dimension, block if row else None), head or 0

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
            matrix = np.frombuffer(b"".join(vector for _, _, vector in fresh), np.float32)
            matrix = matrix.reshape(len(fresh), self._dense.dimension)
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
        with self.database.reading() as connection:
            value = scalar(connection, "SELECT value FROM facts_of_file WHERE name = 'store'")
        return str(value)

    def reset_caches(self) -> None:
        """Forget everything that can be made again from the file."""
        with self._lock:
            self._dense = None
            self._dense_head = 0
            self._tail = None
            self._scope_count = -1
            self._inside.clear()

    def scope_named(self, connection: apsw.Connection, id: int) -> Scope:
        """The scope of an integer id."""
        scope = self._scope_names.get(id)
        if scope is None:
            row = first(connection, "SELECT tenant, user, agent, session FROM scopes WHERE id=?", (id,))
            scope = self._scope_names[id] = Scope(*row)
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
                    f"`recollect memory reembed` to make vectors with the new one"
                )
            return int(row[0])
        if identity is None or self.database.read_only:
            return None

        def work(connection: apsw.Connection) -> int:
            again = first(connection, "SELECT id FROM vector_sets WHERE state = 'serving'")
            if again is not None:
                return int(again[0])
            connection.execute(
                "INSERT INTO vector_sets(model, dimension, normalised, state) VALUES(?,?,?,'serving')",
                (identity.model, identity.dimension, int(identity.normalised)),
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
