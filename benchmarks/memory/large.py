"""What `growth --large` measures: searches of a large memory, whose first pass names what is scored, beside other indexes.

All are given the same clustered vectors. Times are milliseconds of processor in one thread, recall is the share of the ten
nearest of an exact search. faiss, usearch, sqlite-vec, LanceDB and Chroma are measured where they are installed. Work on the
whole file follows, each kind in a process of its own: seconds of processor, and by how much the memory that no file stands
behind grows at most.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import engine
from benchmarks.memory.engine import BenchmarkCorpus, Figure, GivenVectors, corpus
from benchmarks.record import most_resident
from keepworth.base.arrays import Vectors
from keepworth.memory.memory import Memory
from keepworth.memory.store.maintenance import backup, check, compact
from keepworth.memory.store.transfer import exported

HERE = "benchmarks.memory.large"
WAYS: dict[str, dict[str, Any]] = {
    "by meaning": {"mode": "dense"},
    "by both": {},
    "by meaning, one user's 1 %": {"mode": "dense", "user_id": "u1"},
    "by both, one user's 1 %": {"user_id": "u1"},
    "by meaning, where topic is of 1 %": {"mode": "dense", "where": {"topic": "t7"}},
    "by both, where topic is of 1 %": {"where": {"topic": "t7"}},
}
CALLS, WARM, COLD_RUNS = 60, 10, 3
PART = 100_000
"""Items that are drawn and added at a time."""
MOST_AT_ONCE = 1_000_000
"""Most items of which all vectors are held in memory, to compare other indexes, and of which files are copied and checked."""
MOST_FOR_OTHERS = 100_000
"""Most vectors for an index other than those of faiss: to build a graph takes half a millisecond of processor a vector, and to
read all of a file half a second a million."""


def parts(size: int) -> Iterator[BenchmarkCorpus]:
    """The corpus of so many items, `PART` at a time, since that of ten million does not fit into memory."""
    centres = np.random.default_rng(0).standard_normal((200, engine.DIMENSION), dtype=np.float32)
    for number, begin in enumerate(range(0, size, PART)):
        yield corpus(min(PART, size - begin), seed=number, centres=centres)


def large_figures(size: int, folder: Path) -> Iterator[Figure]:
    """Filling, searching, opening, and where there are few enough, work on the whole file and other indexes."""
    path, vectors = folder / "large.mem", list[Any]()
    few = size <= MOST_AT_ONCE
    nearest = Nearest()
    seconds, megabytes = 0.0, 0.0
    for part in parts(size):
        # The texts of the benchmark are no objects that the garbage collector of a program in use would walk through.
        gc.collect()
        gc.freeze()
        with unbacked_growth() as growth:
            start = time.process_time()
            with Memory(path, encoder=GivenVectors(part), policy=None, log="off") as memory:
                engine.fill(memory, part, len(part.texts))
            seconds += time.process_time() - start
        megabytes = max(megabytes, growth[0])
        gc.unfreeze()
        if not nearest.count:
            data = part
        nearest.add(data.query_vectors, part.vectors)
        if few:
            vectors.append(part.vectors)
    yield Figure("add_many, batches of 1,000", "items/s of processor", size / seconds, n=size)
    yield Figure("add_many, growth of the process at most", "MB", megabytes)
    yield Figure("bytes per item", "bytes", path.stat().st_size / size, note="file, vectors and journal")
    questions = folder / "questions.npy"
    np.save(questions, data.query_vectors)
    np.save(folder / "first.npy", data.query_vectors[:1])
    (folder / "questions.json").write_text(json.dumps({"queries": data.queries, "nearest": nearest.ids}))
    for record in engine.in_a_process(HERE, "searched", str(path), str(questions), str(few))["figures"]:
        yield Figure(**record)
    for name in ("by meaning", "by both"):
        options = json.dumps(WAYS[name])
        runs = [
            engine.in_a_process(engine.HERE, "opened", str(path), str(folder / "first.npy"), data.queries[0], options)
            for _ in range(COLD_RUNS)
        ]
        yield engine.line(
            f"first search of a process, {name}", "ms of processor", sorted(r["processor_ms"] for r in runs)
        )
        yield engine.line(f"first search of a process, {name}, wall", "ms", sorted(r["first_ms"] for r in runs))
    for name in ("backup", "export", "check", "erase one user's 1 %", "compact") if few else ():
        work = engine.in_a_process(HERE, "worked", str(path), name, str(folder / "copy"))
        yield Figure(name, "s of processor", work["seconds"])
        yield Figure(f"{name}, growth of the process at most", "MB", work["megabytes"])
    for file in folder.glob("*.mem*"):
        file.unlink()
    if few:
        everything = BenchmarkCorpus([], np.concatenate(vectors), data.queries, data.query_vectors)
        yield from peers(everything, folder)


class Nearest:
    """The ids of the ten nearest items of each question, by an exact product with each vector, for each way that asks by meaning
    alone. `engine.fill` gives each thousand items in turn to a user, and each item in turn a topic."""

    def __init__(self) -> None:
        self.count = 0
        ways = [name for name, way in WAYS.items() if "mode" in way]
        self._scores = {name: np.full((CALLS, 10), -np.inf, np.float32) for name in ways}
        self._numbers = {name: np.zeros((CALLS, 10), np.int64) for name in ways}

    @property
    def ids(self) -> dict[str, list[list[str]]]:
        """For each way, and each question, the ids of the nearest items."""
        return {name: [[f"m{number + 1}" for number in row] for row in rows] for name, rows in self._numbers.items()}

    def add(self, queries: Vectors, vectors: Vectors) -> None:
        """Count more items.

        Args:
            queries: The questions, of shape (at least `CALLS`, dimension).
            vectors: Those of the items that follow, of shape (n, dimension).
        """
        numbers = np.arange(self.count, self.count + len(vectors))
        scores = queries[:CALLS] @ vectors.T
        for name, best in self._scores.items():
            way = WAYS[name]
            if "user_id" in way:
                rows = np.flatnonzero(numbers // 1000 % engine.USERS == 1)
            else:
                rows = np.flatnonzero(numbers % 100 == 7) if "where" in way else np.arange(len(numbers))
            together = np.concatenate([best, scores[:, rows]], axis=1)
            ids = np.concatenate([self._numbers[name], np.broadcast_to(numbers[rows], (CALLS, len(rows)))], axis=1)
            first = np.argpartition(-together, 10, axis=1)[:, :10]
            self._scores[name] = np.take_along_axis(together, first, axis=1)
            self._numbers[name] = np.take_along_axis(ids, first, axis=1)
        self.count += len(vectors)


def searched(path: str, questions: str, exact_too: str) -> None:
    """For a process of its own: the figures of searches of a memory, to standard output. exact_too: "True" measures the scan of
    all vectors beside, which holds all of them in memory."""
    vectors, asked = np.load(questions), json.loads(Path(questions).with_suffix(".json").read_text())
    queries = asked["queries"]
    encoder = GivenVectors(BenchmarkCorpus([], vectors[:0], queries, vectors))
    out = list[Figure]()
    with Memory(path, encoder=encoder, policy=None, log="off") as memory:
        deadline = time.monotonic() + 600
        while not memory.store.derived.has_codes() and time.monotonic() < deadline:  # a file filled at once
            memory.search(queries[0], mode="dense")
        for name, options in WAYS.items():
            times = processor_times(lambda query, options=options: memory.search(query, **options), queries)  # type: ignore[misc]
            out.append(engine.line(f"search {name}", "ms of processor", times))
        out.append(Figure("most memory of this process", "MB", most_resident() / 1e6))
        out.append(Figure("memory of this process that no file stands behind", "MB", unbacked_megabytes()))
        for name, right in asked["nearest"].items():
            answers = [{hit.id for hit in memory.search(query, **WAYS[name])} for query in queries[:CALLS]]
            shares = [len(of & {*best}) / len(best) for of, best in zip(answers, right, strict=True)]
            out.append(Figure(f"recall of ten, {name}", "share", float(np.mean(shares)), n=len(shares)))
        if exact_too == "True":
            times = processor_times(lambda query: memory.search(query, mode="dense", exact=True), queries)
            out.append(engine.line("search by meaning, exact", "ms of processor", times))
    sys.stdout.write(json.dumps({"figures": [asdict(figure) for figure in out]}))


def worked(path: str, name: str, copy: str) -> None:
    """For a process of its own: what some work on a whole memory took, to standard output."""
    with Memory(path, encoder=None, policy=None, log="off") as memory:
        assert memory.get("m1") is not None
        with unbacked_growth() as growth:
            start = time.process_time()
            if name == "backup":
                backup(memory.store, copy)
            elif name == "export":
                with open(copy, "w") as file:
                    file.writelines(line + "\n" for line in exported(memory.store))
            elif name == "check":
                assert check(memory.store) == []
            elif name == "compact":
                compact(memory.store)
            else:
                assert memory.erase(user_id="u3").log_emptied
            seconds = time.process_time() - start
    Path(copy).unlink(missing_ok=True)
    sys.stdout.write(json.dumps({"seconds": seconds, "megabytes": growth[0]}))


@contextmanager
def unbacked_growth() -> Iterator[list[float]]:
    """Yield a list whose number is afterwards by how many megabytes the memory that no file stands behind grew at most."""
    before = unbacked_megabytes()
    growth, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            growth[0] = max(growth[0], unbacked_megabytes() - before)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield growth
    finally:
        done.set()
        watching.join()


def unbacked_megabytes() -> float:
    """The memory of this process that no file stands behind."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["RssAnon"].split()[0]) / 1e3


