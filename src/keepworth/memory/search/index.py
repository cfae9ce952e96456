"""In-memory indexes: BM25 over an inverted index, and an exact scan over vectors, with the cache of their encoder.

Okapi BM25 is exact also where the collection is a stack of layers: Robertson and Zaragoza, "The Probabilistic Relevance
Framework: BM25 and Beyond" (2009), with the non-negative inverse document frequency ln(1 + (N - n + 0.5) / (n + 0.5)). The matrix
of vectors is a cache of the table of vectors in the file, and follows the journal.
"""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from keepworth.base.recent import Recent
from keepworth.base.vectors import RecentVectors
from keepworth.memory.errors import InvalidVector
from keepworth.memory.search.background import Background, background
from keepworth.memory.search.chunks import part_length, parts
from keepworth.memory.search.terms import QueryTerms, terms_and_languages, terms_of_each, terms_of_many
from keepworth.records.model import Encoder, EncoderIdentity

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    import numpy.typing as npt

    from keepworth.base.arrays import Bools, Floats, Numbers, Rows, Vectors

    Bytes = npt.NDArray[np.int8]

K1, B = 1.5, 0.9
"""Parameters of BM25, chosen on questions for development. Texts of one memory differ more in length than documents do, from a
short remark to a long answer; with the usual B = 0.75 long ones come before short ones."""


@dataclass(frozen=True, slots=True)
class CorpusStatistics:
    """The statistics of a collection that BM25 needs: its number of documents, their total number of words, and for each query
    term the number of documents that contain it."""

    documents: int
    words: int
    frequency: Mapping[str, int]

    def weights(self, terms: QueryTerms) -> tuple[dict[str, float], float]:
        """Return the weight of each term and the mean length of a document (1 for an empty collection). The weight is the inverse
        document frequency of the term's group, multiplied by what the term counts in the query."""
        count = self.documents
        weights: dict[str, float] = {}
        for group in terms.groups:
            n = min(count, sum(self.frequency.get(term, 0) for term in group))
            rarity = math.log(1.0 + (count - n + 0.5) / (n + 0.5))
            weights.update((term, rarity * terms.weights[term]) for term in group)
        return weights, (self.words / count if count else 0.0) or 1.0


def total(one: CorpusStatistics, other: CorpusStatistics) -> CorpusStatistics:
    """Add up the statistics of two collections."""
    frequency = Counter(one.frequency)
    frequency.update(other.frequency)
    return CorpusStatistics(one.documents + other.documents, one.words + other.words, frequency)


def bm25(weight: float, count: Any, length: Any, mean_length: float) -> Any:
    """Return what a term adds to the score of documents, as a number or an array.

    Args:
        weight: The inverse document frequency of the term.
        count: How often a document has it.
        length: The words of the document.
        mean_length: The words of a document on average.
    """
    return weight * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length / mean_length))


def term_scores(words: Sequence[str], weights: Mapping[str, float], mean_length: float) -> dict[str, float]:
    """Return what each term of a query that a document has adds to its BM25 score.

    Args:
        words: The terms of the document.
        weights: The inverse document frequencies of the query's terms.
        mean_length: The words of a document on average.
    """
    counts: dict[str, int] = {}
    for term in filter(weights.__contains__, words):
        counts[term] = counts.get(term, 0) + 1
    return {term: bm25(weights[term], count, len(words), mean_length) for term, count in counts.items()}


