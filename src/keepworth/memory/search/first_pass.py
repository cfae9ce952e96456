"""The first pass of a search by meaning in a large memory: codes of few bits name the items whose vectors are worth scoring.

A vector, less the centre of all, is held as one bit for each number (its sign) and as four bits for each number. A search
compares the signs of a question with those of all rows: half of them first, the other half for the nearest rows alone. It scores
the best thousands by four bits a number, and names the best few hundred. Their vectors themselves then give the scores, so a code
decides which items are looked at and never what they score. There is nothing to train: the code of a vector depends on no other
vector but for the centre, so an item is found from the moment it is written.

The estimate from signs is that of Charikar, "Similarity Estimation Techniques from Rounding Algorithms" (2002).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from keepworth.memory.search.index import SCAN_SHARE, Block, VectorIndex, Within

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.base.arrays import Bools, Rows, Vectors

    Words = npt.NDArray[np.uint64]
    Nibbles = npt.NDArray[np.uint8]

FROM = 25_000
"""Number of items from which on a search by meaning begins with a first pass: below, to score all of them takes two milliseconds,
and a file whose blocks hold the vectors a second time is small."""
SCORED, SCORED_EACH = 40, 2
"""Number of rows whose vectors are scored: so many, and so many more for each item that is wanted. Of a million vectors around
200 centres, the ten nearest are among the first 60 by four bits a number; of texts, among the first 20."""
ROUGH, ROUGH_SHARE = 2048, 256
"""Rows that are scored by four bits a number: at least `ROUGH`, and one of `ROUGH_SHARE`."""
HALF_SHARE = 64
"""One row of so many is compared in the second half of its signs, and at least twice as many as are scored by four bits a
number. Of 16,000 sentences and questions, 99 in 100 of the ten nearest are among the first 1,136 by half of their signs and among
267 by all of them: numbers that grow with the root of the number of texts."""
STRETCH = 32_768
"""Number of rows whose signs are compared at once, so that what is computed of them stays in a processor's cache."""
SAMPLE = 65_536
"""Number of rows by which the distance of the nearest ones is judged."""
Codes = tuple["Words", "Words", "Nibbles", "Vectors"]
"""Of some vectors: the first half of their signs, of shape (words of 64 bits, vectors), as it is read of all rows; the other
half, of shape (vectors, words), as it is read of a few; pairs of levels, of shape (vectors, half the dimension); and the size of
a step between levels, of shape (vectors,)."""


