"""Other memory stores beside ours, on the same texts and vectors, in one run, each in a process of its own.

    python -m benchmarks.memory.peers --size 100000 --seconds 600 --json benchmarks/memory/peers.json

Each store is filled one item at a time, as agents write, until it holds `size` items or the time is up. On the way, at
`common` items, where every store can be compared, and at the end it answers queries, over everything and for one user. Where
`strace` is at hand, a short run of its own counts how often each store has the disk sync per add: that is its durability.
Install what should take part, best in an environment of its own (and put `src` on PYTHONPATH):

    pip install apsw numpy mem0ai qdrant-client chromadb lancedb sqlite-vec langgraph-checkpoint-sqlite pysqlite3-binary

mem0 runs with infer=False (no language model), a local vector store and its defaults otherwise. Telemetry is off everywhere.
LangGraph's store needs a `sqlite3` module that loads extensions; where Python's own does not, pysqlite3 takes its place.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from recollect.memory.measure import Corpus, GivenVectors, at, corpus, machine, reading_limit, sync_limit, timed

USERS = 100
QUERIES = 100
SEARCHING = 10.0


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
        sqlite3 = _sqlite3_with_extensions()
        from langgraph.store.sqlite import SqliteStore

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
    """Through apsw: the `sqlite3` of many Pythons cannot load extensions."""

    packages = ("sqlite-vec", "apsw")

    def __init__(self, data: Corpus, folder: Path) -> None:
        import apsw
        import sqlite_vec

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


PEERS: dict[str, Callable[[Corpus, Path], Peer]] = {
    "recollect": Ours,
    "recollect, power-safe": OursPowerSafe,
    "mem0 (infer=False, Qdrant local)": Mem0,
    "LangGraph SqliteStore": LangGraph,
    "Chroma": Chroma,
    "LanceDB": LanceDB,
    "sqlite-vec": SqliteVec,
}


def measure(name: str, size: int, common: int, seconds: float, seed: int) -> dict[str, Any]:
    """One store: how far it came, and milliseconds (p50, p95) of adds and of searches over all and for one user."""
    data = corpus(size, queries=QUERIES, seed=seed)
    make = PEERS[name]
    with tempfile.TemporaryDirectory() as folder:
        peer = make(data, Path(folder))
        adds: list[float] = []
        record: dict[str, Any] = {
            "name": name,
            "versions": {package: importlib.metadata.version(package) for package in getattr(make, "packages", ())},
        }
        spent = 0.0
        for number in range(size):
            start = time.perf_counter()
            peer.add(number)
            took = time.perf_counter() - start
            spent += took
            adds.append(1e3 * took)
            if number + 1 == common:
                record["at common size"] = {"items": common, **_figures(peer, make, adds)}
            if spent > seconds:
                break
        record["seconds of adding"] = spent
        record["at the end"] = {"items": len(adds), **_figures(peer, make, adds)}
        found = peer.search(0, "u1")
        assert found, f"{name} found nothing for a user that has {len(adds) // USERS} items"
    return record


def _figures(peer: Peer, make: Callable[..., Peer], adds: list[float]) -> dict[str, Any]:
    tail = sorted(adds[-max(200, len(adds) // 10) :])
    out: dict[str, Any] = {"add": (at(tail, 0.5), at(tail, 0.95)), "n_adds": len(tail)}
    users = (("search", None), ("search one user", "u1"))
    for name, user in users[1:] if getattr(make, "scoped_only", False) else users:
        times = _search_times(peer, user)
        out[name] = at(times, 0.5), at(times, 0.95)
        out[f"n {name}"] = len(times)
    return out


def _search_times(peer: Peer, user: str | None) -> list[float]:
    """Milliseconds, sorted, of up to QUERIES searches after ten to warm up; fewer where they take more than SEARCHING seconds."""
    end = time.perf_counter() + SEARCHING
    times: list[float] = []
    for query in range(QUERIES):
        times += timed([lambda query=query: peer.search(query, user)], warm=0)  # type: ignore[misc]
        if time.perf_counter() > end and len(times) > 14:
            break
    return sorted(times[10:])


def _sqlite3_with_extensions() -> Any:
    """Python's sqlite3, or in its place pysqlite3, for this process."""
    import sqlite3

    if hasattr(sqlite3.Connection, "enable_load_extension"):
        return sqlite3
    import pysqlite3

    sys.modules["sqlite3"] = pysqlite3
    sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2
    return pysqlite3


