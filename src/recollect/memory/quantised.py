"""Faster, rebuildable proposals for dense search in large memories: fewer bytes (int8), or fewer rows (a graph).

Both come from the library faiss (`pip install recollect[index]`), hold nothing that is not in the matrix, and only
propose: the exact float32 cosines of what they propose decide. Each has to reach its recall on rows of the memory
itself before it is used.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from recollect.memory.errors import InvalidFilter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

_LOG = logging.getLogger("recollect.memory")
INDEXES = ("exact", "int8", "graph")
LEAST_RECALL = {"int8": 0.99, "graph": 0.95}
SMALLEST = 20_000
"""Below this many rows an exact scan takes under a millisecond and nothing is built."""
PROBES = 64
NEIGHBOURS, BUILD_EFFORT, SEARCH_EFFORT = 32, 100, 96


@dataclass(frozen=True, slots=True)
class Proposer:
    """kind; recall: of the exact ten best, measured when it was built; rows it covers, the first ones of its block."""

    kind: str
    recall: float
    rows: int
    index: Any

    def propose(self, queries: Vectors, count: int) -> npt.NDArray[np.int64]:
        """Rows that may be among the `count` best, per query; -1 where there are fewer. Shape (queries, at least count)."""
        if self.kind == "graph":
            self.index.hnsw.efSearch = max(SEARCH_EFFORT, 2 * count)
            wide = max(2 * count, 40)
        else:
            wide = max(4 * count, 40)
        _, found = self.index.search(queries, min(wide, self.rows))
        rows: npt.NDArray[np.int64] = found
        return rows


def check_kind(kind: str) -> None:
    """Raise InvalidFilter for an index that does not exist or whose library is not installed."""
    if kind not in INDEXES:
        raise InvalidFilter(f"index {kind!r} does not exist: use one of {', '.join(INDEXES)}")
    if kind != "exact":
        try:
            import_module("faiss")
        except ImportError as error:
            raise InvalidFilter(f"index={kind!r} needs the library faiss: pip install recollect[index]") from error


def build(kind: str, matrix: Vectors, *, seed: int = 0) -> Proposer | None:
    """A proposer for all rows of `matrix`, or None (with a warning) where its recall stays below LEAST_RECALL."""
    faiss: Any = import_module("faiss")
    rows, dimension = matrix.shape
    faiss.omp_set_num_threads(1)
    if kind == "int8":
        index: Any = faiss.IndexScalarQuantizer(dimension, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)
        index.train(matrix[:: max(1, rows // 20_000)])
    else:
        index = faiss.IndexHNSWFlat(dimension, NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = BUILD_EFFORT
    index.add(matrix)
    recall = measured_recall(Proposer(kind, 0.0, rows, index), matrix, seed=seed)
    if recall < LEAST_RECALL[kind]:
        _LOG.warning(
            "index=%r finds %.3f of the ten best here, below %.2f: searching exactly instead",
            kind,
            recall,
            LEAST_RECALL[kind],
        )
        return None
    return Proposer(kind, recall, rows, index)


def measured_recall(proposer: Proposer, matrix: Vectors, *, count: int = 10, seed: int = 0) -> float:
    """Share of the exact `count` best rows found, for queries between pairs of rows (a row itself would be too easy)."""
    import numpy as np

    draw = np.random.default_rng(seed)
    pairs = draw.integers(0, len(matrix), (PROBES, 2))
    queries = matrix[pairs[:, 0]] + 0.5 * matrix[pairs[:, 1]]
    queries /= np.maximum(np.linalg.norm(queries, axis=1, keepdims=True), 1e-12)
    exact = np.argpartition(-(queries @ matrix.T), count, axis=1)[:, :count]
    found = proposer.propose(np.ascontiguousarray(queries, np.float32), count)
    return float(np.mean([np.isin(best, rows).mean() for best, rows in zip(exact, found, strict=True)]))