def processor_times(call: Callable[[Any], object], queries: Sequence[Any]) -> list[float]:
    """Milliseconds of processor of each call after the first ones, sorted."""
    times = []
    for number in range(WARM + CALLS):
        start = time.process_time()
        call(queries[number % len(queries)])
        times.append(1e3 * (time.process_time() - start))
    return sorted(times[WARM:])


def peers(data: BenchmarkCorpus, folder: Path) -> Iterator[Figure]:
    """Other indexes over the same vectors: faiss and usearch without a file, sqlite-vec, LanceDB and Chroma with one, all without
    texts, scopes or filters."""
    queries = list(data.query_vectors[:, None])
    right = [np.argpartition(data.vectors @ query[0], -10)[-10:] for query in queries[:CALLS]]

    def figures(name: str, search: Callable[[Any], Any], note: str) -> Iterator[Figure]:
        yield engine.line(f"{name}, search", "ms of processor", processor_times(search, queries), note=note)
        answers = [np.asarray(search(query)).reshape(-1) for query in queries[:CALLS]]
        shares = [len(np.intersect1d(of, best)) / 10 for of, best in zip(answers, right, strict=True)]
        yield Figure(f"{name}, recall of ten", "share", float(np.mean(shares)), n=len(shares))

    dimension, size = data.vectors.shape[1], len(data.vectors)
    few = size <= MOST_FOR_OTHERS
    start = time.process_time()

    def built() -> str:
        return f"built in {time.process_time() - start:.1f} s of processor"

    if find_spec("faiss"):
        import faiss  # type: ignore[import-not-found]

        faiss.omp_set_num_threads(1)
        flat = faiss.IndexFlatIP(dimension)
        flat.add(data.vectors)
        yield from figures(f"faiss {faiss.__version__} flat", lambda query: flat.search(query, 10)[1], built())
        lists = 1024 if size >= 300_000 else 256
        start = time.process_time()
        index = faiss.IndexIVFFlat(flat.__class__(dimension), dimension, lists, faiss.METRIC_INNER_PRODUCT)
        index.cp.niter = 6
        index.train(data.vectors[: 40 * lists])
        index.add(data.vectors)
        note = built()
        for probes in (4, 8):
            index.nprobe = probes
            name = f"faiss IVF {lists}, {probes} lists"
            yield from figures(name, lambda query: index.search(query, 10)[1], note)
    if find_spec("usearch") and few:
        from usearch.index import Index  # type: ignore[import-not-found]

        start = time.process_time()
        graph = Index(ndim=dimension, metric="ip", dtype="f32")
        graph.add(np.arange(size), data.vectors, threads=1)
        name = f"usearch {version('usearch')} HNSW"
        yield from figures(name, lambda query: graph.search(query[0], 10, threads=1).keys, built())
    if find_spec("sqlite_vec") and few:
        import apsw
        import sqlite_vec  # type: ignore[import-not-found]

        start = time.process_time()
        file = apsw.Connection(str(folder / "vec.db"))
        file.enable_load_extension(True)
        file.load_extension(sqlite_vec.loadable_path())
        file.execute(f"CREATE VIRTUAL TABLE vectors USING vec0(vector float[{dimension}] distance_metric=cosine)")
        with file:
            file.executemany(
                "INSERT INTO vectors(rowid, vector) VALUES(?,?)",
                ((n, vector.tobytes()) for n, vector in enumerate(data.vectors)),
            )
        near = "SELECT rowid FROM vectors WHERE vector MATCH ? AND k = 10"
        name = f"sqlite-vec {version('sqlite-vec')}"
        yield from figures(name, lambda query: list(file.execute(near, (query.tobytes(),))), built())
        yield Figure(f"{name}, bytes per vector", "bytes", (folder / "vec.db").stat().st_size / size)
        file.close()
    if find_spec("lancedb") and few:
        import lancedb  # type: ignore[import-not-found]

        start = time.process_time()
        rows = ({"n": n, "vector": vector} for n, vector in enumerate(data.vectors))
        table = lancedb.connect(str(folder / "lance")).create_table("vectors", list(rows))
        name, note = f"LanceDB {version('lancedb')}", built()

        def in_table(query: Any) -> list[int]:
            return [row["n"] for row in table.search(query[0]).distance_type("dot").limit(10).to_list()]

        yield from figures(f"{name}, exact", in_table, note)
        start = time.process_time()
        table.create_index(metric="dot", num_partitions=256 if size < 300_000 else 1024, num_sub_vectors=48)
        note = built()
        yield from figures(
            f"{name}, IVF of products, 20 lists, 200 scored exactly",
            lambda query: [
                row["n"]
                for row in table.search(query[0]).distance_type("dot").nprobes(20).refine_factor(20).limit(10).to_list()
            ],
            note,
        )
    if find_spec("chromadb") and few:
        import chromadb  # type: ignore[import-not-found]

        start = time.process_time()
        client = chromadb.PersistentClient(str(folder / "chroma"))
        collection = client.create_collection("vectors", metadata={"hnsw:space": "ip", "hnsw:num_threads": 1})
        for begin in range(0, size, 5000):
            end = min(size, begin + 5000)
            collection.add(ids=[str(n) for n in range(begin, end)], embeddings=data.vectors[begin:end])
        yield from figures(
            f"Chroma {version('chromadb')}",
            lambda query: [int(id) for id in collection.query(query_embeddings=query, n_results=10)["ids"][0]],
            built(),
        )