def fill(name: str, size: int) -> None:
    """Add `size` items and leave: for counting system calls."""
    with tempfile.TemporaryDirectory() as folder:
        peer = PEERS[name](corpus(size, queries=QUERIES), Path(folder))
        for number in range(size):
            peer.add(number)
        os._exit(0)  # no closing, which may sync too


SYNCED = (50, 150)


def syncs_per_add(name: str) -> float | None:
    """Calls of fsync, fdatasync and the like per add, from two fillings of different length; None without strace."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    counts = []
    for size in SYNCED:
        with tempfile.NamedTemporaryFile("r", suffix=".strace") as log:
            calls = "trace=fsync,fdatasync,msync,sync_file_range"
            command = [strace, "-f", "-e", calls, "-o", log.name, sys.executable, "-m", "benchmarks.memory.peers"]
            subprocess.run(
                [*command, "--fill", name, "--size", str(size)], capture_output=True, check=True, env=_quiet()
            )
            text = Path(log.name).read_text()
            counts.append(len(re.findall(r"^\d+ +(?:fsync|fdatasync|msync|sync_file_range)\(", text, re.MULTILINE)))
    return (counts[1] - counts[0]) / (SYNCED[1] - SYNCED[0])


def _quiet() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _cells(record: dict[str, Any], where: str) -> str:
    figures = record.get(where)
    if figures is None:
        return "not reached | | |"
    shown = ["{:.3g} / {:.3g}".format(*figures[key]) if key in figures else "not offered" for key in KEYS]
    return " | ".join([f"{figures['items']:,}", *shown])


KEYS = ("add", "search", "search one user")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--common", type=int, default=2_000, help="where all stores are compared")
    parser.add_argument("--seconds", type=float, default=600.0, help="at most, to fill one store")
    parser.add_argument("--only", nargs="*", choices=list(PEERS), help="instead of all; rows of others in --json stay")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--fill", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        record = measure(arguments.one, arguments.size, arguments.common, arguments.seconds, arguments.seed)
        print(json.dumps(record))
        return
    if arguments.fill:
        fill(arguments.fill, arguments.size)
    setting = machine()
    with tempfile.TemporaryDirectory() as folder:
        sync = sync_limit(Path(folder))
    matrix = corpus(arguments.size, seed=arguments.seed).vectors
    print(f"one disk sync takes {sync:.2f} ms here\n")
    head = "items | add p50 / p95 ms | search all | search one user (1 %)"
    print(f"| store | syncs per add | {head} | {head} |")
    print("| --- " * 10 + "|")
    records = []
    for name in arguments.only or PEERS:
        command = [sys.executable, "-m", "benchmarks.memory.peers", "--one", name, "--size", str(arguments.size)]
        options = [f"--common={arguments.common}", f"--seconds={arguments.seconds}", f"--seed={arguments.seed}"]
        done = subprocess.run([*command, *options], capture_output=True, text=True, env=_quiet())
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            records.append({"name": name, "did not run": reason[:200]})
            print(f"| {name} | did not run: {reason[:120]} |", flush=True)
            continue
        record = json.loads(done.stdout.strip().splitlines()[-1])
        record["syncs per add"] = syncs_per_add(name)
        for where in ("at common size", "at the end"):
            if where in record:
                record[where]["reading limit"] = reading_limit(matrix[: record[where]["items"]])
        records.append(record)
        syncs = "" if record["syncs per add"] is None else f"{record['syncs per add']:.1f}"
        print(f"| {name} | {syncs} | {_cells(record, 'at common size')} | {_cells(record, 'at the end')} |", flush=True)
        if arguments.json:
            _keep(arguments.json, arguments, setting, sync, list(records))


def _keep(path: Path, arguments: argparse.Namespace, setting: dict[str, Any], sync: float, rows: list[Any]) -> None:
    """Write the record; with --only, rows of stores that did not take part this time stay as they were."""
    if arguments.only and path.exists():
        older = json.loads(path.read_text())
        fresh = {row["name"] for row in rows}
        rows = [row for row in older["rows"] if row["name"] not in fresh] + rows
        rows.sort(key=lambda row: list(PEERS).index(row["name"]))
    record = {
        "size": arguments.size,
        "common": arguments.common,
        "seconds": arguments.seconds,
        "seed": arguments.seed,
        "sync_ms": sync,
        "machine": setting,
        "rows": rows,
    }
    path.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
