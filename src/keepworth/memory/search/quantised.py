"""Faster, rebuildable proposals for dense search in large memories: the same scan over fewer bytes.

Both kinds are computed by libraries (`pip install "keepworth[index]"`) and hold nothing that is not in the matrix:

* "int8": one byte per dimension, a quarter of the bytes of the exact scan; dot products by simsimd.
* "pq": product quantisation with four bits for every two dimensions, one sixteenth of the bytes, compared in registers, by faiss
  (Jegou, Douze and Schmid, "Product Quantization for Nearest Neighbor Search", 2011; Andre, Kermarrec and Le Scouarnec,
  "Cache locality is not enough: High-Performance Nearest Neighbor Search with Product Quantization Fast Scan", 2015).

They only propose: the exact float32 cosines of what they propose decide. How many they propose is chosen so that their
recall, measured on the memory itself, reaches what is asked for with room to spare; where it cannot, they are not used.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from keepworth.episodes.extras import require
from keepworth.memory.errors import InvalidFilter
from keepworth.memory.search.scan import best

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Bytes = npt.NDArray[np.int8]
    Vectors = npt.NDArray[np.float32]
    Rows = npt.NDArray[np.int64]

_LOG = logging.getLogger("keepworth.memory")
INDEXES = ("exact", "int8", "pq")
LEAST_RECALL = {"int8": 0.99, "pq": 0.95}
"""Of the exact ten best; below it an index is not used."""
AIM = {"int8": 0.999, "pq": 0.99}
"""What the number of proposals is chosen for: queries of users lie farther from the rows than the probes do."""
REACHES = {"int8": (40, 100, 200, 400), "pq": (100, 200, 400, 800)}
"""Proposals for ten results."""
SMALLEST = 20_000
"""Below this many rows an exact scan takes under a millisecond and nothing is built."""
PROBES = 64
TRAINED_ON = 20_000
TOGETHER = 65_536
"""Rows that are put into an index at a time."""


@dataclass(frozen=True, slots=True)
class Proposer:
    """Immutable, so that searches need no lock.

    recall: of the exact ten best, measured when the index covered `measured` rows; reach: proposals for ten results;
    rows: how many it covers, the first ones of the matrix; scale: what int8 rows were multiplied by; index: of int8 the rows,
    shape (rows, dimension), of pq the library's own.
    """

    kind: str
    recall: float
    reach: int
    measured: int
    rows: int
    scale: float
    index: Any

    def propose(self, queries: Vectors, count: int, share: float = 1.0) -> Rows:
        """Rows that may be among the `count` best, per query; -1 where there are fewer. Shape (queries, proposals).

        share: which part of the covered rows counts for the caller, so that the more are proposed the fewer count.
        """
        import numpy as np

        wide = min(self.rows, int(np.ceil(self.reach * max(1.0, count / 10) / share)))
        rows: Rows
        if self.kind == "int8":
            simsimd: Any = import_module("simsimd")
            # Bytes are compared with bytes: each query is scaled to fill them.
            largest = np.abs(queries).max(axis=1, keepdims=True)
            coded = np.rint(queries * (127.0 / np.maximum(largest, 1e-12))).astype(np.int8)
            each = (simsimd.dot(query[None, :], self.index, out_dtype="float32") for query in coded)
            rows = np.stack([best(np.asarray(line), wide) for line in each])
        else:
            _, rows = self.index.search(np.ascontiguousarray(queries, np.float32), wide)
        return rows

    def extended(self, part: Vectors) -> Proposer:
        """One that covers `part` too, which follows the rows covered so far."""
        index: Any
        if self.kind == "int8":
            import numpy as np

            index = np.concatenate([self.index, _coded(part, self.scale)])
        else:
            index = _faiss().clone_index(self.index)
            _add(index, part)
        return replace(self, index=index, rows=self.rows + len(part))

    def to_bytes(self) -> bytes:
        """The index, as `of_bytes` reads it."""
        body: bytes = self.index.tobytes() if self.kind == "int8" else _faiss().serialize_index(self.index).tobytes()
        return body

    @classmethod
    def of_bytes(
        cls, body: npt.NDArray[np.uint8], kind: str, recall: float, reach: int, rows: int, scale: float, dimension: int
    ) -> Proposer:
        """Raises ValueError where `body` is no index of so many rows."""
        import numpy as np

        if kind == "int8":
            return cls(kind, recall, reach, rows, rows, scale, body.view(np.int8).reshape(rows, dimension))
        try:
            index = _faiss().deserialize_index(body)
        except RuntimeError as error:
            raise ValueError(str(error)) from error
        if index.ntotal != rows:
            raise ValueError(f"it holds {index.ntotal} rows")
        return cls(kind, recall, reach, rows, rows, scale, index)


def _faiss() -> Any:
    faiss = import_module("faiss")
    faiss.omp_set_num_threads(1)
    return faiss


def check_kind(kind: str) -> None:
    """Raises InvalidFilter for an index that does not exist, MissingExtra where its library is not installed."""
    if kind not in INDEXES:
        raise InvalidFilter(f"index {kind!r} does not exist: use one of {', '.join(INDEXES)}")
    if kind in ("int8", "pq"):
        require("index", f"index={kind!r}", {"int8": "simsimd", "pq": "faiss"}[kind])


def build(kind: str, parts: Sequence[Vectors], *, seed: int = 0) -> Proposer | None:
    """A proposer for the rows of `parts` in order, or None (with a warning) where its recall stays below LEAST_RECALL."""
    import numpy as np

    dimension = parts[0].shape[1]
    scale = 0.0
    index: Any
    if kind == "int8":
        largest = max(max(float(part.max(initial=0.0)), -float(part.min(initial=0.0))) for part in parts)
        scale = 127.0 / max(largest, 1e-12)
        index = np.concatenate([_coded(part, scale) for part in parts])
    else:
        faiss = _faiss()
        pieces = dimension // 2 if dimension % 2 == 0 else dimension
        index = faiss.IndexPQFastScan(dimension, pieces, 4, faiss.METRIC_INNER_PRODUCT)
        index.pq.cp.min_points_per_centroid = 1  # fewer than 39 make the library warn on standard error
        step = max(1, sum(map(len, parts)) // TRAINED_ON)
        index.train(np.ascontiguousarray(np.concatenate([part[::step] for part in parts])))
        for part in parts:
            _add(index, part)
    rows = sum(map(len, parts))
    return measured(Proposer(kind, 0.0, REACHES[kind][0], 0, rows, scale, index), parts, seed=seed)


def measured(proposer: Proposer, parts: Sequence[Vectors], *, seed: int = 0) -> Proposer | None:
    """`proposer` with the smallest reach that gives AIM, or the widest if that gives LEAST_RECALL; else None, with a warning.

    Recall is the share of the exact ten best rows found for queries between pairs of rows (a row itself would be too easy).
    """
    import numpy as np

    draw = np.random.default_rng(seed)
    pairs = draw.integers(0, proposer.rows, (PROBES, 2))
    queries = _rows_of(parts, pairs[:, 0]) + 0.5 * _rows_of(parts, pairs[:, 1])
    queries /= np.maximum(np.linalg.norm(queries, axis=1, keepdims=True), 1e-12)
    scores = np.concatenate([queries @ part.T for part in parts], axis=1)
    exact = np.argpartition(-scores, 10, axis=1)[:, :10]
    recall, kind = 0.0, proposer.kind
    for reach in REACHES[kind]:
        proposer = replace(proposer, reach=reach)
        found = proposer.propose(queries, 10)
        recall = float(np.mean([np.isin(best, rows).mean() for best, rows in zip(exact, found, strict=True)]))
        if recall >= AIM[kind]:
            break
    if recall < LEAST_RECALL[kind]:
        _LOG.warning(
            "index=%r finds %.3f of the ten best here, below %.2f: searching exactly instead",
            kind,
            recall,
            LEAST_RECALL[kind],
        )
        return None
    return replace(proposer, recall=recall, measured=proposer.rows)


def _coded(part: Vectors, scale: float) -> Bytes:
    """Rows as whole numbers in [-127, 127]."""
    import numpy as np

    out = np.empty(part.shape, np.int8)
    for start in range(0, len(part), TOGETHER):
        some = slice(start, start + TOGETHER)
        out[some] = np.clip(np.rint(part[some] * np.float32(scale)), -127, 127)
    return out


def _add(index: Any, part: Vectors) -> None:
    import numpy as np

    for start in range(0, len(part), TOGETHER):
        index.add(np.ascontiguousarray(part[start : start + TOGETHER], np.float32))


def _rows_of(parts: Sequence[Vectors], rows: npt.NDArray[np.intp]) -> Vectors:
    import numpy as np

    edges = np.cumsum([0, *map(len, parts)])
    which = np.searchsorted(edges, rows, side="right") - 1
    return np.stack(
        [parts[block][row - edges[block]] for block, row in zip(which.tolist(), rows.tolist(), strict=True)]
    )
