"""How fast the engine is on this machine, next to what the machine could do at most. Used by `recollect bench memory`.

Texts are drawn from a Zipf vocabulary (12 to 30 words) and vectors around 200 centres; vectors are given, so no encoder
is measured. Every figure includes logging. Times are wall clock, one thread.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.episodes.encoder import EncoderIdentity
from recollect.memory.lexical import InvertedIndex, tokens
from recollect.memory.memory import Memory
from recollect.memory.upkeep import lay_out

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

DIMENSION = 384
USERS = 100
VOCABULARY = 20_000
WARM, TIMED = 20, 200


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. limit: what one thread needs at least (it reads the same bytes, or syncs as often), in the same
    unit; target: what we hold ourselves to, in words; note: how it was taken."""

    name: str
    unit: str
    p50: float
    p95: float | None = None
    limit: float | None = None
    target: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Corpus:
    """texts and their vectors, and queries with theirs. The same is given to everything that is compared."""

    texts: list[str]
    vectors: Vectors
    queries: list[str]
    query_vectors: Vectors


def corpus(size: int, *, queries: int = TIMED, seed: int = 0) -> Corpus:
    import numpy as np

    draw = np.random.default_rng(seed)
    frequency = 1.0 / np.arange(1, VOCABULARY + 1)
    frequency /= frequency.sum()
    names = np.asarray([f"w{number}" for number in range(VOCABULARY)])
    lengths = draw.integers(12, 31, size)
    drawn = np.split(names[draw.choice(VOCABULARY, int(lengths.sum()), p=frequency)], np.cumsum(lengths)[:-1])
    texts = [f"{' '.join(words)} n{number}" for number, words in enumerate(drawn)]
    asked = [" ".join(names[draw.choice(VOCABULARY, 4, p=frequency)]) for _ in range(queries)]
    centres = draw.standard_normal((200, DIMENSION), dtype=np.float32)
    vectors = centres[draw.integers(0, 200, size + queries)]
    for start in range(0, len(vectors), 50_000):
        part = vectors[start : start + 50_000]
        part += draw.standard_normal(part.shape, dtype=np.float32)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return Corpus(texts, vectors[:size], asked, vectors[size:])


class GivenVectors:
    """An encoder that looks its answers up."""

    identity = EncoderIdentity("given", DIMENSION, True)

    def __init__(self, data: Corpus) -> None:
        self._known = dict(zip(data.texts, data.vectors, strict=True))
        self._known.update(zip(data.queries, data.query_vectors, strict=True))

    def encode(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        return np.stack([self._known[text] for text in texts])


def timed(calls: Sequence[Callable[[], object]], warm: int = WARM) -> list[float]:
    """Milliseconds of each call after the first `warm`."""
    out = []
    for number, call in enumerate(calls):
        start = time.perf_counter()
        call()
        if number >= warm:
            out.append(1e3 * (time.perf_counter() - start))
    return sorted(out)


def at(sorted_times: Sequence[float], share: float) -> float:
    return sorted_times[min(len(sorted_times) - 1, int(share * len(sorted_times)))]


def reading_limit(matrix: Vectors, repeats: int = 9) -> float:
    """Milliseconds one thread needs at least to read `matrix`: the fastest of three ways to touch every byte."""
    import numpy as np

    query = np.ones(matrix.shape[1], np.float32)
    words = matrix.reshape(-1).view(np.uint64)
    ways: list[Callable[[], object]] = [
        lambda: matrix @ query,
        lambda: matrix.sum(),
        lambda: np.bitwise_or.reduce(words),
    ]
    return min(min(timed([way] * repeats, warm=2)) for way in ways)


def sync_limit(folder: Path, repeats: int = 30) -> float:
    """Milliseconds of appending 4 kB to a file and syncing it."""
    path = folder / "sync"
    with open(path, "wb") as file:

        def one() -> None:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())

        out = at(timed([one] * repeats, warm=3), 0.5)
    path.unlink()
    return out


