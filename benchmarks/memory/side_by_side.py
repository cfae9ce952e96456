"""Searching and adding by this source and by another, in turns, in one run: ratios of medians.

    git worktree add ../before main && python -m benchmarks.memory.side_by_side --other ../before/src

A process each fills a memory of its own with the same items; then both are asked in turns, `calls` at a time, and the order
changes every round. Once without rewards, and once after so many that the default policy has something to weigh.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# What the process of either side runs: it only uses what both have.
SIDE = """
import json, sys, time
import numpy as np
from keepworth.memory.memory import Memory
from keepworth.episodes.model import EncoderIdentity

class Drawn:
    identity = EncoderIdentity("drawn", 384, True)
    def encode(self, texts):
        drawn = [np.random.default_rng(sum(text.encode()) % 100_003) for text in texts]
        return np.stack([each.standard_normal(384, dtype=np.float32) for each in drawn])

path, items, rewards = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
draw = np.random.default_rng(0)
words = [f"w{number}" for number in range(5000)]
weights = 1.0 / np.arange(1, 5001); weights /= weights.sum()
def text(count): return " ".join(draw.choice(words, count, p=weights))
memory = Memory(path, encoder=Drawn())
for begin in range(0, items, 1000):
    memory.add_many([f"{text(15)} n{number}" for number in range(begin, min(items, begin + 1000))])
for number in range(rewards):
    memory.reward(memory.search(text(4), top_k=5).decision, float(number % 2))
queries = [text(4) for _ in range(2000)]
texts = [f"{text(15)} later {number}" for number in range(20000)]
memory.search("warm"); memory.search("warm again")
asked = added = 0
print("ready", flush=True)
for line in sys.stdin:
    what, count = line.split()
    times = []
    for _ in range(int(count)):
        if what == "search":
            query = queries[asked % len(queries)]; asked += 1
            start = time.perf_counter(); memory.search(query, top_k=5)
        else:
            one = texts[added]; added += 1
            start = time.perf_counter(); memory.add(one)
        times.append(1e3 * (time.perf_counter() - start))
    print(json.dumps(times), flush=True)
"""


class Side:
    def __init__(self, source: Path, path: Path, items: int, rewards: int) -> None:
        command = [sys.executable, "-c", SIDE, str(path), str(items), str(rewards)]
        env = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def ready(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def timed(self, what: str, count: int) -> list[float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{what} {count}\n")
        self._process.stdin.flush()
        times: list[float] = json.loads(self._process.stdout.readline())
        return times

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def compared(other: Path, items: int, rewards: int, rounds: int, calls: int) -> dict[str, Any]:
    """Median milliseconds of each side by round, and the median over rounds of here / other."""
    here = Path(__file__).parents[2] / "src"
    out: dict[str, Any] = {"items": items, "rewards": rewards}
    with tempfile.TemporaryDirectory() as folder:
        sides = {
            name: Side(source, Path(folder) / f"{name}.mem", items, rewards)
            for name, source in (("here", here), ("other", other))
        }
        for side in sides.values():
            side.ready()
        for what in ("search", "add"):
            taken: dict[str, list[float]] = {"here": [], "other": []}
            for side in sides.values():
                side.timed(what, calls)  # warms up
            for round_ in range(rounds):
                for name in ("here", "other") if round_ % 2 else ("other", "here"):
                    taken[name].append(statistics.median(sides[name].timed(what, calls)))
            ratios = [mine / theirs for mine, theirs in zip(taken["here"], taken["other"], strict=True)]
            out[what] = {**taken, "ratios": ratios, "ratio": statistics.median(ratios)}
        for side in sides.values():
            side.close()
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, required=True, help="the folder src of the other source")
    parser.add_argument("--name", default="", help="what the other is, for the record")
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--rewards", type=int, nargs="+", default=[0, 500])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    record: dict[str, Any] = {"other": options.name, "calls_per_round": options.calls, "runs": []}
    for rewards in options.rewards:
        run = compared(options.other, options.items, rewards, options.rounds, options.calls)
        record["runs"].append(run)
        for what in ("search", "add"):
            mine, theirs = (statistics.median(run[what][side]) for side in ("here", "other"))
            print(
                f"{rewards} rewards, {what}: {mine:.3f} ms here, {theirs:.3f} there, ratio {run[what]['ratio']:.2f}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
