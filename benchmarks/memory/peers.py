"""Other memory stores beside ours, on the same texts and vectors, in one run, each in a process of its own.

    python -m benchmarks.memory.peers --size 10000 --seconds 600 --json out.json

Each store is filled one item at a time, as agents write, until it holds `size` items or the time is up; then it answers 200
queries, over everything and for one user. Install what should take part:

    pip install mem0ai qdrant-client chromadb lancedb sqlite-vec langgraph-checkpoint-sqlite

mem0 runs with infer=False (no language model), a local vector store and its defaults otherwise. Telemetry is off everywhere.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from recollect.memory.measure import Corpus, GivenVectors, at, corpus, reading_limit, sync_limit, timed

USERS = 100
QUERIES = 200


class Peer(Protocol):
    """A store under test. add: one item, on its way to disk as the store ships; search: ids or texts, best first."""

    def add(self, number: int) -> None: ...
    def search(self, query: int, user: str | None) -> list[Any]: ...


class Ours:
    packages = ("apsw",)

    def __init__(self, data: Corpus, folder: Path, durability: str = "process") -> None:
        from recollect.memory.memory import Memory

        self._data = data
        self._memory = Memory(folder / "ours.mem", encoder=GivenVectors(data), durability=durability)

    def add(self, number: int) -> None:
        self._memory.add(self._data.texts[number], user_id=f"u{number % USERS}")

    def search(self, query: int, user: str | None) -> list[Any]:
        return self._memory.search(self._data.queries[query], mode="dense", user_id=user or "")


class OursPowerSafe(Ours):
    def __init__(self, data: Corpus, folder: Path) -> None:
        super().__init__(data, folder, "power")


class Mem0:
    """mem0 asks for a user in every search, so there is no row for a search over everything."""

    packages = ("mem0ai", "qdrant-client")
    scoped_only = True

    def __init__(self, data: Corpus, folder: Path) -> None:
        os.environ["MEM0_TELEMETRY"] = "False"
        os.environ["MEM0_DIR"] = str(folder / "mem0")
        os.environ.setdefault("OPENAI_API_KEY", "not used: infer=False and the embedder is replaced")
        from mem0 import Memory

        config = {
            "vector_store": {
                "provider": "qdrant",
                "config": {"path": str(folder / "qdrant"), "embedding_model_dims": 384, "on_disk": True},
            },
            "history_db_path": str(folder / "history.db"),
        }
        self._data = data
        self._memory = Memory.from_config(config)
        given = GivenVectors(data)

        class Given:
            config = type("Config", (), {"embedding_dims": 384})()

            def embed(self, text: str, memory_action: str | None = None) -> list[float]:
                return given.encode([text])[0].tolist()

            def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
                return given.encode(texts).tolist()

        self._memory.embedding_model = Given()

    def add(self, number: int) -> None:
        self._memory.add(self._data.texts[number], user_id=f"u{number % USERS}", infer=False)

    def search(self, query: int, user: str | None) -> list[Any]:
        found = self._memory.search(self._data.queries[query], filters={"user_id": user}, top_k=10, threshold=0.0)
        return found["results"]


class LangGraph:
    packages = ("langgraph-checkpoint-sqlite", "sqlite-vec")

    def __init__(self, data: Corpus, folder: Path) -> None:
        import sqlite3

        from langgraph.store.sqlite import SqliteStore

        given = GivenVectors(data)
        self._data = data
        connection = sqlite3.connect(folder / "langgraph.db", check_same_thread=False, isolation_level=None)
        index = {"dims": 384, "embed": lambda texts: given.encode(texts).tolist(), "fields": ["text"]}
        self._store = SqliteStore(connection, index=index)  # type: ignore[arg-type]
        self._store.setup()

    def add(self, number: int) -> None:
        self._store.put(("memories", f"u{number % USERS}"), str(number), {"text": self._data.texts[number]})

    def search(self, query: int, user: str | None) -> list[Any]:
        prefix = ("memories", user) if user else ("memories",)
        return list(self._store.search(prefix, query=self._data.queries[query], limit=10))


class Chroma:
    packages = ("chromadb",)

    def __init__(self, data: Corpus, folder: Path) -> None:
        import chromadb

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
        return found["ids"][0]


class LanceDB:
    packages = ("lancedb",)

    def __init__(self, data: Corpus, folder: Path) -> None:
        import lancedb

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
    packages = ("sqlite-vec",)

    def __init__(self, data: Corpus, folder: Path) -> None:
        import sqlite3

        import sqlite_vec

        self._data = data
        self._connection = connection = sqlite3.connect(folder / "vec.db", isolation_level=None)
        connection.enable_load_extension(True)
        sqlite_vec.load(connection)
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


PEERS: dict[str, Callable[[Corpus, Path], Peer]] = {
    "recollect": Ours,
    "recollect, power-safe": OursPowerSafe,
    "mem0 (infer=False, Qdrant local)": Mem0,
    "LangGraph SqliteStore": LangGraph,
    "Chroma": Chroma,
    "LanceDB": LanceDB,
    "sqlite-vec": SqliteVec,
}


def measure(name: str, size: int, seconds: float, seed: int) -> dict[str, Any]:
    """One store: how far it came, and milliseconds (p50, p95) of adds and of searches over all and for one user."""
    data = corpus(size, queries=QUERIES, seed=seed)
    make = PEERS[name]
    with tempfile.TemporaryDirectory() as folder:
        peer = make(data, Path(folder))
        adds = []
        begun = time.perf_counter()
        for number in range(size):
            start = time.perf_counter()
            peer.add(number)
            adds.append(1e3 * (time.perf_counter() - start))
            if time.perf_counter() - begun > seconds:
                break
        tail = sorted(adds[-max(50, len(adds) // 10) :])
        record: dict[str, Any] = {
            "name": name,
            "version": {package: importlib.metadata.version(package) for package in getattr(make, "packages", ())},
            "reached": len(adds),
            "add": (at(tail, 0.5), at(tail, 0.95)),
        }
        if not getattr(make, "scoped_only", False):
            record["search"] = _search(peer, None)
        record["search one user"] = _search(peer, "u1")
        exact = np.argsort(-(data.query_vectors @ data.vectors[: len(adds)].T), axis=1)[:, :10]
        record["results"] = len(peer.search(0, "u1")), int(exact.shape[1])
    return record


def _search(peer: Peer, user: str | None) -> tuple[float, float]:
    calls: Sequence[Callable[[], object]] = [lambda q=q: peer.search(q, user) for q in range(QUERIES)]  # type: ignore[misc]
    times = timed(calls, warm=10)
    return at(times, 0.5), at(times, 0.95)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=600.0, help="at most, to fill one store")
    parser.add_argument("--only", nargs="*", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.size, arguments.seconds, arguments.seed)))
        return
    with tempfile.TemporaryDirectory() as folder:
        sync = sync_limit(Path(folder))
    limit = reading_limit(corpus(arguments.size, seed=arguments.seed).vectors)
    print(
        f"physical limits here: one disk sync {sync:.2f} ms; "
        f"one thread reads the vectors of {arguments.size:,} items in {limit:.2f} ms\n"
    )
    print("| store | reached | add p50 / p95 ms | search all p50 / p95 ms | search one user (1 %) p50 / p95 ms |")
    print("| --- | --- | --- | --- | --- |")
    records = []
    for name in arguments.only or PEERS:
        command = [sys.executable, "-m", "benchmarks.memory.peers", "--one", name]
        options = ["--size", str(arguments.size), "--seconds", str(arguments.seconds), "--seed", str(arguments.seed)]
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run([*command, *options], capture_output=True, text=True, env={**os.environ, **threads})
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            print(f"| {name} | did not run: {reason[:120]} | | | |")
            continue
        record = json.loads(done.stdout.strip().splitlines()[-1])
        records.append(record)
        cells = [
            "{:.3g} / {:.3g}".format(*record[key]) if key in record else "not offered"
            for key in ("add", "search", "search one user")
        ]
        print(f"| {name} | {record['reached']:,} | " + " | ".join(cells) + " |", flush=True)
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"sync_ms": sync, "read_ms": limit, "size": arguments.size, "rows": records}, indent=1)
        )


if __name__ == "__main__":
    main()
