"""Memory stores beside the engine: each as it ships, all measured in one run by the same calls, each in a process of its own.

    python -m benchmarks.memory.peers --size 100000 --seconds 600 --json benchmarks/memory/peers.json

Install what should take part, best in an environment of its own (and put `src` on PYTHONPATH):

    pip install apsw numpy mem0ai qdrant-client chromadb lancedb sqlite-vec langgraph-checkpoint-sqlite pysqlite3-binary
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.evaluation import rivals
from benchmarks.memory.engine import (
    USERS,
    BenchmarkCorpus,
    GivenVectors,
    at,
    corpus,
    machine,
    reading_limit,
    sync_limit,
    timed,
)

# Memory stores to set beside the engine, each as it ships: where it keeps items, how one is added, how one searches.
#
# How mem0 and LangGraph's store are opened is in `rivals`. Telemetry is off everywhere.


class Peer(Protocol):
    """A store under test. add: one item, on its way to disk as the store ships; search: ids or texts, best first."""

    def add(self, number: int) -> None: ...
    def search(self, query: int, user: str | None) -> list[Any]: ...


class Keepworth:
    def __init__(self, data: BenchmarkCorpus, folder: Path, durability: str = "process") -> None:
        from keepworth.memory.memory import Memory

        self._data = data
        self._memory = Memory(folder / "ours.mem", encoder=GivenVectors(data), durability=durability)

    def add(self, number: int) -> None:
        self._memory.add(self._data.texts[number], user_id=f"u{number % USERS}")

    def search(self, query: int, user: str | None) -> list[Any]:
        return self._memory.search(self._data.queries[query], mode="dense", user_id=user or "")


class PowerSafeKeepworth(Keepworth):
    def __init__(self, data: BenchmarkCorpus, folder: Path) -> None:
        super().__init__(data, folder, "power")


def _embedding(data: BenchmarkCorpus) -> rivals.Embed:
    given = GivenVectors(data)

    def embed(texts: list[str]) -> list[list[float]]:
        found: list[list[float]] = given.encode(texts).tolist()
        return found

    return embed


class Mem0:
    """mem0 asks for a user in every search, so there is no row for a search over everything."""

    def __init__(self, data: BenchmarkCorpus, folder: Path) -> None:
        self._data = data
        self._memory = rivals.mem0_memory(folder, 384, _embedding(data))

    def add(self, number: int) -> None:
        self._memory.add(self._data.texts[number], user_id=f"u{number % USERS}", infer=False)

    def search(self, query: int, user: str | None) -> list[Any]:
        found = self._memory.search(self._data.queries[query], filters={"user_id": user}, top_k=10, threshold=0.0)
        return list(found["results"])


class LangGraph:
    def __init__(self, data: BenchmarkCorpus, folder: Path) -> None:
        self._data = data
        self._store = rivals.langgraph_store(folder / "langgraph.db", 384, _embedding(data))

    def add(self, number: int) -> None:
        self._store.put(("memories", f"u{number % USERS}"), str(number), {"text": self._data.texts[number]})

    def search(self, query: int, user: str | None) -> list[Any]:
        prefix = ("memories", user) if user else ("memories",)
        return list(self._store.search(prefix, query=self._data.queries[query], limit=10))


class Chroma:
    def __init__(self, data: BenchmarkCorpus, folder: Path) -> None:
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
    def __init__(self, data: BenchmarkCorpus, folder: Path) -> None:
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

    def __init__(self, data: BenchmarkCorpus, folder: Path) -> None:
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
class PeerStore:
    """packages: distributions it takes, by which it is installed; everywhere: whether it searches without naming a user."""

    name: str
    packages: tuple[str, ...]
    open: Callable[[BenchmarkCorpus, Path], Peer]
    everywhere: bool = True

    def absent(self) -> list[str]:
        """Which of its packages are not installed."""
        return [package for package in self.packages if rivals.version(package) is None]

    def versions(self) -> dict[str, str]:
        return {package: found for package in self.packages if (found := rivals.version(package)) is not None}


ENGINE = PeerStore("keepworth", ("apsw",), Keepworth)
POWER_SAFE = PeerStore("keepworth, power-safe", ("apsw",), PowerSafeKeepworth)
MEM0 = PeerStore("mem0 (infer=False, Qdrant local)", rivals.PACKAGES["mem0"], Mem0, everywhere=False)
STORES = (
    ENGINE,
    POWER_SAFE,
    MEM0,
    PeerStore("LangGraph SqliteStore", rivals.PACKAGES["langgraph"], LangGraph),
    PeerStore("Chroma", ("chromadb",), Chroma),
    PeerStore("LanceDB", ("lancedb",), LanceDB),
    PeerStore("sqlite-vec", ("sqlite-vec", "apsw"), SqliteVec),
)


def named(name: str) -> PeerStore:
    return next(store for store in STORES if store.name == name)


# Other memory stores beside the engine, on the same texts and vectors, in one run, each in a process of its own.
#
# Each store is filled one item at a time, as agents write, until it holds `size` items or its time is up. On the way, at `common`
# items, where every store can be compared, and at the end it answers queries, over everything and for one user. Where `strace`
# is at hand, a short run of its own counts how often each store has the disk sync per add: that is its durability.


ASKED = 100
SEARCHING = 10.0
"""Seconds of searching after which no further query is asked."""
SYNCED = (50, 150)
"""Sizes of the two fillings whose difference in syncs, over that in items, is the syncs of one add."""
KEYS = ("add", "search", "search one user")
SYNCS = "fsync,fdatasync,msync,sync_file_range"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far each store is filled: `size` items, or `seconds` of adding, with a look at `common` items on the way.

    slower_sync: milliseconds that every sync of the disk takes longer than it does, by strace: how the stores compare on another
    disk."""

    size: int
    common: int = 500
    seconds: float = 600.0
    seed: int = 0
    slower_sync: float = 0.0


