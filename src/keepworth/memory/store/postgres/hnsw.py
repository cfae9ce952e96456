"""Search by meaning on the server: vectors in a table of pgvector, and its graph over them where there are many.

The graph is HNSW (Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using Hierarchical Navigable
Small World graphs", arXiv 1603.09320). It holds every number of a vector, so it only chooses rows: the score of each is the
inner product of float32 numbers, as an exact search has it.

Whatever process writes, triggers keep this in step, in the transaction of the write: a row that changed leaves the table of
vectors, and its number is put among those that wait. What waits is compared exactly, in the process that searches, until it is
laid in. Parts of long texts, whose vectors are shorter, have a graph of their own: in each the nearest rows are the best ones.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from keepworth.memory.errors import InvalidFilter, MemoryProblem, MissingExtension, ReadOnly
from keepworth.memory.search.scan import cosines
from keepworth.memory.store.connection import AnyConnection, first, scalar, select
from keepworth.memory.store.full_text import CURRENT
from keepworth.memory.store.rows import VECTORS, to_vectors

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from keepworth.memory.store.postgres.database import PostgresDatabase, ServerConnection

    Mask = npt.NDArray[np.bool_]
    Vectors = npt.NDArray[np.float32]
    Found = list[tuple[int, float]]

_LOG = logging.getLogger("keepworth.memory")
LEAST_VERSION = (0, 5)
"""Of pgvector: the first that has HNSW."""
ITERATIVE = (0, 8)
"""The first that goes on through the graph where a filter leaves too little."""
MOST_NUMBERS = 2000
"""Of a vector in a graph of pgvector."""
SMALLEST = 10_000
"""Rows up to which all are compared: the server takes some microseconds for each. Below it there is no graph either."""
EFFORT, MOST_EFFORT = 100, 1000
"""`hnsw.ef_search`: rows that a search of the graph keeps in view, by default, and at most."""
SCANNED = 20_000
"""`hnsw.max_scan_tuples`: rows at which an iterative scan ends."""
SLACK = 2
"""How many times as many rows as are wanted a graph is expected to give, or else all are compared."""
LATE = 256
"""Rows that may wait to be laid in; each search reads them."""
TOGETHER, TOGETHER_IN_GRAPH = 5000, 200
"""Rows that are laid in while others wait to write: without a graph, and with one, which takes a millisecond for each."""
SECONDS = 5.0
"""Between two lines of the log that say how far it is."""
MOST_MEMORY = 1 << 30
"""Bytes of the server's memory that building a graph may take; a larger one is built on disk."""


