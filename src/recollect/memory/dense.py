"""Exact cosine search: one contiguous matrix of all vectors, scanned whole or only where the scope says.

The matrix is a cache. Its truth is the table of vectors; it follows the journal, and may start from a memory-mapped
sidecar file so that opening a large memory reads nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from recollect.memory.ranking import best

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from recollect.memory.quantised import Proposer

    Vectors = npt.NDArray[np.float32]
    Rows = npt.NDArray[np.intp]
    _View = tuple[Vectors, npt.NDArray[np.int64], npt.NDArray[np.bool_] | None, Rows | None]

SCAN_SHARE = 0.3
"""Above this share of all rows, reading everything is faster than gathering."""


class Block:
    """Rows that lie side by side: row numbers of items, scope ids, whether the row still counts, and vectors."""

    __slots__ = ("alive", "matrix", "numbers", "scopes", "size")

    def __init__(
        self,
        numbers: npt.NDArray[np.int64],
        scopes: npt.NDArray[np.int32],
        alive: npt.NDArray[np.bool_],
        matrix: Vectors,
        size: int,
    ) -> None:
        self.numbers = numbers
        self.scopes = scopes
        self.alive = alive
        self.matrix = matrix
        self.size = size

    @classmethod
    def empty(cls, dimension: int, room: int = 64) -> Block:
        import numpy as np

        return cls(
            np.zeros(room, np.int64),
            np.zeros(room, np.int32),
            np.zeros(room, bool),
            np.zeros((room, dimension), np.float32),
            0,
        )

    def append(self, numbers: Sequence[int], scopes: Sequence[int], alive: Sequence[bool], vectors: Vectors) -> None:
        """Grows by doubling, so n appends cost O(n)."""
        import numpy as np

        need = self.size + len(numbers)
        if need > len(self.numbers):
            room = max(need, 2 * len(self.numbers))
            for name in ("numbers", "scopes", "alive", "matrix"):
                old = getattr(self, name)
                new = np.zeros((room, *old.shape[1:]), old.dtype)
                new[: self.size] = old[: self.size]
                setattr(self, name, new)
        here = slice(self.size, need)
        self.numbers[here] = numbers
        self.scopes[here] = scopes
        self.alive[here] = alive
        self.matrix[here] = vectors
        self.size = need


class DenseIndex:
    """Thread-safe. Rows are items with a vector; `alive` ones are current. An item whose vector changes gets a new row."""

    def __init__(self, dimension: int, base: Block | None = None) -> None:
        self.dimension = dimension
        self._lock = threading.RLock()
        self._blocks = [base] if base is not None else []
        self._tail = Block.empty(dimension)
        self._blocks.append(self._tail)
        self._at: dict[int, tuple[int, int]] = {}  # item number -> (block, row)
        self._known = base is None
        self._proposer: Proposer | None = None
        self._by_scope: dict[object, tuple[int, int, list[Rows]]] = {}
        self._dead = [int((~block.alive[: block.size]).sum()) for block in self._blocks]

    def __len__(self) -> int:
        return sum(block.size for block in self._blocks) - sum(self._dead)

    @property
    def rows(self) -> int:
        return sum(block.size for block in self._blocks)

    def put(self, numbers: Sequence[int], scopes: Sequence[int], vectors: Vectors) -> None:
        """Add current items, or give them a new vector. vectors: (n, dimension), unit rows."""
        with self._lock:
            self.drop(numbers)
            start = self._tail.size
            self._tail.append(numbers, scopes, [True] * len(numbers), vectors)
            last = len(self._blocks) - 1
            for offset, number in enumerate(numbers):
                self._at[number] = (last, start + offset)

    def drop(self, numbers: Iterable[int]) -> None:
        """Take items out of search."""
        with self._lock:
            self._locate()
            for number in numbers:
                place = self._at.pop(number, None)
                if place is not None:
                    block, row = place
                    self._blocks[block].alive[row] = False
                    self._dead[block] += 1

    def has(self, number: int) -> bool:
        with self._lock:
            self._locate()
            return number in self._at

    def vectors_of(self, numbers: Sequence[int]) -> dict[int, Vectors]:
        """Vectors of those of `numbers` that are in search."""
        with self._lock:
            self._locate()
            places = {number: self._at[number] for number in numbers if number in self._at}
            return {number: self._blocks[block].matrix[row].copy() for number, (block, row) in places.items()}

    def search(
        self, queries: Vectors, count: int, scope: object, scope_ids: Sequence[int] | None
    ) -> list[list[tuple[int, float]]]:
        """Per query the `count` best (item number, cosine), best first, ties in order of arrival.

        queries: (q, dimension); scope_ids: which scopes count, None for all; scope: a hashable name for them, for the cache.
        """
        import numpy as np

        with self._lock:
            selected = None if scope_ids is None else self._rows_in(scope, scope_ids)
            views = [
                (
                    block.matrix[: block.size],
                    block.numbers[: block.size],
                    block.alive[: block.size] if dead else None,
                    None if selected is None else selected[position],
                )
                for position, (block, dead) in enumerate(zip(self._blocks, self._dead, strict=True))
                if block.size
            ]
            proposer = self._proposer
        if proposer is not None and (selected is None or len(selected[0]) > SCAN_SHARE * len(views[0][1])):
            return [self._proposed(query, count, views, proposer) for query in queries]
        # The scan runs outside the lock: growth makes new arrays, and a row that dies meanwhile is checked again in SQL.
        numbers, scores = [], []
        for matrix, listed, alive, rows in views:
            if rows is not None and len(rows) <= SCAN_SHARE * len(listed):
                if not len(rows):
                    continue
                part = queries @ matrix[rows].T
                if alive is not None:
                    part[:, ~alive[rows]] = -np.inf
                listed = listed[rows]
            else:
                part = queries @ matrix.T
                if rows is not None:
                    outside = np.ones(len(listed), bool)
                    outside[rows] = False
                    part[:, outside] = -np.inf
                if alive is not None:
                    part[:, ~alive] = -np.inf
            numbers.append(listed)
            scores.append(part)
        if not scores:
            return [[] for _ in range(len(queries))]
        all_scores = scores[0] if len(scores) == 1 else np.concatenate(scores, axis=1)
        all_numbers = numbers[0] if len(numbers) == 1 else np.concatenate(numbers)
        out = []
        for line in all_scores:
            chosen = best(line, count)
            out.append([(int(all_numbers[row]), float(line[row])) for row in chosen if line[row] != -np.inf])
        return out

    def accelerate(self, kind: str) -> None:
        """Let an index of `kind` propose rows (see `quantised`); the rows in search are packed into one block first."""
        import numpy as np

        from recollect.memory.quantised import SMALLEST, build

        if len(self) < SMALLEST:
            return
        numbers, scopes, matrix = self.arrays()
        proposer = build(kind, matrix)
        with self._lock:
            packed = Block(numbers, scopes, np.ones(len(numbers), bool), matrix, len(numbers))
            self._tail = Block.empty(self.dimension)
            self._blocks = [packed, self._tail]
            self._dead = [0, 0]
            self._at, self._known = {}, False
            self._by_scope.clear()
            self._proposer = proposer

    @property
    def late(self) -> float:
        """How many rows came since the index was built, as a share of those it covers."""
        return self._tail.size / max(1, self._blocks[0].size) if self._proposer is not None else 0.0

    @property
    def recall(self) -> float:
        """Of the index in use, as measured when it was built; 1 for exact search."""
        return self._proposer.recall if self._proposer is not None else 1.0

    def _proposed(self, query: Vectors, count: int, views: list[_View], proposer: Proposer) -> list[tuple[int, float]]:
        """One query: exact scores of what is proposed for the first block, and of all rows that came later."""
        import numpy as np

        numbers, scores = [], []
        for position, (matrix, listed, alive, rows) in enumerate(views):
            if position == 0:
                dead = 0 if alive is None else int((~alive).sum())
                near = proposer.propose(query[None, :], count + min(dead, count))[0]
                near = near[near >= 0]
                if alive is not None:
                    near = near[alive[near]]
                if rows is not None:
                    near = near[np.isin(near, rows)]
            else:
                near = np.arange(len(listed)) if rows is None else rows
                if alive is not None:
                    near = near[alive[near]]
            numbers.append(listed[near])
            scores.append(matrix[near] @ query)
        all_scores, all_numbers = np.concatenate(scores), np.concatenate(numbers)
        return [(int(all_numbers[row]), float(all_scores[row])) for row in best(all_scores, count)]

    def arrays(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], Vectors]:
        """All rows in search, packed: numbers, scope ids, vectors. Copies."""
        import numpy as np

        with self._lock:
            kept = [(block, np.flatnonzero(block.alive[: block.size])) for block in self._blocks if block.size]
            if not kept:
                return np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros((0, self.dimension), np.float32)
            return (
                np.concatenate([block.numbers[rows] for block, rows in kept]),
                np.concatenate([block.scopes[rows] for block, rows in kept]),
                np.concatenate([block.matrix[rows] for block, rows in kept]),
            )

    def _locate(self) -> None:
        """Where each item's row is. For a mapped base this is built when first needed: a search alone does not."""
        import numpy as np

        if self._known:
            return
        base = self._blocks[0]
        rows = np.flatnonzero(base.alive[: base.size])
        places = dict(zip(base.numbers[rows].tolist(), ((0, row) for row in rows.tolist()), strict=True))
        places.update(self._at)
        self._at = places
        self._known = True

    def _rows_in(self, scope: object, scope_ids: Sequence[int]) -> list[Rows]:
        """Rows of each block in the given scopes; remembered per scope and extended as rows arrive."""
        import numpy as np

        cached = self._by_scope.get(scope)
        newest = max(scope_ids, default=0)
        if cached is not None and cached[0] == len(scope_ids):
            seen, parts = cached[1], cached[2]
        else:
            seen, parts = 0, [np.zeros(0, np.intp) for _ in self._blocks]
            seen = -1
        tail = len(self._blocks) - 1
        allowed = np.zeros(newest + 1, bool)
        allowed[np.asarray(scope_ids, np.intp)] = True

        def rows(block: Block, start: int) -> Rows:
            ids = block.scopes[start : block.size]
            inside = np.zeros(len(ids), bool)
            low = ids <= newest
            inside[low] = allowed[ids[low]]
            return np.flatnonzero(inside) + start

        if seen < 0:
            parts = [rows(block, 0) for block in self._blocks]
        elif seen < self._tail.size:
            parts = [*parts[:tail], np.concatenate([parts[tail], rows(self._tail, seen)])]
        self._by_scope[scope] = (len(scope_ids), self._tail.size, parts)
        if len(self._by_scope) > 4096:
            self._by_scope.pop(next(iter(self._by_scope)))
        return parts
