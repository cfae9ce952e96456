"""Count every benchmark's questions, and hash them, for `keepworth eval list` and docs/benchmarks.md.

    python -m benchmarks.catalogue.sizes --data FOLDER

FOLDER holds the sets that are not shipped; those that it lacks keep the counts that they have. No text of a set is written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.record import arguments, save
from keepworth.registry import methods
from keepworth.worlds.benchmark import SIZES, Benchmark, digest, haystack, refuse_leaks, sharing
from keepworth.worlds.data_files import MissingData
from keepworth.worlds.splits import SPLITS

ANY = ("longmemeval-file",)
"""Those whose size is that of whatever file is named."""


def counted(benchmark: Benchmark, data: Path) -> dict[str, Any]:
    """Questions and hash of each side; haystacks of the test side, entries of 60 words in one; how answers are judged."""
    sides = {split: benchmark(split, data=None if benchmark.shipped else data) for split in SPLITS}
    refuse_leaks(sides)
    tests = sides["test"]
    firsts = [tests[group[0]] for group in sharing(tests)]
    drawn = firsts[:: max(1, len(firsts) // 20)]
    return {
        "questions": {split: len(tasks) for split, tasks in sides.items()},
        "haystacks": len(firsts),
        "entries": round(sum(len(haystack(task)) for task in drawn) / len(drawn)),
        "judged": sorted({"choice" if task.options else task.verifier for task in tests}),
        "data": {split: digest(tasks) for split, tasks in sides.items()},
    }


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("--data", type=Path, required=True)
    options = parser.parse_args()
    sizes = json.loads(SIZES.read_text(encoding="utf-8")) if SIZES.is_file() else {}
    benchmarks = [method.make for name, method in methods("benchmark").items() if name not in ANY]
    for benchmark in benchmarks:
        try:
            sizes[benchmark.name] = counted(benchmark, options.data)
            print(benchmark.name, sizes[benchmark.name]["questions"], flush=True)
        except MissingData as error:
            print(f"{benchmark.name}: left as it was: {error.message}", flush=True)
    current = {benchmark.name: sizes[benchmark.name] for benchmark in benchmarks if benchmark.name in sizes}
    save(SIZES, current)


if __name__ == "__main__":
    main()
