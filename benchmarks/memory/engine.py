"""What the memory engine costs: times of adding, searching, opening and forking, and the limits of the machine beside them.

    python -m benchmarks.memory.engine --size 100000 --json benchmarks/memory/engine.json

Everything that is measured is given the same texts (from a Zipf vocabulary, 12 to 30 words), vectors (around 200 centres;
they are given, so no encoder is measured) and queries.
"""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.record import arguments, most_resident, save
from benchmarks.speed import setting
from keepworth.encoders.local import encoder as encoder_named
from keepworth.memory.memory import Memory
from keepworth.memory.search.index import InvertedIndex
from keepworth.memory.search.terms import asked_terms
from keepworth.records.model import Encoder, EncoderIdentity

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

DIMENSION = 384
USERS = 100
VOCABULARY = 20_000
QUERIES = 200
HERE = "benchmarks.memory.engine"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class BenchmarkCorpus:
    """texts and their vectors, and queries with theirs. The same is given to everything that is compared."""

    texts: list[str]
    vectors: Vectors
    queries: list[str]
    query_vectors: Vectors


def words_by_frequency() -> tuple[Any, Any]:
    """The words of the corpus, and the probability of each, by Zipf's law."""
    import numpy as np

    frequency = 1.0 / np.arange(1, VOCABULARY + 1)
    return np.asarray([f"w{number}" for number in range(VOCABULARY)]), frequency / frequency.sum()


def texts_of(size: int, draw: Any) -> list[str]:
    """So many texts of 12 to 30 words. draw: a NumPy generator."""
    import numpy as np

    names, frequency = words_by_frequency()
    lengths = draw.integers(12, 31, size)
    drawn = np.split(names[draw.choice(VOCABULARY, int(lengths.sum()), p=frequency)], np.cumsum(lengths)[:-1])
    return [f"{' '.join(words)} n{number}" for number, words in enumerate(drawn)]


def corpus(size: int, *, queries: int = QUERIES, seed: int = 0, centres: Vectors | None = None) -> BenchmarkCorpus:
    """Texts and clustered vectors.

    Args:
        size: How many there are.
        queries: How many queries with vectors there are beside them.
        seed: Of the draws.
        centres: Those of the clusters, of shape (200, DIMENSION), where several corpora share them; None draws them.
    """
    import numpy as np

    draw = np.random.default_rng(seed)
    texts = texts_of(size, draw)
    names, frequency = words_by_frequency()
    asked = [" ".join(names[draw.choice(VOCABULARY, 4, p=frequency)]) for _ in range(queries)]
    if centres is None:
        centres = draw.standard_normal((200, DIMENSION), dtype=np.float32)
    vectors = centres[draw.integers(0, 200, size + queries)]
    for start in range(0, len(vectors), 50_000):
        part = vectors[start : start + 50_000]
        part += draw.standard_normal(part.shape, dtype=np.float32)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return BenchmarkCorpus(texts, vectors[:size], asked, vectors[size:])


GIVEN = EncoderIdentity("given", DIMENSION, True)