class InvertedIndex:
    """An inverted index in memory. Rows are numbered in the order of `add` and never removed; callers pass the rows to ignore as
    `hidden`."""

    __slots__ = ("_arrays", "_long", "_mine", "_postings", "languages", "lengths", "words")

    def __init__(self) -> None:
        self._postings: dict[str, list[tuple[int, int]]] = {}
        self._mine: set[str] = set()  # terms whose list no copy has
        self._arrays: dict[str, tuple[int, Rows, Floats]] = {}
        self.lengths: list[int] = []
        self.words = 0
        self._long: Floats | None = None  # lengths, made when first asked for
        self.languages: frozenset[str] = frozenset()

    def add(self, text: str, latin: str | None = None) -> None:
        """Add a text as the next row. latin: the language of its Latin words, if known; see `terms`."""
        row = len(self.lengths)
        listed, languages = terms_and_languages(text, latin)
        counts = Counter(listed)
        for term, count in counts.items():
            if term not in self._mine:
                self._postings[term] = [*self._postings.get(term, ())]
                self._mine.add(term)
            self._postings[term].append((row, count))
        self.lengths.append(len(listed))
        self.words += len(listed)
        if not languages <= self.languages:
            self.languages |= languages

    def copy(self) -> InvertedIndex:
        """Return a copy; later additions to one do not appear in the other."""
        twin = InvertedIndex()
        twin._postings, self._mine = self._postings.copy(), set()
        twin._arrays, twin.lengths, twin.languages = self._arrays.copy(), self.lengths.copy(), self.languages
        twin.words = self.words
        return twin

    def _posting(self, term: str) -> tuple[Rows, Floats] | None:
        """Return the rows and counts of one term, or None. The arrays are cached until the list of the term grows."""
        entries = self._postings.get(term)
        if entries is None:
            return None
        cached = self._arrays.get(term)
        if cached is None or cached[0] != len(entries):
            rows = np.fromiter((row for row, _ in entries), dtype=np.intp, count=len(entries))
            counts = np.fromiter((count for _, count in entries), dtype=np.float64, count=len(entries))
            cached = (len(entries), rows, counts)
            self._arrays[term] = cached
        return cached[1], cached[2]

    def statistics(self, terms: Sequence[str], hidden: Rows) -> CorpusStatistics:
        """Return the statistics of the rows that are not hidden."""
        frequency = {}
        for term in terms:
            posting = self._posting(term)
            if posting is None:
                continue
            visible = len(posting[0]) - (int(np.isin(posting[0], hidden).sum()) if len(hidden) else 0)
            if visible:
                frequency[term] = visible
        hidden_words = sum(self.lengths[row] for row in hidden)
        return CorpusStatistics(len(self.lengths) - len(hidden), self.words - hidden_words, frequency)

    def scores(self, terms: QueryTerms, statistics: CorpusStatistics) -> Floats:
        """Return the BM25 score of every row, hidden ones included; 0 for rows without a query term. Shape (rows,)."""
        out = np.zeros(len(self.lengths))
        if not statistics.documents or not self.lengths:
            return out
        lengths = self._long
        if lengths is None or len(lengths) < len(self.lengths):
            lengths = self._long = np.asarray(self.lengths, dtype=np.float64)
        weights, mean_length = statistics.weights(terms)
        for term in terms:
            posting = self._posting(term)
            if posting is not None:
                rows, counts = posting
                out[rows] += bm25(weights[term], counts, lengths[rows], mean_length)
        return out


HELD = 16_384
"""Most texts whose terms are cached."""
LONGEST_ROWS = 2000
"""Most characters of such a text."""


class RankedTexts:
    """A cache of the terms of ranked texts, as finding stems takes longer than the rest of ranking. Thread-safe."""

    def __init__(self) -> None:
        self._terms: dict[str, tuple[str, ...]] = {}

    def scores(
        self, texts: Mapping[int, str], terms: QueryTerms, statistics: CorpusStatistics, latin: str | None
    ) -> list[tuple[int, float]]:
        """Return (number, BM25) of each text, scored as by `InvertedIndex.scores`.

        Args:
            texts: The texts, by number.
            terms: The words of the query.
            statistics: How often they occur.
            latin: The language of Latin words, see `terms.terms`; None to guess it for all texts together.
        """
        terms_in = {text: cached for text in texts.values() if (cached := self._terms.get(text)) is not None}
        unknown = [text for text in dict.fromkeys(texts.values()) if text not in terms_in]
        if unknown:
            fresh = terms_of_many(unknown)[0] if latin is None else terms_of_each(unknown, latin)
            if len(self._terms) + len(unknown) > HELD:
                self._terms = {}
            for text, listed in zip(unknown, map(tuple, fresh), strict=True):
                terms_in[text] = listed
                if len(text) <= LONGEST_ROWS:
                    self._terms[text] = listed
        weights, mean = statistics.weights(terms)
        out = []
        for n, text in texts.items():
            listed, score = terms_in[text], 0.0
            counts: dict[str, int] = {}
            for term in listed:
                if term in weights:
                    counts[term] = counts.get(term, 0) + 1
            # As `term_scores` and `bm25` have it, without an array for each of some hundred texts.
            length = len(listed)
            for term, count in counts.items():
                score += weights[term] * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length / mean))
            out.append((n, score))
        return out