def figures(size: int, folder: Path, *, index: str = "exact", seed: int = 0) -> Iterator[Figure]:
    """Build a memory of `size` items in `folder` and measure it, one line at a time."""
    data = corpus(size, seed=seed)
    path = folder / "measured.mem"
    encoder = GivenVectors(data)
    spare = min(400, size // 10)
    filled = size - spare
    memory = Memory(path, encoder=encoder)

    start = time.perf_counter()
    for begin in range(0, filled, 1000):
        stop = min(begin + 1000, filled)
        # A thousand texts of one user at a time: at 100,000 items every user has one percent.
        memory.add_many(data.texts[begin:stop], user_id=f"u{begin // 1000 % USERS}")
    rate = filled / (time.perf_counter() - start)
    yield Figure("add, batches of 1000", "items/s", rate, target=">= 20,000", note="process-crash-safe")

    singles = timed([lambda text=text: memory.add(text, user_id="u0") for text in data.texts[filled:]])  # type: ignore[misc]
    yield Figure("add one", "ms", at(singles, 0.5), at(singles, 0.95), target="<= 0.2", note=f"at {size:,} items")
    memory.close()
    sync = sync_limit(folder)
    with Memory(path, encoder=encoder, durability="power") as safe:
        powered = timed(_power_adds(safe, data), warm=3)
        yield Figure(
            "add one, power-safe", "ms", at(powered, 0.5), at(powered, 0.95), limit=sync, note="limit: one sync"
        )

    memory = Memory(path, encoder=encoder, index=index)
    matrix = data.vectors
    limit = reading_limit(matrix)
    yield from _searches(memory, data, limit, index)
    yield from _words(memory, data)
    yield from _forks(memory, data)
    lay_out(memory.store, least=1)
    memory.close()
    start = time.perf_counter()
    with Memory(path, encoder=encoder, log="off") as again:
        again.search(data.queries[0], mode="dense")
        opened = 1e3 * (time.perf_counter() - start)
    yield Figure("open to first result", "ms", opened, target="<= 700 at 1M", note="with the mapped vectors")
    yield Figure("bytes per item", "bytes", path.stat().st_size / size, note="file, vectors and journal")


def _power_adds(memory: Memory, data: Corpus) -> list[Callable[[], object]]:
    known = iter(data.texts)
    return [lambda: memory.add(next(known), user_id="power") for _ in range(43)]


def _searches(memory: Memory, data: Corpus, limit: float, index: str) -> Iterator[Figure]:
    def calls(**options: Any) -> list[Callable[[], object]]:
        return [lambda query=query: memory.search(query, **options) for query in data.queries]  # type: ignore[misc]

    exact = timed(calls(mode="dense"))
    target = "<= 1.3x limit" if index == "exact" else "int8 <= 0.6x, graph <= 0.15x exact"
    yield Figure(f"search by meaning ({index})", "ms", at(exact, 0.5), at(exact, 0.95), limit, target)
    one = timed(calls(mode="dense", user_id="u1"))
    yield Figure("search one user (1 %)", "ms", at(one, 0.5), at(one, 0.95), limit / USERS, "<= 0.5")
    batch = timed([lambda: memory.search_many(data.queries[:32], mode="dense") for _ in range(12)], warm=2)
    yield Figure("search, 32 queries at once", "ms/query", at(batch, 0.5) / 32, at(batch, 0.95) / 32, limit / 32)
    both = timed(calls())
    yield Figure("search by both", "ms", at(both, 0.5), at(both, 0.95), limit, note="embedding excluded")


def _words(memory: Memory, data: Corpus) -> Iterator[Figure]:
    lines = timed([lambda query=query: memory.search(query, mode="lexical") for query in data.queries])  # type: ignore[misc]
    yield Figure("search by words", "ms", at(lines, 0.5), at(lines, 0.95), target="p95 <= 10")
    common = [" ".join(f"w{n}" for n in random.Random(seed).sample(range(8), 3)) for seed in range(60)]
    found = []
    slow = timed([lambda query=query: found.append(memory.search(query, mode="lexical")) for query in common], warm=5)  # type: ignore[misc]
    answered = sum(bool(hits) for hits in found)
    note = f"{answered} of {len(common)} answered"
    yield Figure("search by common words only", "ms", at(slow, 0.5), at(slow, 0.95), target="p95 <= 10", note=note)
    if len(data.texts) <= 100_000:
        overlap = lexical_overlap(memory, data.texts, data.queries[:50])
        yield Figure("same top ten as full BM25", "share", overlap, note="50 queries")


def lexical_overlap(memory: Memory, texts: Sequence[str], queries: Sequence[str], k: int = 10) -> float:
    """Mean share of the full BM25 top k that a search by words finds."""
    import numpy as np

    full = InvertedIndex()
    for text in texts:
        full.add(text)
    shares = []
    for query in queries:
        terms = list(dict.fromkeys(tokens(query)))
        scores = full.scores(terms, full.statistics(terms, np.zeros(0, np.intp)))
        best = {texts[row] for row in np.argsort(-scores, kind="stable")[:k] if scores[row] > 0}
        found = {hit.text for hit in memory.search(query, mode="lexical", top_k=k)}
        if best:
            shares.append(len(best & found) / len(best))
    return float(np.mean(shares))


def _forks(memory: Memory, data: Corpus) -> Iterator[Figure]:
    import tracemalloc

    bank = memory.bank()
    bank.search(data.queries[0], mode="dense")
    forks = timed([bank.fork] * 500, warm=50)
    yield Figure("fork", "ms", at(forks, 0.5), at(forks, 0.95), target="<= 0.2")
    tracemalloc.start()
    kept = [bank.fork() for _ in range(1000)]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    yield Figure("fork, memory until written", "bytes", size / len(kept), target="<= 10,000")
    plain = timed([lambda query=query: bank.search(query, mode="dense") for query in data.queries[:80]])  # type: ignore[misc]
    fork = kept[0]
    fork.add(data.queries[0])
    inside = timed([lambda query=query: fork.search(query, mode="dense") for query in data.queries[:80]])  # type: ignore[misc]
    ratio = at(inside, 0.5) / at(plain, 0.5)
    yield Figure("search in a fork / in its parent", "ratio", ratio, target="<= 1.2")