class GivenVectors:
    """An encoder that looks its answers up."""

    identity = GIVEN

    def __init__(self, data: BenchmarkCorpus) -> None:
        self._known = dict(zip(data.texts, data.vectors, strict=True))
        self._known.update(zip(data.queries, data.query_vectors, strict=True))

    def encode(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        if len(texts) == 1:
            row: Vectors = self._known[texts[0]][None, :]
            return row
        return np.stack([self._known[text] for text in texts])


# Times, what the machine could do at most in them, and what a reader needs to know of the machine.


WARM = 20
"""Calls that are made first and not counted."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. limit: what one thread needs at least (it reads the same bytes, or syncs as often), in the same
    unit; target: what we hold ourselves to, in words; note: how it was taken; n: how many calls the percentiles are of."""

    name: str
    unit: str
    p50: float
    p95: float | None = None
    limit: float | None = None
    target: str = ""
    note: str = ""
    n: int = 1


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


def line(name: str, unit: str, times: Sequence[float], **rest: Any) -> Figure:
    return Figure(name, unit, at(times, 0.5), at(times, 0.95), n=len(times), **rest)


def machine() -> dict[str, Any]:
    """What a reader needs to judge the figures."""
    import apsw

    return setting.machine(1, ("numpy", "apsw")) | {"sqlite": apsw.sqlite_lib_version()}


def reading_limit(matrix: Vectors) -> float:
    """Milliseconds in which one thread reads `matrix`: in the fastest of three ways to touch every byte."""
    import numpy as np

    query = np.ones(matrix.shape[1], np.float32)
    words = matrix.reshape(-1).view(np.uint64)
    ways: list[Callable[[], object]] = [
        lambda: matrix @ query,
        lambda: matrix.sum(),
        lambda: np.bitwise_or.reduce(words),
    ]
    return min(at(timed([way] * 3, warm=0), 0.5) for way in ways)


def sync_limit(folder: Path) -> float:
    """Milliseconds of appending 4 kB to a file and syncing it."""
    path = folder / "sync"
    with open(path, "wb") as file:

        def one() -> None:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())

        out = at(timed([one] * 30, warm=3), 0.5)
    path.unlink()
    return out


# The first search of a new process, of a memory as it was left: by add_many, taught by rewards, not compacted.

COLD: dict[str, dict[str, Any]] = {
    "first search by meaning": {"mode": "dense"},
    "first search by both": {},
    "first search with a filter": {"where": {"topic": "t5"}},
}
TAUGHT = 100
"""Searches that are rewarded before."""
COLD_RUNS = 5
COLD_TARGETS = ("<= 150 at 100k", "<= 250 at 100k", "<= 200 at 100k")


def teach(memory: Memory, data: BenchmarkCorpus) -> None:
    """Reward searches, as a policy that has learned something costs more than one that has not."""
    for number, query in enumerate(data.queries[:TAUGHT]):
        memory.reward(memory.search(query, top_k=5).decision, float(number % 2))


def first_results(path: Path, data: BenchmarkCorpus) -> Iterator[Figure]:
    import numpy as np

    asked = path.with_suffix(".npy")
    np.save(asked, data.query_vectors[:1])
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in COLD}
    for _ in range(COLD_RUNS):  # in turn, so that none has the times in which the machine makes room for all
        for name, options in COLD.items():
            runs[name].append(in_a_process(HERE, "opened", str(path), str(asked), data.queries[0], json.dumps(options)))
    for (name, listed), target in zip(runs.items(), COLD_TARGETS, strict=True):
        note = f"a new process, default policy, {TAUGHT} rewards, not compacted; {_processor_time(listed)}"
        yield line(name, "ms", sorted(run["first_ms"] for run in listed), target=target, note=note)
    second = sorted(run["second_ms"] for run in runs["first search by meaning"])
    yield line("second search by meaning", "ms", second, note="it keeps the vectors for later ones")
    every = [run for listed in runs.values() for run in listed]
    note = "before it; imports of the engine included, of `keepworth` not"
    yield line("open, new process", "ms", sorted(run["open_ms"] for run in every), note=note)
    most = max(run["peak"] for run in every)
    yield Figure("most memory of these processes", "MB", most / 1e6, target="<= 300 at 100k", n=len(every))
    begun = [in_a_process(HERE, "begun", str(path.with_name(f"empty{number}.mem"))) for number in range(COLD_RUNS)]
    times, note = sorted(run["first_ms"] for run in begun), f"`hashing` encoder, a new file; {_processor_time(begun)}"
    yield line("first add and search, empty memory", "ms", times, target="<= 250", note=note)


def _processor_time(runs: Sequence[dict[str, float]]) -> str:
    times = sorted(run["processor_ms"] for run in runs)
    return f"processor time {at(times, 0.5):.0f} ms"