def code(vectors: Vectors, centre: Vectors) -> Codes:
    """Return the codes of vectors, each of shape (n, dimension), around a centre."""
    rest = vectors - centre
    size, dimension = rest.shape
    signs = np.zeros((size, 8 * _words(dimension)), np.uint8)
    signs[:, : (dimension + 7) // 8] = np.packbits(rest > 0.0, axis=1, bitorder="little")
    steps = np.abs(rest).max(axis=1, initial=0.0) / np.float32(7.5)
    steps[steps == 0.0] = 1.0
    levels = np.zeros((size, dimension + dimension % 2), np.uint8)
    levels[:, :dimension] = np.clip(rest / steps[:, None] + 8.0, 0.0, 15.0)
    words, half = signs.view("<u8"), _half(dimension)
    early, late = np.ascontiguousarray(words[:, :half].T), np.ascontiguousarray(words[:, half:])
    return early, late, levels[:, ::2] | levels[:, 1::2] << 4, steps.astype(np.float32)


def _words(dimension: int) -> int:
    """Return how many words of 64 bits the signs of a vector take."""
    return (dimension + 63) // 64


def _half(dimension: int) -> int:
    """Return how many of these words are compared first."""
    return (_words(dimension) + 1) // 2


class CodeBlock(Block):
    """The codes of vectors side by side, as a `Block` holds the vectors themselves. centre: what is subtracted from each vector;
    None takes the mean of the first ones."""

    __slots__ = ("centre", "early", "late", "levels", "steps")
    _ROWS: ClassVar[tuple[str, ...]] = ("late", "levels", "steps")

    def __init__(self, dimension: int, room: int = 64, centre: Vectors | None = None) -> None:
        self.centre = centre
        super().__init__(dimension, room)

    def _make(self, room: int) -> None:
        half = _half(self.dimension)
        self.early: Words = np.zeros((half, room), np.uint64)
        self.late: Words = np.zeros((room, _words(self.dimension) - half), np.uint64)
        self.levels: Nibbles = np.zeros((room, (self.dimension + 1) // 2), np.uint8)
        self.steps: Vectors = np.zeros(room, np.float32)

    def _grow(self, room: int) -> None:
        early = np.zeros((len(self.early), room), np.uint64)
        early[:, : self.size] = self.early[:, : self.size]
        self.early = early
        super()._grow(room)

    def append(self, numbers: npt.ArrayLike, scopes: npt.ArrayLike, vectors: Vectors) -> None:
        if self.centre is None and len(vectors):
            self.centre = vectors.mean(axis=0)
        if self.centre is not None:
            self.put_codes(numbers, scopes, code(vectors, self.centre))

    def put_codes(self, numbers: npt.ArrayLike, scopes: npt.ArrayLike, codes: Codes) -> None:
        """Append rows that are alive, whose codes are there already.

        Args:
            numbers: The item number of each row.
            scopes: The scope id of each row.
            codes: Those of the rows.
        """
        early, late, levels, steps = codes
        here = self.extended(len(levels))
        self.early[:, here], self.late[here], self.levels[here], self.steps[here] = early, late, levels, steps
        self.accept(numbers, scopes)


class FirstPass(VectorIndex):
    """An index over the codes of vectors, which names candidates for a search by meaning. by_signs: whether signs are compared
    first; of vectors that are mostly zeros, such as counts of spellings, the sign tells next to nothing, and all rows are scored
    by four bits a number."""

    _block: CodeBlock

    def __init__(self, dimension: int, block: Block, *, by_signs: bool = True) -> None:
        super().__init__(dimension, block)
        self._by_signs = by_signs

    def candidates(self, queries: Vectors, count: int, within: Within) -> list[list[int]]:
        """Return for each query the numbers of items among which the best `count` are, in any order: more than `count`, or all.

        Args:
            queries: Of shape (q, dimension).
            count: The most items that are wanted.
            within: Those that may be returned.
        """
        with self._lock:
            block, size, several = self._block, self._block.size, self._several
            codes = block.early[:, :size], block.late, block.levels, block.steps
            numbers, alive = block.numbers[:size], block.alive[:size]
            rows, hidden = self._admitted(within), None
            if rows is not None:
                rows = rows[alive[rows]]
            elif self._dead:
                hidden = ~alive
        admitted = size - self._dead if rows is None else len(rows)
        if rows is not None and len(rows) > SCAN_SHARE * size:
            hidden = np.ones(size, bool)
            hidden[rows] = False
            rows = None
        out = []
        for query in queries:
            scored = SCORED + SCORED_EACH * count
            while True:
                near = _nearest_rows(query, block, codes, (rows, hidden, admitted), scored, by_signs=self._by_signs)
                listed = sorted(set(numbers[near].tolist()))
                if not several or len(listed) > count or len(near) >= admitted:
                    break
                scored *= 4
            out.append(listed)
        return out


def _nearest_rows(
    query: Vectors,
    block: CodeBlock,
    codes: Codes,
    among: tuple[Rows | None, Bools | None, int],
    scored: int,
    *,
    by_signs: bool = True,
) -> Rows:
    """Return the `scored` rows that are nearest to a query by their codes, or all.

    Args:
        query: Of shape (dimension,).
        block: The block of the rows, for its centre.
        codes: Those of the rows.
        among: The rows that count, None for all; which rows are hidden, None for none; and how many there are.
        scored: The number of rows.
        by_signs: Whether signs are compared first.
    """
    (early, late, levels, steps), (rows, hidden, admitted) = codes, among
    if admitted <= scored or block.centre is None:
        whole = np.arange(early.shape[1]) if rows is None else rows
        return whole if hidden is None else whole[~hidden]
    rough = max(ROUGH, 4 * scored, admitted // ROUGH_SHARE)
    if admitted > rough and by_signs:
        query_signs, query_late, *_ = code(query[None], block.centre)
        # Line by line, as NumPy would first copy all lines, which have room behind them, into one piece.
        signs = early if rows is None else np.stack([line.take(rows) for line in early])
        apart = _distances(signs, query_signs[:, 0])
        if hidden is not None:
            apart[hidden] = np.iinfo(apart.dtype).max
        close = _smallest(apart, min(admitted, max(2 * rough, admitted // HALF_SHARE)))
        rows = close if rows is None else rows[close]
        counts = np.bitwise_count(late.take(rows, axis=0) ^ query_late)
        both = np.empty(len(rows), np.uint16)
        _add_up([apart[close], *counts.T], both)
        rows = rows[_smallest(both, rough)]
    elif rows is None:
        rows = np.arange(early.shape[1]) if hidden is None else np.flatnonzero(~hidden)
    estimates = _estimates(query, levels, steps, rows)
    best = np.argpartition(estimates, len(rows) - scored)[len(rows) - scored :] if len(rows) > scored else slice(None)
    out: Rows = rows[best]
    return out


def _distances(signs: Words, query_signs: Words) -> npt.NDArray[Any]:
    """Return in how many bits each row differs from a query, of at most 255 bits below 4 words.

    Args:
        signs: Of shape (words, rows).
        query_signs: Those of the query, of shape (words,).
    """
    size = signs.shape[1]
    out = np.empty(size, np.uint8 if len(query_signs) < 4 else np.uint16)
    stretch = min(size, STRETCH)
    words, counts = np.empty((len(signs), stretch), np.uint64), np.empty((len(signs), stretch), np.uint8)
    for start in range(0, size, STRETCH):
        line = out[start : start + STRETCH]
        differ, count = words[:, : len(line)], counts[:, : len(line)]
        np.bitwise_xor(signs[:, start : start + STRETCH], query_signs[:, None], out=differ)
        np.bitwise_count(differ, out=count)
        _add_up([*count], line)
    return out


def _add_up(counts: Sequence[npt.NDArray[Any]], out: npt.NDArray[Any]) -> None:
    """Add up lines of counts. NumPy adds along an axis in blocks that are slower for the few lines that there are here."""
    out[:] = counts[0]
    for line in counts[1:]:
        np.add(out, line, out=out)


def _smallest(distances: npt.NDArray[Any], count: int) -> Rows:
    """Return the rows of about the `count` smallest distances, at least so many and at most twice as many, in order; of those
    that are as far as one another, the first. The largest number of their type is no distance."""
    none = np.iinfo(distances.dtype).max
    sample = distances[:: max(1, len(distances) // SAMPLE)]
    below = np.bincount(sample).cumsum() * (len(distances) / len(sample))
    limit = min(int(np.searchsorted(below, count)), none - 1)
    while np.count_nonzero(distances <= limit) < count and limit < none - 1:
        limit += 1
    rows = np.flatnonzero(distances <= limit)
    if len(rows) > 2 * count:
        rows = np.sort(rows[np.argsort(distances[rows], kind="stable")[:count]])
    return rows


def _estimates(query: Vectors, levels: Nibbles, steps: Vectors, rows: Rows) -> Vectors:
    """Return what the cosine of each row with a query is, less the same number for all, by four bits a number."""
    even, odd = np.ascontiguousarray(query[::2]), np.zeros(levels.shape[1], np.float32)
    odd[: len(query) // 2] = query[1::2]
    out = np.empty(len(rows), np.float32)
    middle = np.float32(7.5 * query.sum())
    for start in range(0, len(rows), 512):
        pairs = levels.take(rows[start : start + 512], axis=0)
        line = out[start : start + 512]
        np.matmul((pairs & 15).astype(np.float32), even, out=line)
        line += (pairs >> 4).astype(np.float32) @ odd
    return (out - middle) * steps[rows]
