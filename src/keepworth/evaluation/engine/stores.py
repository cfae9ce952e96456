"""Memory stores to set beside the engine, each as it ships: where it keeps items, how one is added, how one searches.

mem0 runs with infer=False (no language model), a local vector store and its defaults otherwise. Telemetry is off everywhere.
LangGraph's store needs a `sqlite3` module that loads extensions; where Python's own does not, pysqlite3 takes its place.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from keepworth.evaluation.engine.corpus import USERS, Corpus, GivenVectors


class Peer(Protocol):
    """A store under test. add: one item, on its way to disk as the store ships; search: ids or texts, best first."""

    def add(self, number: int) -> None: ...
    def search(self, query: int, user: str | None) -> list[Any]: ...


class Keepworth:
    def __init__(self, data: Corpus, folder: Path, durability: str = "process") -> None:
        from keepworth.memory.memory import Memory

        self._data = data
        self._memory = Memory(folder / "ours.mem", encoder=GivenVectors(data), durability=durability)

    def add(self, number: int) -> None:
        self._memory.add(self._data.texts[number], user_id=f"u{number % USERS}")

    def search(self, query: int, user: str | None) -> list[Any]:
        return self._memory.search(self._data.queries[query], mode="dense", user_id=user or "")


class PowerSafeKeepworth(Keepworth):
    def __init__(self, data: Corpus, folder: Path) -> None:
        super().__init__(data, folder, "power")


class Mem0:
    """mem0 asks for a user in every search, so there is no row for a search over everything."""

    def __init__(self, data: Corpus, folder: Path) -> None:
        os.environ["MEM0_TELEMETRY"] = "False"
        os.environ["MEM0_DIR"] = str(folder / "mem0")
        os.environ.setdefault("OPENAI_API_KEY", "not used: infer=False and the embedder is replaced")
        mem0: Any = importlib.import_module("mem0")
        config = {
            "vector_store": {
                "provider": "qdrant",
                "config": {"path": str(folder / "qdrant"), "embedding_model_dims": 384, "on_disk": True},
            },
            "history_db_path": str(folder / "history.db"),
        }
        self._data = data
        self._memory = mem0.Memory.from_config(config)
        given = GivenVectors(data)

        class Given:
            config = type("Config", (), {"embedding_dims": 384})()

            def embed(self, text: str, memory_action: str | None = None) -> list[float]:
                one: list[float] = given.encode([text])[0].tolist()
                return one

            def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
                all: list[list[float]] = given.encode(texts).tolist()
                return all

        self._memory.embedding_model = Given()

    def add(self, number: int) -> None:
        self._memory.add(self._data.texts[number], user_id=f"u{number % USERS}", infer=False)

    def search(self, query: int, user: str | None) -> list[Any]:
        found = self._memory.search(self._data.queries[query], filters={"user_id": user}, top_k=10, threshold=0.0)
        return list(found["results"])


class LangGraph:
    def __init__(self, data: Corpus, folder: Path) -> None:
        sqlite3 = _sqlite3_with_extensions()
        store: Any = importlib.import_module("langgraph.store.sqlite")
        given = GivenVectors(data)
        self._data = data
        connection = sqlite3.connect(folder / "langgraph.db", check_same_thread=False, isolation_level=None)
        # The second name of the same option is the one this version reads.
        index = {
            "dims": 384,
            "embed": lambda texts: given.encode(texts).tolist(),
            "fields": ["text"],
            "text_fields": ["text"],
        }
        self._store = store.SqliteStore(connection, index=index)
        self._store.setup()

    def add(self, number: int) -> None:
        self._store.put(("memories", f"u{number % USERS}"), str(number), {"text": self._data.texts[number]})

    def search(self, query: int, user: str | None) -> list[Any]:
        prefix = ("memories", user) if user else ("memories",)
        return list(self._store.search(prefix, query=self._data.queries[query], limit=10))


class Chroma:
    def __init__(self, data: Corpus, folder: Path) -> None:
        chromadb: Any = importlib.import_module("chromadb")
        self._data = data
        settings = chromadb.Settings(anonymized_telemetry=False)
        client = chromadb.PersistentClient(str(folder / "chroma"), settings=settings)
        self._items = client.create_collection("items", metadata={"hnsw:space": "cosine"}, embedding_function=None)

    def add(self, number: int) -> None:
        self._items.add(
            ids=[str(number)],
            embeddings=[self._data.vectors[number]],
            documents=[self._data.texts[number]],
            metadatas=[{"user": f"u{number % USERS}"}],
        )

    def search(self, query: int, user: str | None) -> list[Any]:
        options: dict[str, Any] = {"where": {"user": user}} if user else {}
        found = self._items.query(query_embeddings=[self._data.query_vectors[query]], n_results=10, **options)
        return list(found["ids"][0])


class LanceDB:
    def __init__(self, data: Corpus, folder: Path) -> None:
        lancedb: Any = importlib.import_module("lancedb")
        self._data = data
        self._connection = lancedb.connect(str(folder / "lance"))
        self._table: Any = None

    def add(self, number: int) -> None:
        row = {
            "id": number,
            "user": f"u{number % USERS}",
            "text": self._data.texts[number],
            "vector": self._data.vectors[number],
        }
        if self._table is None:
            self._table = self._connection.create_table("items", [row])
        else:
            self._table.add([row])

    def search(self, query: int, user: str | None) -> list[Any]:
        request = self._table.search(self._data.query_vectors[query]).distance_type("cosine").limit(10)
        if user:
            request = request.where(f"user = '{user}'", prefilter=True)
        return list(request.to_list())


class SqliteVec:
    """Through apsw: the `sqlite3` of many Pythons cannot load extensions."""

    def __init__(self, data: Corpus, folder: Path) -> None:
        import apsw

        sqlite_vec: Any = importlib.import_module("sqlite_vec")
        self._data = data
        self._connection = connection = apsw.Connection(str(folder / "vec.db"))
        connection.enable_load_extension(True)
        connection.load_extension(sqlite_vec.loadable_path())
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("CREATE TABLE items(id INTEGER PRIMARY KEY, user TEXT, text TEXT)")
        connection.execute(
            "CREATE VIRTUAL TABLE vectors USING vec0(id INTEGER PRIMARY KEY, user TEXT, "
            "embedding float[384] distance_metric=cosine)"
        )

    def add(self, number: int) -> None:
        user = f"u{number % USERS}"
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("INSERT INTO items VALUES(?,?,?)", (number, user, self._data.texts[number]))
        self._connection.execute(
            "INSERT INTO vectors VALUES(?,?,?)", (number, user, self._data.vectors[number].tobytes())
        )
        self._connection.execute("COMMIT")

    def search(self, query: int, user: str | None) -> list[Any]:
        vector = self._data.query_vectors[query].tobytes()
        rest = " AND user = ?" if user else ""
        values = (vector, user) if user else (vector,)
        return self._connection.execute(
            f"SELECT id FROM vectors WHERE embedding MATCH ? AND k = 10{rest} ORDER BY distance", values
        ).fetchall()


@dataclass(frozen=True, slots=True)
class Store:
    """packages: distributions it takes, by which it is installed; everywhere: whether it searches without naming a user."""

    name: str
    packages: tuple[str, ...]
    open: Callable[[Corpus, Path], Peer]
    everywhere: bool = True

    def absent(self) -> list[str]:
        """Which of its packages are not installed."""
        return [package for package in self.packages if _version(package) is None]

    def versions(self) -> dict[str, str]:
        return {package: found for package in self.packages if (found := _version(package)) is not None}


ENGINE = Store("keepworth", ("apsw",), Keepworth)
POWER_SAFE = Store("keepworth, power-safe", ("apsw",), PowerSafeKeepworth)
MEM0 = Store("mem0 (infer=False, Qdrant local)", ("mem0ai", "qdrant-client"), Mem0, everywhere=False)
STORES = (
    ENGINE,
    POWER_SAFE,
    MEM0,
    Store("LangGraph SqliteStore", ("langgraph-checkpoint-sqlite", "sqlite-vec"), LangGraph),
    Store("Chroma", ("chromadb",), Chroma),
    Store("LanceDB", ("lancedb",), LanceDB),
    Store("sqlite-vec", ("sqlite-vec", "apsw"), SqliteVec),
)


def named(name: str) -> Store:
    return next(store for store in STORES if store.name == name)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _sqlite3_with_extensions() -> Any:
    """Python's sqlite3, or in its place pysqlite3, for this process."""
    import sqlite3

    if hasattr(sqlite3.Connection, "enable_load_extension"):
        return sqlite3
    pysqlite3: Any = importlib.import_module("pysqlite3")
    sys.modules["sqlite3"] = pysqlite3
    sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2
    return pysqlite3