def in_a_process(module: str, function: str, *arguments: str) -> dict[str, Any]:
    """What a function of these words writes to standard output as JSON, in a process of its own of one thread."""
    code = f"import sys; from {module} import {function}; {function}(*sys.argv[1:])"
    environment = {**os.environ, **dict.fromkeys(THREADS, "1")}
    done = subprocess.run([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, check=True, env=environment)
    return dict(json.loads(done.stdout))


def opened(path: str, asked: str, question: str, options: str) -> None:
    """For a process of its own: open, ask, and write how long it took and what was resident to standard output. asked: a file
    with the vector of the question."""
    import numpy as np

    encoder = GivenVectors(BenchmarkCorpus([], np.zeros((0, DIMENSION), np.float32), [question], np.load(asked)))
    start = time.perf_counter()
    with Memory(path, encoder=encoder) as memory:
        made, busy = time.perf_counter(), time.process_time()
        memory.search(question, **json.loads(options))
        _say(start, made, busy, lambda: memory.search(question, **json.loads(options)))


def begun(path: str) -> None:
    """As `opened`, of an empty memory: the first add and the first search."""
    start = time.perf_counter()
    with Memory(path, encoder="hashing") as memory:
        made, busy = time.perf_counter(), time.process_time()
        memory.add("Anna likes oranges")
        memory.search("what does Anna like")
        _say(start, made, busy)


def _say(start: float, made: float, busy: float, again: Callable[[], object] = list) -> None:
    done = time.perf_counter()
    result = {
        "open_ms": 1e3 * (made - start),
        "first_ms": 1e3 * (done - made),
        "processor_ms": 1e3 * (time.process_time() - busy),
        "second_ms": timed([again], warm=0)[0],
    }
    sys.stdout.write(json.dumps({**result, "peak": most_resident()}))


# The engine: filled, searched, forked and opened, one line of the table at a time. Every figure includes logging. Times are
# wall clock, one thread.


class _Paying:
    """Gives the answers of one encoder after the time that another takes for them."""

    identity = GIVEN

    def __init__(self, given: GivenVectors, encoder: Encoder, before: str = "") -> None:
        """before: each text when it is encoded, so that the encoder does not know it from another line."""
        self._given = given
        self._encoder = encoder
        self._before = before

    def encode(self, texts: Sequence[str]) -> Vectors:
        self._encoder.encode([self._before + text for text in texts])
        return self._given.encode(texts)


def figures(size: int, folder: Path, *, seed: int = 0, encoder: Encoder | None = None) -> Iterator[Figure]:
    """Build a memory of `size` items in `folder` and measure it, one line at a time.

    encoder: one of 384 dimensions, for the line that includes the encoding of the query.
    """
    data = corpus(size, seed=seed)
    # The benchmark's own million objects are not what the garbage collector of a program in use would walk through.
    given = GivenVectors(data)
    gc.collect()
    gc.freeze()
    try:
        yield from _measured(data, given, folder / "measured.mem", encoder)
    finally:
        gc.unfreeze()


def _measured(data: BenchmarkCorpus, given: GivenVectors, path: Path, encoder: Encoder | None) -> Iterator[Figure]:
    yield from _adds(path, data, given)
    with Memory(path, encoder=given) as memory:
        yield from _searches(memory, data)
        yield from _words(memory, data)
        yield from _forks(memory, data)
        teach(memory, data)
    if encoder is not None:
        with Memory(path, encoder=_Paying(given, encoder)) as memory:
            memory.search(data.texts[0])
            both = timed(_calls(memory, data, {}))
        with Memory(path, encoder=_Paying(given, encoder, "? ")) as memory:
            memory.search(data.texts[0])
            meaning = timed(_calls(memory, data, {"mode": "dense"}))
        note = f"encoding by {encoder.identity.model} included"
        yield line("search by meaning, from the text", "ms", meaning, note=note)
        yield line("search by both, from the text", "ms", both, target="p50 <= 15", note=note)
    yield from first_results(path, data)
    yield Figure("bytes per item", "bytes", path.stat().st_size / len(data.texts), note="file, vectors and journal")


def cold_figures(size: int, folder: Path) -> Iterator[Figure]:
    """Only the first searches of new processes."""
    data = corpus(size)
    with Memory(folder / "cold.mem", encoder=GivenVectors(data)) as memory:
        fill(memory, data, size)
        teach(memory, data)
    yield from first_results(folder / "cold.mem", data)


def fill(memory: Memory, data: BenchmarkCorpus, size: int) -> list[float]:
    """Seconds of each batch of a thousand texts of one user: at 100,000 items every user has one percent."""
    seconds = []
    for begin in range(0, size, 1000):
        stop = min(begin + 1000, size)
        topics = [{"topic": f"t{number % 100}"} for number in range(begin, stop)]
        start = time.perf_counter()
        memory.add_many(data.texts[begin:stop], user_id=f"u{begin // 1000 % USERS}", metadata=topics)
        seconds.append(time.perf_counter() - start)
    return seconds


def _adds(path: Path, data: BenchmarkCorpus, given: GivenVectors) -> Iterator[Figure]:
    size = len(data.texts)
    filled = size - min(400, size // 10)
    with Memory(path, encoder=given) as memory:
        batches = fill(memory, data, filled)
        rate = filled / sum(batches)
        note = "process-crash-safe, with metadata; mean over the whole filling"
        yield Figure("add, batches of 1000", "items/s", rate, target=">= 20,000", note=note, n=len(batches))
        singles = timed([lambda text=text: memory.add(text, user_id="u0") for text in data.texts[filled:]])  # type: ignore[misc]
        yield line("add one", "ms", singles, target="p50 <= 0.2", note=f"process-crash-safe, at {size:,} items")
    sync = sync_limit(path.parent)
    with Memory(path, encoder=given, durability="power") as safe:
        known = iter(data.texts)
        powered = timed([lambda: safe.add(next(known), user_id="power") for _ in range(100)], warm=20)
        yield line("add one, power-safe", "ms", powered, limit=sync, note="limit: one sync")
        texts, start = [next(known) for _ in range(8 * 50)], time.perf_counter()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda text: safe.add(text, user_id="threads"), texts))
        together = 1e3 * (time.perf_counter() - start) / len(texts)
        for user in ("power", "threads"):
            safe.delete_all(user_id=user)
        note = "time over adds; writers that wait together share a sync"
        yield Figure("add one, power-safe, 8 threads", "ms", together, limit=sync / 8, note=note, n=400)


