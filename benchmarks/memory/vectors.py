"""Vectors of benchmark texts, made once and kept on disk, so that several runs and systems are given the same ones.

    python -m benchmarks.memory.vectors --data DATA --size 100000

makes those that the other benchmarks of this folder will ask for, which they otherwise make when they first run.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from keepworth.models.kept_vectors import KeptVectors

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "keepworth" / "benchmark_vectors"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--encoder", default="minilm")
    arguments = parser.parse_args()
    from benchmarks.memory.real_sentences import sentences
    from benchmarks.memory.retrieval import turns_of
    from keepworth.models.encoders import encoder as named

    kept = KeptVectors(named(arguments.encoder), CACHE)
    texts, questions = sentences(arguments.data, arguments.size)
    for name, group in (("turns", turns_of(arguments.data)), ("questions", questions), ("sentences", texts)):
        before, start = kept.encoded, time.perf_counter()
        kept.encode(group)
        made, seconds = kept.encoded - before, time.perf_counter() - start
        print(f"{name}: {len(group):,} texts, {made:,} encoded in {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