class Hnsw:
    """`connection.VectorIndex` of one memory."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._home = ""
        self._version: tuple[int, ...] = ()
        self._laying = threading.Lock()
        self._behind: int | None = None
        """How many rows waited when it was last asked."""
        self._waiting: dict[int, tuple[int, Vectors]] = {}
        """Of rows that wait, by number: the text they were made of, and their vectors."""

    def prepare(self, set_id: int | None) -> None:
        """See that vectors of this set can be laid in; makes the tables. Raises MissingExtension, InvalidFilter, ReadOnly."""
        database = self._database
        with database.reading() as connection:
            self._find_extension(connection)
        if not self._version and not database.read_only:
            self._install()
        if not self._version:
            raise MissingExtension(
                f"index='hnsw' needs pgvector, and the database of {database.path} does not have it: let its owner run "
                f"{CREATE}, or open the memory with index='exact'"
            )
        if self._version < LEAST_VERSION:
            raise MissingExtension(
                f"index='hnsw' needs pgvector {_shown(LEAST_VERSION)} or later, and the database of {database.path} has "
                f"{_shown(self._version)}: install a later one on the server and run ALTER EXTENSION vector UPDATE"
            )
        if set_id is None:
            return
        with database.reading() as connection:
            there, dimension = _is_there(connection, set_id), _dimension(connection, set_id)
        if dimension > MOST_NUMBERS:
            raise InvalidFilter(
                f"index='hnsw' holds vectors of at most {MOST_NUMBERS:,} numbers, and those of this encoder have "
                f"{dimension:,}: use 'exact', 'int8' or 'pq'"
            )
        if not there and database.read_only:
            raise ReadOnly(
                f"{database.path} has no index='hnsw' yet, and it was opened read-only: open it once with write access and that "
                "index, or use 'exact'"
            )
        if not there:
            database.write(lambda connection: self._make(connection, set_id, dimension))

    def _find_extension(self, connection: AnyConnection) -> None:
        found = first(
            connection,
            "SELECT e.extversion, quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace "
            "WHERE e.extname = 'vector'",
        )
        if found is not None:
            self._version = tuple(int(each) for each in str(found[0]).split(".") if each.isdigit())
            self._home = str(found[1])

    def _install(self) -> None:
        """Of a database, not of this memory: so it goes where everybody looks. Raises MissingExtension."""
        database = self._database
        with database.reading() as connection:
            offered = scalar(connection, "SELECT 1 FROM pg_available_extensions WHERE name = 'vector'")
        if offered is None:
            raise MissingExtension(
                f"index='hnsw' needs pgvector, and the server of {database.path} does not have it: install it there (such as the "
                "package postgresql-16-pgvector), or open the memory with index='exact'"
            )
        import psycopg

        with database.aside() as raw:
            try:
                raw.execute(CREATE)
            except psycopg.errors.InsufficientPrivilege as error:
                raise MissingExtension(
                    f"index='hnsw' needs pgvector, and this user may not add it to the database of {database.path}: let an "
                    f"administrator run {CREATE} in it once, or open the memory with index='exact'"
                ) from error
            except (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateObject):
                pass  # somebody else's, made at the same moment
        with database.reading() as connection:
            self._find_extension(connection)

    def _make(self, connection: AnyConnection, set_id: int, dimension: int) -> None:
        if _is_there(connection, set_id):
            return
        vectors, laid, waiting = _names(set_id)
        current = CURRENT.replace("content", "NEW.content").replace("status", "NEW.status")
        before = CURRENT.replace("content", "OLD.content").replace("status", "OLD.status")
        # Whoever writes may have no rights to what another made. Nor may they put a table of their own in its place: where
        # pg_temp is not named it comes first.
        home = scalar(connection, "SELECT quote_ident(current_schema())")
        head = f"LANGUAGE plpgsql SECURITY DEFINER SET search_path = {home}, pg_temp AS"
        for statement in (
            f"CREATE TABLE {laid}(n BIGINT NOT NULL, part BIGINT NOT NULL, scope BIGINT NOT NULL, hash BIGINT NOT NULL, "
            f"vector {self._home}.vector({dimension}) NOT NULL, PRIMARY KEY(n, part))",
            f"ALTER TABLE {laid} ALTER COLUMN vector SET STORAGE PLAIN",  # beside the row: a scan reads nothing else
            f"CREATE INDEX {laid}_by_scope ON {laid}(scope)",
            f"CREATE INDEX {laid}_parts ON {laid}(n) WHERE part = 1",
            f"CREATE TABLE {waiting}(n BIGINT PRIMARY KEY)",
            f"CREATE FUNCTION {vectors}_changed() RETURNS trigger {head} $$ BEGIN "
            f"IF TG_OP <> 'INSERT' THEN DELETE FROM {laid} WHERE n = OLD.n; END IF; "
            f"IF TG_OP = 'DELETE' THEN DELETE FROM {waiting} WHERE n = OLD.n; RETURN NULL; END IF; "
            f"INSERT INTO {waiting} VALUES(NEW.n) ON CONFLICT DO NOTHING; RETURN NULL; END $$",
            f"CREATE FUNCTION {vectors}_item_changed() RETURNS trigger {head} $$ BEGIN "
            f"DELETE FROM {laid} WHERE n = OLD.n; "
            f"IF TG_OP = 'UPDATE' AND {current} THEN INSERT INTO {waiting} VALUES(OLD.n) ON CONFLICT DO NOTHING; "
            f"ELSE DELETE FROM {waiting} WHERE n = OLD.n; END IF; RETURN NULL; END $$",
            f"CREATE TRIGGER laid_in AFTER INSERT OR UPDATE OR DELETE ON {vectors} FOR EACH ROW "
            f"EXECUTE FUNCTION {vectors}_changed()",
            f"CREATE TRIGGER {vectors}_removed AFTER DELETE ON items FOR EACH ROW EXECUTE FUNCTION {vectors}_item_changed()",
            f"CREATE TRIGGER {vectors}_moved AFTER UPDATE ON items FOR EACH ROW WHEN (OLD.scope <> NEW.scope OR ({before}) IS "
            f"DISTINCT FROM ({current})) EXECUTE FUNCTION {vectors}_item_changed()",
            # A trigger asks for this right when it is made, not when it fires.
            f"REVOKE ALL ON FUNCTION {vectors}_changed(), {vectors}_item_changed() FROM PUBLIC",
            f"INSERT INTO {waiting} SELECT n FROM {vectors}",
        ):
            connection.execute(statement)
        # Who may read or write the vectors may do so here; with row-level security that is the owner.
        rights = select(
            connection,
            "SELECT privilege_type, CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END "
            "FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace, aclexplode(c.relacl) "
            "WHERE s.nspname = current_schema() AND c.relname = ? AND NOT c.relrowsecurity "
            "AND privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')",
            (vectors,),
        )
        for right, whose in rights:
            connection.execute(f"GRANT {right} ON {laid}, {waiting} TO {whose}")

    def keep_up(self, set_id: int) -> None:
        """Lay in what waits, where that is much. A search that follows is answered, whatever becomes of it."""
        if self._database.read_only or self._database.inside or not self._laying.acquire(blocking=False):
            return
        try:
            if self._behind is None:
                with self._database.reading() as connection:
                    self._behind = self._waits(connection, set_id)
            if self._behind > LATE:
                said = time.monotonic()
                for done, everything in self.lay_in(set_id):
                    if time.monotonic() - said > SECONDS:
                        said = time.monotonic()
                        _LOG.info(
                            "index='hnsw' of %s: %s of %s rows", self._database.path, f"{done:,}", f"{everything:,}"
                        )
                self._behind = 0
        except MemoryProblem as problem:
            _LOG.warning("what waits for index='hnsw' is compared row by row: %s", problem)
        finally:
            self._laying.release()

    def _waits(self, connection: AnyConnection, set_id: int) -> int:
        return int(scalar(connection, f"SELECT count(*) FROM {_names(set_id)[2]}"))

    def lay_in(self, set_id: int) -> Iterator[tuple[int, int]]:
        """Lay in what waits, and build the graphs where there are rows enough; yields (done, all), of rows. Others read and write
        meanwhile; if interrupted, it goes on where it stopped. Not inside a `reading`, which the building would wait for."""
        database = self._database
        with database.reading() as connection:
            everything, built = self._waits(connection, set_id), self._has_graph(connection, set_id)
            dimension = _dimension(connection, set_id)
        yield 0, everything
        done = 0
        while done < everything:
            most = TOGETHER_IN_GRAPH if built else TOGETHER
            moved = database.write(lambda connection, most=most: self._moved(connection, set_id, dimension, most))  # type: ignore[misc]
            if not moved:
                break
            done += moved
            yield min(done, everything), everything
        laid = _names(set_id)[1]
        with database.reading() as connection:
            rows = scalar(connection, f"SELECT count(*) FROM {laid}")
        if not built and rows >= SMALLEST:
            self._build(set_id, rows, dimension)
        if everything:
            with database.aside() as raw:
                raw.execute(f"ANALYZE {laid}")
                # Rows that waited leave room behind, by which a search would be planned as if they waited still.
                raw.execute(f"VACUUM (ANALYZE) {_names(set_id)[2]}")
        yield everything, everything

    def _moved(self, connection: AnyConnection, set_id: int, dimension: int, most: int) -> int:
        """Lay in up to `most` rows; how many numbers do not wait any more."""
        import numpy as np

        vectors, laid, waiting = _names(set_id)
        raw = cast("ServerConnection", connection).raw
        listed = [n for (n,) in select(connection, f"SELECT n FROM {waiting} ORDER BY n LIMIT {most:d}")]
        if not listed:
            return 0
        current = f"FROM items i JOIN {vectors} v USING(n) WHERE n = ANY(%s) AND {CURRENT} ORDER BY n"
        query = f"SELECT n, i.scope, v.hash, v.vector {current}"
        fresh = raw.execute(query, (listed,), binary=True).fetchall()
        matrices = [to_vectors(vector, dimension) for *_, vector in fresh]
        sizes = [len(each) for each in matrices]
        body = np.zeros(sum(sizes), _copied(dimension))
        if fresh:
            body["columns"] = 5
            for name, width in (("n", 8), ("part", 8), ("scope", 8), ("hash", 8), ("vector", 4 + 4 * dimension)):
                body[f"{name} bytes"] = width
            for place, name in enumerate(("n", "scope", "hash")):
                body[name] = np.repeat([row[place] for row in fresh], sizes)
            body["part"] = np.concatenate([np.arange(size) for size in sizes])
            body["dimension"] = dimension
            body["vector"] = np.concatenate(matrices)
            columns = f"COPY {laid}(n, part, scope, hash, vector) FROM STDIN (FORMAT BINARY)"
            with raw.cursor() as cursor, cursor.copy(columns) as copy:
                copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8) + body.tobytes() + b"\xff\xff")
        raw.execute(f"DELETE FROM {waiting} WHERE n = ANY(%s)", (listed,))
        return len(listed)

    def _has_graph(self, connection: AnyConnection, set_id: int) -> bool:
        return scalar(connection, _GRAPHS, (_graphs(set_id)[0],)) is not None

    def _build(self, set_id: int, rows: int, dimension: int) -> None:
        """Both graphs, beside whoever writes. One process does."""
        import psycopg

        laid = _names(set_id)[1]
        wanted = min(MOST_MEMORY, rows * (4 * dimension + 1024))
        with self._database.aside() as raw:
            lock = f"hashtext(current_schema() || '{laid}')"
            if not raw.execute(f"SELECT pg_try_advisory_lock(1, {lock})").fetchone()[0]:
                return
            _LOG.info("building the graph of %s vectors of %s", f"{rows:,}", self._database.path)
            raw.execute(
                "SELECT set_config('maintenance_work_mem', greatest(pg_size_bytes(current_setting('maintenance_work_mem')), "
                f"{wanted}) / 1024 || 'kB', false)"
            )
            for name, part in zip(_graphs(set_id), ("part = 0", "part > 0"), strict=True):
                for last in (False, True):
                    if raw.execute(_GRAPHS.replace("?", "%s"), (name,)).fetchone() is not None:
                        break
                    raw.execute(f"DROP INDEX IF EXISTS {name}")  # of a building that was interrupted
                    try:
                        raw.execute(
                            f"CREATE INDEX CONCURRENTLY {name} ON {laid} USING hnsw (vector {self._home}.vector_cosine_ops) "
                            f"WHERE {part}"
                        )
                    except psycopg.errors.DiskFull:  # of /dev/shm, which helpers share; without them none is needed
                        if last:
                            raise
                        raw.execute("SET max_parallel_maintenance_workers = 0")

    def search(
        self,
        connection: AnyConnection,
        set_id: int,
        queries: Vectors,
        count: int,
        scope_ids: Collection[int] | None,
        mask: Mask | None,
        items: int,
    ) -> list[Found]:
        """As `search.index.DenseIndex.search`. items: current ones of all scopes."""
        laid, waiting = _names(set_id)[1:]
        where, inside = "", str(items)
        if scope_ids is not None:
            listed = f"ANY('{{{','.join(map(str, sorted(scope_ids)))}}}')"
            where, inside = f" AND scope = {listed}", f"(SELECT sum(count) FROM scopes WHERE id = {listed})"
        facts = (
            f"SELECT {inside}, EXISTS(SELECT 1 FROM {laid} WHERE part = 1), EXISTS({_GRAPHS}), "
            f"(SELECT count(*) FROM (SELECT 1 FROM {waiting} LIMIT {LATE + 1}) AS late)"
        )
        admitted, several, built, self._behind = first(connection, facts, (_graphs(set_id)[0],))
        admitted = admitted or 0
        if mask is not None:
            where += f" AND {connection.full_text.admit(connection, mask, 'n')}"
            admitted = min(admitted, int(mask.sum()))
        share = min(1.0, admitted / max(1, items)) or 1.0
        late = self._late(connection, set_id, waiting, where, queries)
        seen = SCANNED if self._version >= ITERATIVE else MOST_EFFORT
        graph = built and admitted > SMALLEST and SLACK * count <= MOST_EFFORT and seen * share >= SLACK * count
        out = []
        for query, more in zip(queries, late, strict=True):
            found = self._by_graph(connection, laid, query, count, where, share, several) if graph else None
            if found is None:
                found = self._all(connection, laid, query, count, where, several)
            out.append(_best([*found, *more], count))
        return out

    def _all(
        self, connection: AnyConnection, laid: str, query: Vectors, count: int, where: str, several: bool
    ) -> Found:
        """The best of all rows."""
        score = f"-(vector OPERATOR({self._home}.<#>) {self._literal(query)})"
        if several:
            score = f"max({score})"
        group = " GROUP BY n" if several else ""
        # In order of what no index has, so that none is asked.
        text = f"SELECT n, {score} AS score FROM {laid} WHERE true{where}{group} ORDER BY score DESC, n LIMIT {count:d}"
        return _rows(connection, text)

    def _by_graph(
        self, connection: AnyConnection, laid: str, query: Vectors, count: int, where: str, share: float, several: bool
    ) -> Found | None:
        """The best of what the graphs propose; None where they propose too few."""
        vector, reach = self._literal(query), count
        score = f"-(vector OPERATOR({self._home}.<#>) {vector}) AS score"
        order = f"ORDER BY vector OPERATOR({self._home}.<=>) {vector}"
        goes_on = where and self._version >= ITERATIVE
        while True:
            effort = min(MOST_EFFORT, max(EFFORT, round(SLACK * reach / share)))
            settings = f"SET LOCAL hnsw.ef_search = {effort:d}; "
            if goes_on:
                settings += "SET LOCAL hnsw.iterative_scan = strict_order; "
            sides = []
            for part in ("part = 0", "part > 0")[: 1 + several]:
                text = f"SELECT n, {score} FROM {laid} WHERE {part}{where} {order} LIMIT {reach:d}"
                sides.append(_rows(connection, settings + text))
            whole = sides[0]
            if where and len(whole) < count:
                return None
            if not several:
                return whole
            parts = sides[1]
            if where and len(parts) < reach:
                # Few parts, or a graph that gave few of them: compared all, they are certain.
                parts = _rows(
                    connection,
                    f"SELECT n, {score} FROM {laid} WHERE part > 0{where} ORDER BY score DESC LIMIT {reach:d}",
                )
            found = _best([*whole, *parts], count)
            if len(parts) < reach or (len(found) == count and found[-1][1] >= parts[-1][1]):
                return found
            reach *= 4
            if SLACK * reach > MOST_EFFORT:
                return None

    def _late(self, connection: AnyConnection, set_id: int, waiting: str, where: str, queries: Vectors) -> list[Found]:
        """Exact scores of what waits to be laid in."""
        import numpy as np

        vectors, known = VECTORS.format(set_id), self._waiting
        raw = cast("ServerConnection", connection).raw
        text = f"SELECT n, v.hash FROM {waiting} JOIN items i USING(n) JOIN {vectors} v USING(n) WHERE {CURRENT}{where}"
        listed = raw.execute(text, binary=True).fetchall()
        if not listed:
            return [[] for _ in queries]
        missing = [n for n, hash in listed if n not in known or known[n][0] != hash]
        if missing:
            fresh = raw.execute(f"SELECT n, hash, vector FROM {vectors} WHERE n = ANY(%s)", (missing,), binary=True)
            read = {n: (hash, to_vectors(vector, queries.shape[1])) for n, hash, vector in fresh}
            known = {**({} if len(known) > 4 * LATE else known), **read}
            if len(known) < len(listed):
                known.update({n: self._waiting[n] for n, _ in listed if n not in known})
            self._waiting = known
        matrices = [known[n][1] for n, _ in listed]
        numbers = np.repeat([n for n, _ in listed], [len(each) for each in matrices]).tolist()
        scores = cosines(queries, np.concatenate(matrices))
        return [list(zip(numbers, line.tolist(), strict=True)) for line in scores]

    def _literal(self, query: Vectors) -> str:
        """Nine digits tell every float32 from its neighbours."""
        return "'[" + ",".join([f"{number:.9g}" for number in query.tolist()]) + f"]'::{self._home}.vector"

    def forget(self, connection: AnyConnection, set_id: int) -> bool:
        """Take what is laid in, and the triggers, out of the memory; False where nothing is."""
        if not _is_there(connection, set_id):
            return False
        vectors, laid, waiting = _names(set_id)
        for function in ("changed", "item_changed"):
            connection.execute(f"DROP FUNCTION IF EXISTS {vectors}_{function}() CASCADE")
        connection.execute(f"DROP TABLE {laid}, {waiting}")
        return True

    def problems(self, connection: AnyConnection) -> Iterator[str]:
        """What is laid in differently from what the memory holds."""
        for set_id, dimension in select(connection, "SELECT id, dimension FROM vector_sets"):
            if not _is_there(connection, set_id):
                continue
            vectors, laid, waiting = _names(set_id)
            mine = f"SELECT n, scope, hash, count(*) AS parts, max(part) AS last FROM {laid} GROUP BY n, scope, hash"
            theirs = (
                f"SELECT n, i.scope, v.hash, length(v.vector) / {4 * dimension} AS parts FROM items i JOIN {vectors} v USING(n) "
                f"WHERE {CURRENT} AND NOT EXISTS (SELECT 1 FROM {waiting} w WHERE w.n = i.n)"
            )
            wrong = scalar(
                connection,
                f"SELECT count(*) FROM ({mine}) AS mine FULL JOIN ({theirs}) AS theirs USING(n, scope, hash) "
                "WHERE mine.parts IS DISTINCT FROM theirs.parts OR mine.last <> theirs.parts - 1",
            )
            if wrong:
                yield f"table {laid}: not the vectors of {wrong} items: drop the index and lay them in anew"


CREATE = "CREATE EXTENSION vector WITH SCHEMA public"
_GRAPHS = (
    "SELECT 1 FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid JOIN pg_namespace s ON s.oid = c.relnamespace "
    "WHERE s.nspname = current_schema() AND c.relname = ? AND x.indisvalid"
)


def _names(set_id: int) -> tuple[str, str, str]:
    """Tables: of the vectors, of those laid in, and of the numbers that wait."""
    vectors = VECTORS.format(set_id)
    return vectors, f"{vectors}_nearest", f"{vectors}_waiting"


def _graphs(set_id: int) -> tuple[str, str]:
    laid = _names(set_id)[1]
    return f"{laid}_graph", f"{laid}_graph_of_parts"


def _is_there(connection: AnyConnection, set_id: int) -> bool:
    there = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = ?"
    return scalar(connection, there, (_names(set_id)[2],)) is not None


def _dimension(connection: AnyConnection, set_id: int) -> int:
    return int(scalar(connection, "SELECT dimension FROM vector_sets WHERE id = ?", (set_id,)))


def _copied(dimension: int) -> npt.DTypeLike:
    """A row as binary COPY has it: https://www.postgresql.org/docs/current/sql-copy.html, and `vector_send` of pgvector."""
    fields: list[Any] = [("columns", ">i2")]
    for name in ("n", "part", "scope", "hash"):
        fields += [(f"{name} bytes", ">i4"), (name, ">i8")]
    return [*fields, ("vector bytes", ">i4"), ("dimension", ">i2"), ("unused", ">i2"), ("vector", ">f4", (dimension,))]


def _rows(connection: AnyConnection, text: str) -> Found:
    """Of the last of several statements, which go to the server at once."""
    cursor = cast("ServerConnection", connection).raw.execute(text)
    while cursor.nextset():
        pass
    return [(n, float(score)) for n, score in cursor.fetchall()]


def _best(found: Sequence[tuple[int, float]], count: int) -> Found:
    """The best of each item's, best first, ties in order of writing."""
    best: dict[int, float] = {}
    for n, score in found:
        if n not in best or score > best[n]:
            best[n] = score
    return sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))[:count]


def _shown(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
