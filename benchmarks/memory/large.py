"""What `growth --large` measures: searches of a large memory, whose first pass names what is scored, beside other indexes.

All are given the same clustered vectors. Times are milliseconds of processor in one thread, recall is the share of the ten
nearest of an exact search. faiss and usearch are measured where they are installed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import engine
from benchmarks.memory.engine import BenchmarkCorpus, Figure, GivenVectors, corpus
from benchmarks.record import most_resident
from keepworth.memory.memory import Memory

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
MOST_FOR_GRAPHS = 100_000
"""Most vectors for an index that is a graph, as to build one takes half a millisecond of processor a vector."""


def large_figures(size: int, folder: Path) -> Iterator[Figure]:
    """Filling, searching, opening, and other indexes over the same vectors."""
    data, path = corpus(size, seed=0), folder / "large.mem"
    start = time.process_time()
    with Memory(path, encoder=GivenVectors(data), policy=None, log="off") as memory:
        engine.fill(memory, data, size)
    yield Figure("add_many, batches of 1,000", "items/s of processor", size / (time.process_time() - start), n=size)
    yield Figure("bytes per item", "bytes", path.stat().st_size / size, note="file, vectors and journal")
    questions = folder / "questions.npy"
    np.save(questions, data.query_vectors)
    np.save(folder / "first.npy", data.query_vectors[:1])
    (folder / "questions.json").write_text(json.dumps(data.queries))
    for record in engine.in_a_process(HERE, "searched", str(path), str(questions))["figures"]:
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
    yield from peers(data)


def searched(path: str, questions: str) -> None:
    """For a process of its own: the figures of searches of a memory, to standard output."""
    vectors, queries = np.load(questions), json.loads(Path(questions).with_suffix(".json").read_text())
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
        exact = processor_times(lambda query: memory.search(query, mode="dense", exact=True), queries)
        out.append(engine.line("search by meaning, exact", "ms of processor", exact))
        for name, options in WAYS.items():
            if "mode" in options:
                shares = [
                    len(of & right) / len(right)
                    for query in queries[:CALLS]
                    for of, right in [
                        [{hit.id for hit in memory.search(query, exact=exact, **options)} for exact in (False, True)]
                    ]
                ]
                out.append(Figure(f"recall of ten, {name}", "share", float(np.mean(shares)), n=len(shares)))
    sys.stdout.write(json.dumps({"figures": [asdict(figure) for figure in out]}))


def processor_times(call: Callable[[Any], object], queries: Sequence[Any]) -> list[float]:
    """Milliseconds of processor of each call after the first ones, sorted."""
    times = []
    for number in range(WARM + CALLS):
        start = time.process_time()
        call(queries[number % len(queries)])
        times.append(1e3 * (time.process_time() - start))
    return sorted(times[WARM:])


def peers(data: BenchmarkCorpus) -> Iterator[Figure]:
    """Other indexes over the same vectors, without texts, scopes, filters or a file."""
    queries = list(data.query_vectors[:, None])
    right = [np.argpartition(data.vectors @ query[0], -10)[-10:] for query in queries[:CALLS]]

    def figures(name: str, search: Callable[[Any], Any], note: str) -> Iterator[Figure]:
        yield engine.line(f"{name}, search", "ms of processor", processor_times(search, queries), note=note)
        answers = [np.asarray(search(query)).reshape(-1) for query in queries[:CALLS]]
        shares = [len(np.intersect1d(of, best)) / 10 for of, best in zip(answers, right, strict=True)]
        yield Figure(f"{name}, recall of ten", "share", float(np.mean(shares)), n=len(shares))

    dimension = data.vectors.shape[1]
    if find_spec("faiss"):
        import faiss  # type: ignore[import-not-found]

        faiss.omp_set_num_threads(1)
        flat = faiss.IndexFlatIP(dimension)
        flat.add(data.vectors)
        yield from figures(f"faiss {faiss.__version__} flat", lambda query: flat.search(query, 10)[1], "")
        lists = 1024 if len(data.vectors) >= 300_000 else 256
        start = time.process_time()
        index = faiss.IndexIVFFlat(flat.__class__(dimension), dimension, lists, faiss.METRIC_INNER_PRODUCT)
        index.cp.niter = 6
        index.train(data.vectors[: 40 * lists])
        index.add(data.vectors)
        built = f"built in {time.process_time() - start:.1f} s of processor"
        for probes in (4, 8):
            index.nprobe = probes
            name = f"faiss IVF {lists}, {probes} lists"
            yield from figures(name, lambda query: index.search(query, 10)[1], built)
    if find_spec("usearch") and len(data.vectors) <= MOST_FOR_GRAPHS:
        from usearch.index import Index  # type: ignore[import-not-found]

        start = time.process_time()
        graph = Index(ndim=dimension, metric="ip", dtype="f32")
        graph.add(np.arange(len(data.vectors)), data.vectors, threads=1)
        built = f"built in {time.process_time() - start:.1f} s of processor"
        yield from figures("usearch HNSW", lambda query: graph.search(query[0], 10, threads=1).keys, built)