def _calls(memory: Memory, data: BenchmarkCorpus, options: dict[str, Any]) -> list[Callable[[], object]]:
    return [lambda query=query: memory.search(query, **options) for query in data.queries]  # type: ignore[misc]


def _searches(memory: Memory, data: BenchmarkCorpus) -> Iterator[Figure]:
    calls = _calls(memory, data, {"mode": "dense", "exact": True})
    timed(calls[:WARM])
    exact, limits = [], []
    for start in range(WARM, len(calls), 18):
        # In turns: what slows the machine for a while slows both alike.
        exact += timed(calls[start : start + 18], warm=0)
        limits.append(reading_limit(data.vectors))
    exact, limit = sorted(exact), at(sorted(limits), 0.5)
    yield line("search by meaning", "ms", exact, limit=limit, target="p50 <= 1.3x limit")
    one = timed(_calls(memory, data, {"mode": "dense", "user_id": "u1"}))
    share = memory.store.sums(memory.scope.narrowed(user="u1"))[1] / len(memory)
    note = f"{share:.1%} of all items"
    yield line("search one user", "ms", one, limit=limit * share, target="<= 0.5 for 1 %", note=note)
    one = timed(_calls(memory, data, {"user_id": "u1"}))
    yield line("search one user by both", "ms", one, note="encoding excluded")
    both = timed(_calls(memory, data, {}))
    yield line("search by both", "ms", both, limit=limit, note="encoding excluded")