def beside(bounds: Bounds, stores: Sequence[PeerStore] = STORES) -> Iterator[dict[str, Any]]:
    """One record per store, in turn: how far it came and what it took, or why it "did not run"."""
    matrix = corpus(bounds.size, seed=bounds.seed).vectors
    for store in stores:
        record = _one(store, bounds)
        if "did not run" not in record:
            record["syncs per add"] = syncs_per_add(store)
            for where in ("at common size", "at the end"):
                if where in record:
                    record[where]["reading limit"] = reading_limit(matrix[: record[where]["items"]])
        yield record


def _one(store: PeerStore, bounds: Bounds) -> dict[str, Any]:
    absent = store.absent()
    if absent:
        return {"name": store.name, "did not run": f"not installed: pip install {' '.join(absent)}"}
    given = json.dumps([store.name, bounds.size, bounds.common, bounds.seconds, bounds.seed])
    command = [*_slowed(bounds.slower_sync), *_command("measured"), given]
    done = subprocess.run(command, capture_output=True, text=True, env=_quiet())
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        # Where in whose build it was raised says nothing elsewhere.
        return {"name": store.name, "did not run": re.split(r",? /\S*/", reason)[0][:200]}
    record: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return record


def _slowed(milliseconds: float) -> list[str]:
    """The words before a command whose syncs are to take so much longer. Raises FileNotFoundError without strace."""
    if not milliseconds:
        return []
    strace = shutil.which("strace")
    if strace is None:
        raise FileNotFoundError("slower syncs need the program strace: install it, or leave slower_sync at 0")
    delay = f"inject={SYNCS}:delay_exit={round(1e3 * milliseconds)}"
    return [strace, "-f", "--seccomp-bpf", "-qq", "-e", f"trace={SYNCS}", "-e", delay, "-o", os.devnull]


def measured(given: str) -> None:
    """For a process of its own: fill one store, ask it, and write the record to standard output."""
    name, *rest = json.loads(given)
    store, bounds = named(name), Bounds(*rest)
    data = corpus(bounds.size, queries=ASKED, seed=bounds.seed)
    with tempfile.TemporaryDirectory() as folder:
        peer = store.open(data, Path(folder))
        adds: list[float] = []
        record: dict[str, Any] = {"name": name, "versions": store.versions()}
        spent = 0.0
        for number in range(bounds.size):
            start = time.perf_counter()
            peer.add(number)
            took = time.perf_counter() - start
            spent += took
            adds.append(1e3 * took)
            if number + 1 == bounds.common:
                record["at common size"] = {"items": bounds.common, **_figures(peer, store, adds)}
            if spent > bounds.seconds:
                break
        record["seconds of adding"] = spent
        record["at the end"] = {"items": len(adds), **_figures(peer, store, adds)}
        if not peer.search(0, "u1"):
            raise SystemExit(f"{name} found nothing for a user that has {len(adds) // USERS} items")
    sys.stdout.write(json.dumps(record) + "\n")


