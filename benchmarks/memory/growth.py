"""What a memory costs by its size: adds and searches, the first searches of new processes, and searches after rewards.

    python -m benchmarks.memory.growth --sizes 1000 10000 100000 --json benchmarks/memory/growth.json
    python -m benchmarks.memory.growth --cold --sizes 10000 100000 300000 --json benchmarks/memory/cold.json
    python -m benchmarks.memory.growth --taught --sizes 10000 --json benchmarks/memory/taught.json
    python -m benchmarks.memory.growth --rewarded --sizes 10000 --json benchmarks/memory/rewarded.json
    python -m benchmarks.memory.growth --people --sizes 40 100 1000 10000 --json benchmarks/memory/people.json
    python -m benchmarks.memory.growth --large --sizes 50000 200000 1000000 10000000 --json benchmarks/memory/large.json

Each size is measured in a process of its own. --cold: the first searches of new processes, of a memory as it was left, taught and
not compacted. --taught: a search after 4,000 rewards, in alternation with one under policy=None. --rewarded: by how much the
process grows with 1,000 rewarded episodes. --people: a search in the notes of one of so many people, who are searched in turn:
each has 1,000 notes, or 100 where they are more than 1,000. --large: searches that begin with a first pass, up to a million
items beside other indexes; ten million take an hour, 30 GB of disk and 5 GB of memory.
Sizes that are in the JSON and not asked for stay as they are.
"""

from __future__ import annotations

import gc
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import engine
from benchmarks.memory.engine import QUERIES, Figure, GivenVectors, corpus, figures, machine, texts_of, timed
from benchmarks.memory.large import large_figures
from benchmarks.record import arguments, most_resident, save
from keepworth.memory.memory import Memory

REWARDS = 4000
USERS = 100
MODES = ("dense", "hybrid")


def taught_figures(size: int, folder: Path) -> Iterator[Figure]:
    """A search under the default policy after rewards, and under no policy, milliseconds of the wall: of all, and of one user."""
    data = corpus(size, seed=0)
    ways: Any = (("", {}, MODES), (", one user's 1 %", {"user_id": "u0"}, ("dense",)))
    for of, user, modes in ways:
        path = folder / f"taught{len(user)}.mem"
        with Memory(path, encoder=GivenVectors(data), seed=0) as memory:
            for number in range(USERS):
                memory.add_many(data.texts[number::USERS], user_id=f"u{number}")
            for number in range(REWARDS):
                hits = memory.search(data.queries[number % len(data.queries)], top_k=10, mode="dense", **user)
                memory.reward(hits.decision, float(number % 3 > 0))
        given: tuple[dict[str, Any], ...] = ({"seed": 0}, {"policy": None})
        learns, plain = (Memory(path, encoder=GivenVectors(data), **options) for options in given)
        with closing(learns), closing(plain):
            for mode in modes:
                times: dict[bool, list[float]] = {True: [], False: []}
                for _ in range(5):
                    for taught, memory in ((True, learns), (False, plain)):
                        search = partial(memory.search, top_k=10, mode=mode, **user)
                        times[taught].append(
                            statistics.median(timed([partial(search, query) for query in data.queries]))
                        )
                for taught, what in ((True, f"default policy after {REWARDS:,} rewards"), (False, "policy=None")):
                    yield Figure(f"{mode}{of}, {what}", "ms", statistics.median(times[taught]), n=5 * len(data.queries))


def megabytes_grown(size: int, folder: Path, questions: int) -> float:
    """By how much this process grows with 1,000 rewarded episodes, of the last 4,000 of 5,000. questions: how many there are."""
    data = corpus(size, queries=questions, seed=0)
    held = []
    with Memory(folder / f"{questions}.mem", encoder=GivenVectors(data), seed=0) as memory:
        memory.add_many(data.texts)
        for number in range(1000 + REWARDS):
            with memory.episode(data.queries[number % questions]) as episode:
                episode.search(top_k=10, mode="dense")
                episode.reward(float(number % 3 > 0))
            if number in (999, 999 + REWARDS):
                gc.collect()
                held.append(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize())
    return (held[1] - held[0]) / (1e3 * REWARDS)


def rewarded_figures(size: int, folder: Path) -> Iterator[Figure]:
    """Growth of the process by 1,000 rewarded episodes, MB, each kind in a process of its own."""
    for kind, questions in (("questions that return", QUERIES), ("no question twice", 1000 + REWARDS)):
        with ProcessPoolExecutor(1) as pool:
            grown = pool.submit(megabytes_grown, size, folder, questions).result()
        yield Figure(f"process memory for 1,000 rewarded episodes, {kind}", "MB", grown, n=REWARDS)


def people_figures(people: int, folder: Path) -> Iterator[Figure]:
    """A search in one person's notes, under no policy, processor milliseconds, after two rounds of at most 1,000 people."""
    notes = 1000 if people <= 1000 else 100
    texts = texts_of(people * notes, np.random.default_rng(0))
    with Memory(folder / "people.mem", encoder="hashing:64", policy=None) as memory:
        for number in range(people):
            memory.add_many(texts[number * notes : (number + 1) * notes], user_id=f"u{number}")
        in_turn = [f"u{number}" for number in range(0, people, max(1, people // 1000))]
        queries = [" ".join(text.split()[:4]) for text in texts[: len(in_turn)]]
        rounds = [
            [
                processor_time(partial(memory.search, query, top_k=8, user_id=user))
                for user, query in zip(in_turn, queries, strict=True)
            ]
            for _ in range(5)
        ]
        name = f"one of {people:,} people with {notes:,} notes each"
        yield engine.line(f"hybrid, {name}, first search", "ms", sorted(rounds[0]))
        yield engine.line(f"hybrid, {name}, from the third search on", "ms", sorted(chain.from_iterable(rounds[2:])))
        held = memory.store.derived.scope_words.bytes / 1e6
        yield Figure(f"words of people that are held in memory, {people:,} people", "MB", held)


def processor_time(call: Callable[[], object]) -> float:
    """Milliseconds of processor that a call takes."""
    start = time.process_time()
    call()
    return 1e3 * (time.process_time() - start)


def write_size(size: str, mode: str) -> None:
    """To standard output: the figures of one size, and the most memory they took, the benchmark's own vectors included."""
    setting, began = machine(), time.time()
    measure = {
        "cold": engine.cold_figures,
        "taught": taught_figures,
        "rewarded": rewarded_figures,
        "people": people_figures,
        "large": large_figures,
        "": figures,
    }[mode]
    with tempfile.TemporaryDirectory() as folder:
        rows = [asdict(figure) for figure in measure(int(size), Path(folder))]
    took = {"seconds": round(time.time() - began, 1), "peak_bytes": most_resident()}
    print(json.dumps({"size": int(size), "seed": 0, "machine": setting, **took, "figures": rows}))


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    for mode in ("cold", "taught", "rewarded", "people", "large"):
        parser.add_argument(f"--{mode}", dest="mode", action="store_const", const=mode, default="")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    records = json.loads(options.json.read_text()) if options.json.exists() else []
    for size in options.sizes:
        fresh = engine.in_a_process("benchmarks.memory.growth", "write_size", str(size), options.mode)
        records = sorted([*(one for one in records if one["size"] != size), fresh], key=lambda one: one["size"])
        save(options.json, records)
        print(f"\n{size:,} items, at most {fresh['peak_bytes'] / 1e6:,.0f} MB (the benchmark's own vectors included)")
        for row in fresh["figures"]:
            print(f"  {row['name']:<46} {row['p50']:>10.4g} {row['unit']}", flush=True)


if __name__ == "__main__":
    main()
