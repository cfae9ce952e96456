"""What a filter costs: searches with one beside the same searches without, in one process, turn by turn.

    python -m benchmarks.memory.filters --sizes 100000 --rounds 5 --queries 8 --json benchmarks/memory/filters.json

Items are sentences of words drawn as in natural text, with random unit vectors, so that nothing waits for a model. One item in
so many has the value that is asked for, under a name that few values share and under one that every item has another value of.
A round asks every query without a filter, then with each; the ratio of the medians is taken within the round. It wants
a quiet machine. The first search with a name reads the metadata of the whole memory, and is timed apart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from benchmarks.memory.engine import machine
from keepworth import Memory
from keepworth.episodes.model import EncoderIdentity

WORDS = 20_000
LENGTH = 20
DIMENSION = 384
QUERIES = 40


class Directions:
    """Texts to random unit vectors, the same text to the same one."""

    identity = EncoderIdentity("directions", DIMENSION, True)

    def encode(self, texts: list[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        rows = [np.random.default_rng(crc32(text.encode())).standard_normal(DIMENSION, np.float32) for text in texts]
        found = np.stack(rows)
        return found / np.linalg.norm(found, axis=1, keepdims=True)


def sentences(generator: np.random.Generator, count: int, length: int) -> list[str]:
    """Words by Zipf's law."""
    weights = 1.0 / np.arange(1, WORDS + 1)
    drawn = generator.choice(WORDS, (count, length), p=weights / weights.sum())
    return [" ".join(f"w{word}" for word in line) for line in drawn]


def filled(path: Path, size: int) -> Memory:
    """The items: `team` has a hundred values, `day` as many as there are items, `user.city` lies deeper."""
    memory = Memory(path, encoder=Directions(), policy=None)
    generator = np.random.default_rng(0)
    for start in range(0, size, 1000):
        for number, text in enumerate(sentences(generator, 1000, LENGTH), start=start):
            city = f"c{number % 10}"
            metadata = {"team": f"t{number % 100}", "day": f"d{number:07d}", "n": number, "user": {"city": city}}
            memory.add(text, metadata=metadata, repeat=True)
    return memory


def wheres(size: int) -> dict[str, Any]:
    return {
        "1 % by one of 100 values": {"team": "t7"},
        "1 % by a range of numbers": {"n": {"$gte": size - size // 100}},
        "1 % by a range of text": {"day": {"$lt": f"d{size // 100:07d}"}},
        "1 % by two names": {"team": {"$in": [f"t{each}" for each in range(7, 17)]}, "user.city": "c7"},
        "10 % by a name that lies deeper": {"user.city": "c7"},
        "50 % by a range of numbers": {"n": {"$lt": size // 2}},
        "99 % by what is not": {"team": {"$ne": "t7"}},
        "one item": {"day": f"d{size // 2:07d}"},
        "1 % by a function": lambda item: item.metadata["team"] == "t7",
    }


def times() -> dict[str, Any]:
    """Filters that are options of their own. Items have no time of their own: that of writing counts."""
    return {
        "all by kind": {"kinds": ["fact"]},
        "all by time": {"since": "2020-01-01"},
        "none by time": {"until": "2020-01-01"},
    }


def milliseconds(ask: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    ask()
    return 1e3 * (time.perf_counter() - begun)


def measured(memory: Memory, size: int, rounds: int, mode: str, count: int = QUERIES) -> dict[str, Any]:
    """Milliseconds, medians over queries, and their ratio in each round."""
    queries = sentences(np.random.default_rng(1), count, 5)

    def asked(options: Mapping[str, Any]) -> float:
        return statistics.median(
            milliseconds(lambda query=query: memory.search(query, mode=mode, **options)) for query in queries
        )

    asked({})
    rows = []
    for name, options in ({name: {"where": where} for name, where in wheres(size).items()} | times()).items():
        first = milliseconds(lambda options=options: memory.search(queries[0], mode=mode, **options))
        pairs = [(asked({}), asked(options)) for _ in range(rounds)]
        ratios = sorted(with_it / without for without, with_it in pairs)
        rows.append(
            {
                "filter": name,
                "first": first,
                "without": statistics.median(pair[0] for pair in pairs),
                "with": statistics.median(pair[1] for pair in pairs),
                "ratio": statistics.median(ratios),
                "ratios": ratios,
            }
        )
    return {"size": size, "mode": mode, "rounds": rounds, "queries": count, "rows": rows, "machine": machine()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="2000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queries", type=int, default=QUERIES)
    parser.add_argument("--modes", default="hybrid,lexical,dense")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    results = []
    for size in map(int, given.sizes.split(",")):
        with tempfile.TemporaryDirectory() as folder, filled(Path(folder) / "a.mem", size) as memory:
            results += [measured(memory, size, given.rounds, mode, given.queries) for mode in given.modes.split(",")]
    for found in results:
        print(
            f"{found['size']:,} items, {found['mode']}; milliseconds, and the ratio with its least and most of the rounds"
        )
        for row in found["rows"]:
            spread = f"{row['ratio']:.2f} ({row['ratios'][0]:.2f} to {row['ratios'][-1]:.2f})"
            print(
                f"  {row['filter']:<34} {row['without']:7.2f} {row['with']:8.2f}  {spread:<22} first {row['first']:.1f}"
            )
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