def counts_spellings(model: str) -> bool:
    """Return whether the encoder of this name compares how texts are spelt, not what they mean."""
    return model.startswith("hashing")


DEFAULT_CACHE = 4096
"""Number of cached texts: their vectors of 384 numbers take about 8 MB."""


class Embedder:
    """An encoder with a cache of the vectors of the `cached` texts that were used last; 0 turns it off. Thread-safe."""

    __slots__ = ("_background", "_recent", "encoder", "identity")

    def __init__(self, encoder: Encoder, cached: int = DEFAULT_CACHE) -> None:
        self.encoder = encoder
        self.identity = encoder.identity
        self._recent = RecentVectors(cached)
        self._background: Background | None = None

    @property
    def by_spelling(self) -> bool:
        """Return whether the encoder compares how texts are spelt, not what they mean."""
        return counts_spellings(self.identity.model)

    @property
    def background(self) -> Background:
        """Return how near this encoder puts unrelated texts. It is measured on first use."""
        if self._background is None:
            self._background = background(self.encoder, self)
        return self._background

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """Encode texts as unit rows, shape (len(texts), dimension), float32. Distinct texts that are not cached are encoded in
        one batch."""
        return self._recent.encode(
            texts,
            lambda fresh: [(range(len(fresh)), _unit_rows(self.encoder.encode(fresh), len(fresh), self.identity))],
            lambda: self.identity.dimension,
        )

    encode = __call__
    """An encoder itself, which encodes no recent text again."""

    def in_parts(self, texts: Sequence[str]) -> list[Vectors]:
        """Encode texts and the parts of long texts (see `keepworth.memory.search.chunks`).

        Returns:
            For each text a matrix of shape (1 + parts, dimension): its unit vector, then the shorter vectors of its parts.
        """
        listed = [parts(text) for text in texts]
        matrix = self([part for part_texts in listed for part in part_texts])
        ends = list(accumulate(map(len, listed)))
        out = [matrix[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        for part_texts in out:
            if len(part_texts) > 1:
                part_texts[1:] *= np.float32(part_length(self.background))
        return out

    def begin(self, texts: Sequence[str]) -> Callable[[], Vectors]:
        """Start encoding on another thread. The returned function waits for the vectors. No thread is used if all texts are
        cached, or if the encoder counts spellings: Python does that, in one thread at a time."""
        if self.by_spelling or self._recent.has(texts):
            return lambda: self(texts)
        return begin("encode", partial(self, texts))

    def forget(self, text: str) -> None:
        """Remove one text's vector from the cache."""
        self._recent.forget(text)


TINY = 1e-15
"""Below this length the squares of a vector's numbers lose digits."""


def _unit_rows(vectors: object, rows: int, identity: EncoderIdentity) -> Vectors:
    """Return an encoder's output as float32 unit rows of shape (rows, dimension). A zero row stays zero and matches nothing.
    Raises InvalidVector."""
    try:
        array = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidVector(
            f"encoder {identity.model!r} gave what is no array of numbers ({error}): check the encoder; nothing was done"
        ) from error
    if array.shape != (rows, identity.dimension):
        raise InvalidVector(
            f"encoder {identity.model!r} gave shape {array.shape} for {rows} texts, "
            f"expected ({rows}, {identity.dimension}): check the encoder and its stated dimension; nothing was done"
        )
    with np.errstate(over="ignore"):
        norms: Vectors = np.sqrt(np.add.reduce(array * array, axis=1, keepdims=True))
    # NaN compares false with everything, so the usual case needs no look at every number.
    if ((norms > TINY) & (norms < np.inf)).all():
        return array / norms
    if not np.isfinite(array).all():
        row = int(np.argmin(np.isfinite(array).all(axis=1)))
        raise InvalidVector(
            f"encoder {identity.model!r} gave NaN or infinity for text number {row}: check the encoder; nothing was done"
        )
    # Squares of very large or very small numbers are no float32.
    wide = array.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    unit: Vectors = np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0).astype(np.float32)
    return unit


SCAN_SHARE = 0.3
"""Above this share of all rows, reading everything is faster than gathering."""
MANY = 8
"""Number of queries from which on one matrix product is faster than a dot product for each row."""
CACHED = 256
"""Number of rows that fit in a processor's cache while several queries read them: 384 kB at 384 numbers each."""
SHARE = 16384
"""Number of rows for which another thread is started: 25 MB at 384 numbers each, which are read in about 2 ms."""
READERS = min(4, os.cpu_count() or 1)
"""Largest number of threads that read at once; memory is not faster with more."""


class Block:
    """Vectors side by side in one matrix, each with its item's number and scope id and a flag whether it is alive. The vectors of
    one item follow one another."""

    __slots__ = ("alive", "dimension", "matrix", "numbers", "scopes", "size")

    def __init__(self, dimension: int, room: int = 64) -> None:
        self.dimension = dimension
        self.numbers: Numbers = np.zeros(room, np.int64)
        self.scopes: npt.NDArray[np.int32] = np.zeros(room, np.int32)
        self.alive: Bools = np.zeros(room, bool)
        self.size = 0
        self._make(room)

    def _make(self, room: int) -> None:
        """Make the arrays that hold the vectors."""
        self.matrix: Vectors = np.zeros((room, self.dimension), np.float32)

    def _grow(self, room: int) -> None:
        """Move what there is to larger arrays."""
        for name in ("numbers", "scopes", "alive", *self._ROWS):
            old = getattr(self, name)
            new = np.zeros((room, *old.shape[1:]), old.dtype)
            new[: self.size] = old[: self.size]
            setattr(self, name, new)

    _ROWS: ClassVar[tuple[str, ...]] = ("matrix",)
    """The arrays, by name, that hold the vectors, a row for each."""

    def append(self, numbers: npt.ArrayLike, scopes: npt.ArrayLike, vectors: Vectors) -> None:
        """Append rows that are alive. The block grows by doubling, so n appends cost O(n).

        Args:
            numbers: The item number of each row.
            scopes: The scope id of each row.
            vectors: Unit rows of shape (n, dimension).
        """
        here = self.extended(len(vectors))
        self.matrix[here] = vectors
        self.accept(numbers, scopes)

    def extended(self, count: int) -> slice:
        """Make room for `count` more rows and return their slice. They count once `accept` gives their numbers."""
        need = self.size + count
        if need > len(self.numbers):
            self._grow(max(need, 2 * len(self.numbers)))
        return slice(self.size, need)

    def accept(self, numbers: npt.ArrayLike, scopes: npt.ArrayLike) -> None:
        """Mark the next rows, whose vectors are in the matrix already, as alive."""
        here = slice(self.size, self.size + len(np.atleast_1d(numbers)))
        self.numbers[here] = numbers
        self.scopes[here] = scopes
        self.alive[here] = True
        self.size = here.stop


def in_eight_bits(vector: Vectors) -> Bytes:
    """Quantise a unit vector to eight bits a number, as it is stored."""
    most = float(np.abs(vector).max(initial=0.0)) or 1.0
    numbers: Bytes = np.rint(vector * (127.0 / most)).astype(np.int8)
    return numbers


def of_eight_bits(numbers: Bytes) -> Vectors:
    """Return the unit vector of a quantised one."""
    rough = numbers.astype(np.float32)
    length = float(np.sqrt(rough @ rough))
    return rough / np.float32(length) if length else rough


@dataclass(frozen=True, slots=True)
class Within:
    """Which items a search by meaning may return: those of scopes, by their ids, that a mask by item number admits; None for all.

    The rows of the scopes are kept by their name `scope`, which an index that is searched once does without."""

    scope_ids: Collection[int] | None = None
    mask: Bools | None = None
    scope: object = None


class VectorIndex:
    """The rows of an index over the vectors of items, which begins with those of a block. Thread-safe.

    Rows of current items are alive. An item whose vectors change gets new rows."""

    def __init__(self, dimension: int, block: Block) -> None:
        self.dimension = dimension
        self._lock = threading.RLock()
        self._block = block
        numbers, alive = self._block.numbers[: self._block.size], self._block.alive[: self._block.size]
        self._several = bool((numbers[1:] == numbers[:-1]).any())
        self._newest = int(numbers.max(initial=0))
        self._dead = len(alive) - int(alive.sum())
        self._by_scope: Recent[object, tuple[int, int, Rows]] = Recent(4096)

    def put(self, numbers: Sequence[int], scopes: Sequence[int], vectors: Vectors) -> None:
        """Add items, or replace their vectors.

        Args:
            numbers: The item number of each row; the rows of one item follow one another.
            scopes: The scope id of each row.
            vectors: Unit rows of shape (n, dimension).
        """
        with self._lock:
            if numbers and min(numbers) <= self._newest:
                self.drop(numbers)  # a new item is newer than all there are
            self._newest = max(self._newest, *numbers, 0)
            self._several |= len(set(numbers)) < len(numbers)
            self._block.append(numbers, scopes, vectors)

    def drop(self, numbers: Sequence[int]) -> None:
        """Remove items from the index."""
        with self._lock:
            alive = self._block.alive[: self._block.size]
            gone = alive & np.isin(self._block.numbers[: self._block.size], numbers)
            alive[gone] = False
            self._dead += int(gone.sum())

    def _rows_in(self, scope: object, scope_ids: Collection[int]) -> Rows:
        """Return the rows that lie in the given scopes. They are cached by scope and extended as rows arrive."""
        size, seen, cached = self._by_scope.get(scope, (-1, 0, np.zeros(0, np.intp)))
        if size != len(scope_ids):
            seen, cached = 0, cached[:0]
        if seen < self._block.size:
            scopes = self._block.scopes[seen : self._block.size]
            if len(scope_ids) == 1:
                inside = scopes == next(iter(scope_ids))
            else:
                allowed = np.zeros(max(scope_ids, default=0) + 1, bool)
                allowed[np.fromiter(scope_ids, np.intp, len(scope_ids))] = True
                inside = in_mask(allowed, scopes)
            cached = np.concatenate([cached, np.flatnonzero(inside) + seen])
        self._by_scope[scope] = (len(scope_ids), self._block.size, cached)
        return cached

    def _admitted(self, within: Within) -> Rows | None:
        """Return the rows that may be returned, dead ones included; None for all."""
        rows = None if within.scope_ids is None else self._rows_in(within.scope, within.scope_ids)
        if (mask := within.mask) is not None:
            numbers = self._block.numbers[: self._block.size]
            numbers = numbers if rows is None else numbers[rows]
            inside = np.flatnonzero(mask[numbers] if self._newest < len(mask) else in_mask(mask, numbers))
            rows = inside if rows is None else rows[inside]
        return rows


class DenseIndex(VectorIndex):
    """An exact index over the vectors of items. An item that has several vectors is scored by the best of them."""

    def __init__(self, dimension: int, block: Block | None = None) -> None:
        super().__init__(dimension, Block(dimension) if block is None else block)

    def search(self, queries: Vectors, count: int, within: Within) -> list[list[tuple[int, float]]]:
        """Return for each query the best (item number, cosine), best first; ties keep the order of arrival.

        Args:
            queries: Of shape (q, dimension).
            count: The most items.
            within: Those that may be returned.
        """
        with self._lock:
            block, size = self._block, self._block.size
            matrix, numbers = block.matrix[:size], block.numbers[:size]
            rows = self._admitted(within)
            alive, several = block.alive[:size] if self._dead else None, self._several
        # Outside the lock: growth makes new arrays, and a row that dies meanwhile is checked again in SQL.
        if rows is not None and len(rows) <= SCAN_SHARE * size:
            matrix, numbers, alive = matrix[rows], numbers[rows], None if alive is None else alive[rows]
            rows = None
        scores = cosines(queries, matrix)
        if rows is not None:
            outside = np.ones(size, bool)
            outside[rows] = False
            scores[:, outside] = -np.inf
        if alive is not None:
            scores[:, ~alive] = -np.inf
        return [_best_items(line, numbers, count, several) for line in scores]


def _best_items(scores: Floats, numbers: Numbers, count: int, several: bool) -> list[tuple[int, float]]:
    """Return the `count` best (item number, score), best first. With `several`, an item may have more than one row, of which the
    best counts."""
    reach = 4 * count if several else count
    while True:
        rows = [row for row in best(scores, reach).tolist() if scores[row] != -np.inf]
        out: dict[int, float] = {}
        for row in rows:
            out.setdefault(int(numbers[row]), float(scores[row]))
        if not several or len(out) >= count or len(rows) < reach:
            return list(out.items())[:count]
        reach *= 4


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
