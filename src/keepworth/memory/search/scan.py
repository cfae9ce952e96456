"""The exact scan: cosines of queries with all rows, and the best of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    import numpy.typing as npt

    from keepworth.episodes.arrays import Bools, Rows, Vectors

MANY = 8
"""Queries from which on one matrix product is faster than a dot product for each row."""
CACHED = 256
"""Rows that stay in the cache of a processor while several queries go over them: 384 kB at 384 numbers each."""
SHARE = 16384
"""Rows from which on another thread takes a share: 25 MB at 384 numbers each, which are read in about 2 ms."""
READERS = min(4, os.cpu_count() or 1)
"""Threads that read at once: more are not faster than memory."""


@cache
def threads(name: str, process: int) -> ThreadPoolExecutor:
    """Return a pool of four threads that outlive one search. Some libraries start a team of threads for every thread that calls
    them, so the threads are reused; in the process with this id, because threads do not survive a fork."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(4, f"keepworth-{name}")


def begin(name: str, work: Callable[[], Vectors]) -> Callable[[], Vectors]:
    """Start work on another thread, and return a function that waits for its result. If no thread can start, because the process
    is ending or may have no more, that function does the work itself."""
    try:
        return threads(name, os.getpid()).submit(work).result
    except RuntimeError:
        return work


def cosines(queries: Vectors, matrix: Vectors) -> Vectors:
    """Compute the cosine of each query with each row. Shape (queries, rows).

    A few queries go row by row, which reads the matrix at the speed of memory; the matrix product of some libraries takes twice
    as long. It also gives equal rows equal scores, wherever they stand and whatever the number of threads. From `MANY` queries on
    a matrix product is faster.
    """
    if len(queries) >= MANY:
        product: Vectors = queries @ matrix.T
        return product
    count = min(READERS, 1 + len(matrix) // SHARE)
    ends = [len(matrix) * share // count for share in range(count + 1)]
    shares = [partial(_by_rows, queries, matrix[start:end]) for start, end in pairwise(ends)]
    others = [begin("scan", share) for share in shares[1:]]
    return np.concatenate([shares[0](), *(other() for other in others)], axis=1)


def _by_rows(queries: Vectors, matrix: Vectors) -> Vectors:
    """Compute the cosines of the queries with these rows. Several queries share a chunk of rows while it is in the processor's
    cache."""
    out = np.empty((len(queries), len(matrix)), np.float32)
    step = CACHED if len(queries) > 1 else max(1, len(matrix))
    for start in range(0, len(matrix), step):
        part = matrix[start : start + step]
        for query, line in zip(queries, out, strict=True):
            np.vecdot(part, query, out=line[start : start + step])
    return out


def best(scores: npt.NDArray[np.floating], count: int) -> Rows:
    """Return the indices of the `count` largest scores, best first, ties in order of index. Shape (min(count, n),)."""
    n = len(scores)
    if count >= n or n <= 128:
        return np.argsort(-scores, kind="stable")[:count]
    groups = max(256, 4 * count)
    if n >= 8 * groups:
        # The best of each of many groups: the count-th largest of those is no more than the count-th largest of all, and
        # what lies below it is out. One fast pass instead of a partition of everything.
        peaks = scores[: n // groups * groups].reshape(-1, groups).max(axis=0)
        candidates = np.flatnonzero(scores >= np.partition(peaks, groups - count)[groups - count])
        if len(candidates) <= n // 4:
            rows: Rows = candidates[best(scores[candidates], count)]
            return rows
    threshold = np.partition(scores, n - count)[n - count]
    above = np.flatnonzero(scores > threshold)
    tied = np.flatnonzero(scores == threshold)[: count - len(above)]
    chosen = np.concatenate([above, tied])
    chosen.sort()
    return chosen[np.argsort(-scores[chosen], kind="stable")]


def in_mask(mask: Bools, numbers: npt.NDArray[np.signedinteger]) -> Bools:
    """Return which of `numbers` the mask keeps. Numbers beyond its end are not kept."""
    if not len(mask):
        return np.zeros(len(numbers), bool)
    out: Bools = mask[np.minimum(numbers, len(mask) - 1)] & (numbers < len(mask))
    return out
