"""`index="hnsw"` beside exact search of the same memory on a Postgres server: recall, speed, building, memory of a process.

    python -m benchmarks.memory.postgres_vectors --data DATA --json benchmarks/memory/postgres_vectors.json

Needs `requirements/postgres.txt`: the server is one of its own, in a folder that goes with it, over a socket. Sentences and
questions are those of `benchmarks.memory.real_sentences`, and so are their vectors; each user has at most 1,000 of them.
Both indexes are asked in turn, in one process, each question by each; the encoding of the question is not timed. A first search,
and what a process holds, are of processes that do nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory.postgres import address_on, server, timed
from benchmarks.memory.real_sentences import CACHE, Known, recall, sentences, spread
from keepworth.episodes import EncoderIdentity
from keepworth.evaluation.engine import machine
from keepworth.memory.memory import Memory
from keepworth.memory.store.maintenance import drop_index, lay_in
from keepworth.memory.store.postgres import hnsw
from keepworth.models.kept_vectors import KeptVectors

ADDED = 300
"""Adds that are timed, with the index and without."""
FRESH = 3
"""Processes of each kind whose first search is timed."""
ASKED: dict[str, Callable[[int], dict[str, Any]]] = {
    "all": lambda n: {},
    "one user": lambda n: {"user_id": f"u{n % 18}"},
    "a third, by metadata": lambda n: {"where": {"third": n % 3}},
}

_CHILD = """
import json, sys, time
import numpy as np
from benchmarks.memory.postgres_vectors import known_from, resident
from keepworth.memory.memory import Memory
address, index, folder = sys.argv[1:]
known, questions = known_from(folder)
with Memory(address, encoder=known, index=index, policy=None, log="off") as memory:
    opened = resident()
    start = time.perf_counter()
    memory.search(questions[0], mode="dense")
    first = time.perf_counter() - start
    for question in questions[1:20]:
        memory.search(question, mode="dense")
    print(json.dumps({"first search, seconds": first, "opened, MB": opened, "after, MB": resident()}))
"""


def resident() -> float:
    """Megabytes that this process holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def known_from(folder: str) -> tuple[Known, list[str]]:
    """The questions and their vectors, as `main` left them."""
    said = json.loads((Path(folder) / "questions.json").read_text())
    vectors = np.load(Path(folder) / "questions.npy")
    return Known(EncoderIdentity(*said["identity"]), said["questions"], vectors), said["questions"]


def fresh_processes(address: str, index: str, folder: str) -> dict[str, list[float]]:
    out: dict[str, list[float]] = {}
    for _ in range(FRESH):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _CHILD, address, index, folder],
            capture_output=True,
            text=True,
            check=True,
        )
        for name, value in json.loads(done.stdout).items():
            out.setdefault(name, []).append(value)
    return out


def searches(memories: dict[str, Memory], questions: Sequence[str]) -> dict[str, Any]:
    """Milliseconds of each index, in turn, and what it finds."""
    out: dict[str, Any] = {}
    for name, options in ASKED.items():
        times: dict[str, list[float]] = {index: [] for index in memories}
        found: dict[str, list[list[str]]] = {index: [] for index in memories}
        for number, question in enumerate(questions):
            order = list(memories) if number % 2 else list(memories)[::-1]
            for index in order:
                start = time.perf_counter()
                hits = memories[index].search(question, mode="dense", **options(number))
                times[index].append(1e3 * (time.perf_counter() - start))
                found[index].append([hit.id for hit in hits])
        value, half = recall(found["hnsw"], found["exact"])
        out[name] = {
            "recall@10": value,
            "half interval": half,
            **{index: spread(sorted(each)) for index, each in times.items()},
        }
    return out


def adds(address: str, known: Known, texts: Sequence[str]) -> dict[str, float]:
    with Memory(address, encoder=known, policy=None, log="off") as memory:
        return timed(lambda n: memory.add(texts[n], user_id="added"), len(texts) - 20)


def row(running: Any, known: Known, texts: Sequence[str], questions: Sequence[str], folder: str) -> dict[str, Any]:
    import psycopg

    address = address_on(running)
    kept, more = texts[: -2 * ADDED], texts[-2 * ADDED :]
    with Memory(address, encoder=known, policy=None, log="off") as memory:
        for begin in range(0, len(kept), 1000):
            third = {"third": begin // 1000 % 3}
            memory.add_many(kept[begin : begin + 1000], user_id=f"u{begin // 1000 % 100}", metadata=third)
    record: dict[str, Any] = {"sentences": len(kept)}
    memories = {
        index: Memory(address, encoder=known, index=index, policy=None, log="off") for index in ("exact", "hnsw")
    }
    start, laid = time.perf_counter(), 0.0
    for done, everything in lay_in(memories["hnsw"].store):
        if done == everything and not laid:
            laid = time.perf_counter() - start
    record["laid in, seconds"], record["graph, seconds"] = laid, time.perf_counter() - start - laid
    with psycopg.connect(running.get_uri()) as connection:
        schema = address.rpartition("=")[2]
        for name in ("vectors_1", "vectors_1_nearest", "vectors_1_nearest_graph"):
            size = f"SELECT pg_{'relation' if 'graph' in name else 'table'}_size('{schema}.{name}')"
            record[f"bytes of {name}"] = connection.execute(size).fetchone()[0]  # type: ignore[index]
    record["fresh"] = {index: fresh_processes(address, index, folder) for index in memories}
    for memory in memories.values():
        memory.search(questions[0], mode="dense")
    record["search"] = searches(memories, questions)
    record["add"] = {"hnsw": adds(address, known, more[:ADDED])}
    start = time.perf_counter()
    *_, (late, _) = lay_in(memories["hnsw"].store)
    record["laid into the graph, ms a row"] = 1e3 * (time.perf_counter() - start) / late
    drop_index(memories["hnsw"].store)
    record["add"]["exact"] = adds(address, known, more[ADDED:])
    for memory in memories.values():
        memory.close()
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[20_000, 100_000])
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    import psycopg

    from keepworth.models.encoders import encoder as named

    setting = machine()
    kept = KeptVectors(named(arguments.encoder), CACHE)
    texts, questions = sentences(arguments.data, max(arguments.sizes))
    questions = questions[: arguments.questions]
    known = Known(kept.identity, [*texts, *questions], kept.encode([*texts, *questions]))
    record: dict[str, Any] = {
        "encoder": kept.identity.model,
        "questions": len(questions),
        "fresh processes": FRESH,
        "effort": hnsw.EFFORT,
        "machine": setting,
        "psycopg": psycopg.__version__,
        "rows": [],
    }
    with server() as running, tempfile.TemporaryDirectory() as folder:
        identity = kept.identity
        said = {"identity": [identity.model, identity.dimension, identity.normalised], "questions": questions}
        (Path(folder) / "questions.json").write_text(json.dumps(said))
        np.save(Path(folder) / "questions.npy", known.encode(questions))
        with psycopg.connect(running.get_uri()) as connection:
            record["postgres"] = connection.info.server_version
        for size in arguments.sizes:
            record["rows"].append(row(running, known, texts[:size], questions, folder))
            print(json.dumps(record["rows"][-1], indent=1), flush=True)
        with psycopg.connect(running.get_uri()) as connection:
            found = connection.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
            record["pgvector"] = found[0] if found is not None else ""
    record["load_average_at_end"] = os.getloadavg()[0]
    if arguments.json:
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
