"""The exact scan beside what one thread needs to read the same bytes, turn by turn in one process.

    python -m benchmarks.memory.scan --size 100000 --rounds 25 --json benchmarks/memory/scan.json

Vectors are random and of length 1. The limit is the fastest of three ways to touch every byte once; a product with the whole
matrix by the library that NumPy comes with is there for comparison. "Found" is the ten best by the index of a memory, ties and
all, without the memory around it. Each round takes every row of the table three times, of which the best counts; ratios are taken
within a round. It wants a quiet machine. The matrix product takes as many threads as its library is given: all, or one with
OMP_NUM_THREADS=1 (scan_one_thread.json).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory.engine import DIMENSION, machine
from keepworth.memory.search.index import DenseIndex
from keepworth.memory.search.scan import cosines

Vectors = np.ndarray[Any, np.dtype[np.float32]]


def reads(matrix: np.ndarray[Any, Any]) -> dict[str, Callable[[], Any]]:
    """Ways to touch every byte once."""
    words = matrix.reshape(-1).view(np.uint64)
    return {
        "sum": lambda: words.sum(),
        "or": lambda: np.bitwise_or.reduce(words),
        "largest": lambda: words.max(),
    }


TIMES = 3
"""Calls of each row in a round, of which the best counts, as there are three ways of reading."""
OTHER = np.ones(16_000_000, np.float32)
"""What is read before each call, so that nothing of the matrix is left in a cache from the call before."""


def milliseconds(call: Callable[[], Any]) -> float:
    OTHER.sum()
    begun = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - begun)


def filled(vectors: Vectors) -> DenseIndex:
    index = DenseIndex(vectors.shape[1])
    index.put(range(1, len(vectors) + 1), [1] * len(vectors), vectors)
    return index


def measured(size: int, rounds: int) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    vectors = draw.standard_normal((size, DIMENSION), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries = draw.standard_normal((rounds + 1, 1, DIMENSION), dtype=np.float32)
    queries /= np.linalg.norm(queries, axis=2, keepdims=True)
    index, ways = filled(vectors), reads(vectors)
    times: dict[str, list[float]] = {}

    def note(name: str, call: Callable[[], Any]) -> None:
        times.setdefault(name, []).append(min(milliseconds(call) for _ in range(TIMES)))

    for query in queries:
        times.setdefault("limit, exact", []).append(min(map(milliseconds, ways.values())))
        note("matrix product", lambda query=query: vectors @ query[0])
        note("all cosines", lambda query=query: cosines(query, vectors))
        note("found, exact", lambda query=query: index.search(query, 10, None, None))
    rows = []
    for name, each in times.items():
        each = each[1:]  # the first round warms up
        limit = times["limit, exact"][1:]
        ratios = sorted(one / least for one, least in zip(each, limit, strict=True))
        rows.append(
            {
                "what": name,
                "median": statistics.median(each),
                "least": min(each),
                "ratio": statistics.median(ratios),
                "ratios": [ratios[0], ratios[-1]],
                "least / least": min(each) / min(limit),
            }
        )
    return {"size": size, "dimension": DIMENSION, "rounds": rounds, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    there = machine()
    result = {**measured(given.size, given.rounds), "machine": there}
    for row in result["rows"]:
        print(
            f"{row['what']:<16} {row['median']:6.2f} ms, least {row['least']:6.2f}; {row['ratio']:.2f} times the limit "
            f"({row['ratios'][0]:.2f} to {row['ratios'][1]:.2f})"
        )
    if given.json:
        given.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