def _words(memory: Memory, data: BenchmarkCorpus) -> Iterator[Figure]:
    lines = timed(_calls(memory, data, {"mode": "lexical"}))
    yield line("search by words", "ms", lines, target="p95 <= 10")
    common = [" ".join(f"w{n}" for n in random.Random(seed).sample(range(8), 3)) for seed in range(60)]
    words = []
    slow = timed([lambda query=query: words.append(memory.search(query, mode="lexical")) for query in common], warm=5)  # type: ignore[misc]
    answered = sum(bool(hits) for hits in words)
    note = f"{answered} of {len(common)} answered"
    yield line("search by common words only", "ms", slow, target="p95 <= 10", note=note)
    if len(data.texts) <= 100_000:
        for name, asked in (("", data.queries[:50]), (", common words only", common[:50])):
            overlap = lexical_overlap(memory, data.texts, asked)
            yield Figure(f"same top ten as full BM25{name}", "share", overlap, n=len(asked))


def lexical_overlap(memory: Memory, texts: Sequence[str], queries: Sequence[str], k: int = 10) -> float:
    """Mean share of the full BM25 top k that a search by words finds."""
    import numpy as np

    full = InvertedIndex()
    for text in texts:
        full.add(text)
    shares = []
    for query in queries:
        terms = asked_terms(query)
        scores = full.scores(terms, full.statistics(terms, np.zeros(0, np.intp)))
        best = {texts[row] for row in np.argsort(-scores, kind="stable")[:k] if scores[row] > 0}
        exact = {hit.text for hit in memory.search(query, mode="lexical", top_k=k)}
        if best:
            shares.append(len(best & exact) / len(best))
    return float(np.mean(shares))


def _forks(memory: Memory, data: BenchmarkCorpus) -> Iterator[Figure]:
    import tracemalloc

    bank = memory.bank()
    bank.search(data.queries[0], mode="dense")
    forks = timed([bank.fork] * 500, warm=50)
    yield line("fork", "ms", forks, target="<= 0.2")
    tracemalloc.start()
    copies = [bank.fork() for _ in range(10_000)]
    unwritten, _ = tracemalloc.get_traced_memory()
    for number, fork in enumerate(copies):
        # The first is searched below, and its text has to have a vector.
        fork.add(f"fork {number} wrote this, in a dozen words or so, like most facts" if number else data.queries[0])
    written, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    yield Figure("fork, memory until written", "bytes", unwritten / len(copies), target="<= 10,000", n=len(copies))
    note = f"{unwritten / 1e6:.1f} MB before the write"
    yield Figure("10,000 live forks, one item in each", "MB", written / 1e6, target="<= 200", note=note)
    fork = copies[0]
    queries = data.queries[:100]
    parent, inside = [], []
    for query in queries:  # in turns, so that a machine that drifts hits both alike
        parent += timed([partial(bank.search, query, mode="dense")], warm=0)
        inside += timed([partial(fork.search, query, mode="dense")], warm=0)
    ratio = at(sorted(inside), 0.5) / at(sorted(parent), 0.5)
    yield Figure("search in a fork / in its parent", "ratio", ratio, target="<= 1.2", n=len(queries))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--encoder", default="minilm", help="of the queries of one line; none leaves it out")
    options = parser.parse_args()
    encoder = None if options.encoder == "none" else encoder_named(options.encoder)
    about, rows = machine(), []
    with tempfile.TemporaryDirectory() as folder:
        for figure in figures(options.size, Path(folder), seed=options.seed, encoder=encoder):
            rows.append(asdict(figure))
            p95 = "" if figure.p95 is None else f"{figure.p95:.3g}"
            print(f"{figure.name:50} {figure.p50:10.3g} {p95:>10} {figure.unit}", flush=True)
    save(options.json, {"size": options.size, "seed": options.seed, "machine": about, "figures": rows})


if __name__ == "__main__":
    # A scan that is limited by memory gains nothing from threads, and loses much on a busy machine.
    for name in THREADS:
        os.environ.setdefault(name, "1")
    main()