def _figures(peer: Peer, store: PeerStore, adds: list[float]) -> dict[str, Any]:
    tail = sorted(adds[-max(200, len(adds) // 10) :])
    out: dict[str, Any] = {"add": (at(tail, 0.5), at(tail, 0.95)), "n_adds": len(tail)}
    users = (("search", None), ("search one user", "u1"))
    for name, user in users if store.everywhere else users[1:]:
        times = _search_times(peer, user)
        out[name] = at(times, 0.5), at(times, 0.95)
        out[f"n {name}"] = len(times)
    return out


def _search_times(peer: Peer, user: str | None) -> list[float]:
    """Milliseconds, sorted, of up to ASKED searches after ten to warm up; fewer where they take more than SEARCHING seconds."""
    end = time.perf_counter() + SEARCHING
    times: list[float] = []
    for query in range(ASKED):
        times += timed([lambda query=query: peer.search(query, user)], warm=0)  # type: ignore[misc]
        if time.perf_counter() > end and len(times) > 14:
            break
    return sorted(times[10:])


def filled(name: str, size: str) -> None:
    """For a process of its own: add `size` items and leave. For counting system calls."""
    with tempfile.TemporaryDirectory() as folder:
        data: BenchmarkCorpus = corpus(int(size), queries=ASKED)
        peer = named(name).open(data, Path(folder))
        for number in range(int(size)):
            peer.add(number)
        os._exit(0)  # no closing, which may sync too


def syncs_per_add(store: PeerStore) -> float | None:
    """Calls of fsync, fdatasync and the like per add, from two fillings of different length; None without strace."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    counts = []
    for size in SYNCED:
        with tempfile.NamedTemporaryFile("r", suffix=".strace") as log:
            command = [strace, "-f", "-e", f"trace={SYNCS}", "-o", log.name, *_command("filled"), store.name, str(size)]
            subprocess.run(command, capture_output=True, check=True, env=_quiet())
            text = Path(log.name).read_text()
            counts.append(len(re.findall(r"^\d+ +(?:fsync|fdatasync|msync|sync_file_range)\(", text, re.MULTILINE)))
    return (counts[1] - counts[0]) / (SYNCED[1] - SYNCED[0])


def _command(function: str) -> list[str]:
    code = f"import sys; from benchmarks.memory.peers import {function}; {function}(*sys.argv[1:])"
    return [sys.executable, "-c", code]


def _quiet() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def ratio(records: Sequence[dict[str, Any]], store: PeerStore) -> float | None:
    """How many times as long an add takes mem0; None where either did not run."""
    adds = {record["name"]: record["at the end"]["add"][0] for record in records if "at the end" in record}
    if MEM0.name not in adds or store.name not in adds:
        return None
    return float(adds[MEM0.name] / adds[store.name])


def sync_here() -> float:
    """Milliseconds of one sync where temporary files lie."""
    with tempfile.TemporaryDirectory() as folder:
        return sync_limit(Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--common", type=int, default=500, help="where all stores are compared")
    parser.add_argument("--seconds", type=float, default=600.0, help="at most, to fill one store")
    parser.add_argument("--only", nargs="*", choices=[store.name for store in STORES], help="instead of all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slower-sync", type=float, default=0.0, help="milliseconds a disk sync takes longer (strace)")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    bounds = Bounds(arguments.size, arguments.common, arguments.seconds, arguments.seed, arguments.slower_sync)
    setting, sync = machine(), sync_here() + bounds.slower_sync
    print(f"one disk sync takes {sync:.2f} ms here\n")
    head = "items | add p50 / p95 ms | search all | search one user (1 %)"
    print(f"| store | syncs per add | {head} | {head} |")
    print("| --- " * 10 + "|")
    rows = []
    for record in beside(bounds, [named(name) for name in arguments.only] if arguments.only else STORES):
        rows.append(record)
        print(_row(record), flush=True)
        if arguments.json:
            whole = {**asdict(bounds), "sync_ms": sync, "machine": setting, "rows": rows}
            arguments.json.write_text(json.dumps(whole, indent=1) + "\n")


def _row(record: dict[str, Any]) -> str:
    if "did not run" in record:
        return f"| {record['name']} | did not run: {record['did not run'][:120]} |"
    syncs = "" if record["syncs per add"] is None else f"{record['syncs per add']:.1f}"
    return f"| {record['name']} | {syncs} | {_cells(record, 'at common size')} | {_cells(record, 'at the end')} |"


def _cells(record: dict[str, Any], where: str) -> str:
    figures = record.get(where)
    if figures is None:
        return "not reached | | |"
    shown = ["{:.3g} / {:.3g}".format(*figures[key]) if key in figures else "not offered" for key in KEYS]
    return " | ".join([f"{figures['items']:,}", *shown])


if __name__ == "__main__":
    main()
