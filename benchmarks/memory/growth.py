"""What a memory costs by its size: adds and searches, the first searches of new processes, and searches after rewards.

    python -m benchmarks.memory.growth --sizes 1000 10000 100000 --json benchmarks/memory/growth.json
    python -m benchmarks.memory.growth --cold --sizes 10000 100000 300000 --json benchmarks/memory/cold.json
    python -m benchmarks.memory.growth --taught --sizes 10000 --json benchmarks/memory/taught.json
    python -m benchmarks.memory.growth --rewarded --sizes 10000 --json benchmarks/memory/rewarded.json

Each size is measured in a process of its own. --cold: the first searches of new processes, of a memory as it was left, taught and
not compacted. --taught: a search after 4,000 rewards, in alternation with one under policy=None. --rewarded: by how much the
process grows with 1,000 rewarded episodes. Sizes that are in the JSON and not asked for stay as they are.
"""

from __future__ import annotations

import gc
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from benchmarks.memory.engine import (
    QUERIES,
    Figure,
    GivenVectors,
    cold_figures,
    corpus,
    figures,
    in_a_process,
    machine,
    timed,
)
from benchmarks.record import arguments, most_resident, save
from keepworth.memory.memory import Memory

REWARDS = 4000
MODES = ("dense", "hybrid")


def taught_figures(size: int, folder: Path) -> Iterator[Figure]:
    """A search under the default policy after rewards, and under no policy, milliseconds of the wall."""
    data = corpus(size, seed=0)
    path = folder / "taught.mem"
    with Memory(path, encoder=GivenVectors(data), seed=0) as memory:
        memory.add_many(data.texts)
        for number in range(REWARDS):
            hits = memory.search(data.queries[number % len(data.queries)], top_k=10, mode="dense")
            memory.reward(hits.decision, float(number % 3 > 0))
    learns, plain = (Memory(path, encoder=GivenVectors(data), **options) for options in ({"seed": 0}, {"policy": None}))
    with closing(learns), closing(plain):
        for mode in MODES:
            times: dict[bool, list[float]] = {True: [], False: []}
            for _ in range(5):
                for taught, memory in ((True, learns), (False, plain)):
                    calls = [lambda query=query: memory.search(query, top_k=10, mode=mode) for query in data.queries]  # type: ignore[misc]  # noqa: B023
                    times[taught].append(statistics.median(timed(calls)))
            with_rewards, without = (statistics.median(times[taught]) for taught in (True, False))
            yield Figure(
                f"{mode}, default policy after {REWARDS:,} rewards", "ms", with_rewards, n=5 * len(data.queries)
            )
            yield Figure(f"{mode}, policy=None", "ms", without, n=5 * len(data.queries))


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


def write_size(size: str, mode: str) -> None:
    """To standard output: the figures of one size, and the most memory they took, the benchmark's own vectors included."""
    setting, began = machine(), time.time()
    measure = {"cold": cold_figures, "taught": taught_figures, "rewarded": rewarded_figures, "": figures}[mode]
    with tempfile.TemporaryDirectory() as folder:
        rows = [asdict(figure) for figure in measure(int(size), Path(folder))]
    took = {"seconds": round(time.time() - began, 1), "peak_bytes": most_resident()}
    print(json.dumps({"size": int(size), "seed": 0, "machine": setting, **took, "figures": rows}))


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    for mode in ("cold", "taught", "rewarded"):
        parser.add_argument(f"--{mode}", dest="mode", action="store_const", const=mode, default="")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    records = json.loads(options.json.read_text()) if options.json.exists() else []
    for size in options.sizes:
        fresh = in_a_process("benchmarks.memory.growth", "write_size", str(size), options.mode)
        records = sorted([*(one for one in records if one["size"] != size), fresh], key=lambda one: one["size"])
        save(options.json, records)
        print(f"\n{size:,} items, at most {fresh['peak_bytes'] / 1e6:,.0f} MB (the benchmark's own vectors included)")
        for row in fresh["figures"]:
            print(f"  {row['name']:<46} {row['p50']:>10.4g} {row['unit']}", flush=True)


if __name__ == "__main__":
    main()
